"""WebSockets of ASGI applications: over HTTP/1.1, over HTTP/2, and both through the reverse proxy."""

import json
import os
import signal
import struct
import sys

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode
from websockets.sync.client import connect

from support.http import read_response
from support.processes import workers
from support.tunnel import Connection
from support.waiting import wait_until
from support.websocket import Frames, Socket, close, frame, upgrade

pytestmark = pytest.mark.usefixtures("orderly_stop")

APP = '''
import asyncio, json, os

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        raise RuntimeError("not supported")
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return await send({"type": "http.response.body", "body": b"plain"})
    assert (await receive())["type"] == "websocket.connect"
    await globals()[scope["path"].strip("/").split("/")[-1]](scope, receive, send)

async def echo(scope, receive, send):
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
    with open(os.environ["CODES"], "a") as file:
        file.write("%s %s\\n" % (message["code"], message["reason"]))

async def scope(scope, receive, send):
    await send({"type": "websocket.accept", "subprotocol": scope["subprotocols"][-1], "headers": [(b"x-a", b"b")]})
    shown = {key: scope[key] for key in ("type", "scheme", "http_version", "path", "root_path", "subprotocols", "client")}
    shown["headers"] = {a.decode(): b.decode() for a, b in scope["headers"]}
    shown["query"] = scope["query_string"].decode()
    await send({"type": "websocket.send", "text": json.dumps(shown)})
    await receive()

async def quiet(scope, receive, send):
    await send({"type": "websocket.accept"})
    with open(os.environ["CODES"], "a") as file:
        file.write("%s\\n" % (await receive())["type"])

async def refuse(scope, receive, send):
    await send({"type": "websocket.close", "code": 4000})

async def deny(scope, receive, send):
    await send({"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-why", b"no")]})
    await send({"type": "websocket.http.response.body", "body": b"first, ", "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b"second"})

async def end(scope, receive, send):
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "bye"})
    await send({"type": "websocket.close", "code": 4001, "reason": "enough"})

async def leave(scope, receive, send):
    await send({"type": "websocket.accept"})

async def fail(scope, receive, send):
    await send({"type": "websocket.accept"})
    raise ValueError("on purpose")

async def early(scope, receive, send):
    raise ValueError("on purpose")

async def slow(scope, receive, send):
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": str(os.getpid())})
    while not os.path.exists(os.environ["GO"]):
        await asyncio.sleep(0.002)
    total = 0
    while (message := await receive())["type"] == "websocket.receive":
        total += len(message["bytes"])
        if total == 4_000_000:
            await send({"type": "websocket.send", "text": "all"})

async def much(scope, receive, send):
    await send({"type": "websocket.accept"})
    for number in range(300):
        await send({"type": "websocket.send", "bytes": bytes([number % 256]) * 100_000})
    await send({"type": "websocket.close"})
'''


def serve_app(serve, tmp_path, settings=""):
    """Starts a server with the application."""
    (tmp_path / "app.py").write_text(APP)
    env = f'CODES = "{tmp_path / "codes"}", GO = "{tmp_path / "go"}"'
    script = f'script = {{ kind = "asgi", application = "app:application", directory = "{tmp_path}", processes = 1, message_size = "1MB", {settings and settings + ","} env = {{ {env} }} }}'
    made = serve(route=script)
    made.codes = tmp_path / "codes"
    made.go = tmp_path / "go"
    return made


@pytest.fixture
def server(serve, tmp_path):
    return serve_app(serve, tmp_path)


@pytest.fixture(params=["http1", "http2", "proxied http1", "proxied http2"])
def open_socket(request, server, serve):
    """Opens a WebSocket: `open_socket(path, *fields)` returns its frames."""
    front = serve(route=f'proxy = "http://127.0.0.1:{server.port}"') if "proxied" in request.param else server
    opened = []

    def http1(path, *fields):
        connection = front.connect(30)
        opened.append(connection)
        stream = Socket(connection)
        fields = upgrade(stream, path, *fields)
        return Frames(stream), fields

    def http2(path, *fields):
        connection = Connection(front)
        opened.append(connection)
        tunnel = connection.open(path, *fields)
        assert tunnel.head() == 200, tunnel.fields
        return Frames(tunnel), tunnel.fields

    yield http1 if request.param.endswith("1") else http2
    for connection in opened:
        connection.close()


def test_messages_arrive_whole_in_both_directions(open_socket):
    frames, _ = open_socket("/echo")
    for size in (0, 1, 125, 126, 127, 65_535, 65_536, 500_000):
        data = os.urandom(size)
        frames.send(Opcode.BINARY, data)
        assert frames.receive() == (Opcode.BINARY, data)
        text = ("ä€𝄞" * size)[:size].encode()[:900_000].decode(errors="ignore").encode()
        frames.send(Opcode.TEXT, text)
        assert frames.receive() == (Opcode.TEXT, text)
    for number in range(100):
        frames.send(Opcode.TEXT, str(number).encode())
    assert [frames.receive() for _ in range(100)] == [(Opcode.TEXT, str(number).encode()) for number in range(100)]


def test_fragments_are_joined_and_pings_between_them_get_pongs(open_socket):
    frames, _ = open_socket("/echo")
    frames.send(Opcode.TEXT, b"He", fin=False)
    frames.send(Opcode.PING, b"within")
    assert frames.receive() == (Opcode.PONG, b"within")
    frames.send(Opcode.CONT, b"", fin=False)
    frames.send(Opcode.PONG, b"unsolicited")
    frames.send(Opcode.CONT, b"llo")
    assert frames.receive() == (Opcode.TEXT, b"Hello")
    for character in "𝄞".encode():
        frames.send(Opcode.TEXT if character == 0xF0 else Opcode.CONT, bytes([character]), fin=character == "𝄞".encode()[-1])
    assert frames.receive() == (Opcode.TEXT, "𝄞".encode())
    frames.stream.send(b"".join(frame(Opcode.BINARY if at == 0 else Opcode.CONT, bytes([at]), fin=at == 99) for at in range(100)))
    assert frames.receive() == (Opcode.BINARY, bytes(range(100)))
    for part in frame(Opcode.TEXT, b"byte by byte"):
        frames.stream.send(bytes([part]))
    assert frames.receive() == (Opcode.TEXT, b"byte by byte")


VIOLATIONS = [
    (frame(Opcode.TEXT, b"x", reserved=4), 1002),
    (frame(Opcode.PING, b"x", reserved=1), 1002),
    (frame(3, b"x"), 1002),
    (frame(11), 1002),
    (frame(Opcode.TEXT, b"x", masked=False), 1002),
    (frame(Opcode.PING, fin=False), 1002),
    (frame(Opcode.PING, b"x" * 126), 1002),
    (frame(Opcode.CONT, b"x"), 1002),
    (frame(Opcode.TEXT, b"x", fin=False) + frame(Opcode.TEXT, b"y"), 1002),
    (frame(Opcode.CLOSE, b"\x03"), 1002),
    (close(999), 1002),
    (close(1004), 1002),
    (close(1005), 1002),
    (close(1006), 1002),
    (close(1016), 1002),
    (close(2999), 1002),
    (close(5000), 1002),
    (close(1000, b"\xff"), 1007),
    (frame(Opcode.TEXT, b"a\xffb"), 1007),
    (frame(Opcode.TEXT, b"\xe2\x82"), 1007),
    (frame(Opcode.TEXT, b"\xed", fin=False) + frame(Opcode.CONT, b"\xa0\x80"), 1007),
    (frame(Opcode.BINARY, b"", length=(1 << 20) + 1), 1009),
    (frame(Opcode.BINARY, b"x" * (1 << 19), fin=False) + frame(Opcode.CONT, b"", length=(1 << 19) + 1), 1009),
    (frame(Opcode.BINARY, b"", length=1 << 63), 1002),
]


def test_what_breaks_the_protocol_closes_with_its_code(open_socket, server):
    for number, (data, code) in enumerate(VIOLATIONS):
        frames, _ = open_socket("/echo")
        frames.send(Opcode.TEXT, b"before")
        assert frames.receive() == (Opcode.TEXT, b"before")
        frames.stream.send(data)
        assert frames.closed()[0] == code, number
    wait_until(lambda: server.codes.exists() and len(server.codes.read_text().splitlines()) == len(VIOLATIONS), "the ends")
    assert {line.split()[0] for line in server.codes.read_text().splitlines()} == {"1006"}


def test_an_idle_websocket_is_closed_by_its_own_limit(serve, tmp_path):
    server = serve_app(serve, tmp_path, 'tunnel_timeout = "3s", idle_timeout = "2s", timeout = "2s"')
    wait_until(lambda: server.get("/")[0] == 200, "the application")
    with connect(f"ws://127.0.0.1:{server.port}/quiet", ping_interval=None) as client:
        with pytest.raises(ConnectionClosed) as closed:
            client.recv()
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "idle")
    wait_until(lambda: server.codes.exists() and server.codes.read_text() == "websocket.disconnect\n", "the end")


def test_a_close_is_answered_and_its_code_reaches_the_application(open_socket, server):
    cases = [(1000, b"bye"), (1001, b""), (1003, b""), (1011, b""), (1014, b""), (3000, b""), (4999, "ä".encode())]
    for code, reason in cases:
        frames, _ = open_socket("/echo")
        frames.stream.send(close(code, reason) + frame(Opcode.TEXT, b"behind"))
        assert frames.closed()[0] == code
    frames, _ = open_socket("/echo")
    frames.stream.send(close())
    assert frames.closed() == (None, b"")
    expected = [f"{code} {reason.decode()}" for code, reason in cases] + ["1005 "]
    wait_until(lambda: server.codes.exists() and len(server.codes.read_text().splitlines()) == len(expected), "the ends")
    assert server.codes.read_text().splitlines() == expected


def test_the_application_ends_a_websocket(open_socket, server):
    for path, messages, code, reason in (
        ("/end", [(Opcode.TEXT, b"bye")], 4001, b"enough"),
        ("/leave", [], 1000, b""),
        ("/fail", [], 1011, b""),
    ):
        frames, _ = open_socket(path)
        assert [frames.receive() for _ in messages] == messages
        assert frames.closed() == (code, reason)
    server.logged("ValueError: on purpose")


def test_the_application_gets_the_scope_and_sets_fields(open_socket):
    frames, fields = open_socket("/scope?a=b", ("sec-websocket-protocol", "one, two"), ("cookie", "c=d"))
    assert fields["sec-websocket-protocol"] == "two" and fields["x-a"] == "b" and "dunlin-switch" not in fields
    scope = json.loads(frames.receive()[1])
    assert (scope["type"], scope["scheme"], scope["path"], scope["query"]) == ("websocket", "ws", "/scope", "a=b")
    assert scope["subprotocols"] == ["one", "two"] and scope["headers"]["cookie"] == "c=d"
    frames.stream.send(close(1000))
    assert frames.closed()[0] == 1000


def test_much_data_is_sent_no_faster_than_it_is_received(open_socket):
    frames, _ = open_socket("/much")
    for number in range(300):
        assert frames.receive() == (Opcode.BINARY, bytes([number % 256]) * 100_000)
    assert frames.closed()[0] == 1000


def test_a_process_that_is_killed_closes_with_1011(open_socket, server):
    frames, _ = open_socket("/slow")
    pid = int(frames.receive()[1])
    os.kill(pid, signal.SIGSTOP)
    for _ in range(4):
        frames.stream.send(frame(Opcode.BINARY, b"x" * 100_000))
    os.kill(pid, signal.SIGKILL)
    assert frames.closed()[0] == 1011


def test_an_application_that_is_slow_gets_all(open_socket, server):
    frames, _ = open_socket("/slow")
    frames.receive()
    for number in range(40):
        if number == 30:
            server.go.write_text("")
        frames.stream.send(frame(Opcode.BINARY, b"x" * 10_000))
    for _ in range(36):
        frames.stream.send(frame(Opcode.BINARY, b"x" * 100_000))
    assert frames.receive() == (Opcode.TEXT, b"all")


def test_a_client_that_leaves_disconnects_the_application(server):
    for how in ("end", "reset"):
        connection = server.connect()
        connection.sendall(HANDSHAKE % b"/echo")
        assert connection.recv(1000).startswith(b"HTTP/1.1 101")
        if how == "reset":
            connection.setsockopt(1, 13, struct.pack("ii", 1, 0))
        connection.close()
    wait_until(lambda: server.codes.exists() and server.codes.read_text() == "1006 \n" * 2, "the ends")


HANDSHAKE = (
    b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_a_websocket_that_is_not_accepted_gets_a_response(server):
    for path, status, body in ((b"/refuse", 403, b""), (b"/deny", 401, b"first, second"), (b"/early", 500, None)):
        with server.connect() as connection:
            connection.sendall(HANDSHAKE % path)
            found, fields, text, _ = read_response(connection)
            assert found == status and (body is None or text == body)
            assert status != 401 or fields["x-why"] == "no"
        with Connection(server) as connection:
            tunnel = connection.open(path.decode())
            assert tunnel.head() == status
            text = tunnel.read_rest()
            assert body is None or text == body


def test_a_malformed_handshake_is_rejected(server):
    for old, new, status in (
        (b"Version: 13", b"Version: 8", 426),
        (b"Sec-WebSocket-Version: 13\r\n", b"", 426),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", 400),
        (b"Connection: Upgrade", b"Connection: keep-alive", 200),
        (b"Upgrade: websocket", b"Upgrade: other", 200),
    ):
        with server.connect() as connection:
            connection.sendall((HANDSHAKE % b"/echo").replace(old, new))
            found, fields, _, _ = read_response(connection)
            assert found == status, new
            assert status != 426 or fields["sec-websocket-version"] == "13"


def test_other_libraries_speak_to_fastapi(serve, tmp_path):
    (tmp_path / "main.py").write_text(
        "from fastapi import FastAPI, WebSocket, WebSocketDisconnect\n"
        "app = FastAPI()\n"
        "@app.websocket('/ws/{room}')\n"
        "async def chat(socket: WebSocket, room: str, token: str = ''):\n"
        "    if token != 'secret':\n        return await socket.close(1008)\n"
        "    await socket.accept()\n"
        "    try:\n"
        "        async for text in socket.iter_text():\n            await socket.send_text(f'{room}: {text}')\n"
        "    except WebSocketDisconnect:\n        pass\n"
        "@app.get('/')\ndef index():\n    return 'plain'\n"
    )
    server = serve(route=f'script = {{ kind = "asgi", application = "main:app", directory = "{tmp_path}", interpreter = "{sys.executable}" }}')
    with connect(f"ws://127.0.0.1:{server.port}/ws/tea?token=secret") as client:
        for text in ("hello", "ä" * 100_000):
            client.send(text)
            assert client.recv() == f"tea: {text}"
        client.ping().wait(15)
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{server.port}/ws/tea")
    assert refused.value.response.status_code == 403
    assert server.get("/")[2] == b'"plain"'
    assert "Traceback" not in server.log


def test_a_websocket_survives_a_reload_and_its_process_is_kept(server):
    with connect(f"ws://127.0.0.1:{server.port}/echo") as client:
        client.send("before")
        assert client.recv() == "before"
        server.process.send_signal(signal.SIGHUP)
        server.logged("reloaded")
        client.send("after")
        assert client.recv() == "after"
        (worker,) = workers(server)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv()
        assert closed.value.rcvd.code == 1011
