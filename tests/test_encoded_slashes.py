"""Encoded slashes (`%2F`): each kind of route gives them to what responds, and none crosses the pattern of another route."""

import pytest

from support.fastcgi import PHP_CGI
from support.files import write
from support.scripts import script

pytestmark = pytest.mark.usefixtures("orderly_stop")

CGI = """#!/bin/sh
printf 'Content-Type: text/plain\\n\\n%s|%s|%s' "$SCRIPT_NAME" "$PATH_INFO" "$REQUEST_URI"
"""
WSGI = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return ["|".join(environ[name] for name in ("SCRIPT_NAME", "PATH_INFO", "REQUEST_URI")).encode()]
"""
ASGI = """
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    text = "|".join([scope["root_path"], scope["path"], scope["raw_path"].decode()])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})
"""
PSGI = "sub { my $e = shift; [200, [], [join '|', $e->{SCRIPT_NAME}, $e->{PATH_INFO}, $e->{REQUEST_URI}]] }\n"


@pytest.fixture
def server(serve, site, tmp_path):
    home = tmp_path / "home"
    for kind in ("cgi", "warm"):
        script(home / kind, "run.sh", CGI)
    write(home / "wsgi_app.py", WSGI)
    write(home / "asgi_app.py", ASGI)
    write(home / "app.psgi", PSGI)
    write(site / "a/b.txt", "file")
    write(site / "try/index.txt", "front")
    routes = "".join(
        f'[[site.route]]\npath = "/{kind}/*"\nscript = {{ kind = "{kind}", directory = "{home}/{kind}" }}\n'
        for kind in ("cgi", "warm")
    )
    routes += "".join(
        f'[[site.route]]\npath = "/{kind}/*"\nscript = {{ kind = "{kind}", application = "{name}", directory = "{home}" }}\n'
        for kind, name in [("wsgi", "wsgi_app:application"), ("asgi", "asgi_app:application"), ("psgi", "app.psgi")]
    )
    return serve(
        more=routes
        + """
        [[site.route]]
        path = "/old/*"
        redirect = "/new/{rest}"
        [[site.route]]
        path = "/fixed/*"
        respond = { body = "fixed" }
        [[site.route]]
        path = "/try/*"
        try = ["{path}", "/try/index.txt"]
        [[site.route]]
        path = "/deny/*"
        deny = ["0.0.0.0/0"]
        [[site.route]]
        path = "*/private"
        deny = ["0.0.0.0/0"]
        """
    )


@pytest.mark.parametrize("kind", ["cgi", "warm", "wsgi", "asgi", "psgi"])
@pytest.mark.parametrize("slash", ["%2F", "%2f"])
def test_applications_get_it_as_their_interfaces_define(server, kind, slash):
    name = "/run.sh" if kind in ("cgi", "warm") else ""
    path = f"/{kind}{name}/units/kg{slash}s"
    status, _, body = server.get(path)
    assert status == 200
    mount, info, raw = body.decode().split("|")
    info = info.removeprefix(mount) if kind == "asgi" else info
    assert (mount, info, raw) == (f"/{kind}{name}", "/units/kg/s", path)
    # An encoded URL keeps its two slashes.
    _, info, _ = server.get(f"/{kind}{name}/http:{slash}{slash}a.example")[2].decode().split("|")
    assert info.endswith("/http://a.example")


def test_other_routes_carry_it_on_or_have_no_such_file(server):
    assert server.get("/old/a%2Fb?c=d")[1]["location"] == "/new/a%2Fb"
    assert server.get("/fixed/a%2Fb")[0::2] == (200, b"fixed")
    assert server.get("/a/b.txt")[0] == 200
    assert server.get("/a%2Fb.txt")[0] == 404
    assert server.get("/try/a%2Fb")[0::2] == (200, b"front")


@pytest.mark.parametrize("path", ["/deny%2Fx", "/fixed/x%2Fprivate", "/fixed%2F..%2Fdeny/x", "/fixed/..%2F..%2Fdeny/x", "/cgi%2Frun.sh/x"])
def test_it_leads_into_no_other_route(server, path):
    assert server.get(path)[0] == 404


def test_it_leads_out_of_no_route(server):
    assert server.get("/deny/a%2Fb")[0] == 403
    assert server.get("/deny/..%2Fx")[0] == 404


@pytest.mark.skipif(not PHP_CGI, reason="php-cgi is not installed")
def test_php_gets_it_in_path_info(serve, site):
    write(site / "index.php", "<?php echo $_SERVER['PATH_INFO'] ?? '', '|', $_SERVER['REQUEST_URI'];")
    server = serve(f'try = ["{{path}}", "/index.php{{path}}"]\nscript = {{ kind = "fastcgi", command = ["php-cgi"], root = "{site}" }}')
    assert server.get("/index.php/a%2Fb")[2] == b"/a/b|/index.php/a%2Fb"
    assert server.get("/a%2Fb")[2] == b"/a/b|/a%2Fb"
