"""The reverse proxy: upstreams that end, reset or pause the connection at each point of a response. Each has one clear outcome, and a
truncated response never looks complete."""

import contextlib
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

from support.upstream import Upstream, chunked, response
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


@pytest.mark.parametrize("fail", [close, reset, half_close])
def test_another_upstream_responds_after_a_failure_before_the_response(serve, fail):
    def answer(_, connection, request):
        fail(connection)
        return None

    broken, working = Upstream(answer), Upstream(lambda *_: STATED)
    server = serve(route=f'proxy = {{ to = ["{broken.url}", "{working.url}"], balance = "round-robin", eject = {{ failures = 0 }} }}')
    assert [outcome(received(server)) for _ in range(4)] == ["whole"] * 4
    assert sorted(outcome(received(server, "POST")) == 502 for _ in range(2)) == [False, True]


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
