"""The reverse proxy before upstreams of HTTP/2 that permit few streams at once, or none."""

import socket
import threading
import time

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from h2.settings import SettingCodes

from support.stub import StubServer
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")


class Limited(StubServer):
    """An upstream of HTTP/2 that permits `limit` streams. It responds when `answers` is set."""

    def __init__(self, limit):
        self.limit, self.answers, self.requests, self.waiting = limit, threading.Event(), 0, []
        self.lock, self.socket, self.h2 = threading.Lock(), None, None
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        super().__init__(listener)

    def permit(self, limit):
        """Permits another number of streams."""
        with self.lock:
            self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: limit})
            self.socket.sendall(self.h2.data_to_send())

    def answer(self):
        """Responds to the requests that wait, and to all later ones."""
        self.answers.set()
        with self.lock:
            self._respond()

    def _respond(self):
        for stream in self.waiting:
            self.h2.send_headers(stream, [(":status", "200")])
            self.h2.send_data(stream, b"h2", end_stream=True)
        self.waiting = []
        self.socket.sendall(self.h2.data_to_send())

    def serve(self, connection):
        with self.lock:
            self.socket, self.h2 = connection, H2Connection(H2Configuration(client_side=False))
            self.h2.local_settings.update({SettingCodes.MAX_CONCURRENT_STREAMS: self.limit})
            self.h2.initiate_connection()
            connection.sendall(self.h2.data_to_send())
        while data := connection.recv(1 << 16):
            with self.lock:
                for event in self.h2.receive_data(data):
                    if isinstance(event, RequestReceived):
                        self.requests += 1
                        self.waiting.append(event.stream_id)
                if self.answers.is_set():
                    self._respond()
                else:
                    connection.sendall(self.h2.data_to_send())


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
        return body == b"other" and "another one gets the request" in server.log

    wait_until(is_retried, "a request that the other one gets")


def test_requests_wait_for_a_stream(serve, limited):
    limited.answers.set()
    server = serve(route=f'proxy = "h2c://127.0.0.1:{limited.port}"')
    assert server.get("/")[2] == b"h2"
    limited.answers.clear()
    limited.permit(1)
    # A request that the settings overtake makes sure that they have arrived.
    wait_until(lambda: limited.h2.local_settings.max_concurrent_streams == 1, "the settings")
    bodies = []
    threads = [threading.Thread(target=lambda: bodies.append(server.get("/")[2])) for _ in range(5)]
    before = limited.requests
    [thread.start() for thread in threads]
    wait_until(lambda: limited.requests == before + 1, "the first request")
    limited.answer()
    [thread.join() for thread in threads]
    assert bodies == [b"h2"] * 5 and limited.requests == before + 5
