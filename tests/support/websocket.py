"""Frames of WebSocket (RFC 6455) by hand, over anything that sends and reads bytes."""

import base64
import hashlib
import os
import struct

from websockets.frames import Opcode, apply_mask


def frame(opcode, payload=b"", fin=True, masked=True, reserved=0, length=None):
    """A frame. `length` is the stated length, if it is not the payload's; `reserved` are the bits behind FIN."""
    length = len(payload) if length is None else length
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    mask = 0x80 if masked else 0
    if length < 126:
        head = struct.pack(">BB", first, mask | length)
    elif length < 1 << 16:
        head = struct.pack(">BBH", first, mask | 126, length)
    else:
        head = struct.pack(">BBQ", first, mask | 127, length)
    if not masked:
        return head + payload
    key = os.urandom(4)
    return head + key + apply_mask(payload, key)


def close(code=None, reason=b""):
    return frame(Opcode.CLOSE, b"" if code is None else struct.pack(">H", code) + reason)


def upgrade(stream, path="/", *fields):
    """Switches a connection of HTTP/1.1 to WebSocket. Returns the fields of the response, in lower case."""
    key = base64.b64encode(os.urandom(16))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields).encode()
    stream.send(
        b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n%s\r\n" % (path.encode(), key, lines)
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += stream.read(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    received = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    assert received[b"sec-websocket-accept"] == accept.lower() and received[b"upgrade"] == b"websocket"
    return {name.decode(): value.decode() for name, value in received.items()}


class Frames:
    """The client's side of a WebSocket. `stream` has `send(bytes)` and `read(count)`."""

    def __init__(self, stream):
        self.stream, self.rest = stream, b""

    def send(self, opcode, payload=b"", **options):
        self.stream.send(frame(opcode, payload, **options))

    def receive_frame(self):
        """The next frame: FIN, opcode and payload."""
        first, second = self.stream.read(2)
        assert not first & 0x70 and not second & 0x80, "a server neither masks nor uses reserved bits"
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", self.stream.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.stream.read(8))
        return bool(first & 0x80), Opcode(first & 0x0F), self.stream.read(length)

    def receive(self):
        """The next message or control frame: opcode and payload."""
        fin, opcode, payload = self.receive_frame()
        while not fin:
            fin, more, part = self.receive_frame()
            assert more == Opcode.CONT
            payload += part
        return opcode, payload

    def closed(self):
        """Reads up to the close frame; returns its code and reason."""
        while True:
            opcode, payload = self.receive()
            if opcode == Opcode.CLOSE:
                return struct.unpack(">H", payload[:2])[0] if payload else None, payload[2:]

    def begin(self, opcode, payload):
        """Prepares a message for a tunnel of HTTP/2 that the windows hold up."""
        self.rest = memoryview(frame(opcode, payload))

    def send_while_allowed(self):
        """Sends until the window stays closed for a second; returns the number of bytes."""
        h2, connection, sent = self.stream.connection.h2, self.stream.connection, 0
        connection.socket.settimeout(1)
        try:
            while self.rest:
                room = min(h2.local_flow_control_window(self.stream.stream), h2.max_outbound_frame_size)
                if room == 0:
                    connection.receive()
                    continue
                h2.send_data(self.stream.stream, bytes(self.rest[:room]))
                sent, self.rest = sent + room, self.rest[room:]
                connection.flush()
        except TimeoutError:
            pass
        connection.socket.settimeout(30)
        return sent

    def send_rest(self):
        self.stream.send(self.rest)
        self.rest = b""


class Socket:
    """A connection of HTTP/1.1 that has switched, as a stream for [`Frames`]."""

    def __init__(self, connection):
        self.connection, self.data = connection, b""

    def send(self, data):
        self.connection.sendall(data)

    def read(self, count):
        while len(self.data) < count:
            part = self.connection.recv(1 << 16)
            assert part, f"closed with {self.data!r}"
            self.data += part
        taken, self.data = self.data[:count], self.data[count:]
        return taken
