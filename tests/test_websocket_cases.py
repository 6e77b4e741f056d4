"""The cases of the Autobahn test suite: to ASGI applications, and through the reverse proxy to a server of another library, which
has the same results alone."""

import socket
import struct
import threading

import pytest
from websockets.frames import Opcode
from websockets.sync.server import serve as serve_websockets

from support.tunnel import Connection
from support.websocket import Frames, Socket, close, upgrade
from support.websocket_cases import cases

pytestmark = pytest.mark.usefixtures("orderly_stop")

APP = """
async def application(scope, receive, send):
    if scope["type"] != "websocket":
        raise RuntimeError("not supported")
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
"""


def http1(server):
    """A WebSocket, and what closes its connection."""
    connection = server.connect(10)
    stream = Socket(connection)
    upgrade(stream)
    return stream, connection.close


def http2(server):
    connection = Connection(server, 10)
    tunnel = connection.open("/")
    assert tunnel.head() == 200, tunnel.fields
    return tunnel, connection.close


def send(stream, case):
    size = case.chop or len(case.sent)
    try:
        for at in range(0, len(case.sent), size):
            stream.send(case.sent[at : at + size])
    except OSError:
        # The server has closed the connection before all was sent.
        pass


def receive(stream, case):
    """The messages and pongs that arrive, and the code of the close; `None` if there is none."""
    frames, received = Frames(stream), []
    try:
        while True:
            if case.code is None and len(received) == len(case.received):
                stream.send(close(1000))
            opcode, payload = frames.receive()
            if opcode == Opcode.CLOSE:
                return received, struct.unpack(">H", payload[:2])[0] if payload else 1005
            received.append((opcode, payload))
    except (AssertionError, ConnectionError, TimeoutError):
        return received, None


def run(open_stream, server, case):
    stream, end = open_stream(server)
    try:
        if not isinstance(stream, Socket):
            # It receives while it waits for a window.
            send(stream, case)
            return receive(stream, case)
        # The server may send as much at the same time.
        thread = threading.Thread(target=send, args=(stream, case))
        thread.start()
        result = receive(stream, case)
        thread.join()
        return result
    finally:
        end()


def passes(case, result):
    received, code = result
    if case.code is None:
        return received == case.received and code == 1000
    # The close may come before messages that were sent ahead of its cause.
    return received == case.received[: len(received)] and code == case.code


@pytest.mark.parametrize("version", [http1, http2])
def test_asgi_applications_pass_every_case(serve, tmp_path, version):
    (tmp_path / "app.py").write_text(APP)
    server = serve(
        route='script = { kind = "asgi", application = "app:application", processes = 1, message_size = "16MB", '
        f'directory = "{tmp_path}" }}'
    )
    results = [(case, run(version, server, case)) for case in cases()]
    assert [(case.number, code) for case, (received, code) in results if not passes(case, (received, code))] == []


class Alone:
    """A server without a proxy before it."""

    def __init__(self, address):
        self.address = address

    def connect(self, timeout):
        return socket.create_connection(self.address, timeout)


def test_the_proxy_adds_no_failure(serve):
    def echo(connection):
        for message in connection:
            connection.send(message)

    with serve_websockets(echo, "127.0.0.1", 0, compression=None, max_size=None) as upstream:
        thread = threading.Thread(target=upstream.serve_forever)
        thread.start()
        address = upstream.socket.getsockname()[:2]
        server = serve(route=f'proxy = "http://127.0.0.1:{address[1]}"')
        failed = {"alone": [], "http1": [], "http2": []}
        for case in cases():
            for name, version, through in (("alone", http1, Alone(address)), ("http1", http1, server), ("http2", http2, server)):
                received, code = run(version, through, case)
                if not passes(case, (received, code)):
                    failed[name].append((case.number, code))
        upstream.shutdown()
        thread.join()
    assert failed["http1"] == failed["http2"] == failed["alone"]
