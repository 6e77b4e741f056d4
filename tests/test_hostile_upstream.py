"""Upstreams that flood, that never end, or that end at the wrong moment: memory stays bounded, the client sees that its response
is not complete, and other requests go on."""

import contextlib
import itertools
import re
import struct
import threading
import time

import pytest

from support.component_server import resident
from support.hostile_upstream import Http1, Http2
from support.http import dechunk
from support.http2 import CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY
from support.http2 import RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame
from support.upstream import Upstream
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

# All cases of a flood at once: six clients, of which three read nothing, each with a connection of its own to the upstream.
GROWTH = 16 << 20
MODES = {"plain": "", "buffer": ', buffer = { response = "1MiB" }', "cache": ""}
LIMITS = 'first_byte_timeout = "2s", idle_timeout = "2s", connect_timeout = "2s"'


def again(data, size=1 << 16):
    """Blocks of the same bytes, without end."""
    return itertools.repeat(data * (size // len(data) + 1))


def after(start, blocks):
    return itertools.chain([start], blocks)


# HTTP/1.

OK = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LATE = OK + b"Content-Length: 4\r\n\r\nfine"

HTTP1 = {
    "status-line": lambda: after(b"HTTP/1.1 200 ", again(b"x")),
    "head": lambda: after(OK, again(b"X-Field: value\r\n")),
    "field": lambda: after(OK + b"X-Field: ", again(b"x")),
    "interim-103": lambda: again(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"),
    "interim-100": lambda: again(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "large-interim": lambda: again(b"HTTP/1.1 103 Early Hints\r\nLink: <" + b"a" * 50_000 + b">\r\n\r\n"),
    "tiny-chunks": lambda: after(CHUNKED, again(b"1\r\nx\r\n")),
    "tiny-chunks-with-extensions": lambda: after(CHUNKED, again(b"1;a=b\r\nx\r\n")),
    "chunk-size": lambda: after(CHUNKED, again(b"0")),
    "extension": lambda: after(CHUNKED + b"1;a=", again(b"x")),
    "trailers": lambda: after(CHUNKED + b"1\r\nx\r\n0\r\n", again(b"X-Field: value\r\n")),
    "late-responses": lambda: again(LATE),
    "cut-short": lambda: [OK + b"Content-Length: 10\r\n\r\nhello"],
}


# HTTP/2.


def head(stream, *fields, flags=0, status="200"):
    return frame(HEADERS, END_HEADERS | flags, stream, block([(":status", status), *fields]))


CACHEABLE = ("cache-control", "max-age=60")
LARGE = b"\0\1a\x7f\x81\x4d" + b"v" * 10_000


def begun(blocks):
    """A flood that comes after the head of a response."""
    return lambda stream: after(head(stream, CACHEABLE), again(blocks(stream)))


def continuation(payload):
    return lambda stream: after(frame(HEADERS, 0, stream, b"\x88"), again(frame(CONTINUATION, 0, stream, payload)))


HTTP2 = {
    "ping": lambda _: again(frame(PING, 0, 0, b"12345678")),
    "ping-within-a-body": begun(lambda stream: frame(PING, 0, 0, b"12345678") + frame(DATA, 0, stream, b"x")),
    "settings": lambda _: again(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535))),
    "window-update": lambda _: again(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))),
    "window-update-of-the-stream": lambda stream: again(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 1))),
    "windows": lambda stream: again(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 0x7FFF_FFFF))),
    "interim-103": lambda stream: again(head(stream, ("link", "</a.css>"), status="103")),
    "interim-100": lambda stream: again(head(stream, status="100")),
    "large-interim": lambda stream: again(frame(HEADERS, END_HEADERS, stream, block([(":status", "103")]) + LARGE)),
    "empty-data": begun(lambda stream: frame(DATA, 0, stream)),
    "padding": begun(lambda stream: frame(DATA, 8, stream, b"\x02\0\0")),
    "tiny-data": begun(lambda stream: frame(DATA, 0, stream, b"x")),
    "beyond-the-window": begun(lambda stream: frame(DATA, 0, stream, b"x" * 16_384)),
    "continuation": continuation(b""),
    "long-continuation": continuation(LARGE),
    "trailers": lambda stream: after(
        head(stream, CACHEABLE) + frame(DATA, 0, stream, b"x") + frame(HEADERS, END_STREAM, stream, LARGE),
        again(frame(CONTINUATION, 0, stream, LARGE)),
    ),
    "resets": lambda stream: again(frame(RST_STREAM, 0, stream, struct.pack(">I", 8))),
    "goaways": lambda stream: again(frame(GOAWAY, 0, 0, struct.pack(">II", stream, 0))),
    "late-responses": lambda stream: again(head(stream, CACHEABLE) + frame(DATA, END_STREAM, stream, b"fine")),
    "priority": lambda stream: again(frame(PRIORITY, 0, stream, bytes(5))),
    "unknown": lambda _: again(frame(99, 0, 0, b"x")),
}


class Client:
    """A request whose response is read at once, or at the end."""

    def __init__(self, server, path, reads):
        self.path, self.data = path, bytearray()
        self.socket = server.connect(30)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        self.thread = threading.Thread(target=self.read, daemon=True)
        if reads:
            self.thread.start()

    def read(self):
        with contextlib.suppress(ConnectionResetError):
            while part := self.socket.recv(1 << 16):
                self.data += part

    def finish(self):
        if self.thread.ident is None:
            self.thread.start()
        self.thread.join(30)
        assert not self.thread.is_alive(), f"{self.path}: the response has no end: {bytes(self.data[:500])}"
        self.socket.close()

    def outcome(self):
        """The status, with the body if it is complete."""
        data = bytes(self.data)
        while re.match(rb"HTTP/1.1 1\d\d ", data):
            data = data.partition(b"\r\n\r\n")[2]
        found = re.match(rb"HTTP/1.1 (\d{3}) ", data)
        assert found, f"{self.path}: no status line: {bytes(self.data[:500])}"
        fields, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", fields)
        if length:
            is_complete = len(body) == int(length[1])
        else:
            assert b"ransfer-Encoding: chunked" in fields, fields
            is_complete = body.endswith(b"0\r\n\r\n")
            body = b"".join(dechunk(body)) if is_complete else body
        return int(found[1]), body if is_complete else None


class Memory:
    """The most memory that a server takes while the block runs, above what it took before."""

    def __init__(self, server):
        self.server, self.before, self.most = server, resident(server), 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while not self.is_over.wait(0.02):
            self.most = max(self.most, resident(self.server))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        self.most = max(self.most, resident(self.server))

    @property
    def growth(self):
        return self.most - self.before


def start(serve, upstream, scheme):
    """A server with a route for each mode and kind of client: each has a connection of its own to the upstream."""
    routes = ""
    for (mode, keys), reads in itertools.product(MODES.items(), (True, False)):
        routes += (
            f'[[site.route]]\npath = "/{mode}-{reads}/*"\n'
            f'proxy = {{ to = "{scheme}://127.0.0.1:{upstream.port}", {LIMITS}{keys} }}\n'
            + ("cache = { responses = true }\n" if mode == "cache" else "")
        )
    server = serve(more=f'{routes}[[site.route]]\npath = "/other"\nproxy = "{Upstream().url}"\n')
    for mode, reads in itertools.product(MODES, (True, False)):
        assert server.get(f"/{mode}-{reads}/fine")[2] == b"fine"
    return server


def assert_bounded(serve, upstream, scheme, flood):
    server = start(serve, upstream, scheme)
    with Memory(server) as memory:
        clients = [
            Client(server, f"/{mode}-{reads}/{flood}", reads) for mode, reads in itertools.product(MODES, (True, False))
        ]
        wait_until(lambda: upstream.sent > 0, "the flood")
        begun = time.monotonic()
        for _ in range(3):
            assert server.get("/other")[2] == b"hello"
        assert time.monotonic() - begun < 5
        wait_until(lambda: not upstream.running, "the end of the flood")
        for client in clients:
            client.finish()
    assert memory.growth < GROWTH, f"{memory.growth / 1e6:.0f} MB after {upstream.sent / 1e6:.0f} MB"
    for mode in MODES:
        assert server.get(f"/{mode}-True/fine")[2] == b"fine"
    return [client.outcome() for client in clients]


@pytest.mark.parametrize("flood", HTTP1)
def test_an_upstream_of_http1_is_bounded(serve, flood):
    outcomes = assert_bounded(serve, Http1(HTTP1), "http", flood)
    if flood == "late-responses":
        assert outcomes == [(200, b"fine")] * 6
    else:
        assert all(status in (200, 502, 504) and (status != 200 or body is None) for status, body in outcomes), outcomes


@pytest.mark.parametrize("flood", HTTP2)
def test_an_upstream_of_http2_is_bounded(serve, flood):
    outcomes = assert_bounded(serve, Http2(HTTP2), "h2c", flood)
    if flood == "late-responses":
        assert outcomes == [(200, b"fine")] * 6
    else:
        assert all(status in (200, 502, 504) and (status != 200 or body is None) for status, body in outcomes), outcomes


def test_a_response_that_breaks_off_within_its_first_bytes_never_ends_without_a_status_line(serve):
    server = start(serve, Http1(HTTP1), "http")
    for _ in range(20):
        clients = [Client(server, f"/{mode}-True/cut-short", True) for mode in MODES for _ in range(4)]
        for client in clients:
            client.finish()
            assert client.outcome() in ((200, None), (502, client.outcome()[1]))


def test_first_byte_timeout_is_not_extended_by_interim_responses_or_parts_of_a_head(serve):
    def slowly(*parts):
        for part in itertools.chain(parts, itertools.repeat(parts[-1])):
            yield part
            time.sleep(0.05)

    http1 = Http1(
        {
            "interim": lambda: slowly(b"HTTP/1.1 103 Early Hints\r\n\r\n"),
            "head": lambda: slowly(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        }
    )
    http2 = Http2({"interim": lambda stream: slowly(head(stream, status="103"))})
    keys = 'first_byte_timeout = "300ms"'
    server = serve(
        more=f'[[site.route]]\npath = "/1/*"\nproxy = {{ to = "http://127.0.0.1:{http1.port}", {keys} }}\n'
        f'[[site.route]]\npath = "/2/*"\nproxy = {{ to = "h2c://127.0.0.1:{http2.port}", {keys} }}\n'
    )
    for path in ("/1/interim", "/1/head", "/2/interim"):
        client = Client(server, path, True)
        client.finish()
        assert client.outcome()[0] == 504, path
        assert "first_byte_timeout" in server.logged("`first_byte_timeout`")
