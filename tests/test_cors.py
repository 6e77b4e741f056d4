"""`cors`: access of scripts of other origins (the CORS protocol of the Fetch standard)."""

import subprocess

import pytest

from support.files import write
from support.http2 import curl
from support.server import DUNLIN
from support.upstream import Upstream, response
from test_auth import basic, passwd

pytestmark = pytest.mark.usefixtures("orderly_stop")

TABLE = """cors = { origins = ["https://a.test", "https://*.b.test"], methods = ["GET", "PUT"], headers = ["X-A", "Content-Type"],
expose = ["X-B"], credentials = true, max_age = "10m" }"""


def cors(fields):
    """The fields of the protocol, without their common start, and `Vary` if it has the origin."""
    varies = "origin" in fields.get("vary", "").lower()
    names = {name: value for name, value in fields.items() if name.startswith("access-control-") or name == "vary" and varies}
    return {name.removeprefix("access-control-").removeprefix("allow-"): value for name, value in names.items()}


def preflight(server, path, origin="https://a.test", *fields):
    return server.get(path, f"Origin: {origin}", "Access-Control-Request-Method: PUT", *fields, method="OPTIONS")


def test_every_origin_has_access_without_credentials(serve, site):
    write(site / "x.txt", "x")
    server = serve(route="cors = true", more='[[site.route]]\npath = "/off/*"\ncors = false')
    for _ in range(3):
        for fields in [(), ("Origin: https://a.test",), ("Origin: null",)]:
            assert cors(server.get("/x.txt", *fields)[1]) == {"origin": "*"}
    status, fields, body = preflight(server, "/x.txt")
    assert (status, body, cors(fields)) == (204, b"", {"origin": "*", "methods": "GET, HEAD, POST"})
    assert cors(server.get("/none")[1]) == {"origin": "*"}
    assert cors(server.get("/off/x", "Origin: https://a.test")[1]) == {} and preflight(server, "/off/x")[0] == 204
    # Without both fields, it is an ordinary request.
    status, fields, _ = server.get("/x.txt", "Origin: https://a.test", method="OPTIONS")
    assert status == 204 and fields["allow"] == "GET, HEAD, OPTIONS" and cors(fields) == {"origin": "*"}


def test_listed_origins_have_access_and_responses_vary(serve, site):
    write(site / "x.txt", "x" * 100)
    server = serve(route=TABLE)
    for origin in ["https://a.test", "https://x.b.test", "https://x.y.b.test"]:
        allowed = {"origin": origin, "credentials": "true"}
        for _ in range(3):
            status, fields, body = server.get("/x.txt", f"Origin: {origin}")
            assert (status, len(body)) == (200, 100)
            vary = fields.pop("vary")
            assert "Origin" in vary.split(", ") and cors(fields) == {**allowed, "expose-headers": "X-B"}
        status, fields, _ = preflight(server, "/x.txt", origin)
        assert status == 204 and cors(fields) == {
            **allowed, "expose-headers": "X-B", "methods": "GET, PUT", "headers": "X-A, Content-Type", "max-age": "600", "vary": "Origin",
        }
    for fields in [(), ("Origin: https://b.test",), ("Origin: https://a.test.evil",), ("Origin: https://evil/.b.test",),
                   ("Origin: null",), ("Origin: https://a.test", "Origin: https://a.test")]:
        got = server.get("/x.txt", *fields)[1]
        assert "Origin" in got.pop("vary").split(", ") and cors(got) == {}, fields
    assert cors(preflight(server, "/x.txt", "https://evil")[1]) == {"vary": "Origin"}


def test_conditional_and_range_responses_have_the_fields(serve, site):
    write(site / "x.txt", "x" * 100)
    server = serve(route=TABLE)
    origin = "Origin: https://a.test"
    etag = server.get("/x.txt", origin)[1]["etag"]
    for fields, expected in [((f"If-None-Match: {etag}",), 304), (("Range: bytes=0-9",), 206), (("Range: bytes=200-",), 416)]:
        status, got, _ = server.get("/x.txt", origin, *fields)
        assert status == expected and cors(got)["origin"] == "https://a.test", expected
    status, got, _ = curl(server, "/x.txt", "-H", origin)
    assert status == 200 and got["access-control-allow-origin"] == "https://a.test"


def test_preflights_need_no_credentials_and_rejections_have_the_fields(serve, site, tmp_path):
    write(site / "x.txt", "x")
    users = tmp_path / "users"
    assert passwd(users, "ann", "a").returncode == 0
    server = serve(
        route=f'{TABLE}\nauth = {{ basic = "{users}" }}\nmethods = ["GET"]',
        more=f"""
        [[site.route]]
        path = "/denied/*"
        deny = ["127.0.0.1"]
        [[site.route]]
        path = "/internal/*"
        internal = true
        [[site.route]]
        path = "/large/*"
        auth = false
        body_size = 1000
        methods = ["POST"]
        script = {{ kind = "cgi", directory = "{site}" }}
        """,
    )
    assert preflight(server, "/x.txt")[0] == 204
    status, fields, _ = server.get("/x.txt", "Origin: https://a.test")
    assert status == 401 and cors(fields)["origin"] == "https://a.test"
    assert server.get("/x.txt", "Origin: https://a.test", basic("ann", "a"))[0] == 200
    for path, method, more, expected in [
        ("/x.txt", "PUT", (), 405), ("/denied/x", "GET", (), 403), ("/internal/x", "GET", (), 404),
        ("/large/x", "POST", ("Content-Length: 1001",), 413),
    ]:
        status, fields, _ = server.get(path, "Origin: https://a.test", *more, method=method)
        assert status == expected and cors(fields)["origin"] == "https://a.test", path
    assert preflight(server, "/denied/x")[0] == 403


def test_fields_of_upstreams_are_replaced_also_in_cached_responses(serve):
    own = ["Access-Control-Allow-Origin: https://own.test", "Access-Control-Allow-Credentials: true", "access-control-expose-headers: X-C",
           "Vary: Accept, Origin", "Cache-Control: max-age=60"]
    upstream = Upstream(lambda _, __, request: response(b"u", "500 Oops" if request.target == "/500" else "200 OK", *own))
    server = serve(route=f'cors = {{ origins = "https://a.test" }}\nproxy = "{upstream.url}"\ncache = {{ responses = true }}')
    for path, requests in [("/x", 1), ("/500", 4)]:
        upstream.requests.clear()
        for origin, expected in [("https://a.test", {"origin": "https://a.test"}), ("https://evil", {}), ("https://own.test", {}), ("https://a.test", {"origin": "https://a.test"})]:
            data = server.exchange(f"GET {path} HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\nConnection: close\r\n\r\n".encode()).lower()
            assert data.count(b"access-control-") == len(expected) and data.count(b"\r\nvary:") == 1
            assert all(value.encode() in data for value in expected.values())
    # Preflights are not passed on, and other requests with OPTIONS are.
    upstream.requests.clear()
    assert preflight(server, "/x")[0] == 204 and not upstream.requests
    assert server.get("/x", method="OPTIONS")[0] == 200 and len(upstream.requests) == 1


def test_an_internal_redirect_adds_the_fields_once(serve):
    server = serve(
        more="""
        [[site.route]]
        path = "/a"
        rewrite = "/b"
        cors = true
        [[site.route]]
        path = "/plain"
        rewrite = "/b"
        [[site.route]]
        path = "/b"
        respond = { body = "b" }
        cors = { origins = "https://a.test" }
        """
    )
    assert cors(server.get("/a")[1]) == {"origin": "*"}
    assert cors(server.get("/plain", "Origin: https://a.test")[1]) == {"origin": "https://a.test", "vary": "Origin"}
    assert cors(preflight(server, "/plain")[1])["methods"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    "table, what",
    [
        ("{ credentials = true }", "with `credentials`, `origins` has to list the origins"),
        ('{ origins = "*", credentials = true }', "with `credentials`, `origins` has to list the origins"),
        ('{ origins = ["*", "https://a.test"] }', '"*" stands for every origin and cannot be combined with others'),
        ('{ origins = "https://a.test", credentials = true, headers = ["*"] }', 'headers: "*" has no effect with `credentials`'),
        ('{ origins = "a.test" }', '"a.test" is not an origin'),
        ('{ origins = ["https://a.test/"] }', '"https://a.test/" is not an origin'),
        ("{ origins = [] }", "the list of `origins` is empty"),
        ('{ methods = ["get"] }', '"get" is not "GET"'),
        ('{ headers = ["a b"] }', '"a b" is not a name'),
        ('"*"', "true, false or a table such as"),
        ("{ origin = true }", "did you mean `origins`?"),
    ],
)
def test_errors_name_the_place(tmp_path, table, what):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\ncors = {table}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert done.returncode == 1 and "dunlin.toml:5:" in done.stderr and what in done.stderr, done.stderr


def test_it_is_explained(tmp_path):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n{TABLE.replace(chr(10), " ")}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", "/"], capture_output=True, text=True)
    expected = "origins https://a.test, https://*.b.test; methods GET, PUT; headers X-A, Content-Type; max_age 600; expose X-B; with credentials"
    assert expected in done.stdout, done.stdout + done.stderr
