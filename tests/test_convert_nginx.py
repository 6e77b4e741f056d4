"""`dunlin convert nginx` and `dunlin serve --nginx`: the same file under nginx and under Dunlin gives the same responses."""

import base64
import hashlib
import re
import socket
import subprocess
import time
import tomllib

import pytest

from support.files import write
from support.nginx import FILES, NGINX, PHP_FPM, Both, fields_of, is_page_of_nginx, lost_fields, view
from support.server import DUNLIN, Server
from support.waiting import wait_until

PHP = b"<?php header('X-Powered-By: php'); echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'], ' ', $_SERVER['PATH_INFO'] ?? '', ' ', $_SERVER['REQUEST_METHOD'];"
SITE = {
    "index.html": b"home",
    "about/index.html": b"about",
    "a.txt": b"text",
    "a b.txt": b"blank",
    "style.css": b"a{}",
    "app.js": b"1;",
    "logo.png": b"png",
    "favicon.ico": b"ico",
    "robots.txt": b"robots",
    "sw.js": b"worker",
    "404.html": b"lost page",
    "50x.html": b"broken page",
    "500.html": b"error page",
    "blocked.html": b"blocked",
    "empty/.keep": b"",
    ".git/config": b"git",
    ".well-known/acme-challenge/token": b"token",
    "assets/app.css": b"b{}",
    "static/a.css": b"c{}",
    "static/deep/b.txt": b"deep",
    "media/m.txt": b"media",
    "system/x.txt": b"system",
    "emoji/e.txt": b"emoji",
    "private/index.html": b"private",
    "private/open/index.html": b"open",
    "intranet/index.html": b"intranet",
    "local/index.html": b"local",
    "uploads/evil.php": PHP,
    "docs/readme.html": b"readme",
}
PHP_SITE = {"index.php": PHP, "info.php": PHP, "remote.php": PHP, "wp-admin/index.php": PHP, "sub/index.php": PHP}
# ann:secret
USERS = "ann:$apr1$abcdefgh$ZdHjM3bG6yLrQ0s1BvYkM/\n"


def prepare(folder, text):
    files = dict(SITE)
    if "fastcgi_pass" in text:
        files |= PHP_SITE
    for name, content in files.items():
        write(folder / "www" / "site" / name, content)
    made = subprocess.run(["openssl", "passwd", "-apr1", "secret"], capture_output=True, text=True, check=True)
    (folder / "www" / "users").write_text(f"ann:{made.stdout.strip()}\n")


def paths_of(text):
    """Paths that the locations and rewrites of a file are about, at their boundaries and beyond."""
    found = set()
    for sign, path in re.findall(r"location\s+(?:(=|\^~)\s+)?(/[^\s{]*)", text):
        found |= {path, path.rstrip("/"), path + "x", path.rstrip("/") + "/", path.rstrip("/") + "/a.txt", path.rstrip("/") + "/a/b?x=1&y=2"}
        found |= {path.rstrip("/") + "/style.css", path.rstrip("/") + "/info.php", path.rstrip("/") + "/a%20b.txt", path.rstrip("/") + "/deny"}
        found.add(path.rstrip("/") + "/redirect")
        found.add(sign and path + "?q=1" or path)
    for words in re.findall(r"location\s+~\*?\s+(\S+)|rewrite\s+(\S+)", text):
        for word in words:
            # Words of alternatives, as paths and as extensions.
            for name in re.findall(r"[A-Za-z][A-Za-z0-9_-]+", word):
                found |= {f"/{name}", f"/{name}/", f"/{name}/x", f"/x.{name}", f"/dir/x.{name.upper()}", f"/{name}/2024/05/title"}
    for name in SITE:
        found |= {f"/{name.replace(' ', '%20')}"}
    found |= {f"/{name}" for name in PHP_SITE}
    found |= {
        "/", "/?a=b", "/none", "/none/", "/about", "/about/", "/empty", "/empty/", "/a.txt?x=%20", "/a%2etxt", "//a.txt", "/about/../a.txt",
        "/none.css", "/none.php", "/info.php/extra/path?z=1", "/index.php/a", "/user/ann", "/user/ANN", "/blog/2024/05/title", "/go/x%20y", "/sub", "/sub/",
        "/old-post/one", "/sitemap.xml", "/%C3%A9", "/status-404", "/status-500", "/docs", "/docs/readme.html?p=1",
    }
    return sorted(path for path in found if path.startswith("/"))


def requests_of(text):
    """Requests derived from a file: method, path, host, fields, body."""
    hosts = [name for names in re.findall(r"server_name\s+([^;]+);", text) for name in names.split() if re.fullmatch(r"[a-z][a-z.]+", name)]
    hosts = list(dict.fromkeys(hosts)) or ["any.test"]
    for path in paths_of(text):
        yield "GET", path, hosts[0], (), None
    for host in [*hosts[1:], "other.test"]:
        for path in ("/", "/a.txt", "/none?x=1", "/about"):
            yield "GET", path, host, (), None
    main = hosts[-1] if "return 301 http" in text else hosts[0]
    for path in paths_of(text)[::3]:
        yield "GET", path, main, (("User-Agent", "BadBot/1.0"), ("Cookie", "a=1; session=x")), None
        yield "HEAD", path, main, (), None
    if "$invalid_referer" in text:
        for path in re.findall(r"location (/\w+/)", text):
            for page in ("http://x.good.test/a", "https://GOOD.test", "http://chosen.test:81/", "http://other.org", "https://bad.test/chosen.test", "bad.test"):
                yield "GET", path, hosts[0], (("Referer", page),), None
    for path in paths_of(text)[::4]:
        yield "POST", path, main, (("Content-Type", "text/plain"),), b"body"
        yield "DELETE", path, main, (), None
        yield "GET", path, main, (("Authorization", "Basic YW5uOnNlY3JldA=="), ("X-User", "ann")), None


def expected_differences(text):
    """`# differs: METHOD PATH: text of the report`: what a file's comments permit."""
    return [(re.compile(pattern), what.strip()) for pattern, what in re.findall(r"^\s*# differs: (\S+ \S+): (.*)$", text, re.M)]


# What the report states about files: other methods than GET and HEAD, and redirects to directories.
METHODS = {(404, 405), (403, 405), (301, 308), (405, 308), (405, 301), (301, 405), (405, 404), (405, 200)}


def is_of_methods(method, theirs, ours):
    return method not in ("GET", "HEAD") and (theirs["status"], ours["status"]) in METHODS


# Paths in another than their normal form, which the report is about where they are passed on.
NOT_NORMAL = {"//a.txt", "/a%2etxt", "/about/../a.txt"}


def differences(both, text, report):
    names, lost = fields_of(text), lost_fields(report)
    permitted = expected_differences(text)
    for method, path, host, fields, body in requests_of(text):
        if any(pattern.fullmatch(f"{method} {path}") for pattern, _ in permitted):
            continue
        if path in NOT_NORMAL and "normal form" in report:
            continue
        url = f"http://{host}{path}"
        theirs = view(both.ask(both.port, method, path, host, fields, body), url, names, lost)
        ours = view(both.ask(both.dunlin.port, method, path, host, fields, body), url, names, lost)
        if is_of_methods(method, theirs, ours):
            continue
        if "are not cached" in report and theirs["upstream"] == []:
            # nginx has the response in its cache.
            ours["upstream"] = []
        pages = theirs.pop("body"), ours.pop("body")
        if theirs["status"] is not None and theirs["status"] >= 300 and is_page_of_nginx(pages[0]):
            pages = None
        if theirs["status"] is not None and theirs["status"] >= 300:
            # Fields of errors are those of the report.
            theirs["fields"] = ours["fields"] = {}
        if theirs != ours or pages and pages[0] != pages[1]:
            yield f"{method} {path} Host: {host} {dict(fields)}\n  nginx  {theirs} {pages and pages[0][:200]}\n  dunlin {ours} {pages and pages[1][:200]}"


@pytest.mark.skipif(not NGINX, reason="no nginx")
@pytest.mark.parametrize("name", sorted(file.stem for file in FILES.glob("*.conf")))
def test_the_same_file_gives_the_same_responses(name, tmp_path):
    text = (FILES / f"{name}.conf").read_text()
    if "@FPM@" in text and not PHP_FPM:
        pytest.skip("no PHP-FPM")
    prepare(tmp_path, text)
    both = Both(text, tmp_path)
    try:
        both.start()
        _, report, _ = both.report()
        for _, what in expected_differences(text):
            assert what in report, f"the report does not state: {what}\n{report}"
        found = list(differences(both, text, report))
        assert not found, f"{len(found)} differences:\n" + "\n".join(found[:40])
    finally:
        both.stop()


@pytest.mark.skipif(not NGINX, reason="no nginx")
def test_signed_links_stay_valid(tmp_path):
    text = (FILES / "guarded.conf").read_text()
    prepare(tmp_path, text)
    both = Both(text, tmp_path)
    try:
        both.start()

        def statuses(path, expires, secret="secret"):
            digest = hashlib.md5(f"{expires}{path} {secret}".encode()).digest()
            target = f"{path}?md5={base64.urlsafe_b64encode(digest).decode().rstrip('=')}&expires={expires}"
            return [both.ask(port, "GET", target, "guarded.test", (), None)[0] for port in (both.port, both.dunlin.port)]

        later = int(time.time()) + 600
        assert statuses("/static/a.css", later) == [200, 200]
        assert statuses("/static/deep/b.txt", later) == [200, 200]
        assert statuses("/static/a.css", later, "other") == [403, 403]
        assert statuses("/static/a.css", 1) == [410, 410]
    finally:
        both.stop()


SIMPLE = """events {}
http {
    server {
        listen 127.0.0.1:8080;
        root @ROOT@;
        location /hello { return 200 "one"; }
        mirror /m;
    }
}
"""


def convert(file, *arguments):
    return subprocess.run([DUNLIN, "convert", "nginx", file, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_the_exit_status_states_whether_something_is_lost(tmp_path, site):
    file = tmp_path / "nginx.conf"
    file.write_text(SIMPLE.replace("@ROOT@", str(site)))
    done = convert(file)
    assert done.returncode == 4
    assert re.search(rf"^{file}:7: lost: mirror: .+", done.stderr, re.M), done.stderr
    assert done.stderr.splitlines()[-1].endswith("not needed here, 1 lost")
    assert "[[site]]" in done.stdout
    file.write_text(SIMPLE.replace("@ROOT@", str(site)).replace("mirror /m;", ""))
    assert convert(file).returncode == 0
    file.write_text("http {")
    done = convert(file)
    assert (done.returncode, done.stdout) == (1, "") and f"{file}:1: " in done.stderr
    assert convert(tmp_path / "none").returncode == 1


def test_a_converted_file_is_a_configuration(tmp_path, site):
    file, result = tmp_path / "nginx.conf", tmp_path / "dunlin.toml"
    file.write_text(SIMPLE.replace("@ROOT@", str(site)))
    result.write_text(convert(file).stdout)
    subprocess.run([DUNLIN, "check", "-c", result], check=True, capture_output=True)


def test_a_served_file_is_followed_and_its_losses_are_logged(tmp_path, site):
    file = tmp_path / "nginx.conf"
    text = SIMPLE.replace("@ROOT@", str(site))
    file.write_text(text)
    server = Server(["--nginx", str(file), "--listen", "127.0.0.1:0"], tmp_path)
    try:
        server.logged(f"{file}:7: lost: mirror: ")
        assert server.get("/hello")[::2] == (200, b"one")
        # A file with an error leaves the site as it is.
        file.write_text(text.replace("root ", "root } "))
        server.logged("`root` has no `;`")
        assert server.get("/hello")[::2] == (200, b"one")
        file.write_text(text.replace('"one"', '"two words"'))
        wait_until(lambda: server.get("/hello")[::2] == (200, b"two words"), "the change is served", 30)
    finally:
        assert server.stop() == 0


def test_lf_alone_ends_the_lines_of_clients_of_a_served_file(tmp_path, site):
    file = tmp_path / "nginx.conf"
    file.write_text(SIMPLE.replace("@ROOT@", str(site)))
    server = Server(["--nginx", str(file), "--listen", "127.0.0.1:0"], tmp_path)

    def status(server):
        with socket.create_connection(server.address, 10) as client:
            client.sendall(b"GET /hello HTTP/1.0\nHost: localhost\n\n")
            return client.makefile("rb").readline().split()[1]

    try:
        assert status(server) == b"200"
    finally:
        server.stop()
    result = tmp_path / "dunlin.toml"
    result.write_text(convert(file).stdout)
    server = Server(["--config", str(result), "--listen", "127.0.0.1:0"], tmp_path)
    try:
        assert status(server) == b"400"
    finally:
        server.stop()


def test_a_directory_that_is_not_there_does_not_end_the_others(tmp_path, site):
    write(site / "a.txt", "a")
    file = tmp_path / "nginx.conf"
    # It is short, so that its TOML is, too.
    file.write_text(
        f"events {{}}\nhttp {{ server {{ listen 8080; root {site}; location /none/ {{ root {tmp_path}/none; }}\n"
        f"location = /404.html {{ internal; root {tmp_path}/pages; }} error_page 404 /404.html; }} }}\n"
    )
    server = Server(["--nginx", str(file), "--listen", "127.0.0.1:0"], tmp_path)
    try:
        assert server.get("/a.txt")[::2] == (200, b"a")
        assert [server.get(path)[0] for path in ("/none/a.txt", "/404.html", "/b.txt")] == [404, 404, 404]
        server.logged("its files are not there, requests get 404")
    finally:
        assert server.stop() == 0


@pytest.mark.skipif(not NGINX, reason="no nginx")
def test_media_types_and_methods_are_those_of_nginx(tmp_path):
    text = (FILES / "site-types.conf").read_text()
    prepare(tmp_path, text)
    both = Both(text, tmp_path)
    try:
        both.start()
        for host in ("types.test", "text.test"):
            for path in ("/", "/about/", "/a.txt", "/style.css", "/logo.png", "/files/readme.html"):
                theirs, ours = (both.ask(port, "GET", path, host, (), None) for port in (both.port, both.dunlin.port))
                assert theirs[0] == ours[0], (host, path, theirs, ours)
                if theirs[0] == 200 and not (host == "text.test" and path.endswith(".css")):
                    assert theirs[1]["content-type"] == ours[1]["content-type"], (host, path)
        # A list is searched before the method counts, and files have no other methods.
        for method, path in (("DELETE", "/list/none"), ("OPTIONS", "/list/none"), ("DELETE", "/a.txt"), ("OPTIONS", "/files/readme.html"), ("POST", "/a.txt")):
            statuses = [both.ask(port, method, path, "types.test", (), None)[0] for port in (both.port, both.dunlin.port)]
            assert statuses[0] == statuses[1], (method, path, statuses)
    finally:
        both.stop()


def test_the_steps_of_a_move(tmp_path, site):
    """The commands of the page "Moving a site"."""
    write(site / "static" / "a.css", "a{}")
    file, result = tmp_path / "nginx.conf", tmp_path / "dunlin.toml"
    file.write_text(
        f"events {{}}\nhttp {{\n    server {{\n        listen 80;\n        server_name app.example.com;\n        root {site};\n"
        "        location /static/ { expires 1d; }\n        location = /old { return 301 /new; }\n    }\n}\n"
    )
    served = Server(["--nginx", str(file), "--listen", "127.0.0.1:0"], tmp_path)
    try:
        before = [served.get(path, host="app.example.com")[::2] for path in ("/static/a.css", "/old", "/none")]
    finally:
        served.stop()
    done = convert(file)
    assert done.returncode == 0, done.stderr
    result.write_text(done.stdout)
    subprocess.run([DUNLIN, "check", "-c", result], check=True, capture_output=True)
    url = "http://app.example.com/static/a.css"
    explained = subprocess.run([DUNLIN, "check", "-c", result, "--explain", url], check=True, capture_output=True, text=True)
    assert "static/a.css" in explained.stdout
    moved = Server(["-c", str(result), "--listen", "127.0.0.1:0"], tmp_path)
    try:
        assert [moved.get(path, host="app.example.com")[::2] for path in ("/static/a.css", "/old", "/none")] == before
        assert [status for status, _ in before] == [200, 301, 404]
    finally:
        moved.stop()


PHP_FILE = """events {}
http {
    server {
        listen 8080;
        root @ROOT@;
        index index.php;
        location / { try_files $uri $uri/ /index.php?$args; }
        location ~ \\.php$ {
            include fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass 127.0.0.1:9000;
        }
    }
}
"""
PROXY_FILE = """events {}
http {
    upstream app { server 127.0.0.1:3000; }
    server {
        listen 8080;
        location / {
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Connection "";
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }
    }
}
"""


def test_a_converted_site_has_the_routes_of_a_written_one(tmp_path, site):
    """So that a request has no more work: one route for the scripts, none for the proxy."""
    file = tmp_path / "nginx.conf"
    (tmp_path / "fastcgi_params").write_text("fastcgi_param QUERY_STRING $query_string;\n")
    file.write_text(PHP_FILE.replace("@ROOT@", str(site)))
    done = convert(file)
    (converted,) = tomllib.loads(done.stdout)["site"]
    (route,) = converted.pop("route")
    assert (converted["try"], converted["index"]) == (["{path}", "=directory", "/index.php?{query}"], ["index.php"])
    assert (route["regex"], route["script"]["connect"]) == (r"\.php$", "127.0.0.1:9000")
    file.write_text(PROXY_FILE)
    (converted,) = tomllib.loads(convert(file).stdout)["site"]
    assert converted == {"proxy": "http://127.0.0.1:3000"}
