"""Messages about errors in the configuration: they name the correction, in the file's own terms."""

import json
import re
import subprocess

import pytest

from support.server import DUNLIN

LISTEN = '[[listen]]\naddress = "127.0.0.1:0"\n'
SITE = '[[site]]\nroot = "."\n'
ROUTE = '[[site.route]]\npath = "/*"\n'


def check(folder, text, *arguments):
    file = folder / "dunlin.toml"
    file.write_text(text)
    done = subprocess.run([DUNLIN, "check", "-c", file, *arguments], capture_output=True, text=True)
    output = done.stdout + done.stderr.replace(f"{folder}/", "")
    assert not re.search(r"\bstruct\b|Table\b|expected (a )?(sequence|map|usize|u\d\d)", output), output
    return done.returncode, output


@pytest.mark.parametrize(
    "key, what",
    [
        ("proxy_pass", 'write proxy = "http://127.0.0.1:3000"'),
        ("reverse_proxy", 'write proxy = "http://127.0.0.1:3000"'),
        ("ProxyPass", 'write proxy = "http://127.0.0.1:3000"'),
        ("scriptalias", "write alias = "),
        ("location", "write [[site.route]] with path"),
        ("RewriteRule", "rewrite = "),
        ("import", "write include = "),
        ("server_name", "write host = "),
        ("try_files", 'write try = ["{path}"'),
        ("ssl_certificate", "write tls = { certificate ="),
        ("add_header", "write set_fields ="),
        ("autoindex", "write listing = true"),
        ("gzip", "write compress ="),
        ("sub_filter", "write substitute = "),
        ("dav_methods", "write dav = true"),
        ("ssi_types", "write ssi = true"),
        ("proxy_cache_valid", 'write cache = { responses = true, lifetime = { "200"'),
        ("error_page", "write error_pages ="),
        ("auth_basic", "write auth = { basic ="),
        ("return", "write redirect ="),
        ("fastcgi_pass", 'kind = "fastcgi"'),
        ("client_max_body_size", "write body_size ="),
    ],
)
@pytest.mark.parametrize("where", ["server", "site", "route"])
def test_a_directive_of_another_server_names_its_replacement(tmp_path, key, what, where):
    server, site, route = "[server]\n", SITE, ROUTE
    line = f'{key} = "x"\n'
    server, site, route = (
        server + (line if where == "server" else ""),
        site + (line if where == "site" else ""),
        route + (line if where == "route" else ""),
    )
    code, output = check(tmp_path, server + LISTEN + site + route)
    assert code == 1 and f"there is no key `{key}`" in output and what in output, output
    assert "the keys are" not in output and len(output.splitlines()) == 1


@pytest.mark.parametrize(
    "line, where, what",
    [
        ("redirect = 1", "7:12", "a path or URL, or a table such as"),
        ("redirect = [1]", "7:12", "a path or URL, or a table such as"),
        ('respond = "x"', "7:11", "a table such as { status"),
        ('script = "x"', "7:10", 'a table such as { kind = "cgi"'),
        ('throttle = "x"', "7:12", "a table such as { bandwidth"),
        ('index = "index.html"', "7:9", "a list such as"),
        ('body_size = "x"', "7:13", "is not a size"),
        ('ranges = "x"', "7:10", "a whole number"),
        ('listing = "yes"', "7:11", "true or false"),
        ("root = 1", "7:8", "text in quotes"),
        ("hsts = { subdomains = true }", "7:", "age"),
    ],
)
def test_a_value_of_another_form_names_the_valid_form(tmp_path, line, where, what):
    code, output = check(tmp_path, LISTEN + SITE + ROUTE + line + "\n")
    assert code == 1 and f"dunlin.toml:{where}" in output and what in output, output


def test_a_redirect_may_be_a_text(tmp_path):
    text = LISTEN + SITE + ROUTE
    for value, shown in (('"/new/"', "302 to /new/"), ('{ to = "/new/", status = 301 }', "301 to /new/")):
        assert check(tmp_path, text + f"redirect = {value}\n")[0] == 0
        assert shown in check(tmp_path, text + f"redirect = {value}\n", "--explain", "/x")[1]
    code, output = check(tmp_path, text + 'redirect = ""\n')
    assert code == 1 and "dunlin.toml:7:12" in output
    code, output = check(tmp_path, text + 'redirect = { to = "/", statsu = 301 }\n')
    assert code == 1 and "did you mean `status`?" in output


def test_workers_elsewhere_are_one_or_a_list(tmp_path):
    for value in ('"127.0.0.1:9000"', '["127.0.0.1:9000", "127.0.0.1:9001"]'):
        text = f'{LISTEN}{SITE}{ROUTE}script = {{ kind = "scgi", connect = {value} }}\n'
        assert check(tmp_path, text)[0] == 0
    text = f'{LISTEN}{SITE}{ROUTE}script = {{ kind = "scgi", connect = "nonsense" }}\n'
    code, output = check(tmp_path, text)
    assert code == 1 and "dunlin.toml:7:37" in output and "is not an address" in output, output


@pytest.mark.parametrize(
    "line, quoted",
    [
        ("address = 127.0.0.1:8080", 'address = "127.0.0.1:8080"'),
        ("address = localhost:8080", 'address = "localhost:8080"'),
        ("address = :8080", 'address = ":8080"'),
        ("address = unix:/run/x.sock", 'address = "unix:/run/x.sock"'),
    ],
)
def test_a_text_without_quotes_is_shown_with_them(tmp_path, line, quoted):
    code, output = check(tmp_path, f"[[listen]]\n{line}\n{SITE}")
    assert code == 1 and "put it in quotes" in output and quoted in output and "dunlin.toml:2:" in output, output


def test_an_unknown_table_is_reported_once(tmp_path):
    routes = '[[site.routes]]\npath = "/a/*"\n[[site.routes]]\npath = "/b/*"\n'
    code, output = check(tmp_path, LISTEN + SITE + routes)
    assert code == 1 and len(output.splitlines()) == 1 and "did you mean `route`?" in output, output


@pytest.mark.parametrize("site", ["[[site]]\n", '[[site]]\n[[site.route]]\npath = "/a/*"\nrespond = {}\n'])
def test_a_site_without_root_is_named_by_its_line(tmp_path, site):
    code, output = check(tmp_path, LISTEN + site)
    assert code == 1 and "dunlin.toml:3:1: the site has no root" in output, output


def test_an_address_for_all_is_one_listener(tmp_path):
    code, output = check(tmp_path, f'[[listen]]\naddress = ":8080"\n{SITE}')
    assert code == 0 and "1 listener (2 sockets), 1 site" in output


@pytest.mark.parametrize(
    "url, what",
    [
        ("/../../etc", "rejected with 400: the path leads above the root"),
        ("/%zz", "rejected with 400: a percent sign"),
        ("/a%2fb", "rejected with 404: the path contains an encoded slash"),
        ("/none", "404: no such file"),
        ("/x.var", "dunlin.toml:7): variable"),
    ],
)
def test_an_explanation_is_for_people(tmp_path, url, what):
    code, output = check(tmp_path, LISTEN + SITE + ROUTE + 'records = "variable"\n', "--explain", url)
    assert code == 0 and what in output, output
    assert not re.search(r"AboveRoot|Records|\{ |os error|Some\(", output), output


def test_an_explanation_lists_defaults_only_with_all(tmp_path):
    text = LISTEN + SITE + ROUTE + "listing = true\n"
    short = check(tmp_path, text, "--explain", "/")[1]
    assert "listing from /*" in short and "root from the site" in short and "by default" not in short
    whole = check(tmp_path, text, "--explain", "/", "--all")[1]
    assert "body_size by default: 1 MiB" in whole and "compress_size by default: 8 MiB" in whole


def test_the_schema_rejects_the_same_values_as_check(tmp_path):
    schema = json.loads(subprocess.run([DUNLIN, "check", "--schema"], capture_output=True, check=True).stdout)
    assert schema["title"] == "Dunlin configuration" and schema["$id"]
    numbers = {
        kind: [form for form in schema["$defs"][kind]["anyOf"] if form.get("type") != "string"]
        for kind in ("Span", "Rate", "Size")
    }
    # Times and rates have units; only 0 needs none.
    assert numbers["Span"] == numbers["Rate"] == [{"const": 0}]
    assert numbers["Size"] == [{"type": "integer", "minimum": 0}]
    for value, expected in (("30", 1), ("0", 0), ('"30s"', 0), ('"30"', 1)):
        text = f"[server]\nstop_timeout = {value}\n{LISTEN}{SITE}"
        assert check(tmp_path, text)[0] == expected
        pattern = schema["$defs"]["Span"]["anyOf"][0]["pattern"]
        assert value == "0" or not value.startswith('"') or bool(re.search(pattern, value.strip('"'))) == (expected == 0)


def test_the_schema_offers_a_script_the_keys_of_its_kind_only(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(subprocess.run([DUNLIN, "check", "--schema"], capture_output=True, check=True).stdout)
    validator = jsonschema.Draft202012Validator(schema)
    for script, fits in [
        ({"kind": "cgi", "directory": "/srv/cgi-bin", "timeout": "10s"}, True),
        ({"kind": "cgi", "directory": "/srv/cgi-bin", "instances": 4}, False),
        ({"kind": "component", "file": "/srv/a.wasm", "instances": 4}, True),
        ({"kind": "component", "file": "/srv/a.wasm", "processes": 4}, False),
        ({"kind": "wsgi", "application": "app:app", "threads": 4}, True),
        ({"kind": "asgi", "application": "app:app", "threads": 4}, False),
        ({"kind": "cgj", "directory": "/srv/cgi-bin"}, False),
        ({"directory": "/srv/cgi-bin"}, False),
    ]:
        file = {"listen": [{"address": ":80"}], "site": [{"root": "/srv", "route": [{"path": "/a/*", "script": script}]}]}
        assert validator.is_valid(file) == fits, script


@pytest.mark.parametrize(
    "text, what",
    [
        ("server {\n    listen 80;\n    location / { proxy_pass http://127.0.0.1:3000; }\n}\n", "dunlin convert nginx"),
        ("user www-data;\nhttp {\n}\n", "dunlin serve --nginx"),
        ("example.com {\n    root * /srv/www\n    file_server\n}\n", "dunlin convert caddy"),
        (":8080\n\nreverse_proxy 127.0.0.1:3000\n", "dunlin serve --caddy"),
        ("<VirtualHost *:80>\n  DocumentRoot /srv/www\n</VirtualHost>\n", "dunlin convert apache"),
        ("RewriteEngine On\nRewriteRule ^a$ /b [L]\n", "dunlin serve --apache"),
        ("listen:\n  - address: 127.0.0.1:8080\n", "this is YAML"),
        ('{ "listen": [ { "address": ":80" } ] }\n', "this is JSON"),
    ],
)
def test_the_configuration_of_another_server_leads_to_the_way_over(tmp_path, text, what):
    code, output = check(tmp_path, text)
    assert code == 1 and output.startswith("dunlin.toml:1:1: ") and what in output, output
    served = subprocess.run([DUNLIN, "serve"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert served.returncode == 1 and what in served.stderr, served.stderr


@pytest.mark.parametrize(
    "route, what",
    [
        ("path = '~ \\.php$'", '"*.php"'),
        ("path = '^/a(.*)'", "regex = '^/a(.*)'"),
        ("path = 'docs/*'", 'write "/docs/*"'),
        ('path = "/a"\nbody_size = "10M"', 'did you mean "10MB"?'),
        ('path = "/a"\ndeny = ["all"]', '"0.0.0.0/0" and "::/0"'),
        ('path = "/a"\nscript = { kind = "php", command = ["php-cgi"], root = "." }', 'kind = "fastcgi"'),
        ('path = "/a"\nproxy = "http://127.0.0.1:3000"\nwebsocket = true', "WebSocket needs no setting"),
        ("path = “/a”", "typographic quotation mark"),
        ('path = "/a', "no closing quotation mark"),
        ('path = "/a"\npath = "/b"', "set twice in its table"),
    ],
)
def test_what_is_usual_elsewhere_is_mended_by_the_message(tmp_path, route, what):
    code, output = check(tmp_path, f"{LISTEN}{SITE}[[site.route]]\n{route}\n")
    assert code == 1 and what in output, output


def test_a_missing_root_and_a_host_twice_say_what_to_do(tmp_path):
    code, output = check(tmp_path, LISTEN + '[[site]]\nroot = "missing"\n')
    assert code == 1 and "there is no directory" in output and "create it, or change `root`" in output, output
    site = '[[site]]\nhost = "a.example"\nroot = "."\n'
    code, output = check(tmp_path, LISTEN + site + site)
    assert code == 1 and 'two sites have the host "a.example", the other one in line 4' in output, output
    code, output = check(tmp_path, '[[listen]]\naddress = "8080"\n' + SITE)
    assert code == 1 and 'did you mean ":8080"?' in output, output
