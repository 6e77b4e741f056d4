"""Values that follow from requests: the tables `map`, in templates, conditions and keys of routes."""

import json
import re
import subprocess

import pytest

from support.files import write
from support.scripts import script
from support.server import DUNLIN
from support.upstream import Upstream, response

pytestmark = pytest.mark.usefixtures("orderly_stop")

SHOW = '[[site.route]]\npath = "/show"\nrespond = { template = "<{map.m}>" }\n'


def body(server, path, *fields, **more):
    return server.get(path, *fields, **more)[2].decode()


def table(text, name="m"):
    return f"[map.{name}]\n{text}\n"


def check(tmp_path, text, *arguments):
    file = tmp_path / "check.toml"
    file.write_text('[[listen]]\naddress = "127.0.0.1:0"\n' + text)
    run = subprocess.run([DUNLIN, "check", "--config", str(file), *arguments], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def test_texts_come_before_expressions_and_these_before_patterns(serve):
    values = '"/Exact" = "text", "~^/(?<word>ex[a-z]*)$" = "first {word}", "~(?i)^/EX" = "second {0}", "/e*" = "short", "/e*e" = "long", "*" = "other"'
    server = serve(more=table(f'from = "{{query.q}}"\nvalues = {{ {values} }}') + SHOW)
    for query, value in {
        "/exact": "text",
        "/EXACT": "text",
        "/exam": "first exam",
        "/EXAM": "second /EX",
        "/e2": "short",
        "/e2e": "long",
        "x": "other",
    }.items():
        assert body(server, f"/show?q={query}") == f"<{value}>", query
    assert body(server, "/show") == "<other>"


def test_the_smallest_network_decides(serve):
    values = '"127.0.0.0/8" = "loop", "127.0.0.1" = "one", "0.0.0.0/0" = "all", "10.0.0.0/8" = "ten"'
    server = serve(more=table(f'from = "{{client}}"\nvalues = {{ {values} }}') + SHOW)
    assert body(server, "/show") == "<one>"
    named = serve(more=table(f'from = "{{header.X-Ip}}"\nvalues = {{ {values} }}') + SHOW)
    for address, value in [("127.9.9.9", "loop"), ("10.1.1.1", "ten"), ("8.8.8.8", "all"), ("::1", ""), ("no", "")]:
        assert body(named, "/show", f"X-Ip: {address}") == f"<{value}>"


def test_a_hash_splits_clients_as_nginx_does(serve):
    server = serve(more=table('from = "{query.q}"\nsplit = { "50%" = "a", "25%" = "b", "*" = "c" }') + SHOW)
    seen = [body(server, f"/show?q={number}")[1:-1] for number in range(400)]
    counts = {value: seen.count(value) for value in "abc"}
    assert 160 < counts["a"] < 240 and 60 < counts["b"] < 140 and 60 < counts["c"] < 140
    assert seen == [body(server, f"/show?q={number}")[1:-1] for number in range(400)]


def test_values_name_other_values_and_maps(serve):
    maps = table('from = "{map.b}"\nvalues = { "~^(.)-(.*)$" = "{2} {1} {method} {scheme} {cookie.c}" }') + table(
        'from = "{host}"\nvalues = { "a.test" = "x-{query.n}" }', "b"
    )
    server = serve(more=maps + SHOW)
    assert body(server, "/show?n=1%262", "Cookie: c=4", host="A.test:80") == "<1&2 x GET http 4>"
    assert body(server, "/show") == "<>"


def test_a_value_is_escaped_for_its_type(serve):
    route = lambda path, kind: f'[[site.route]]\npath = "{path}"\nrespond = {{ template = "{{query.q}}", content_type = "{kind}" }}\n'
    server = serve(more=route("/t", "text/plain") + route("/h", "text/html; charset=utf-8") + route("/j", "application/json"))
    text = "<a href=\"'\">&\\"
    query = "?q=%3Ca%20href=%22%27%22%3E%26%5C"
    assert body(server, "/t" + query) == text
    assert body(server, "/h" + query) == "&lt;a href=&quot;&#39;&quot;&gt;&amp;\\"
    assert json.loads('"' + body(server, "/j" + query) + '"') == text


def test_redirects_by_a_map(serve):
    values = '"/old" = "/new place?a=1", "/far" = "https://other.test/x", "~^/u/(.*)$" = "/users/{1}"'
    more = table(f'from = "{{path}}"\nvalues = {{ {values} }}')
    server = serve(more=more + '[[site.route]]\npath = "/*"\nwhen = { map = { m = true } }\nredirect = "{map.m}"\n')
    location = lambda path: server.get(path)[1].get("location")
    assert location("/far") == "https://other.test/x" and location("/u/a%20b?z=1") == "/users/a%20b"
    assert location("/old").startswith("/new") and location("/old").endswith("?a=1")
    assert server.get("/none")[0] == 404
    bare = serve(more=more + '[[site.route]]\npath = "/*"\nredirect = "{map.m}"\n')
    assert bare.get("/none")[0] == 404


def test_rewriting_by_a_map_and_other_values(serve):
    values = '"~^/p/(?<name>.*)$" = "/show?name={name}&l=1"'
    more = table(f'from = "{{path}}"\nvalues = {{ {values} }}')
    routes = (
        '[[site.route]]\npath = "/p/*"\nrewrite = "{map.m}"\n'
        '[[site.route]]\npath = "/q/*"\nrewrite = "/show?name={header.X-Name}"\n'
        '[[site.route]]\npath = "/show"\nrespond = { template = "{query.name} {query.l} {target}" }\n'
    )
    server = serve(more=more + routes)
    assert body(server, "/p/a%26b") == "a&b 1 /show?name=a%26b&l=1"
    assert body(server, "/q/", "X-Name: x&l=2") == "x&l=2  /show?name=x%26l%3D2"


def test_a_client_cannot_choose_the_host(tmp_path):
    route = lambda text: f'[[site]]\nredirect = "{text}"\n'
    assert check(tmp_path, route("{header.X}"))[0] == 1
    assert check(tmp_path, route("https://{query.host}/"))[0] == 1
    status, output = check(tmp_path, table('from = "{path}"\nvalues = { a = "https://{header.X}/" }') + route("{map.m}"))
    assert status == 1 and "a client could choose" in output, output


def test_upstreams_by_a_map(serve):
    one, two = Upstream(lambda *_: response(b"one")), Upstream(lambda *_: response(b"two"))
    maps = table(f'from = "{{host}}"\nvalues = {{ "a.test" = "{one.url}", "*" = "{two.url}" }}')
    server = serve(route='proxy = "{map.m}"', more=maps)
    assert body(server, "/", host="a.test") == "one" and body(server, "/", host="b.test") == "two"


def test_every_key_can_name_a_map(serve, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.txt").write_text(name)
    maps = table('from = "{cookie.variant}"\nvalues = { b = "b", "*" = "a" }') + table(
        'from = "{path}"\nvalues = { "*.css" = "30d", "*" = "1h" }', "time"
    )
    more = f'[[site.route]]\npath = "/f*"\nroot = "{tmp_path}/{{map.m}}"\nset_fields = {{ X-V = "v {{map.m}}", X-S = "s" }}\nexpires = "{{map.time}}"\n'
    server = serve(more=maps + more)
    for _ in range(2):
        for cookie, value in (("variant=b", "b"), ("variant=c", "a"), ("x=y", "a")):
            status, fields, content = server.get("/f.txt", f"Cookie: {cookie}")
            assert (status, content.decode(), fields["x-v"], fields["x-s"]) == (200, value, f"v {value}", "s")
            assert fields["cache-control"] == "max-age=3600"


def test_other_routes_keep_their_place_beside_a_map(serve):
    one = Upstream(lambda *_: response(b"one"))
    maps = table(f'from = "{{host}}"\nvalues = {{ "*" = "{one.url}" }}')
    more = (
        '[[site.route]]\npath = "/x/*"\nproxy = "{map.m}"\n'
        '[[site.route]]\npath = "/x/*"\nwhen = { method = "POST" }\nrespond = { body = "post" }\n'
        '[[site.route]]\npath = "/x/y"\nrespond = { body = "y" }\n'
        '[[site.route]]\nregex = "^/r/"\nproxy = "{map.m}"\nset_fields = { A = "1" }\n'
        '[[site.route]]\nregex = "^/r"\nrespond = { body = "r" }\n'
    )
    server = serve(more=maps + more)
    assert body(server, "/x/1") == "one" and body(server, "/x/y") == "y" and body(server, "/r") == "r"
    assert server.get("/r/1")[2] == b"one" and server.get("/r/1")[1]["a"] == "1"
    assert body(server, "/x/1", "Content-Length: 0", method="POST") == "post"


def test_conditions_on_maps(serve):
    maps = table('from = "{header.User-Agent}"\nvalues = { "~(?i)bot|spider" = "1" }')
    more = '[[site.route]]\nwhen = { map = { m = "1" } }\nrespond = { status = 403 }\n' '[[site.route]]\npath = "/*"\nrespond = { body = "ok" }\n'
    server = serve(more=maps + more)
    assert server.get("/", "User-Agent: GoogleBot/1")[0] == 403 and body(server, "/", "User-Agent: x") == "ok"


@pytest.mark.parametrize(
    "text, words",
    [
        ('from = "{host}"', "either `values` or `split`"),
        ('from = "{hots}"\nvalues = {}', "there is no placeholder {hots}"),
        ('from = "{map.none}"\nvalues = {}', "there is no [map.none]"),
        ('from = "{map.m}"\nvalues = {}', "need each other"),
        ('from = "{path}"\nvalues = { "~(" = "x" }', "unclosed group"),
        ('from = "{path}"\nvalues = { a = "x", A = "y" }', "is listed twice"),
        ('from = "{path}"\nsplit = { "60%" = "x", "50%" = "y" }', "more than 100%"),
        ('from = "{path}"\nsplit = { "a" = "x" }', "not a share"),
        ('from = "{path}"\nvalue = {}', "there is no key `value`"),
    ],
)
def test_errors_of_maps_name_the_line(tmp_path, text, words):
    status, output = check(tmp_path, table(text) + '[[site]]\nrespond = { body = "x" }\n')
    assert status == 1 and words in output and re.search(r"check\.toml:\d+:\d+", output), output


@pytest.mark.parametrize(
    "maps, words",
    [
        ("", "there is no [map.m]"),
        (table('from = "{host}"\nvalues = { "a" = "http://127.0.0.1:1" }'), '""'),
        (table('from = "{host}"\nvalues = { "a" = "http://{host}", "*" = "x" }'), "its values have placeholders"),
        (table('from = "{host}"\nvalues = { ' + ", ".join(f'a{n} = "http://127.0.0.1:{n + 1}"' for n in range(70)) + " }"), "more than 64"),
    ],
)
def test_errors_of_keys_that_name_maps(tmp_path, maps, words):
    status, output = check(tmp_path, maps + '[[site]]\nproxy = "{map.m}"\n')
    assert status == 1 and words in output and "check.toml:" in output, output


def test_explain_shows_the_value_that_applies(tmp_path):
    maps = table('from = "{host}"\nvalues = { "a.test" = "http://127.0.0.1:1", "*" = "http://127.0.0.1:2" }')
    status, output = check(tmp_path, maps + '[[site]]\nproxy = "{map.m}"\n', "--explain", "http://a.test/x")
    assert status == 0 and "127.0.0.1:1" in output and "127.0.0.1:2" not in output, output


def test_fields_of_responses_have_values_of_the_request(serve, site):
    (site / "a.txt").write_text("a")
    upstream = Upstream(lambda *_: response(b"up", "200 OK", "X-Host: theirs", "X-Kept: 1"))
    more = (
        table('from = "{header.Origin}"\nvalues = { "~^https://([a-z]+).test$" = "{1} {0}" }')
        + f'[[site.route]]\npath = "/up"\nproxy = "{upstream.url}"\n'
        + '[[site.route]]\npath = "/old"\nrewrite = "/a.txt"\nset_fields = { X-Host = "old {path}" }\n'
    )
    fields = 'set_fields = { X-Host = "{host} {path}", X-Map = "{map.m}", X-None = "{header.None}", NEL = \'{"group":"{query.g}"}\' }'
    server = serve(route=fields, more=more)
    for _ in range(2):
        found = server.get("/a.txt?g=1", "Origin: https://b.test", host="A.test:81")[1]
        assert (found["x-host"], found["x-map"], found["nel"]) == ("a.test /a.txt", "b https://b.test", '{"group":"1"}')
        found = server.get("/a.txt", "Origin: x")[1]
        assert "x-map" not in found and "x-none" not in found and found["nel"] == '{"group":""}'
    found = server.get("/up")[1]
    assert (found["x-host"], found["x-kept"]) == ("x /up", "1")
    assert server.get("/none")[1]["x-host"] == "x /none" and server.get("/old")[1]["x-host"] == "x /old"
    # No value ends the field.
    assert "x-evil" not in server.get("/a.txt?g=a%0d%0aX-Evil:1")[1]


def test_fields_of_responses_have_values_of_the_response(serve, site):
    (site / "a.txt").write_text("a")
    upstream = Upstream(lambda *_: response(b"up", "203 OK", "X-Kind: one", "X-Kind: two", "Cache-Control: max-age=60"))
    names = ["status", "response.X-Kind", "user", "upstream", "upstream_address", "cache_status", "connection_requests", "server_port", "request_id", "protocol"]
    fields = ", ".join(f'X-{name.replace(".", "-").replace("_", "-")} = "<{{{name}}}>"' for name in names)
    more = f'[[site.route]]\npath = "/up"\nproxy = "{upstream.url}"\ncache = {{ responses = true }}\n'
    server = serve(route=f"set_fields = {{ {fields} }}", more=more)
    port = upstream.url.rsplit(":", 1)[1]
    for result in ("MISS", "HIT"):
        found = server.get("/up")[1]
        assert (found["x-status"], found["x-response-x-kind"], found["x-cache-status"]) == ("<203>", "<one, two>", f"<{result}>")
        assert found["x-server-port"] == f"<{server.port}>" and found["x-protocol"] == "<HTTP/1.1>"
        if result == "MISS":
            assert (found["x-upstream"], found["x-upstream-address"]) == (f"<{upstream.url}>", f"<127.0.0.1:{port}>")
    for _ in range(2):
        found = server.get("/a.txt")[1]
        assert (found["x-status"], found["x-user"], found["x-upstream"]) == ("<200>", "<>", "<>")
        assert re.fullmatch("<[0-9a-f-]{16,}>", found["x-request-id"]), found["x-request-id"]
    assert server.get("/none")[1]["x-status"] == "<404>"


def test_a_field_with_absent_has_no_placeholders(tmp_path):
    status, output = check(tmp_path, '[[site]]\nrespond = {}\nset_fields = { X = { value = "{host}", absent = true } }\n')
    assert status == 1 and "X has placeholders, which fields with `absent` cannot have" in output, output
    status, output = check(tmp_path, '[[site]]\nrespond = {}\nset_fields = { X = { value = "{host}", status = ["2xx"] } }\n')
    assert status == 0, output


def test_a_template_escapes_what_a_url_has_encoded_otherwise(serve):
    more = (
        '[[site.route]]\npath = "/h"\nrespond = { template = "<a href=\'{target}\'>{query}</a>", content_type = "text/html" }\n'
        """[[site.route]]\npath = "/j"\nrespond = { template = '{"q":"{query}","r":"{query.q}"}', content_type = "application/json" }\n"""
    )
    server = serve(more=more)
    assert body(server, "/h?<script>'") == "<a href=&#39;/h?&lt;script&gt;&#39;".replace("&#39;/h", "'/h") + "'>&lt;script&gt;&#39;</a>"
    assert json.loads(body(server, '/j?q=",%22x')) == {"q": 'q=",%22x', "r": '","x'}


def test_clients_do_not_choose_what_authentication_states(serve):
    endpoint = Upstream(lambda *_: response(b"", "200 OK", "Remote-Groups: users"))
    auth = f'auth = {{ forward = "{endpoint.url}/auth", copy_to_request = ["Remote-Groups"] }}'
    more = (
        f'[[site.route]]\npath = "/in/*"\n{auth}\nrespond = {{ template = "<{{header.Remote-Groups}}>" }}\n'
        '[[site.route]]\npath = "/in/*"\nwhen = { header = { Remote-Groups = "admins" } }\nrespond = { body = "admin" }\n'
    )
    server = serve(more=more)
    for name in ("Remote-Groups", "Remote_Groups", "remote.groups"):
        assert body(server, "/in/x", f"{name}: admins") == "<>", name


def test_switches_and_control_characters(serve, site):
    (site / "d").mkdir()
    more = table('from = "{query.l}"\nvalues = { yes = "true", "*" = "false" }')
    server = serve(route='listing = "{map.m}"\nset_fields = { X-Q = "{query.q}" }', more=more)
    assert server.get("/d/?l=yes")[0] == 200 and server.get("/d/")[0] == 403
    assert server.get("/d/?q=a%7f%01b")[1]["x-q"] == "a  b"


def test_fields_of_requests_to_upstreams_have_values_of_the_request(serve, site):
    upstream = Upstream()
    maps = table('from = "{path}"\nvalues = { "~^/(?<first>[^/]+)/(.*)$" = "{first}: {2} by {method}", "*" = "none" }') + table(
        'from = "{cookie.v}"\nvalues = { new = "2", "*" = "1" }', "version"
    )
    values = {
        "X-Map": "{map.m}", "X-Version": "v{map.version}", "X-Values": "{method} {scheme} {client} {host} {port} {user}", "X-Path": "{path}", "X-Target": "{target}",
        "X-Query": "{query}", "X-Header": "{header.User-Agent}", "X-Cookie": "{cookie.v}", "X-Parameter": "{query.q}", "X-Json": '{"a": {other}, "b": "{query.q}"}',
        "X-Gone": "{header.X-Gone-By}",
    }
    fields = ", ".join(f"{name} = '{value}'" for name, value in values.items())
    server = serve(route=f'proxy = {{ to = "{upstream.url}", set_request_fields = {{ {fields} }} }}', more=maps)
    server.get("/a%20b/c?q=%41%0d%0aX-Evil:1", "User-Agent: me", "Cookie: v=new", "X-Gone: client", host="A.test:81", method="POST")
    got = upstream.requests[0].fields
    assert {name: got.get(name.lower()) for name in values} == {
        "X-Map": "a b: c by POST", "X-Version": "v2", "X-Values": "POST http 127.0.0.1 a.test 81", "X-Path": "/a%20b/c", "X-Target": "/a%20b/c?q=%41%0d%0aX-Evil:1",
        "X-Query": "q=%41%0d%0aX-Evil:1", "X-Header": "me", "X-Cookie": "new", "X-Parameter": "A  X-Evil:1", "X-Json": '{"a": {other}, "b": "A  X-Evil:1"}', "X-Gone": None,
    }
    assert "x-evil" not in got
    server.get("/x")
    got = upstream.requests[1].fields
    assert (got["x-map"], got["x-version"], got["x-values"]) == ("none", "v1", "GET http 127.0.0.1 x 80")
    assert not {"x-header", "x-cookie", "x-parameter", "x-query"} & got.keys()


def test_an_upstream_by_a_map_gets_values_that_no_route_can_be_made_of(serve):
    """Values of `set_request_fields` are made for each request, beside keys of which a route is made for each value."""
    one, two = Upstream(), Upstream()
    maps = table(f'from = "{{host}}"\nvalues = {{ "a.test" = "{one.url}", "*" = "{two.url}" }}', "to") + table('from = "{host}"\nvalues = { "*" = "{path}!" }')
    server = serve(route='proxy = { to = "{map.to}", set_request_fields = { X-A = "{map.m}" } }', more=maps)
    server.get("/p", host="a.test")
    server.get("/q", host="b.test")
    assert [each.requests[0].fields["x-a"] for each in (one, two)] == ["/p!", "/q!"]


def test_clients_do_not_choose_what_upstreams_get_of_authentication(serve):
    upstream = Upstream()
    endpoint = Upstream(lambda *_: response(b"", "200 OK", "Remote-Groups: users"))
    auth = f'auth = {{ forward = "{endpoint.url}/auth", copy_to_request = ["Remote-Groups"] }}'
    server = serve(route=f'{auth}\nproxy = {{ to = "{upstream.url}", set_request_fields = {{ X-Groups = "<{{header.Remote-Groups}}>" }} }}')
    for name in ("Remote-Groups", "Remote_Groups"):
        server.get("/", f"{name}: admins")
    assert [request.fields["x-groups"] for request in upstream.requests] == ["<>", "<>"]


def test_errors_of_request_fields_name_the_line(tmp_path):
    for value, words in [("{map.none}", "map.none"), ("{header.a b}", None), ("{header.(}", "is not a name"), ("{query.}", "is not a name")]:
        status, output = check(tmp_path, f'[[site]]\nproxy = {{ to = "http://127.0.0.1:1", set_request_fields = {{ X-A = "{value}" }} }}\n')
        assert (status == 0) == (words is None), output
        assert words is None or words in output and "check.toml:4" in output, output


def test_upstreams_get_the_id_of_the_request(serve):
    upstream = Upstream()
    server = serve(route=f'proxy = {{ to = "{upstream.url}", set_request_fields = {{ X-Request-Id = "{{request_id}}" }} }}')
    server.get("/a", "X-Request-Id: of-the-client")
    server.get("/b")
    ids = [request.fields["x-request-id"] for request in upstream.requests]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids) and ids[0] != ids[1]


def test_a_template_has_the_time(serve):
    server = serve(route='respond = { template = "{time_iso}" }')
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", body(server, "/"))


def test_a_condition_on_a_file_holds_while_there_is_one(serve, site):
    write(site / "a.html", "a page")
    (site / "dir").mkdir()
    flag = site / "closed"
    server = serve(
        more=f"""
        [[site.route]]
        when = {{ file = "{flag}" }}
        respond = {{ status = 503, body = "closed" }}
        [[site.route]]
        regex = "^/pages(/.*)$"
        when = {{ file = "{site}{{path}}.html" }}
        respond = {{ body = "never" }}
        [[site.route]]
        regex = "^(/[a-z]+)$"
        when = {{ file = "{site}{{path}}.html", not = {{ directory = "{site}{{path}}" }} }}
        rewrite = "{{1}}.html"
        """
    )
    assert server.get("/a")[::2] == (200, b"a page")
    assert server.get("/dir")[0] == 301
    assert server.get("/b")[0] == 404
    flag.touch()
    assert server.get("/a")[::2] == (503, b"closed")
    flag.unlink()
    assert server.get("/a")[::2] == (200, b"a page")


def test_variables_of_a_script_follow_from_the_request(serve, tmp_path):
    directory = tmp_path / "cgi-bin"
    script(directory, "show", "printf 'Content-Type: text/plain\\n\\n'; echo \"$KIND|$PLACE|$FIXED|$HTTP_X_REAL_IP\"")
    server = serve(
        more=f"""
        [[site.route]]
        path = "/run/*"
        script = {{ kind = "cgi", directory = "{directory}", env = {{ KIND = "{{header.X-Kind}}", PLACE = "{{scheme}} {{path}}", FIXED = "{{a}}", HTTP_X_REAL_IP = "{{client}}" }} }}
        """
    )
    _, _, body = server.get("/run/show", "X-Kind: b\r\nX-Real-IP: 192.0.2.1")
    assert body == b"b|http /run/show|{a}|127.0.0.1\n"
