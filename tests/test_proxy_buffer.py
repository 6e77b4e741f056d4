"""The reverse proxy: bodies that are collected in memory, so that slow clients do not occupy upstreams."""

import os
import threading

import pytest

from support.http import dechunk, parse, read_all, read_response, upload
from support.upstream import Upstream, chunked, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

# More than sockets hold.
LARGE = os.urandom(1 << 20) * 32
GET = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Source(Upstream):
    """Counts the large responses that it has sent completely."""

    sent = 0

    def __init__(self, is_chunked=False):
        self.is_chunked = is_chunked
        super().__init__(self.respond)

    def respond(self, _, connection, request):
        if request.target != "/large":
            return response(b"small")
        connection.sendall(chunked(LARGE, trailers=["X-End: 1"]) if self.is_chunked else response(LARGE))
        self.sent += 1
        return b""


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_slow_client_does_not_occupy_an_upstream(serve, is_chunked):
    upstream = Source(is_chunked)
    server = serve(route=f'proxy = {{ to = "{upstream.url}", connections = 1, queue_timeout = "10s", buffer = {{ response = "64MiB" }} }}')
    with server.connect() as slow:
        slow.sendall(GET % b"/large")
        wait_until(lambda: upstream.sent, "the whole response at the server")
        assert server.get("/")[2] == b"small"
        head, _, body = read_all(slow).partition(b"\r\n\r\n")
    if is_chunked:
        body, _, end = body.rpartition(b"0\r\n")
        assert end == b"X-End: 1\r\n\r\n"
        body = b"".join(dechunk(body + b"0\r\n\r\n"))
    assert body == LARGE


@pytest.mark.parametrize("keys", ["", 'buffer = { response = "64MiB", total = "1MiB" }', 'buffer = { response = "1MiB" }'])
def test_beyond_the_memory_the_client_sets_the_pace(serve, keys):
    upstream = Source()
    server = serve(route=f'proxy = {{ to = "{upstream.url}", connections = 1, queue_timeout = "1s", {keys} }}')
    with server.connect() as slow:
        slow.sendall(GET % b"/large")
        wait_until(lambda: upstream.requests, "the request")
        assert server.get("/")[0] == 503 and not upstream.sent
        assert read_response(slow)[2] == LARGE
    wait_until(lambda: server.get("/")[2] == b"small", "the connection")


def test_memory_is_returned_when_the_client_leaves(serve):
    upstream = Source()
    server = serve(route=f'proxy = {{ to = "{upstream.url}", buffer = {{ response = "40MiB", total = "40MiB" }} }}')
    for number in range(1, 4):
        with server.connect() as slow:
            slow.sendall(GET % b"/large")
            wait_until(lambda: upstream.sent == number, "the whole response at the server")
        wait_until(lambda: server.get("/")[0] == 200, "the server")


def test_a_response_that_is_cut_stays_incomplete(serve):
    gate = threading.Event()

    def cut(_, connection, request):
        connection.sendall(response(LARGE)[:20_000_000])
        gate.set()

    upstream = Upstream(cut)
    server = serve(route=f'proxy = {{ to = "{upstream.url}", buffer = {{ response = "64MiB" }} }}')
    with server.connect() as slow:
        slow.sendall(GET % b"/large")
        assert gate.wait(15)
        with pytest.raises((AssertionError, ConnectionResetError), match="closed within a body|reset"):
            read_response(slow)


@pytest.mark.parametrize("length", [500_000, None])
def test_a_request_takes_an_upstream_when_its_body_is_there(serve, length):
    upstream = Upstream(lambda _, __, request: response(str(len(request.body)).encode()))
    server = serve(route=f'proxy = {{ to = "{upstream.url}", buffer = {{ request = "1MiB" }} }}\nbody_size = "10MB"')
    with server.connect() as connection:
        connection.sendall(upload("/", length))
        part = os.urandom(100_000)
        part = part if length else b"%x\r\n%s\r\n" % (len(part), part)
        for _ in range(4):
            connection.sendall(part)
            assert server.get("/other")[0] == 200
            assert all(request.target == "/other" for request in upstream.requests)
        connection.sendall(part if length else part + b"0\r\n\r\n")
        assert read_response(connection)[2] == b"500000"
    assert upstream.requests[-1].fields["content-length"] == "500000"


def test_a_larger_body_is_streamed(serve):
    upstream = Upstream(lambda _, __, request: response(request.body[-10:]))
    server = serve(route=f'proxy = {{ to = "{upstream.url}", buffer = {{ request = "1MiB" }} }}\nbody_size = "100MB"')
    for length in (2_000_000, None):
        body = LARGE[:2_000_000]
        sent = upload("/", length, "POST", "Connection: close") + (body if length else b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        status, _, got = parse(server.exchange(sent, 60))
        assert (status, got) == (200, body[-10:]) and upstream.requests[-1].body == body
    assert upstream.requests[-1].fields["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("size", [100, 60_000, 300_000])
def test_a_collected_body_is_sent_again(serve, size):
    broken = Upstream(lambda *_: None)
    working = Upstream(lambda _, __, request: response(request.body))
    server = serve(
        route=f'proxy = {{ to = ["{broken.url}", "{working.url}"], balance = "round-robin", buffer = {{ request = "1MiB" }} }}\nbody_size = "10MB"'
    )
    for _ in range(4):
        body = LARGE[:size]
        status, _, got = parse(server.exchange(upload("/", len(body), "PUT", "Connection: close") + body))
        assert (status, got) == (200, body)
    assert broken.requests
