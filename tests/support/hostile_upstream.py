"""Upstreams of HTTP/1 and HTTP/2 that send what they like."""

import itertools
import socket
import threading
import time

from hpack import Decoder

from support.http2 import END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame
from support.stub import StubServer
from support.upstream import read_head, response

# How long a flood lasts that nothing ends.
DURATION = 1.0


class Hostile(StubServer):
    """`floods` has a function for each last segment of a path: it returns the blocks of bytes that an upstream sends for it,
    without end as a rule. Every other path gets an ordinary response. It reads nothing while it sends."""

    def __init__(self, floods):
        self.floods, self.sent, self.running = floods, 0, 0
        self.lock = threading.Lock()
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = listener.getsockname()[1]
        super().__init__(listener)

    def flood(self, connection, blocks):
        """Sends the blocks for as long as they are taken, but not for ever. Then waits for the end of the connection."""
        with self.lock:
            self.running += 1
        try:
            connection.settimeout(0.3)
            end = time.monotonic() + DURATION
            for block in itertools.takewhile(lambda _: time.monotonic() < end, blocks):
                if not self.send(connection, block, end):
                    break
        finally:
            with self.lock:
                self.running -= 1

    def send(self, connection, block, end):
        view = memoryview(block)
        while view and time.monotonic() < end:
            try:
                count = connection.send(view)
            except TimeoutError:
                continue
            except OSError:
                return False
            view = view[count:]
            with self.lock:
                self.sent += count
        return not view


class Http1(Hostile):
    def serve(self, connection):
        with connection:
            while found := read_head(connection):
                target = found[0].split(b" ")[1].decode()
                make = self.floods.get(target.rpartition("/")[2])
                if make is None:
                    connection.sendall(response(b"fine"))
                    continue
                self.flood(connection, make())
                return


class Http2(Hostile):
    def serve(self, connection):
        with connection:
            try:
                self.respond(connection)
            except OSError:
                pass

    def respond(self, connection):
        data, decoder = b"", Decoder()
        connection.sendall(frame(SETTINGS))
        while part := connection.recv(1 << 16):
            data += part
            data = data.removeprefix(PREFACE) if data.startswith(PREFACE) else data
            while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
                length = 9 + int.from_bytes(data[:3], "big")
                kind, flags, stream, payload = data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:length]
                data = data[length:]
                if kind == SETTINGS and not flags:
                    connection.sendall(frame(SETTINGS, 1))
                if kind != HEADERS:
                    continue
                assert flags & END_HEADERS
                path = dict(decoder.decode(payload))[":path"]
                make = self.floods.get(path.rpartition("/")[2])
                if make is not None:
                    return self.flood(connection, make(stream))
                head = frame(HEADERS, END_HEADERS, stream, b"\x88")
                connection.sendall(head + frame(0, END_STREAM, stream, b"fine"))
