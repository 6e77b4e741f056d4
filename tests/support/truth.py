"""Servers that know what happened: they count requests and connections, and answer as a test says."""

import asyncio
import socket
import struct
import threading

from support.http2 import DATA, END_HEADERS, END_STREAM, frame, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """A server on a thread of its own. `serve(reader, writer)` is a coroutine for each connection."""

    def __init__(self, serve, host="127.0.0.1", tls=None):
        self.connections = 0
        self.requests = 0
        self.heads = []
        self._serve = serve
        self._loop = asyncio.new_event_loop()
        self.listener = socket.create_server((host, 0), backlog=500)
        self.port = self.listener.getsockname()[1]
        self.scheme = "https" if tls else "http"
        self.url = f"{self.scheme}://{host}:{self.port}/"
        self._tls = tls
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait(10)

    def _run(self, ready):
        asyncio.set_event_loop(self._loop)
        start = asyncio.start_server(self._accept, sock=self.listener, ssl=self._tls, backlog=500)
        self._loop.run_until_complete(start)
        ready.set()
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader, writer):
        self.connections += 1
        # asyncio does this for sockets with a protocol number only. Otherwise a response may wait for an acknowledgment.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._serve(self, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def close(self):
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self.listener.close()


async def request(server, reader):
    """The head of the next request."""
    head = await reader.readuntil(b"\r\n\r\n")
    server.requests += 1
    server.heads.append(head)
    return head


def slow(seconds):
    """Answers each request after a time, any number of them at once."""

    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            await asyncio.sleep(seconds)
            writer.write(OK)
            await writer.drain()

    return serve


def abort(writer):
    """Resets the connection."""
    writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Streams:
    """The server's side of an HTTP/2 connection, in bare frames. Responses are as short as they can be."""

    def __init__(self, server, reader, writer, settings=()):
        self.server, self.reader, self.writer = server, reader, writer
        self.settings = settings
        self.open = self.most_open = 0
        self.received = []

    async def start(self):
        assert await self.reader.readexactly(len(PREFACE)) == PREFACE
        self.send(frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", name, value) for name, value in self.settings)))

    def send(self, data):
        self.writer.write(data)
        self.server.sent = getattr(self.server, "sent", 0) + len(data)

    async def next_request(self):
        """Number of the next stream and its field section, as it was encoded."""
        while True:
            head = await self.reader.readexactly(9)
            payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            self.received.append((kind, flags, stream, payload))
            if kind == SETTINGS and not flags & 1:
                self.send(frame(SETTINGS, 1))
            if kind == HEADERS:
                self.server.requests += 1
                self.open += 1
                self.most_open = max(self.most_open, self.open)
                return stream, payload

    def respond(self, stream, body=b"ok", fields=b"", end=True):
        self.open -= 1
        self.send(frame(HEADERS, END_HEADERS, stream, b"\x88" + fields) + frame(DATA, END_STREAM if end else 0, stream, body))

    def reset(self, stream, code):
        self.open -= 1
        self.send(frame(RST_STREAM, 0, stream, struct.pack(">I", code)))

    def go_away(self, last, code=0):
        self.send(frame(GOAWAY, 0, 0, struct.pack(">II", last, code)))


def literal(name, value):
    """A field, as a literal without indexing or Huffman code."""

    def text(of):
        of = of.encode()
        # An integer with a prefix of 7 bits (RFC 7541 §5.1).
        if len(of) < 127:
            return bytes([len(of)]) + of
        rest, length = len(of) - 127, b"\x7f"
        while rest >= 128:
            length += bytes([rest % 128 + 128])
            rest //= 128
        return length + bytes([rest]) + of

    return b"\0" + text(name) + text(value)
