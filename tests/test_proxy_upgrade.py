"""Protocols that requests switch to through the reverse proxy, such as WebSocket."""

import base64
import hashlib
import json
import os
import re
import socket
import threading
import time

import pytest

from support import http2
from support.http import parse, read_all, read_response
from support.upstream import Request, Upstream, read_head, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = base64.b64encode(b"0123456789abcdef")
ACCEPT = base64.b64encode(hashlib.sha1(KEY + GUID).digest())
REQUEST = (
    b"GET /chat HTTP/1.1\r\nHost: example.org\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\n\r\n"
)


def echo(upstream, connection, request):
    """Accepts a WebSocket, and sends back what comes."""
    if request.fields.get("upgrade") != "websocket":
        return response(b"plain")
    accept = base64.b64encode(hashlib.sha1(request.fields["sec-websocket-key"].encode() + GUID).digest()).decode()
    connection.sendall(
        f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )
    while data := connection.recv(1 << 16):
        connection.sendall(data)
    upstream.ended.set()


@pytest.fixture
def upstream():
    made = Upstream(echo)
    made.ended = threading.Event()
    return made


def head(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(1)
        assert part, data
        data += part
    return data


def read_exactly(connection, length):
    data = bytearray()
    while len(data) < length:
        part = connection.recv(1 << 18)
        assert part, f"closed after {len(data)} bytes"
        data += part
    return bytes(data)


def test_a_websocket_is_forwarded_in_both_directions(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"')
    with server.connect() as connection:
        # The client may begin before it has the response.
        connection.sendall(REQUEST + b"early")
        received = head(connection)
        assert received.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert b"\r\nConnection: upgrade\r\n" in received and b"\r\nUpgrade: websocket\r\n" in received
        assert b"\r\nSec-WebSocket-Accept: " + ACCEPT + b"\r\n" in received and b"close" not in received
        assert read_exactly(connection, 5) == b"early"
        for size in (1, 100, 70_000):
            data = os.urandom(size)
            connection.sendall(data)
            assert read_exactly(connection, size) == data
    assert upstream.ended.wait(15), "the end of the client"
    fields = upstream.requests[0].fields
    assert (fields["connection"], fields["upgrade"]) == ("Upgrade", "websocket")
    assert fields["host"] == "example.org" and fields["x-forwarded-for"] == "127.0.0.1"


def test_much_data_flows_in_both_directions_at_once(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"')
    data = os.urandom(1 << 20) * 8
    with server.connect(60) as connection:
        connection.sendall(REQUEST)
        head(connection)
        thread = threading.Thread(target=connection.sendall, args=(data,))
        thread.start()
        assert read_exactly(connection, len(data)) == data
        thread.join()


def test_the_end_of_either_side_ends_the_other(serve):
    def farewell(upstream, connection, request):
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbye")

    server = serve(route=f'proxy = "{Upstream(farewell).url}"')
    with server.connect() as connection:
        connection.sendall(REQUEST)
        head(connection)
        assert read_all(connection) == b"bye"

    def until_end(upstream, connection, request):
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
        return read_all(connection)

    server = serve(route=f'proxy = "{Upstream(until_end).url}"')
    with server.connect() as connection:
        connection.sendall(REQUEST)
        head(connection)
        connection.sendall(b"all")
        connection.shutdown(1)
        assert read_all(connection) == b"all", "a half-closed connection"


def test_an_upstream_may_decline(serve):
    server = serve(route=f'proxy = "{Upstream(lambda *_: response(b"no", "403 Forbidden")).url}"')
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(REQUEST)
            assert read_response(connection)[::2][0] == 403


@pytest.mark.parametrize(
    "line", [b"Connection: keep-alive\r\nUpgrade: websocket", b"Connection: Upgrade\r\nUpgrade: h2c", b"Connection: Upgrade\r\nUpgrade: websocket, h2c"]
)
def test_what_is_no_request_for_another_protocol_is_an_ordinary_request(serve, upstream, line):
    server = serve(route=f'proxy = "{upstream.url}"')
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n")
        assert read_response(connection)[2] == b"plain"
    assert "upgrade" not in upstream.requests[0].fields


def test_a_websocket_survives_a_reload(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"')
    with server.connect() as connection:
        connection.sendall(REQUEST)
        head(connection)
        server.process.send_signal(1)
        server.logged("reloaded")
        connection.sendall(b"still")
        assert read_exactly(connection, 5) == b"still"


def test_an_idle_websocket_is_closed_after_its_time(serve, upstream):
    server = serve(route=f'proxy = {{ to = "{upstream.url}", tunnel_timeout = "300ms" }}')
    with server.connect() as connection:
        connection.sendall(REQUEST)
        head(connection)
        assert read_all(connection) == b""
    assert upstream.ended.wait(15)


def test_websockets_are_counted_and_logged(serve, upstream, tmp_path):
    log = tmp_path / "access.log"
    server = serve(
        route=f'proxy = "{upstream.url}"', server=f'access_log = {{ path = "{log}", format = "{{status}} {{path}} {{bytes}}" }}',
        more='[[site.route]]\npath = "/status/*"\nstatus = true\n[[site.route]]\npath = "/status"\nstatus = false\n',
    )

    def tunnels():
        return json.loads(server.get("/status/status.json")[2])["upstreams"][0]["tunnels"]

    with server.connect() as connection:
        connection.sendall(REQUEST + b"12345")
        head(connection)
        read_exactly(connection, 5)
        assert tunnels() == 1
    wait_until(lambda: tunnels() == 0, "the end of the tunnel")
    wait_until(lambda: log.exists() and re.search(r"^101 /chat 5$", log.read_text(), re.M), "the line of the tunnel")


def test_checks_apply_before_the_switch(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"\ndeny = ["127.0.0.1"]')
    with server.connect() as connection:
        connection.sendall(REQUEST)
        assert read_response(connection)[0] == 403
    assert not upstream.requests


def test_websockets_have_a_limit_of_their_own(serve, upstream):
    server = serve(route=f'proxy = {{ to = "{upstream.url}", connections = 1, queue = 0, tunnels = 2, retry = false }}')
    with server.connect() as first, server.connect() as second:
        for connection in (first, second):
            connection.sendall(REQUEST)
            assert head(connection).startswith(b"HTTP/1.1 101 ")
        rejected = attempt(server)
        assert rejected.startswith(b"HTTP/1.1 503 ") and b"error=connection_limit_reached" in rejected
    wait_until(lambda: attempt(server).startswith(b"HTTP/1.1 101 "), "the end of a tunnel")


def attempt(server):
    """The head of the response to a request for a WebSocket."""
    with server.connect() as connection:
        connection.sendall(REQUEST)
        return head(connection)


@pytest.mark.parametrize("way", ["tcp", "unix", "buffer"])
@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
@pytest.mark.parametrize("size, is_chunked", [(13, False), (13, True), (100_000, False), (100_000, True)])
def test_a_request_with_a_body_may_switch_to_another_protocol(serve, tmp_path, way, method, size, is_chunked):
    body = os.urandom(size)
    seen = []

    def attach(_, connection, request):
        seen.append(request)
        connection.sendall(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\nhello")
        while data := connection.recv(1 << 16):
            connection.sendall(data)

    upstream = Upstream(attach, path=tmp_path / "socket" if way == "unix" else None)
    keys = 'buffer = { request = "1MiB" }' if way == "buffer" else ""
    server = serve(route=f'proxy = {{ to = "{upstream.url}", {keys} }}')
    framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {size}"
    sent = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\n\r\n" if is_chunked else body
    with server.connect() as connection:
        connection.sendall(f"{method} /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n{framing}\r\n\r\n".encode() + sent)
        received = head(connection)
        assert received.startswith(b"HTTP/1.1 101 ") and b"\r\nUpgrade: tcp\r\n" in received
        assert read_exactly(connection, 5) == b"hello"
        for data in (b"x", os.urandom(70_000)):
            connection.sendall(data)
            assert read_exactly(connection, len(data)) == data
    assert (seen[0].method, seen[0].body, seen[0].fields["upgrade"]) == (method, body, "tcp")


def test_the_body_is_sent_before_the_other_protocol(serve):
    """The upstream switches as soon as it has the head."""
    size = 3_000_000
    received = bytearray()

    def eager(_, connection, request):
        connection.sendall(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n")
        received.extend(request.body)
        while len(received) < size + 3:
            received.extend(connection.recv(1 << 16))
        connection.sendall(b"bye")

    class Eager(Upstream):
        def serve(self, connection):
            found = read_head(connection)
            if found:
                eager(self, connection, Request(*found))
            connection.close()

    server = serve(route=f'proxy = "{Eager(None).url}"\nbody_size = "10MB"')
    body = os.urandom(size)
    with server.connect(60) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {size}\r\n\r\n".encode())
        connection.sendall(body[:1_000_000])
        connection.sendall(body[1_000_000:])
        assert head(connection).startswith(b"HTTP/1.1 101 ")
        connection.sendall(b"end")
        assert read_exactly(connection, 3) == b"bye"
    assert bytes(received) == body + b"end"


def test_a_request_with_a_body_may_be_declined(serve):
    upstream = Upstream(lambda *_: response(b"plain"))
    server = serve(route=f'proxy = "{upstream.url}"')
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\nab")
            assert read_response(connection)[::2] == (200, b"plain")
    assert [request.body for request in upstream.requests] == [b"ab", b"ab"]


def test_a_half_closed_client_gets_the_whole_head_of_a_late_switch(serve):
    def switch(_, connection, request):
        time.sleep(1.5)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello")

    server = serve(route=f'proxy = "{Upstream(switch).url}"')
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        head, _, rest = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ") and rest == b"hello"


def test_a_client_of_http1_learns_which_protocol_is_required(serve):
    upstream = Upstream(lambda *_: response(b"", "426 Upgrade Required", "Upgrade: websocket", "Connection: Upgrade, X-Hop", "X-Hop: 1"))
    server = serve(route=f'proxy = "{upstream.url}"')
    status, fields, _ = server.get("/")
    assert (status, fields["upgrade"]) == (426, "websocket") and "x-hop" not in fields
    assert "upgrade" in fields["connection"].lower()
    assert b"pgrade:" not in server.exchange(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
    status, fields, _ = http2.curl(server, "/")
    assert status == 426 and not {"upgrade", "connection"} & set(fields)


def test_the_error_page_for_a_required_protocol_names_it(serve, site):
    (site / "426.html").write_text("upgrade")
    upstream = Upstream(lambda *_: response(b"own", "426 Upgrade Required", "Upgrade: websocket", "Connection: Upgrade"))
    route = f'proxy = {{ to = "{upstream.url}", intercept_errors = true }}\nerror_pages = {{ 426 = "/426.html" }}'
    server = serve(route=route, more='[[site.route]]\npath = "/426.html"\nroot = "' + str(site) + '"')
    status, fields, body = server.get("/")
    assert (status, body, fields["upgrade"]) == (426, b"upgrade", "websocket") and "Upgrade" in fields["connection"]
    status, fields, _ = http2.curl(server, "/")
    assert status == 426 and not {"upgrade", "connection"} & set(fields)


def test_a_required_protocol_is_not_stored(serve):
    lines = ["Upgrade: websocket", "Connection: Upgrade", "Cache-Control: max-age=60"]
    upstream = Upstream(lambda *_: response(b"", "426 Upgrade Required", *lines))
    server = serve(route=f'proxy = "{upstream.url}"\ncache = {{ responses = true }}')
    old = b"GET / HTTP/1.0\r\nHost: x\r\n\r\n"
    for _ in range(2):
        assert "upgrade" not in parse(server.exchange(old))[1]
        assert server.get("/")[1]["upgrade"] == "websocket"
    assert len(upstream.requests) == 4
