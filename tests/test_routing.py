"""`try`, mounts and redirects: the route that responds, and its request."""

import json
import subprocess

import httpx
import pytest

from support.fastcgi import php_route
from support.files import write
from support.server import DUNLIN

pytestmark = pytest.mark.usefixtures("orderly_stop")

PRINT_VARIABLES = """<?php
header('Content-Type: application/json');
$names = ['REQUEST_METHOD', 'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_URI', 'REMOTE_USER'];
$fetch_variables = [];
foreach ($names as $name) $fetch_variables[$name] = $_SERVER[$name] ?? null;
$fetch_variables['body'] = file_get_contents('php://input');
echo json_encode($fetch_variables);
"""


def fetch_variables(server, path, *fields, method="GET"):
    status, _, body = server.get(path, *fields, method=method)
    assert status == 200, (path, status, body)
    return json.loads(body)


def check(tmp_path, site, route):
    file = tmp_path / "check.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\n{route}\n')
    run = subprocess.run([DUNLIN, "check", "--config", str(file)], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("elsewhere", [False, True])
def test_queries_in_try(serve, site, elsewhere):
    """The script is of the same route, or of another."""
    write(site / "index.php", PRINT_VARIABLES)
    tries = 'try = ["{path}", "/index.php?q={path}&{query}"]'
    if elsewhere:
        server = serve(route=tries, more=f'[[site.route]]\npath = "*.php"\n{php_route(site)}')
    else:
        server = serve(route=f"{php_route(site)}\n{tries}")
    response = fetch_variables(server, "/a%20b/%26c?x=1&y=%20")
    assert response["QUERY_STRING"] == "q=/a%20b/%26c&x=1&y=%20"
    assert response["SCRIPT_NAME"] == "/index.php" and not response["PATH_INFO"]
    assert response["REQUEST_URI"] == "/a%20b/%26c?x=1&y=%20"
    assert fetch_variables(server, "/a")["QUERY_STRING"] == "q=/a"
    assert fetch_variables(server, "/index.php?z")["QUERY_STRING"] == "z"
    status, _, body = server.get("/post?x", "Content-Length: 0", method="POST")
    assert status == 200 and json.loads(body)["REQUEST_METHOD"] == "POST"
    upload = b"POST /pretty HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
    assert b'"body":"hello"' in server.exchange(upload)
    with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
        response = client.post("/pretty?a=b", content=b"hello").json()
        assert response["body"] == "hello" and response["QUERY_STRING"] == "q=/pretty&a=b"


def test_the_rewriting_of_dokuwiki_is_possible(serve, site):
    write(site / "wiki" / "doku.php", PRINT_VARIABLES)
    server = serve(
        route=php_route(site),
        more='[[site.route]]\npath = "/wiki/*"\ntry = ["{path}", "/wiki/doku.php?id={rest}&{query}"]',
    )
    assert fetch_variables(server, "/wiki/playground:start?do=edit")["QUERY_STRING"] == "id=playground:start&do=edit"
    assert fetch_variables(server, "/wiki/a&b")["QUERY_STRING"] == "id=a%26b"
    assert fetch_variables(server, "/wiki/doku.php?id=x")["QUERY_STRING"] == "id=x"
    only = serve(
        route=php_route(site),
        more='[[site.route]]\npath = "/wiki/*"\ntry = ["/wiki/doku.php?id={rest}&{query}"]',
    )
    assert fetch_variables(only, "/wiki/start?x=y")["QUERY_STRING"] == "id=start&x=y"


@pytest.mark.parametrize("script_too", [False, True])
def test_a_directory_that_try_finds_is_redirected_to_its_slash(serve, site, script_too):
    write(site / "docs" / "index.html", "docs")
    write(site / "front.html", "front")
    write(site / "wp-admin" / "index.php", PRINT_VARIABLES)
    (site / "empty").mkdir()
    extra = php_route(site) if script_too else ""
    server = serve(route=f'try = ["{{path}}", "{{path}}/", "/front.html"]\n{extra}')
    for _ in range(2):
        status, fields, _ = server.get("/docs?x=%20")
        assert (status, fields["location"]) == (301, "/docs/?x=%20")
        assert server.get("/docs/")[::2] == (200, b"docs")
        assert server.get("/empty")[2] == server.get("/none")[2] == b"front"
    if script_too:
        status, fields, _ = server.get("/wp-admin?a=b")
        assert (status, fields["location"]) == (301, "/wp-admin/?a=b")
        assert fetch_variables(server, "/wp-admin/")["SCRIPT_NAME"] == "/wp-admin/index.php"
        assert server.get("/wp-admin", "Content-Length: 0", method="POST")[0] == 308


def test_a_directory_of_another_path_is_redirected_to_its_slash(serve, site, tmp_path):
    manual = tmp_path / "manual"
    write(manual / "guide" / "index.html", "guide")
    write(manual / "index.html", "manual")
    write(manual / "a.txt", "a")
    write(site / "elsewhere" / "index.html", "elsewhere")
    write(manual / "users" / "ann" / "index.html", "ann")
    server = serve(
        more=f"""
        [[site.route]]
        path = "/docs/*"
        root = "{manual}"
        try = ["/{{rest}}", "/{{rest}}/", "=404"]
        [[site.route]]
        path = "/user-*"
        root = "{manual}"
        try = ["/users/{{rest}}/", "=404"]
        [[site.route]]
        path = "/fixed"
        root = "{manual}"
        try = ["/guide/", "=404"]
        [[site.route]]
        path = "*.page"
        root = "{manual}"
        try = ["/{{rest}}/", "=404"]
        [[site.route]]
        path = "/last/*"
        root = "{manual}"
        try = ["/{{rest}}", "/{{rest}}/"]
        """
    )
    for _ in range(2):
        for path, location in (("/docs/guide?x=%20", "/docs/guide/?x=%20"), ("/user-ann", "/user-ann/")):
            status, fields, _ = server.get(path)
            assert (status, fields.get("location")) == (301, location), path
            status, _, body = server.get(location)
            assert status == 200 and body in (b"guide", b"ann"), (location, body)
        assert server.get("/docs/")[::2] == (200, b"manual")
        assert server.get("/docs/a.txt")[::2] == (200, b"a")
        assert server.get("/docs/none")[0] == server.get("/docs/none/")[0] == 404
        # A path without variables is that page, whatever the request is.
        assert server.get("/fixed")[::2] == (200, b"guide")
        # With a slash, this path would belong to another route.
        assert server.get("/guide.page")[::2] == (200, b"guide")
        # The last path is an internal redirect, as with nginx.
        assert server.get("/last/elsewhere")[::2] == (200, b"elsewhere")


def test_the_last_path_of_try_has_the_settings_and_checks_of_its_own_route(serve, site):
    write(site / "app.html", "app")
    write(site / "closed.html", "closed")
    server = serve(
        more="""
        [[site.route]]
        path = "/a/*"
        try = ["{path}", "/app.html"]
        set_fields = { X-Of = "a" }
        [[site.route]]
        path = "/app.html"
        set_fields = { X-Of = "app" }
        [[site.route]]
        path = "/b/*"
        try = ["{path}", "/closed.html"]
        [[site.route]]
        path = "/closed.html"
        deny = ["0.0.0.0/0"]
        [[site.route]]
        path = "/c/*"
        try = ["/fixed"]
        [[site.route]]
        path = "/fixed"
        internal = true
        respond = { status = 201, body = "fixed" }
        [[site.route]]
        path = "/d/*"
        try = ["/e/{rest}"]
        [[site.route]]
        path = "/e/*"
        try = ["/d/{rest}"]
        """
    )
    for _ in range(3):
        status, fields, body = server.get("/a/x")
        assert (status, fields["x-of"], body) == (200, "app", b"app")
        assert server.get("/b/x")[0] == 403
        assert server.get("/c/x")[::2] == (201, b"fixed")
        assert server.get("/fixed")[0] == 404
    assert server.get("/d/x")[0] == 500
    server.logged("internal redirects")


def test_the_checks_of_the_first_route_apply_to_the_paths_of_try(serve, site):
    write(site / "app.html", "app")
    server = serve(
        more="""
        [[site.route]]
        path = "/a/*"
        try = ["{path}", "/app.html"]
        deny = ["0.0.0.0/0"]
        [[site.route]]
        path = "/app.html"
        set_fields = { X-Of = "app" }
        """
    )
    for _ in range(3):
        assert server.get("/app.html")[0] == 200
        assert server.get("/a/x")[0] == 403


def test_clients_cannot_choose_an_internal_path_by_try(serve, site):
    write(site / "private" / "x.txt", "private")
    write(site / "private" / "page.html", "page")
    server = serve(
        more="""
        [[site.route]]
        path = "/a/*"
        try = ["/{rest}"]
        [[site.route]]
        path = "/b/*"
        try = ["/private/page.html"]
        [[site.route]]
        path = "/private/*"
        internal = true
        """
    )
    for _ in range(2):
        assert server.get("/a/private/x.txt")[0] == 404
        assert server.get("/b/x")[::2] == (200, b"page")


def test_limits_of_the_target_of_try_apply_once(serve, site):
    write(site / "app.html", "app")
    server = serve(
        more="""
        [[site.route]]
        path = "/a/*"
        try = ["{path}", "/app.html"]
        [[site.route]]
        path = "/both/*"
        try = ["{path}", "/app.html"]
        limit = { requests = "2/h", burst = 2 }
        [[site.route]]
        path = "/app.html"
        limit = { requests = "2/h", burst = 2 }
        throttle = { max_concurrent = 1, queue = 5 }
        """
    )
    assert [server.get("/a/x")[0] for _ in range(4)].count(200) in (2, 3)
    assert server.get("/a/x")[0] == server.get("/app.html")[0] == 429
    assert server.get("/both/x")[0] == 200
    with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
        assert client.get("/a/x").status_code == 429


@pytest.mark.parametrize(
    "route, right",
    [
        ('try = ["{path}", "/index.php?$args"]', "{query}"),
        ('try = ["$uri", "$uri/", "=404"]', "{path}"),
        ('try = ["{path}", "/index.php$is_args$args"]', "{query}"),
        ('try = ["{path}", "/index.php?q=$query_string"]', "{query}"),
        ('try = ["/doku.php?id=$1"]', "{rest}"),
        ('redirect = { to = "https://example.com$request_uri" }', "{path}{query}"),
        ('redirect = { to = "https://$host/x" }', "{host}"),
        ('respond = { body = "$remote_addr" }', "$remote_addr"),
        ('set_fields = { X-Uri = "$request_uri" }', "$request_uri"),
        ('error_pages = { 404 = "/e.php?$args" }', "$args"),
    ],
)
def test_variables_of_nginx_are_errors_that_name_the_replacement(tmp_path, site, route, right):
    code, text = check(tmp_path, site, f'[[site.route]]\npath = "/*"\n{route}')
    assert code == 1 and "no variables" in text and right in text, text


@pytest.mark.parametrize("to", ["{rest}", "{query}", "{host}", "x{path}", "javascript:{rest}", "https://example.com{rest}", "//{rest}"])
def test_clients_cannot_choose_the_target_of_a_redirect(tmp_path, site, to):
    code, text = check(tmp_path, site, f'[[site.route]]\npath = "/old/*"\nredirect = {{ to = "{to}" }}')
    assert code == 1 and "redirect:" in text, text


@pytest.mark.parametrize("to", ["/{rest}", "{path}/", "https://{host}{path}{query}", "https://example.com/{rest}", "https://example.com{path}", "mailto:x@example.com"])
def test_redirects_with_placeholders(tmp_path, site, to):
    code, text = check(tmp_path, site, f'[[site.route]]\npath = "/old/*"\nredirect = {{ to = "{to}" }}')
    assert code == 0, text


def test_a_query_of_a_redirect_joins_the_one_of_the_request(serve):
    server = serve('redirect = { to = "/new?from={path}&{query}" }')
    assert server.get("/a?b=c")[1]["location"] == "/new?from=/a&b=c"
    assert server.get("/a")[1]["location"] == "/new?from=/a"


WSGI = "def application(e, s):\n    s('200 OK', [('Content-Type', 'text/plain')])\n    return [e['SCRIPT_NAME'].encode() + b'|' + e['PATH_INFO'].encode()]\n"


def application(home):
    return f'script = {{ kind = "wsgi", directory = "{home}", application = "app:application", processes = 1 }}'


def test_an_application_without_its_slash_is_redirected(serve, site, tmp_path):
    home = tmp_path / "home"
    write(home / "app.py", WSGI)
    write(site / "index.html", "front")
    server = serve(
        route='try = ["{path}", "/index.html"]\nset_fields = { X-Of = "all" }',
        more=f"""
        [[site.route]]
        path = "/app/*"
        {application(home)}
        [[site.route]]
        path = "/taken/*"
        {application(home)}
        [[site.route]]
        path = "/taken"
        respond = {{ body = "taken" }}
        [[site.route]]
        path = "/status/*"
        status = true
        """,
    )
    status, fields, _ = server.get("/app?x=1")
    assert (status, fields["location"], fields["x-of"]) == (301, "/app/?x=1", "all")
    assert server.get("/app", "Content-Length: 0", method="POST")[0] == 308
    assert server.get("/app/")[2] == b"/app|/"
    assert server.get("/taken")[2] == b"taken" and server.get("/taken/x")[2] == b"/taken|/x"
    assert server.get("/apple")[2] == b"front"
    status, fields, _ = server.get("/status")
    assert (status, fields["location"]) == (301, "/status/")
    with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
        assert client.get("/app").headers["location"] == "/app/"


def test_a_directory_of_scripts_without_its_slash_is_redirected(serve, site, tmp_path):
    """As other directories whose index is a script are."""
    write(tmp_path / "pma" / "index.php", "")
    write(site / "index.html", "front")
    directory = f'directory = "{tmp_path / "pma"}"'
    server = serve(
        route='set_fields = { X-Of = "all" }',
        more=f"""
        [[site.route]]
        path = "/pma/*"
        script = {{ kind = "fastcgi", connect = "127.0.0.1:1", {directory} }}
        [[site.route]]
        path = "/named/*"
        script = {{ kind = "cgi", extensions = ["php"], {directory} }}
        [[site.route]]
        path = "/programs/*"
        script = {{ kind = "cgi", {directory} }}
        [[site.route]]
        path = "/taken/*"
        script = {{ kind = "scgi", connect = "127.0.0.1:1", {directory} }}
        [[site.route]]
        path = "/taken"
        respond = {{ body = "taken" }}
        """,
    )
    for path in ("/pma", "/named"):
        status, fields, _ = server.get(f"{path}?x=1")
        assert (status, fields["location"], fields["x-of"]) == (301, f"{path}/?x=1", "all")
        assert server.get(path, "Content-Length: 0", method="POST")[0] == 308
        with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
            assert client.get(path).headers["location"] == f"{path}/"
    assert server.get("/programs")[0] == 404
    assert server.get("/taken")[2] == b"taken"


def test_an_application_beneath_another_is_redirected_to_its_own_slash(serve, tmp_path):
    home = tmp_path / "home"
    write(home / "app.py", WSGI)
    server = serve(
        route=application(home), more=f'[[site.route]]\npath = "/inner/*"\n{application(home)}'
    )
    assert server.get("/inner")[1]["location"] == "/inner/"
    assert server.get("/inner/x")[2] == b"/inner|/x" and server.get("/other")[2] == b"|/other"


def test_explain_names_the_route_that_responds(tmp_path, site):
    write(site / "app.html", "app")
    file = tmp_path / "explain.toml"
    file.write_text(
        f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\n'
        '[[site.route]]\npath = "/a/*"\ntry = ["{path}", "/app.html"]\n'
        '[[site.route]]\npath = "/status/*"\nstatus = true\n'
    )

    def explain(path):
        return subprocess.run(
            [DUNLIN, "check", "--config", str(file), "--explain", path], capture_output=True, text=True
        ).stdout

    assert "the route of /app.html" in explain("/a/x") and "301 to /status/" in explain("/status")


def test_allow_lists_the_methods_that_are_allowed(serve, site):
    write(site / "x.txt", "x")
    server = serve(
        route='methods = ["GET", "POST"]',
        more='[[site.route]]\npath = "/script"\nmethods = ["GET", "POST"]\nrespond = { body = "x" }',
    )
    for method in ("POST", "DELETE", "OPTIONS"):
        status, fields, _ = server.get("/x.txt", "Content-Length: 0", method=method)
        assert (status, fields["allow"]) == (405, "GET, HEAD"), method
    status, fields, _ = server.get("/script", "Content-Length: 0", method="PUT")
    assert (status, fields["allow"]) == (405, "GET, POST, HEAD")
    assert server.get("/script", "Content-Length: 0", method="POST")[0] == 200
