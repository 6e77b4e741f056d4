"""Requests that are rejected: the pages of their routes, and their lines in the access log."""

import json
import subprocess

import pytest

from support.files import write
from support.http import parse, read_response, upload
from support.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Client, frame, request, section
from support.waiting import wait_until

PAGES = 'error_pages = { 408 = "/page.html", 413 = "/page.html", 417 = "/page.html" }'


@pytest.fixture
def server(serve, site, tmp_path):
    write(site / "page.html", "the page of the site")
    log = tmp_path / "access.log"
    return serve(
        route=PAGES,
        server=f'access_log = {{ path = "{log}", format = "json" }}\nhttp1 = {{ body_timeout = "1s" }}\n',
        more="""
        [[site.route]]
        path = "/up/*"
        body_size = "10B"
        respond = { body = "received" }
        [[site.route]]
        path = "/run/*"
        body_size = "10B"
        error_pages = { 413 = "/made" }
        script = { kind = "scgi", connect = ["127.0.0.1:1"] }
        [[site.route]]
        path = "/made"
        respond = { body = "a made page" }
        """,
    )


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
@pytest.mark.parametrize("how", [[], ["-H", "Transfer-Encoding: chunked"]], ids=["length", "chunked"])
@pytest.mark.parametrize("path, page", [("/up/x", "the page of the site"), ("/run/x", "a made page")])
def test_413_has_the_page_of_its_route(server, version, how, path, page):
    command = ["curl", "-s", "-i", version, *how, "--data-binary", "@-", f"{server.url}{path}"]
    if "2" in version and how:
        # HTTP/2 has no chunks: a body from a pipe states no length.
        command[-2:-1] = ["-T", "-", "-X", "POST"]
        command = [part for part in command if part not in ("--data-binary", "@-", "-H", "Transfer-Encoding: chunked")]
    done = subprocess.run(command, input=b"a" * 20, capture_output=True)
    status, fields, body = parse(done.stdout.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""))
    assert (status, body.decode()) == (413, page)


def test_408_in_the_body_has_the_page_of_its_route(server):
    with server.connect() as connection:
        connection.sendall(upload("/up/x", 5) + b"ab")
        status, _, body = read_response(connection)[:3]
        assert (status, body) == (408, b"the page of the site")
    with Client(server) as client:
        client.send(request(1, "/up/x", "POST", ("content-length", "5"), ended=False))
        assert client.body(1) == b"the page of the site"


def test_417_has_the_page_of_its_route(server):
    status, _, body = server.get("/up/x", "Expect: something")
    assert (status, body) == (417, b"the page of the site")


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]


@pytest.mark.parametrize(
    "fields, options",
    [
        ([("host", "other")], {}),
        ([("connection", "keep-alive")], {}),
        ([("transfer-encoding", "chunked")], {}),
        ([("X-Upper", "a")], {}),
        ([], {"authority": ""}),
    ],
    ids=["host", "connection", "transfer-encoding", "upper case", "authority"],
)
def test_a_malformed_request_of_http2_has_its_line(server, tmp_path, fields, options):
    with Client(server) as client:
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, section("/what", "GET", *fields, **options)))
        client.read_until(lambda kind, _, stream, __: (kind, stream) == (RST_STREAM, 1))
        client.send(request(3, "/page.html"))
        assert client.body(3) == b"the page of the site"
    found = wait_until(lambda: (two := lines(tmp_path)) and len(two) == 2 and two, "two lines")
    assert [line["status"] for line in found] == [400, 200]
    assert "/what" in json.dumps(found[0])


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [400, 431])
def test_a_request_of_http2_that_is_rejected_has_its_line_and_head_no_body(server, tmp_path, method, status):
    many = [("a", "b")] * 600
    head = section("/what", method, *(many if status == 431 else []))
    # A scheme of another protocol is rejected with a response, not with a reset.
    head = head if status == 431 else head.replace(b"\4http", b"\3ftp")
    received = []
    with Client(server) as client:
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, head))

        def is_over(kind, flags, stream, payload):
            received.append((kind, stream, payload))
            return stream == 1 and flags & END_STREAM

        client.read_until(is_over)
    data = b"".join(payload for kind, stream, payload in received if (kind, stream) == (DATA, 1))
    assert (data == b"") == (method == "HEAD"), data
    (line,) = wait_until(lambda: lines(tmp_path), "a line")
    assert line["status"] == status and "/what" in json.dumps(line) and method in json.dumps(line), line


def test_an_error_inherits_no_caching_of_another_pattern(serve, site):
    server = serve(
        route='cache_control = "max-age=31536000"\nerror_pages = { 410 = "/sorry", 404 = "/own" }',
        more="""
        [[site.route]]
        path = "/closed"
        respond = { status = 403 }
        [[site.route]]
        path = "/kept"
        respond = { status = 404 }
        cache_control = "max-age=60"
        [[site.route]]
        path = "/fine"
        respond = { body = "fine" }
        [[site.route]]
        path = "/gone"
        try = ["=410"]
        [[site.route]]
        path = "/sorry"
        respond = { body = "sorry" }
        [[site.route]]
        path = "/own"
        respond = { body = "own" }
        cache_control = "max-age=5"
        """,
    )
    for path, status, value in [
        ("/closed", 403, None),
        ("/kept", 404, "max-age=60"),
        ("/fine", 200, "max-age=31536000"),
        ("/gone", 410, None),
        ("/none", 404, "max-age=5"),
    ]:
        got, fields, _ = server.get(path)
        assert (got, fields.get("cache-control")) == (status, value), path
