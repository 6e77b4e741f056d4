"""Tunnels over HTTP/2 by extended CONNECT (RFC 8441), through the reverse proxy to upstreams of HTTP/1.1."""

import base64
import hashlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest
from h2.errors import ErrorCodes
from websockets.frames import Opcode
from websockets.sync.client import connect
from websockets.sync.server import serve as serve_websockets

from support import http2
from support.http import read_all
from support.tunnel import Connection
from support.upstream import Upstream, response
from support.waiting import wait_until
from support.websocket import Frames

pytestmark = pytest.mark.usefixtures("orderly_stop")

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept(request):
    key = request.fields["sec-websocket-key"].encode()
    return base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()


def switch(connection, request, *fields):
    lines = "".join(f"{field}\r\n" for field in (*fields, f"Sec-WebSocket-Accept: {accept(request)}"))
    connection.sendall(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{lines}\r\n".encode())


def echo(upstream, connection, request):
    switch(connection, request, "Sec-WebSocket-Protocol: chat")
    while data := connection.recv(1 << 16):
        connection.sendall(data)
    upstream.ended.set()


@pytest.fixture
def upstream():
    made = Upstream(echo)
    made.ended = threading.Event()
    return made


def test_bytes_flow_in_both_directions(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"')
    with Connection(server) as connection:
        tunnel = connection.open("/chat?room=1", ("sec-websocket-protocol", "chat"), ("origin", "https://example.org"))
        assert tunnel.head() == 200
        assert tunnel.fields["sec-websocket-protocol"] == "chat"
        assert not {"upgrade", "connection", "sec-websocket-accept", "content-length"} & set(tunnel.fields)
        for size in (1, 100, 300_000):
            data = os.urandom(size)
            tunnel.send(data)
            assert tunnel.read(size) == data
        # Others use the same connection.
        second = connection.open()
        assert second.head() == 200
        second.send(b"second")
        assert second.read(6) == b"second"
        tunnel.send(end=True)
        assert tunnel.read_rest() == b"" and tunnel.ended
        second.send(b"still")
        assert second.read(5) == b"still"
    assert upstream.ended.wait(15)
    request = upstream.requests[0]
    assert (request.method, request.target) == ("GET", "/chat?room=1")
    assert (request.fields["connection"], request.fields["upgrade"]) == ("Upgrade", "websocket")
    assert request.fields["host"] == "example.org" and request.fields["origin"] == "https://example.org"
    assert request.fields["sec-websocket-version"] == "13"
    keys = {request.fields["sec-websocket-key"] for request in upstream.requests}
    assert len(keys) == 2 and all(len(base64.b64decode(key)) == 16 for key in keys)


def test_the_end_of_each_side_reaches_the_other(serve):
    def until_end(upstream, connection, request):
        switch(connection, request)
        data = read_all(connection)
        return b"%d bytes" % len(data)

    server = serve(route=f'proxy = "{Upstream(until_end).url}"')
    with Connection(server) as connection:
        tunnel = connection.open()
        tunnel.send(b"x" * 1000, end=True)
        assert tunnel.read_rest() == b"1000 bytes" and tunnel.ended


def test_a_client_that_cancels_ends_the_upstreams_connection(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"')
    with Connection(server) as connection:
        tunnel = connection.open()
        assert tunnel.head() == 200
        tunnel.cancel()
        assert upstream.ended.wait(15)
        upstream.ended.clear()
        tunnel = connection.open()
        assert tunnel.head() == 200
    assert upstream.ended.wait(15), "the end of the client's connection"


def test_a_reset_by_the_upstream_cancels_the_stream(serve):
    def reset(upstream, connection, request):
        switch(connection, request)
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    server = serve(route=f'proxy = "{Upstream(reset).url}"')
    with Connection(server) as connection:
        tunnel = connection.open()
        assert tunnel.head() == 200
        tunnel.send(b"x")
        tunnel.read_rest()
        assert tunnel.reset == ErrorCodes.CANCEL and not tunnel.ended


def test_what_is_no_switch_is_no_success(serve):
    def decline(upstream, connection, request):
        if request.target == "/403":
            return response(b"no", "403 Forbidden")
        if request.target == "/200":
            return response(b"plain")
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")

    upstream = Upstream(decline)
    server = serve(route=f'proxy = "{upstream.url}"')
    with Connection(server) as connection:
        for path, status, text in (("/403", 403, b"no"), ("/200", 502, b"502"), ("/key", 502, b"502")):
            tunnel = connection.open(path)
            assert tunnel.head() == status
            assert text in tunnel.read_rest()
            assert status == 403 or tunnel.fields["proxy-status"] == "dunlin; error=http_upgrade_failed"
        # The upstream is not at fault, and gets the next request.
        assert connection.open("/403").head() == 403
    server.logged("without switching")


@pytest.mark.parametrize("route", ["", 'respond = { body = "text" }'])
def test_what_has_no_tunnels_responds_501(serve, site, route):
    (site / "a.txt").write_text("a")
    server = serve(route=route)
    with Connection(server) as connection:
        for path in ("/a.txt", "/missing"):
            tunnel = connection.open(path)
            assert tunnel.head() == 501
            tunnel.read_rest()
    with http2.Client(server) as client:
        client.send(http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 1, http2.block([(":method", "CONNECT"), (":authority", "x:1")])))
        # Plain CONNECT has another response: 405, by name or in the body.
        client.read_until(lambda kind, *_: kind == http2.HEADERS)
        assert b"405" in client.body(1)


def test_http_is_no_protocol_of_a_tunnel(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"')
    with Connection(server) as connection:
        for protocol in ("h2c", "HTTP", "tls"):
            assert connection.open(protocol=protocol).head() == 501
    assert not upstream.requests


def test_checks_apply_and_see_a_get(serve, upstream):
    server = serve(
        route=f'proxy = "{upstream.url}"\nmethods = ["GET"]',
        more=f'[[site.route]]\npath = "/closed/*"\nproxy = "{upstream.url}"\ndeny = ["127.0.0.1"]\n'
        f'[[site.route]]\npath = "/post/*"\nproxy = "{upstream.url}"\nmethods = ["POST"]\n',
    )
    with Connection(server) as connection:
        assert connection.open("/").head() == 200
        assert connection.open("/closed/").head() == 403
        assert connection.open("/post/").head() == 405


def test_a_tunnel_survives_a_reload_and_a_stop_waits_for_it(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"', server='stop_timeout = "20s"')
    head = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/"), (":authority", "x")]
    # The package h2 takes GOAWAY for the end of the connection.
    with http2.Client(server) as client:

        def exchange(data):
            client.send(http2.frame(http2.DATA, 0, 1, data))
            frames = client.read_until(lambda kind, *_: kind == http2.DATA)
            assert frames[-1][3] == data
            return frames

        client.send(http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.block(head)))
        exchange(b"begun")
        server.process.send_signal(signal.SIGHUP)
        server.logged("reloaded")
        exchange(b"reloaded")
        server.process.send_signal(signal.SIGTERM)
        client.read_until(lambda kind, *_: kind == http2.GOAWAY)
        exchange(b"draining")
        client.send(http2.frame(http2.DATA, http2.END_STREAM, 1))
        client.read_until(lambda kind, flags, *_: kind == http2.DATA and flags & http2.END_STREAM)
    assert server.process.wait(15) == 0
    assert "still open" not in server.log


def test_a_stop_ends_tunnels_after_its_timeout(serve, upstream):
    server = serve(route=f'proxy = "{upstream.url}"', server='stop_timeout = "300ms"')
    with Connection(server) as connection:
        assert connection.open().head() == 200
        server.process.send_signal(signal.SIGTERM)
        assert upstream.ended.wait(15)
        server.process.wait(15)


def test_tunnels_are_counted_and_logged(serve, upstream, tmp_path):
    log = tmp_path / "access.log"
    server = serve(
        route=f'proxy = "{upstream.url}"',
        server=f'access_log = {{ path = "{log}", format = "{{method}} {{status}} {{path}} {{bytes}} {{received}} {{duration_us}}" }}',
        more='[[site.route]]\npath = "/status/*"\nstatus = true\n',
    )

    def tunnels():
        return json.loads(server.get("/status/status.json")[2])["tunnels"]

    with Connection(server) as connection:
        tunnel = connection.open()
        tunnel.send(b"12345")
        assert tunnel.read(5) == b"12345"
        wait_until(lambda: tunnels() == {"open": 1, "opened": 1, "received": 5, "sent": 5}, "the counters")
        with server.connect() as other:
            other.sendall(
                b"GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nfour"
            )
            data = b""
            while not data.endswith(b"\r\n\r\nfour"):
                data += other.recv(1000)
            wait_until(lambda: tunnels()["open"] == 2, "the second tunnel")
    wait_until(lambda: tunnels()["open"] == 0, "the end of the tunnels")
    metrics = server.get("/status/metrics")[2].decode()
    assert re.search(r"^dunlin_tunnels 0$", metrics, re.M) and re.search(r"^dunlin_tunnels_opened_total 2$", metrics, re.M)
    assert re.search(r'^dunlin_tunnel_bytes_total\{direction="received"\} \d+$', metrics, re.M)
    wait_until(lambda: log.exists() and re.search(r"^CONNECT 200 /chat 5 5 \d{3,}$", log.read_text(), re.M), "the line over HTTP/2")
    wait_until(lambda: re.search(r"^GET 101 /chat 4 4 \d{3,}$", log.read_text(), re.M), "the line over HTTP/1.1")


def test_an_upstream_that_is_paused_holds_the_client_up(serve, tmp_path):
    program = (
        "import sys\nfrom websockets.sync.server import serve\n"
        "def echo(socket):\n    for message in socket:\n        socket.send(message)\n"
        "with serve(echo, '127.0.0.1', 0, compression=None, max_size=None) as server:\n"
        "    print(server.socket.getsockname()[1], flush=True)\n    server.serve_forever()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        server = serve(route=f'proxy = "http://127.0.0.1:{int(process.stdout.readline())}"')
        with Connection(server) as connection:
            tunnel = connection.open()
            assert tunnel.head() == 200
            frames = Frames(tunnel)
            frames.send(Opcode.TEXT, b"hello")
            assert frames.receive() == (Opcode.TEXT, b"hello")
            process.send_signal(signal.SIGSTOP)
            data = os.urandom(1 << 20) * 16
            frames.begin(Opcode.BINARY, data)
            # The window is not opened while the upstream takes nothing: at most what socket buffers hold has gone.
            sent = frames.send_while_allowed()
            assert sent < len(data)
            process.send_signal(signal.SIGCONT)
            frames.send_rest()
            assert frames.receive() == (Opcode.BINARY, data)
            process.kill()
            tunnel.read_rest()
            assert tunnel.ended or tunnel.reset == ErrorCodes.CANCEL
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_client_of_another_library_speaks_through_the_proxy(serve):
    def answer(socket):
        for message in socket:
            socket.send(message)

    with serve_websockets(answer, "127.0.0.1", 0) as upstream:
        thread = threading.Thread(target=upstream.serve_forever)
        thread.start()
        server = serve(route=f'proxy = "http://127.0.0.1:{upstream.socket.getsockname()[1]}"')
        with connect(f"ws://{server.host}:{server.port}/") as client:
            for message in ("", "text ✓", b"bytes", "x" * 200_000, os.urandom(500_000)):
                client.send(message)
                assert client.recv() == message
            client.ping().wait(15)
            client.close(4000, "enough")
            assert client.protocol.close_rcvd.code == 4000
        upstream.shutdown()
        thread.join()
