"""Files that scripts name for sending (X-Accel-Redirect, X-Sendfile), and interim responses
(Early Hints)."""

import pytest

from support.files import write
from support.http import parse, read_all
from support.http2 import Client, END_STREAM, HEADERS, request
from support.scripts import script

TEXT = "0123456789" * 20

CGI = """printf "$(cat fields)"\n"""

WSGI = """
import os
def application(environ, start_response):
    lines = open("fields").read().replace("\\\\n", "\\n").strip().split("\\n")
    start_response("200 OK", [tuple(line.split(": ", 1)) for line in lines])
    return [b"of the script"]
"""


@pytest.fixture(params=["cgi", "warm", "wsgi"])
def naming(request, serve, site, tmp_path):
    """A server with a script at /s that sends the given fields."""
    kind = request.param
    folder = tmp_path / "scripts"
    folder.mkdir()
    if kind == "wsgi":
        (folder / "app.py").write_text(WSGI)
    else:
        script(folder, "s", CGI)
    write(site / "internal" / "file.txt", TEXT)
    write(tmp_path / "private" / "my report.txt", TEXT)
    write(tmp_path / "elsewhere.txt", TEXT)
    what = 'application = "app:application"' if kind == "wsgi" else ""

    def start(settings=f'sendfile_root = "{tmp_path}/private"', more=""):
        server = serve(
            more=f'[[site.route]]\npath = "/s*"\nset_fields = {{ X-Route = "yes" }}\n'
            f'script = {{ kind = "{kind}", directory = "{folder}", {what}{"," if what else ""} {settings} }}\n'
            f'[[site.route]]\npath = "/internal/*"\ninternal = true\n{more}'
        )
        server.set_fields = lambda text: (folder / "fields").write_text(text)
        server.fetch = lambda *fields, method="GET": server.get("/s", *fields, method=method)
        return server

    return start


def test_an_internal_path_is_sent_with_the_fields_of_the_script(naming):
    server = naming()
    for _ in range(2):
        assert server.get("/internal/file.txt")[0] == 404
        server.set_fields(
            "X-Accel-Redirect: /internal/file.txt\\nContent-Type: text/x-own\\nCache-Control: private\\n"
            'Content-Disposition: attachment; filename="a.txt"\\nSet-Cookie: a=1\\nSet-Cookie: b=2\\n'
            'ETag: "own"\\nContent-Length: 3\\n\\n'
        )
        status, fields, body = server.fetch()
        assert (status, body.decode()) == (200, TEXT)
        assert fields["content-type"] == "text/x-own"
        assert fields["content-disposition"] == 'attachment; filename="a.txt"'
        assert (fields["cache-control"], fields["set-cookie"]) == ("private", "a=1, b=2")
        assert fields["content-length"] == "200" and fields["x-route"] == "yes"
        assert fields["etag"] != '"own"' and "x-accel-redirect" not in fields
    status, part, body = server.fetch("Range: bytes=3-5")
    assert (status, body) == (206, b"345") and part["content-range"] == "bytes 3-5/200"
    status, parts, body = server.fetch("Range: bytes=0-1,5-6")
    assert status == 206 and parts["content-type"].startswith("multipart/byteranges")
    assert body.count(b"Content-Range: bytes ") == 2
    status, same, body = server.fetch(f"If-None-Match: {fields['etag']}")
    assert (status, body) == (304, b"") and same["set-cookie"] == "a=1, b=2"
    assert "content-type" not in same and "content-disposition" not in same
    status, head, body = server.fetch(method="HEAD")
    assert (status, body, head["content-length"]) == (200, b"", "200")
    assert server.get("/internal/file.txt")[0] == 404


def test_a_file_beneath_a_declared_directory_is_sent_and_no_other(naming, tmp_path):
    server = naming()
    server.set_fields(f"X-Sendfile: {tmp_path}/private/my report.txt\\nContent-Type: text/x-own\\n\\n")
    status, fields, body = server.fetch()
    assert (status, body.decode(), fields["content-type"]) == (200, TEXT, "text/x-own")
    assert fields["x-route"] == "yes" and "x-sendfile" not in fields
    status, _, body = server.fetch("Range: bytes=-3")
    assert (status, body) == (206, b"789")
    assert server.fetch(f"If-None-Match: {fields['etag']}")[0] == 304
    status, head, body = server.fetch(method="HEAD")
    assert (status, body, head["content-length"]) == (200, b"", "200")
    write(tmp_path / "private" / "my report.txt", "changed")
    assert server.fetch()[2] == b"changed"
    (tmp_path / "private" / "link").symlink_to(tmp_path / "elsewhere.txt")
    for path, expected in [
        ("elsewhere.txt", 502),
        ("private/../elsewhere.txt", 403),
        ("private/link", 403),
        ("privatefile", 502),
        ("private/missing", 404),
        ("private", 403),
    ]:
        server.set_fields(f"X-Sendfile: {tmp_path}/{path}\\nContent-Type: text/x-own\\nSet-Cookie: a=1\\n\\n")
        status, fields, body = server.fetch()
        assert status == expected and TEXT.encode() not in body, path
        assert fields.get("content-type") == "text/html; charset=utf-8", path
    server.set_fields(f"X-Sendfile: {tmp_path}/private/\\n\\n")
    assert server.fetch()[0] == 403
    server.logged("beneath no `sendfile_root`")
    server.logged("the resource that the script names cannot be sent")


def test_without_a_declared_directory_no_file_is_sent(naming, tmp_path):
    server = naming(settings="")
    server.set_fields(f"X-Sendfile: {tmp_path}/private/my report.txt\\n\\n")
    status, _, body = server.fetch()
    assert status == 502 and str(tmp_path).encode() not in body
    for bad in ["internal/file.txt", "http://x/internal/file.txt", "@name", "/a b", "/../x"]:
        server.set_fields(f"X-Accel-Redirect: {bad}\\n\\n")
        assert server.fetch()[0] == 502, bad
    server.set_fields("X-Accel-Redirect: /internal/missing\\n\\n")
    assert server.fetch()[0] == 404
    # A script that leads to itself ends.
    server.set_fields("X-Accel-Redirect: /s\\n\\n")
    assert server.fetch()[0] == 502


def test_a_local_redirect_reaches_only_paths_that_clients_may_request(naming):
    server = naming()
    server.set_fields("Location: /internal/file.txt\\n\\n")
    assert server.fetch()[2] != TEXT.encode()


HINTS = """
printf 'Status: 103 Early Hints\\nLink: </a.css>; rel=preload\\nContent-Type: text/html\\n\\n'
printf 'Status: 103\\r\\nLink: </b.js>; rel=preload\\r\\n\\r\\n'
while [ ! -e "$QUERY_STRING" ]; do sleep 0.01; done
printf 'Content-Type: text/plain\\nX-Own: 1\\n\\nhello'
"""
ROUTE = 'early_hints = ["</route.css>; rel=preload; as=style"]'
EXPECTED = (
    b"HTTP/1.1 103 Early Hints\r\nLink: </route.css>; rel=preload; as=style\r\n\r\n"
    b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    b"HTTP/1.1 103 Early Hints\r\nLink: </b.js>; rel=preload\r\n\r\n"
)


def test_early_hints_precede_the_response(cgi, tmp_path):
    go = tmp_path / "go"
    server = cgi({"hints": HINTS}, route=ROUTE)
    with server.connect() as connection:
        connection.sendall(
            f"GET /cgi-bin/hints?{go} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        early = b""
        while len(early) < len(EXPECTED):
            early += connection.recv(len(EXPECTED) - len(early))
        assert early == EXPECTED
        go.touch()
        status, fields, body = parse(read_all(connection))
    assert (status, fields["x-own"], body) == (200, "1", b"hello")
    assert "link" not in fields
    # A client of HTTP/1.0 would take the interim response for the final one.
    response = server.exchange(f"GET /cgi-bin/hints?{go} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
    assert response.startswith(b"HTTP/1.1 200 OK\r\n") and b"103" not in response
    # Only GET and HEAD get the hints of the route; a script may send its own.
    response = server.exchange(
        f"POST /cgi-bin/hints?{go} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx".encode()
    )
    assert response.count(b" 103 ") == 2 and b"route.css" not in response


def test_early_hints_precede_the_response_over_http2(cgi, tmp_path):
    go = tmp_path / "go"
    server = cgi({"hints": HINTS}, route=ROUTE)
    with Client(server) as client:
        client.send(request(1, f"/cgi-bin/hints?{go}"))
        heads = []
        while len(heads) < 3:
            kind, flags, stream, payload = client.read()
            if kind == HEADERS:
                assert stream == 1 and not flags & END_STREAM
                heads.append(payload)
        assert b"103" in heads[0] or b"\x08" in heads[0]
        go.touch()
        frames = client.read_until(lambda _, flags, of, __: of == 1 and flags & END_STREAM)
        assert [frame[0] for frame in frames].count(HEADERS) == 1
        assert b"".join(frame[3] for frame in frames if frame[0] == 0) == b"hello"
        assert frames[0][3][:1] == b"\x88", "status 200"


def test_a_script_that_only_sends_hints_has_no_response(cgi):
    hint = "printf 'Status: 103\\nLink: </a>\\n\\n'\n"
    server = cgi({"only": hint, "flood": hint * 9 + "printf 'Content-Type: a/b\\n\\n'"})
    response = server.exchange(b"GET /cgi-bin/only HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert response.count(b"HTTP/1.1 103") == 1 and response.count(b"HTTP/1.1 502") == 1
    response = server.exchange(b"GET /cgi-bin/flood HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert response.count(b"HTTP/1.1 103") == 8 and response.count(b"HTTP/1.1 502") == 1
    server.logged("more than 8 Early Hints")


ASGI = """
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    assert "http.response.early_hint" in scope["extensions"]
    await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload", b"</b.css>"]})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})
"""


def test_an_asgi_application_sends_early_hints(serve, tmp_path):
    (tmp_path / "app.py").write_text(ASGI)
    server = serve(
        more=f'[[site.route]]\npath = "/*"\n'
        f'script = {{ kind = "asgi", application = "app:application", directory = "{tmp_path}", processes = 1 }}\n'
    )
    response = server.exchange(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    first, _, rest = response.partition(b"\r\n\r\n")
    assert first == b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nlink: </b.css>"
    status, _, body = parse(rest)
    assert (status, body) == (200, b"hello")
