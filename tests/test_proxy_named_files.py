"""The reverse proxy: files that upstreams name for sending (X-Accel-Redirect, X-Sendfile)."""

import pytest

from support import http2
from support.files import write
from support.http import post
from support.upstream import Upstream, chunked, response

pytestmark = pytest.mark.usefixtures("orderly_stop")

TEXT = "0123456789" * 20
INTERNAL = '[[site.route]]\npath = "/internal/*"\ninternal = true\n'


@pytest.fixture(params=["whole", "chunked", "unix", "cache"])
def naming(request, serve, site, tmp_path):
    """A server before an upstream that responds with `server.fields`."""
    write(site / "internal" / "file.txt", TEXT)
    write(tmp_path / "private" / "my report.txt", TEXT)
    write(tmp_path / "elsewhere.txt", TEXT)

    def answer(_, __, asked):
        fields = server.fields
        if request.param == "chunked":
            return chunked(b"of the ", b"upstream", fields=fields)
        return response(b"of the upstream", server.status, *fields)

    upstream = Upstream(answer, path=tmp_path / "socket" if request.param == "unix" else None)
    more = "cache = { responses = true }" if request.param == "cache" else ""

    def start(keys=f'sendfile_root = "{tmp_path}/private"', route=""):
        nonlocal server
        server = serve(
            more=f'[[site.route]]\npath = "/s/*"\nset_fields = {{ X-Route = "yes" }}\nproxy = {{ to = "{upstream.url}", {keys} }}\n'
            f"{more}\n{route}\n{INTERNAL}"
        )
        server.upstream, server.status = upstream, "200 OK"
        return server

    server = None
    return start


def test_an_internal_path_is_sent_with_the_fields_of_the_upstream(naming):
    server = naming()
    server.fields = [
        "X-Accel-Redirect: /internal/file.txt", "Content-Type: text/x-own", "Cache-Control: private", 'Content-Disposition: attachment; filename="a.txt"',
        "Set-Cookie: a=1", "Set-Cookie: b=2", 'ETag: "own"', "Date: Sun, 06 Nov 1994 08:49:37 GMT", "X-Accel-Buffering: no",
    ]
    assert server.get("/internal/file.txt")[0] == 404
    for _ in range(2):
        status, fields, body = server.get("/s/x")
        assert (status, body.decode()) == (200, TEXT)
        assert fields["content-type"] == "text/x-own" and fields["x-route"] == "yes"
        assert (fields["cache-control"], fields["set-cookie"]) == ("private", "a=1, b=2")
        assert fields["content-length"] == "200" and fields["etag"] != '"own"' and "1994" not in fields["date"]
        assert not any(name.startswith("x-accel") for name in fields)
    status, part, body = server.get("/s/x", "Range: bytes=3-5")
    assert (status, body) == (206, b"345") and part["content-range"] == "bytes 3-5/200"
    assert server.get("/s/x", f"If-None-Match: {fields['etag']}")[0] == 304
    status, head, body = server.get("/s/x", method="HEAD")
    assert (status, body, head["content-length"]) == (200, b"", "200")
    assert post(server, "/s/x", b"data")[::2] == (200, TEXT.encode())
    status, fields, body = http2.curl(server, "/s/x")
    assert (status, body.decode()) == (200, TEXT) and "x-accel-redirect" not in fields
    # The status is that of the file.
    server.status = "404 Not Found"
    assert server.get("/s/x")[0] == 200


def test_a_file_beneath_a_declared_directory_is_sent_and_no_other(naming, tmp_path):
    server = naming()
    server.fields = [f"x-sendfile: {tmp_path}/private/my report.txt", "Content-Type: text/x-own"]
    status, fields, body = server.get("/s/x")
    assert (status, body.decode(), fields["content-type"]) == (200, TEXT, "text/x-own")
    assert fields["x-route"] == "yes" and "x-sendfile" not in fields
    assert server.get("/s/x", "Range: bytes=-3")[::2] == (206, b"789")
    (tmp_path / "private" / "link").symlink_to(tmp_path / "elsewhere.txt")
    for path, expected in [("elsewhere.txt", 502), ("private/../elsewhere.txt", 403), ("private/link", 403), ("private/missing", 404)]:
        server.fields = [f"X-Sendfile: {tmp_path}/{path}", "Content-Type: text/x-own", "Set-Cookie: a=1"]
        status, fields, body = server.get("/s/x")
        assert status == expected and TEXT.encode() not in body and str(tmp_path).encode() not in body, path
        assert fields["content-type"] == "text/html; charset=utf-8" and "x-sendfile" not in fields
    line = server.logged("beneath no `sendfile_root`")
    assert 'method="GET"' in line and "/s/x" in line and 'route="/s/*"' in line and "the upstream failed" in line
    server.logged("the resource that the upstream names cannot be sent")


@pytest.mark.parametrize("fields", [
    ["X-Sendfile: /etc/hostname"],
    ["X-Accel-Redirect: internal/file.txt"],
    ["X-Accel-Redirect: http://x/internal/file.txt"],
    ["X-Accel-Redirect: @name"],
    ["X-Accel-Redirect: /../x"],
    ["X-Accel-Redirect: /internal/file.txt", "X-Sendfile: /etc/hostname"],
    ["X-Accel-Redirect: /internal/file.txt", "X-Accel-Redirect: /internal/file.txt"],
    # It leads to itself.
    ["X-Accel-Redirect: /s/x"],
])
def test_what_cannot_be_sent_is_an_error(serve, site, fields):
    write(site / "internal" / "file.txt", TEXT)
    upstream = Upstream(lambda *_: response(b"x", "200 OK", *fields))
    server = serve(more=f'[[site.route]]\npath = "/s/*"\nproxy = "{upstream.url}"\n{INTERNAL}')
    status, sent, body = server.get("/s/x")
    assert status == 502 and sent["proxy-status"] == "dunlin; error=http_protocol_error" and TEXT.encode() not in body
    assert "x-sendfile" not in sent and "x-accel-redirect" not in sent


def test_instructions_for_the_server_reach_no_client(serve, cgi):
    fields = ["X-Accel-Buffering: no", "x-accel-expires: 60", "X-Accel-Limit-Rate: 1", "X-Accel-Charset: utf-8", "X-Own: 1"]
    upstream = Upstream(lambda *_: response(b"hello", "200 OK", *fields))
    script = cgi({"s": "printf '" + "\\n".join(fields) + "\\n\\nhello'"})
    for server, path in [(serve(route=f'proxy = "{upstream.url}"'), "/"), (script, "/cgi-bin/s")]:
        status, sent, body = server.get(path)
        assert (status, body, sent["x-own"]) == (200, b"hello", "1")
        assert not any(name.startswith("x-accel") for name in sent)


def test_a_route_may_forbid_its_upstreams_to_name_files(serve, site, tmp_path):
    write(site / "internal" / "file.txt", TEXT)
    fields = ["X-Accel-Redirect: /internal/file.txt"]
    upstream = Upstream(lambda *_: response(b"my own", "200 OK", *fields))
    route = f'proxy = {{ to = "{upstream.url}", sendfile_root = "{tmp_path}" }}\nremove_fields = ["x-accel-redirect", "X-Sendfile"]'
    server = serve(more=f'[[site.route]]\npath = "/s/*"\n{route}\n{INTERNAL}')
    for fields[:] in (["X-Accel-Redirect: /internal/file.txt"], [f"X-Sendfile: {site}/internal/file.txt"]):
        status, sent, body = server.get("/s/x")
        assert (status, body) == (200, b"my own") and not {"x-accel-redirect", "x-sendfile"} & set(sent)


def test_an_error_page_may_be_one_of_an_upstream(serve, site, tmp_path):
    upstream = Upstream(lambda *_: response(b"", "200 OK", "X-Sendfile: /none"))
    write(site / "502.html", "my page")
    server = serve(
        more=f'[[site.route]]\npath = "/s/*"\nproxy = "{upstream.url}"\nerror_pages = {{ "502" = "/502.html" }}\n'
    )
    assert server.get("/s/x")[::2] == (502, b"my page")


def test_check_names_a_directory_that_is_missing(tmp_path, serve):
    upstream = Upstream()
    server = serve(route=f'proxy = {{ to = "{upstream.url}", sendfile_root = ["{tmp_path}"] }}')
    assert server.get("/")[0] == 200
