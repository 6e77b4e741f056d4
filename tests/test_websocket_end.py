"""Open WebSockets when the server or the process of their application ends: stop, reload, replacement, upgrade."""

import contextlib
import os
import shutil
import signal
import socket

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Opcode
from websockets.sync.client import connect

from support import http2
from support.admin import pid_of
from support.files import write
from support.processes import end, workers
from support.server import DUNLIN
from support.waiting import wait_until
from support.websocket import Frames, Socket

APP = '''
import asyncio, os

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        assert (await receive())["type"] == "lifespan.startup"
        await send({"type": "lifespan.startup.complete"})
        await receive()
        note("lifespan")
        return await send({"type": "lifespan.shutdown.complete"})
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return await send({"type": "http.response.body", "body": b"%d VERSION" % os.getpid()})
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "%d VERSION" % os.getpid()})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
    await asyncio.sleep(0.1)
    note("%d %s" % (message["code"], message["reason"]))

def note(line):
    with open(os.environ["NOTES"], "a") as file:
        file.write(line + "\\n")
'''

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def serve_app(serve, tmp_path):
    def start(settings="", **more):
        write(tmp_path / "app.py", APP)
        notes = tmp_path / "notes"
        keys = f'application = "app:application", directory = "{tmp_path}", processes = 1, env = {{ NOTES = "{notes}" }}'
        server = serve(route=f'script = {{ kind = "asgi", {keys}{settings and ", " + settings} }}', **more)
        server.notes = lambda: notes.read_text().splitlines() if notes.exists() else []
        return server

    return start


def open_http1(server):
    """An open WebSocket whose first message was read, by a client that does not close by itself."""
    connection = server.connect(30)
    connection.sendall(HANDSHAKE)
    stream = Socket(connection)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += stream.read(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    frames = Frames(stream)
    frames.receive()
    return connection, frames


class Stream:
    """A tunnel over HTTP/2 whose client takes no notice of GOAWAY."""

    def __init__(self, client):
        self.client, self.data = client, b""

    def read(self, count):
        while len(self.data) < count:
            found = self.client.read()
            assert found, "closed"
            kind, _, stream, payload = found
            self.data += payload if kind == http2.DATA and stream == 1 else b""
        taken, self.data = self.data[:count], self.data[count:]
        return taken


def open_http2(server):
    client = http2.Client(server)
    client.send(http2.request(1, "/", "CONNECT", (":protocol", "websocket"), ("sec-websocket-version", "13"), ended=False))
    frames = Frames(Stream(client))
    frames.receive()
    return client, frames


@pytest.mark.parametrize("open_socket", [open_http1, open_http2])
@pytest.mark.parametrize("is_proxied", [False, True])
def test_a_stop_closes_websockets_with_1001_and_does_not_wait_for_clients(serve_app, serve, open_socket, is_proxied):
    server = serve_app(server='stop_timeout = "60s"')
    front = serve(route=f'proxy = "http://127.0.0.1:{server.port}"') if is_proxied else server
    opened = [open_socket(front) for _ in range(3)]
    server.process.send_signal(signal.SIGTERM)
    for _, frames in opened:
        assert frames.closed() == (1001, b"")
    # The clients have neither responded nor closed their connections.
    assert server.process.wait(20) == 0
    assert server.notes() == ["1001 "] * 3 + ["lifespan"], "the application ends its WebSockets before itself"
    assert "stop_timeout" not in server.log
    for connection, _ in opened:
        connection.close()


def test_a_websocket_that_opens_during_a_stop_is_closed(serve_app):
    server = serve_app(server='stop_timeout = "60s"')
    first, _ = open_http1(server)
    idle = server.connect(30)
    idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT")
    wait_until(lambda: idle.recv(1 << 16, socket.MSG_PEEK), "a response")
    assert b"200" in idle.recv(1 << 16)
    server.process.send_signal(signal.SIGTERM)
    first.recv(100)
    idle.sendall(HANDSHAKE[len(b"GET / HT") :])
    data = b""
    while part := idle.recv(1 << 16):
        data += part
    assert data.startswith(b"HTTP/1.1 101 ") and data.endswith(b"\x88\x02\x03\xe9"), data
    assert server.process.wait(20) == 0
    first.close()
    idle.close()


def test_what_was_sent_before_the_end_arrives(serve_app):
    server = serve_app()
    connection, frames = open_http1(server)
    data = os.urandom(3_000_000)
    frames.send(Opcode.BINARY, data)
    # The echo has begun: it is complete before the close frame, or was not sent at all.
    wait_until(lambda: connection.recv(1, socket.MSG_PEEK), "the echo")
    server.process.send_signal(signal.SIGTERM)
    received = b""
    while True:
        _, opcode, payload = frames.receive_frame()
        if opcode == Opcode.CLOSE:
            break
        received += payload
    assert data.startswith(received) and payload[:2] == b"\x03\xe9"
    assert server.process.wait(20) == 0
    connection.close()


@pytest.mark.usefixtures("orderly_stop")
def test_a_reload_keeps_websockets_unless_their_code_has_changed(serve_app, tmp_path):
    server = serve_app()
    with connect(f"ws://127.0.0.1:{server.port}/") as client:
        old = client.recv()
        server.process.send_signal(signal.SIGHUP)
        server.logged("reloaded")
        client.send("after")
        assert client.recv() == "after"
        write(tmp_path / "app.py", APP.replace("VERSION", "of the new code"))
        server.process.send_signal(signal.SIGHUP)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(30)
        assert closed.value.rcvd.code == 1001
        with connect(f"ws://127.0.0.1:{server.port}/") as again:
            assert again.recv().endswith(" of the new code")
    pid = int(old.split()[0])
    wait_until(lambda: pid not in workers(server), "the end of the old process")
    wait_until(lambda: "1001 " in server.notes(), "the end for the application")
    assert server.notes().index("1001 ") < server.notes().index("lifespan")


@pytest.mark.usefixtures("orderly_stop")
def test_a_reload_that_changes_the_settings_of_the_script_closes_its_websockets(serve_app, tmp_path):
    server = serve_app()
    with connect(f"ws://127.0.0.1:{server.port}/") as client:
        old = int(client.recv().split()[0])
        file = tmp_path / "dunlin-0.toml"
        file.write_text(file.read_text().replace("processes = 1", "processes = 2"))
        server.process.send_signal(signal.SIGHUP)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(30)
        assert closed.value.rcvd.code == 1001
    wait_until(lambda: old not in workers(server), "the end of the old process")


@pytest.mark.usefixtures("orderly_stop")
def test_websockets_of_a_process_that_is_too_old_are_closed(serve_app):
    server = serve_app('max_age = "3s"')
    with contextlib.ExitStack() as opened:

        def open_one():
            """A WebSocket of which a message was read. The process may be too old before, which closes it."""
            client = opened.enter_context(connect(f"ws://127.0.0.1:{server.port}/"))
            with contextlib.suppress(ConnectionClosed):
                return client, int(client.recv(30).split()[0])

        client, old = wait_until(open_one, "a message of a process that is young enough")
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(30)
        assert closed.value.rcvd.code == 1001
    wait_until(lambda: old not in workers(server), "the end of the old process")


@pytest.mark.usefixtures("orderly_stop")
def test_websockets_do_not_hold_up_the_replacement_of_a_process(serve_app):
    """With one process, no other one starts before it has ended."""
    server = serve_app("requests = 3")
    with connect(f"ws://127.0.0.1:{server.port}/") as client:
        old = int(client.recv().split()[0])
        assert server.get("/")[0] == 200
        client.send("still")
        assert client.recv() == "still"
        with connect(f"ws://127.0.0.1:{server.port}/") as last:
            for socket in (client, last):
                with pytest.raises(ConnectionClosed) as closed:
                    [socket.recv(30) for _ in range(2)]
                assert closed.value.rcvd.code == 1001
    assert int(server.get("/")[2].split()[0]) != old


def test_an_upgrade_closes_websockets_with_1001(serve_app, tmp_path):
    program, admin = tmp_path / "dunlin", tmp_path / "admin.sock"
    shutil.copy(DUNLIN, program)
    server = serve_app(server=f'stop_timeout = "60s"\nadmin = "{admin}"', program=program)
    with connect(f"ws://127.0.0.1:{server.port}/") as client:
        client.recv()
        os.kill(server.pid, signal.SIGUSR2)
        second = wait_until(lambda: (pid := pid_of(admin)) != server.pid and pid, "the new process")
        try:
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(30)
            assert closed.value.rcvd.code == 1001
            with connect(f"ws://127.0.0.1:{server.port}/") as again:
                again.recv()
            # It does not wait for its `stop_timeout`.
            assert server.process.wait(20) == 0
        finally:
            end(second)


def test_tunnels_of_the_proxy_have_the_stop_timeout(serve_app, serve):
    server = serve_app()
    front = serve(route=f'proxy = "http://127.0.0.1:{server.port}"', server='stop_timeout = "2s"')
    connection, frames = open_http1(front)
    front.process.send_signal(signal.SIGTERM)
    front.logged("stopping")
    frames.send(Opcode.TEXT, b"still")
    assert frames.receive() == (Opcode.TEXT, b"still")
    assert front.process.wait(20) == 0
    front.logged("stop_timeout")
    connection.close()
