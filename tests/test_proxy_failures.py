"""The reverse proxy: upstreams that end, reset or pause the connection at each point of a response or within a request. Each has one
clear outcome, and a truncated response never looks complete."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived

from support.http import parse
from support.stub import StubServer
from support.upstream import Upstream, chunked, read_head, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

BODY = b"0123456789" * 20_000
STATED, CHUNKED = response(BODY), chunked(BODY[:100_000], BODY[100_000:])
HEAD = STATED.index(b"\r\n\r\n") + 4
# What the upstream sends before it fails, and what the client gets.
POINTS = {
    "before the head": (b"", "error"),
    "within the head": (STATED[:20], "error"),
    "after the head": (STATED[:HEAD], "cut"),
    "within the body": (STATED[: HEAD + 100_000], "cut"),
    "after the head of chunks": (CHUNKED[: CHUNKED.index(b"\r\n\r\n") + 4], "cut"),
    "within a chunk": (CHUNKED[:50_000], "cut"),
    "between chunks": (CHUNKED[: CHUNKED.index(b"\r\n", 100_000) + 2], "cut"),
    "before the last chunk": (CHUNKED[:-5], "cut"),
    "within the last chunk": (CHUNKED[:-2], "cut"),
    "after the last byte": (STATED, "whole"),
    "after the last chunk": (CHUNKED, "whole"),
}
KEYS = 'retry = false, eject = { failures = 0 }, connect_timeout = "2s", first_byte_timeout = "1s", idle_timeout = "1s"'


def close(connection):
    connection.shutdown(socket.SHUT_RDWR)


def reset(connection):
    # What was sent before has to arrive, as a reset discards it.
    time.sleep(0.2)
    abort(connection)


def abort(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection):
    connection.shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):
        connection.recv(1)


def pause(connection):
    with contextlib.suppress(OSError):
        connection.recv(1)


def received(server, method="GET"):
    """All bytes that a client gets."""
    data = b""
    with server.connect() as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(f"{method} /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
        while part := connection.recv(1 << 18):
            data += part
    return data


def outcome(data, size=len(BODY)):
    """What a client takes a response with a body of `size` bytes for."""
    head, _, body = data.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    if status != 200:
        return status
    if b"ransfer-Encoding: chunked" in head:
        return "whole" if body.endswith(b"0\r\n\r\n") else "cut"
    return "whole" if len(body) == size else "cut"


@pytest.mark.parametrize("fail", [close, reset, half_close, pause])
@pytest.mark.parametrize("point", POINTS)
def test_a_failure_has_one_clear_outcome(serve, point, fail):
    sent, expected = POINTS[point]

    def answer(_, connection, request):
        connection.sendall(sent)
        fail(connection)
        return None

    server = serve(route=f'proxy = {{ to = "{Upstream(answer).url}", {KEYS} }}')
    if expected == "error":
        expected = 504 if fail is pause else 502
    # A second request may use the connection of a complete response, on which only some methods can be repeated.
    for method in ("GET", "GET" if expected == "whole" else "POST"):
        found = outcome(received(server, method))
        # The failure of what arrived together with the head is known before the response begins.
        assert found == expected or expected == "cut" and found == 502


def test_another_upstream_responds_after_a_status_that_is_not_wanted(serve):
    bad = Upstream(lambda *_: response(b"bad", "503 Service Unavailable"))
    good = Upstream()
    keys = 'balance = "round-robin", eject = { failures = 0 }, retry = { statuses = [503, 404], budget = 100 }'
    server = serve(route=f'proxy = {{ to = ["{bad.url}", "{good.url}"], {keys} }}')
    assert [server.get("/")[0] for _ in range(6)] == [200] * 6 and len(bad.requests) >= 2
    # A request that may not be repeated has the response of its upstream.
    posted = [server.get("/", "Content-Length: 0", method="POST")[0] for _ in range(4)]
    assert sorted(posted) == [200, 200, 503, 503]
    server = serve(route=f'proxy = {{ to = ["{bad.url}", "{Upstream(bad.answer).url}"], {keys} }}')
    assert server.get("/")[::2] == (503, b"bad")


@pytest.mark.parametrize("fail", [close, reset, half_close])
def test_another_upstream_responds_after_a_failure_before_the_response(serve, fail):
    def answer(_, connection, request):
        fail(connection)
        return None

    broken, working = Upstream(answer), Upstream(lambda *_: STATED)
    server = serve(route=f'proxy = {{ to = ["{broken.url}", "{working.url}"], balance = "round-robin", eject = {{ failures = 0 }} }}')
    assert [outcome(received(server)) for _ in range(4)] == ["whole"] * 4
    assert sorted(outcome(received(server, "POST")) == 502 for _ in range(2)) == [False, True]


# More than the buffers of a connection hold.
UPLOAD = b"0123456789" * 800_000
EARLY = response(b"too large", "413 Content Too Large", "Connection: close")


class FailingOnce(Upstream):
    """An upstream that fails after `count` bytes of the body on its first connection. `fail` is `None` for a pause, which `done` ends."""

    def __init__(self, fail, count):
        self.fail, self.count, self.done = fail, count, threading.Event()
        super().__init__()

    def serve(self, connection):
        if self.connections:
            super().serve(connection)
            return
        self.connections += 1
        with connection, contextlib.suppress(OSError):
            _, body = read_head(connection)
            while len(body) < self.count:
                body += connection.recv(1 << 16)
            if self.fail:
                self.fail(connection)
            else:
                self.done.wait(60)


def respond_and_close(connection):
    # The rest of the body has not been read, so that this is a reset.
    connection.sendall(EARLY)


def respond_and_drain(connection):
    connection.sendall(EARLY)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(1 << 18):
        pass


@pytest.fixture
def log(tmp_path):
    return tmp_path / "access.log"


@pytest.fixture
def upload_server(serve, log):
    """Starts a server before an upstream that gets uploads."""
    return lambda url: serve(
        server=f'access_log = {{ path = "{log}", format = "{{method}} {{path}} {{status}}" }}',
        route=f'proxy = {{ to = "{url}", {KEYS} }}\nbody_size = "10MB"',
        more='[[site.route]]\npath = "/status/*"\nstatus = true\n',
    )


def response_to_upload(server):
    """The response to a request with a large body: status, fields, body."""

    def send():
        # The server may close the connection before it has all of the body.
        with contextlib.suppress(OSError):
            connection.sendall(f"POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(UPLOAD)}\r\n\r\n".encode())
            connection.sendall(UPLOAD)

    data = b""
    with server.connect() as connection:
        sender = threading.Thread(target=send)
        sender.start()
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                data += part
        sender.join()
    return parse(data)


def upstream_report(server):
    [report] = json.loads(server.get("/status/status.json")[2])["upstreams"]
    return report


def records(server, log):
    """What the access log has of the requests to the upstream, after the end of the server."""
    assert server.stop() == 0
    return [line for line in log.read_text().splitlines() if " /x " in line]


@pytest.mark.parametrize("count", [0, 100_000], ids=["after the head", "within the body"])
@pytest.mark.parametrize(
    "fail, expected, error",
    [
        (close, 502, "connection_terminated"),
        (abort, 502, "connection_terminated"),
        (half_close, 502, "connection_terminated"),
        (None, 504, "connection_write_timeout"),
        (respond_and_close, 413, None),
        (respond_and_drain, 413, None),
    ],
)
def test_a_failure_within_an_upload_has_one_clear_outcome(upload_server, log, count, fail, expected, error):
    upstream = FailingOnce(fail, count)
    server = upload_server(upstream.url)
    status, fields, _ = response_to_upload(server)
    assert (status, fields.get("proxy-status")) == (expected, error and f"dunlin; error={error}")
    wait_until(lambda: upstream_report(server)["in_flight"] == 0, "the end of the request to the upstream")
    assert [server.get("/x")[2] for _ in range(3)] == [b"hello"] * 3
    assert upstream.connections == upstream_report(server)["connections"] == 2, "one that has failed and one that is kept"
    upstream.done.set()
    assert records(server, log) == [f"POST /x {expected}", *["GET /x 200"] * 3]


class FailingOnceHttp2(StubServer):
    """An upstream of HTTP/2 that fails within the first body that it receives."""

    def __init__(self, fail):
        self.fail, self.has_failed, self.connections = fail, False, 0
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"h2c://127.0.0.1:{listener.getsockname()[1]}"
        super().__init__(listener)

    def serve(self, connection):
        self.connections += 1
        h2, received = H2Connection(H2Configuration(client_side=False)), 0
        h2.initiate_connection()
        with connection, contextlib.suppress(OSError):
            connection.sendall(h2.data_to_send())
            while data := connection.recv(1 << 16):
                for event in h2.receive_data(data):
                    if isinstance(event, RequestReceived) and event.stream_ended:
                        h2.send_headers(event.stream_id, [(":status", "200")])
                        h2.send_data(event.stream_id, b"hello", end_stream=True)
                    elif isinstance(event, DataReceived) and not self.has_failed:
                        received += len(event.data)
                        if received >= 50_000:
                            self.has_failed = True
                            self.fail(connection, h2, event.stream_id)
                        else:
                            h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                connection.sendall(h2.data_to_send())


def reset_stream(connection, h2, stream):
    h2.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)


def respond_and_reset_stream(connection, h2, stream):
    # A server that does not need the rest of a request does so (RFC 9113 §8.1).
    h2.send_headers(stream, [(":status", "413")])
    h2.send_data(stream, b"too large", end_stream=True)
    h2.reset_stream(stream, ErrorCodes.NO_ERROR)


def leave_window_closed(connection, h2, stream):
    pass


def close_connection(connection, h2, stream):
    raise ConnectionAbortedError("on purpose")


def go_away(connection, h2, stream):
    h2.close_connection()
    connection.sendall(h2.data_to_send())
    raise ConnectionAbortedError("on purpose")


@pytest.mark.parametrize(
    "fail, expected, connections",
    [(reset_stream, 502, 1), (respond_and_reset_stream, 413, 1), (leave_window_closed, 504, 1), (close_connection, 502, 2), (go_away, 502, 2)],
)
def test_a_failure_of_http2_within_an_upload_has_one_clear_outcome(upload_server, log, fail, expected, connections):
    upstream = FailingOnceHttp2(fail)
    server = upload_server(upstream.url)
    status, fields, _ = response_to_upload(server)
    assert status == expected and ("proxy-status" in fields) == (expected != 413)
    wait_until(lambda: upstream_report(server)["in_flight"] == 0, "the end of the request to the upstream")
    assert [server.get("/x")[2] for _ in range(3)] == [b"hello"] * 3
    assert upstream.connections == connections
    assert records(server, log) == [f"POST /x {expected}", *["GET /x 200"] * 3]


PROGRAM = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 20
    body = b"0123456789" * (int(sys.argv[2]) // 10)

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class Process:
    """An upstream in a process of its own."""

    def __init__(self, port=0, size=len(BODY)):
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(port), str(size)], stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())

    def kill(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def processes():
    started = []

    def start(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.kill()


def test_a_stopped_process_gives_504_and_responds_again(serve, processes):
    process = processes()
    server = serve(route=f'proxy = {{ to = "http://127.0.0.1:{process.port}", {KEYS} }}')
    assert outcome(received(server)) == "whole"
    pid = process.process.pid
    os.kill(pid, signal.SIGSTOP)
    states = Path(f"/proc/{pid}/task").glob
    # Its threads run on until each has seen the signal.
    wait_until(lambda: {file.read_text().rsplit(")", 1)[1].split()[0] for file in states("*/stat")} == {"T"}, "the stop")
    assert outcome(received(server)) == 504
    os.kill(process.process.pid, signal.SIGCONT)
    assert outcome(received(server)) == "whole"


@pytest.mark.parametrize("fault", ["killed", "restarted", "stopped"])
def test_no_get_fails_when_one_of_three_upstreams_does(serve, processes, fault):
    # The process sends such a response by one system call: a longer one would be cut if the process dies while it sends.
    size = 2000
    upstreams = [processes(0, size) for _ in range(3)]
    urls = ", ".join(f'"http://127.0.0.1:{process.port}"' for process in upstreams)
    server = serve(route=f'proxy = {{ to = [{urls}], first_byte_timeout = "20s", retry = {{ timeout = "1s" }} }}')
    outcomes, done = [], threading.Event()

    def client():
        while not done.is_set():
            outcomes.append(outcome(received(server), size))

    clients = [threading.Thread(target=client) for _ in range(4)]
    for thread in clients:
        thread.start()

    def more(number):
        goal = len(outcomes) + number
        wait_until(lambda: len(outcomes) >= goal, f"{number} responses", 30)

    more(50)
    victim = upstreams[1]
    if fault == "stopped":
        os.kill(victim.process.pid, signal.SIGSTOP)
    else:
        victim.kill()
    more(100)
    if fault == "stopped":
        os.kill(victim.process.pid, signal.SIGCONT)
    if fault == "restarted":
        processes(victim.port, size)
    more(100)
    done.set()
    for thread in clients:
        thread.join()
    assert set(outcomes) == {"whole"}
