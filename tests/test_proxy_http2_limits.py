"""The reverse proxy before upstreams of HTTP/2 that permit few streams at once, or none, and that refuse requests."""

import socket
import threading
import time

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.settings import SettingCodes, Settings

from support import http2
from support.http import post
from support.stub import StubServer
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")


class Lenient(H2Connection):
    """A connection that does not end when the client opens more streams than are permitted, which it may not know yet."""

    open_inbound_streams = -1


class Limited(StubServer):
    """An upstream of HTTP/2 that permits `limit` streams on each connection, and refuses more. It responds when `answers` is set."""

    def __init__(self, limit):
        self.limit, self.answers, self.requests, self.waiting = limit, threading.Event(), 0, []
        self.lock, self.connections, self.opened = threading.Lock(), [], 0
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        super().__init__(listener)

    def permit(self, limit):
        """Permits another number of streams."""
        with self.lock:
            self.limit = limit
            for connection, h2 in self.connections:
                h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: limit})
                connection.sendall(h2.data_to_send())

    def answer(self):
        """Responds to the requests that wait, and to all later ones."""
        self.answers.set()
        with self.lock:
            self._respond()

    def _respond(self):
        for connection, h2, stream in self.waiting:
            h2.send_headers(stream, [(":status", "200")])
            h2.send_data(stream, b"h2", end_stream=True)
            connection.sendall(h2.data_to_send())
        self.waiting = []

    def serve(self, connection):
        h2 = Lenient(H2Configuration(client_side=False))
        with self.lock:
            values = {SettingCodes.MAX_CONCURRENT_STREAMS: self.limit}
            h2.local_settings = Settings(client=False, initial_values=values)
            h2.initiate_connection()
            connection.sendall(h2.data_to_send())
            self.connections.append((connection, h2))
            self.opened += 1
        while data := connection.recv(1 << 16):
            with self.lock:
                for event in h2.receive_data(data):
                    if isinstance(event, RequestReceived):
                        self._request(connection, h2, event.stream_id)
                connection.sendall(h2.data_to_send())
                if self.answers.is_set():
                    self._respond()
        with self.lock:
            self.connections.remove((connection, h2))

    def _request(self, connection, h2, stream):
        if sum(open_one is connection for open_one, _, _ in self.waiting) >= self.limit:
            h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            return
        self.requests += 1
        self.waiting.append((connection, h2, stream))


@pytest.fixture
def limited():
    upstream = Limited(100)
    yield upstream
    upstream.listener.close()


def test_an_upstream_that_permits_no_stream_gives_504_within_the_time_for_connecting(serve, limited):
    limited.answers.set()
    server = serve(route=f'proxy = {{ to = "h2c://127.0.0.1:{limited.port}", connect_timeout = "300ms" }}')
    assert server.get("/")[2] == b"h2"
    limited.permit(0)
    begun = time.monotonic()
    wait_until(lambda: server.get("/")[0] == 504, "the limit")
    status, fields, _ = server.get("/")
    assert status == 504 and fields["proxy-status"] == "dunlin; error=connection_timeout"
    assert "permits no further stream" in server.logged("the upstream failed") and time.monotonic() - begun < 10
    requests = limited.requests
    limited.permit(5)
    assert server.get("/")[::2] == (200, b"h2") and limited.requests == requests + 1


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_upstream_gets_what_one_permits_no_stream_for(serve, limited, method):
    limited.answers.set()
    other = Upstream(lambda *_: response(b"other"))
    to = f'["h2c://127.0.0.1:{limited.port}", "{other.url}"]'
    server = serve(route=f'proxy = {{ to = {to}, balance = "round-robin", connect_timeout = "300ms", eject = {{ failures = 100 }} }}')
    wait_until(lambda: server.get("/")[2] == b"h2", "a request to the first one")
    limited.permit(0)

    def is_retried():
        status, _, body = server.get("/", method=method)
        assert status == 200
        return body == b"other" and "another upstream gets the request" in server.log

    wait_until(is_retried, "a request that the other one gets")


def fetch_together(server, count):
    """The status and body of requests at once, as they arrive."""
    found = []
    threads = [threading.Thread(target=lambda: found.append(server.get("/")[::2])) for _ in range(count)]
    [thread.start() for thread in threads]
    return threads, found


@pytest.mark.parametrize("is_warm", [False, True])
def test_another_connection_is_opened_when_one_permits_no_further_stream(serve, limited, is_warm):
    limited.limit = 4
    server = serve(route=f'proxy = "h2c://127.0.0.1:{limited.port}"')
    if is_warm:
        limited.answers.set()
        assert server.get("/")[2] == b"h2"
        limited.answers.clear()
    before = limited.requests
    threads, found = fetch_together(server, 10)
    wait_until(lambda: limited.requests == before + 10, "all requests at the upstream")
    assert limited.opened == 3
    limited.answer()
    [thread.join() for thread in threads]
    assert found == [(200, b"h2")] * 10 and limited.requests == before + 10
    # The first connection is enough again.
    assert server.get("/")[2] == b"h2" and limited.opened == 3


def test_connections_and_requests_are_bounded_by_connections(serve, limited):
    limited.limit = 1
    server = serve(route=f'proxy = {{ to = "h2c://127.0.0.1:{limited.port}", connections = 3 }}')
    threads, found = fetch_together(server, 8)
    wait_until(lambda: limited.requests == 3, "the requests that may be sent")
    limited.answer()
    [thread.join() for thread in threads]
    assert found == [(200, b"h2")] * 8 and limited.opened == 3


class Refusing(StubServer):
    """An upstream of HTTP/2 that refuses the first `refusals` requests when it has all of a request, and echoes others."""

    def __init__(self, refusals, how):
        self.refusals, self.how, self.requests = refusals, how, 0
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        super().__init__(listener)

    def serve(self, connection):
        h2 = H2Connection(H2Configuration(client_side=False))
        h2.initiate_connection()
        connection.sendall(h2.data_to_send())
        bodies = {}
        while data := connection.recv(1 << 16):
            for event in h2.receive_data(data):
                if isinstance(event, DataReceived):
                    bodies[event.stream_id] = bodies.get(event.stream_id, b"") + event.data
                    h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if not isinstance(event, StreamEnded):
                    continue
                self.requests += 1
                if self.requests > self.refusals:
                    body = bodies.pop(event.stream_id, b"") or b"none"
                    h2.send_headers(event.stream_id, [(":status", "200")])
                    for at in range(0, len(body), 16_384):
                        h2.send_data(event.stream_id, body[at : at + 16_384], end_stream=at + 16_384 >= len(body))
                elif self.how == "reset":
                    h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
                else:
                    h2.close_connection(last_stream_id=0)
                    connection.sendall(h2.data_to_send())
                    return connection.close()
            connection.sendall(h2.data_to_send())


@pytest.mark.parametrize("how", ["reset", "goaway"])
@pytest.mark.parametrize(("method", "size", "is_chunked"), [("GET", 0, False), ("POST", 1000, False), ("POST", 1000, True), ("POST", 60_000, True)])
def test_a_refused_request_is_sent_again_also_on_a_new_connection(serve, how, method, size, is_chunked):
    upstream = Refusing(1, how)
    server = serve(route=f'proxy = "h2c://127.0.0.1:{upstream.port}"')
    body = bytes(range(250)) * (size // 250)
    for expected in (2, 3):
        found = post(server, "/", body, chunked=is_chunked) if method == "POST" else server.get("/")
        assert found[::2] == (200, body or b"none") and upstream.requests == expected


def test_a_refused_body_of_more_than_64_kb_is_not_sent_again(serve):
    upstream = Refusing(1, "reset")
    server = serve(route=f'proxy = "h2c://127.0.0.1:{upstream.port}"')
    assert post(server, "/", bytes(100_000), chunked=True)[0] == 502 and upstream.requests == 1


def test_an_upstream_that_refuses_all_gets_each_request_three_times(serve):
    upstream = Refusing(1000, "reset")
    server = serve(route=f'proxy = "h2c://127.0.0.1:{upstream.port}"')
    for number in (1, 2):
        assert server.get("/")[0] == 502 and upstream.requests == 3 * number


class Reader(StubServer):
    """An upstream of HTTP/2 that opens both windows for each piece of `size` bytes that it reads, as Go does."""

    def __init__(self, size):
        self.size = size
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"h2c://127.0.0.1:{listener.getsockname()[1]}"
        super().__init__(listener)

    def serve(self, connection):
        stream = connection.makefile("rb")
        connection.sendall(http2.frame(http2.SETTINGS))
        stream.read(len(http2.PREFACE))
        received = 0
        while head := stream.read(9):
            length, kind, flags, number = int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:])
            stream.read(length)
            if kind == http2.SETTINGS and not flags:
                connection.sendall(http2.frame(http2.SETTINGS, http2.ACK))
            if kind != http2.DATA:
                continue
            received += length
            pieces = [min(self.size, length - at) for at in range(0, length, self.size)]
            connection.sendall(b"".join(http2.window_update(window, piece) for piece in pieces for window in (0, number)))
            if flags & http2.END_STREAM:
                body = str(received).encode()
                connection.sendall(http2.frame(http2.HEADERS, http2.END_HEADERS, number, b"\x88"))
                connection.sendall(http2.frame(http2.DATA, http2.END_STREAM, number, body))


@pytest.mark.parametrize("size", [512, 4096, 1 << 20])
def test_an_upstream_may_open_its_windows_for_each_piece_that_it_reads(serve, size):
    server = serve(route=f'proxy = "{Reader(size).url}"\nbody_size = "100MB"')
    length = 40_000_000
    assert post(server, "/", b"x" * length)[::2] == (200, str(length).encode())
