"""WebSockets with permessage-deflate (RFC 7692) through the reverse proxy, which passes the extension on and does not change the frames."""

import os
import threading

import pytest
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory, PerMessageDeflate
from websockets.frames import Opcode
from websockets.headers import parse_extension
from websockets.protocol import CLIENT, Protocol
from websockets.sync.client import connect
from websockets.sync.server import serve as serve_websockets

from support.tunnel import Connection

pytestmark = pytest.mark.usefixtures("orderly_stop")

# The second of two equal messages refers to the first, which is in the window of both sides.
MESSAGES = ["hello", "", "again and " * 100_000, "again and " * 100_000, os.urandom(300_000), b"", "κόσμε" * 1000]


@pytest.fixture
def echo():
    """A server that sends every message back; `extensions` has those of each WebSocket."""
    extensions = []

    def handle(connection):
        extensions.append(connection.protocol.extensions)
        for message in connection:
            connection.send(message)

    with serve_websockets(handle, "127.0.0.1", 0, compression="deflate", max_size=None) as server:
        server.extensions = extensions
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server(serve, echo):
    return serve(route=f'proxy = "http://127.0.0.1:{echo.socket.getsockname()[1]}"')


def assert_compressed(extensions):
    [extension] = extensions
    assert isinstance(extension, PerMessageDeflate)


def test_messages_over_http1_arrive_intact(server, echo):
    with connect(f"ws://{server.host}:{server.port}/", compression="deflate", proxy=None, max_size=None) as client:
        assert_compressed(client.protocol.extensions)
        for message in MESSAGES:
            client.send(message)
            assert client.recv(30) == message
        client.send(["first ", "second ", "first "])
        assert client.recv(30) == "first second first "
        assert_compressed(echo.extensions[0])


def test_messages_over_http2_arrive_intact(server, echo):
    factory = ClientPerMessageDeflateFactory()
    offer = "permessage-deflate; client_max_window_bits"
    with Connection(server) as connection:
        tunnel = connection.open("/", ("sec-websocket-extensions", offer))
        assert tunnel.head() == 200
        [(name, parameters)] = parse_extension(tunnel.fields["sec-websocket-extensions"])
        assert name == "permessage-deflate"
        client = Protocol(CLIENT, max_size=None)
        client.extensions = [factory.process_response_params(parameters, [])]
        for message in MESSAGES:
            is_text = isinstance(message, str)
            data = message.encode() if is_text else message
            (client.send_text if is_text else client.send_binary)(data)
            for part in client.data_to_send():
                tunnel.send(part)
            assert received(tunnel, client) == (Opcode.TEXT if is_text else Opcode.BINARY, data)
        assert_compressed(echo.extensions[0])


def received(tunnel, client):
    """The next message: opcode and payload."""
    frames = []
    while not frames or not frames[-1].fin:
        tunnel.wait(lambda: tunnel.data or tunnel.ended or tunnel.reset is not None)
        assert tunnel.data, "the tunnel has ended"
        client.receive_data(bytes(tunnel.data))
        tunnel.data.clear()
        # Control frames come between the frames of a message.
        frames += [frame for frame in client.events_received() if frame.opcode not in (Opcode.PING, Opcode.PONG)]
        assert client.parser_exc is None
    return frames[0].opcode, b"".join(bytes(frame.data) for frame in frames)
