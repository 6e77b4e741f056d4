"""Unsent responses are not logged or counted as sent."""

import json
import os
import signal
import socket
import ssl
import struct
from pathlib import Path

import pytest

from support.files import write
from support.http import read_response
from support.http2 import Client, request, window_update
from support.tls import certificate
from support.waiting import wait_until

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
STATUS = '[[site.route]]\npath = "/status/*"\nstatus = true\naccess_log = false\n'
ROUTES = (
    '[[site.route]]\npath = "/respond"\nrespond = { body = "taken" }\n'
    '[[site.route]]\npath = "/moved"\nredirect = { to = "/a" }\n'
)


@pytest.fixture
def page(site):
    return write(site / "a", "x" * 1000)


@pytest.fixture
def logging(serve, page, tmp_path):
    """Starts a server whose log has path, status and bytes of each request."""
    log = tmp_path / "access.log"

    def start(listen="", keys="", more=ROUTES + STATUS):
        text = (
            f'[server]\nthreads = 1\naccess_log = {{ path = "{log}", format = "{{path}} {{status}} {{bytes}}" }}\n'
            f'[[listen]]\naddress = "127.0.0.1:0"\n{listen}\n[[site]]\nroot = "{page.parent}"\n{keys}\n{more}'
        )
        server = serve(text=text)

        def lines(count):
            def found():
                lines = log.read_text().splitlines() if log.exists() else []
                return lines if len(lines) >= count else None

            return [
                (path, int(status), int(size) if size != "-" else 0)
                for path, status, size in map(str.split, wait_until(found, f"{count} lines"))
            ]

        server.lines = lines
        return server

    return start


def reset(connection):
    """Ends a connection at once: nothing can be sent to it any more."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def pause(server):
    """Stops all threads of the server."""
    os.kill(server.pid, signal.SIGSTOP)

    def states():
        tasks = Path(f"/proc/{server.pid}/task").iterdir()
        return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}

    wait_until(lambda: states() == {"T"}, "all threads are stopped")


def request_and_disconnect(server, connection, data):
    """Sends requests and disconnects before the server reads them."""
    pause(server)
    try:
        connection.sendall(data)
        reset(connection)
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("path", ["/a", "/respond", "/moved", "/none"])
def test_a_client_that_disconnects_before_the_write(logging, path):
    server = logging()
    connection = server.connect()
    connection.sendall(GET)
    assert read_response(connection)[0] == 200
    request_and_disconnect(server, connection, GET.replace(b"/a", path.encode()))
    assert server.lines(2) == [("/a", 200, 1000), (path, 499, 0)]


def test_requests_of_one_write_are_all_recorded_as_not_sent(logging):
    server = logging()
    connection = server.connect()
    connection.sendall(GET)
    assert read_response(connection)[0] == 200
    others = [b"/respond", b"/a", b"/moved", b"/a"]
    request_and_disconnect(server, connection, b"".join(GET.replace(b"/a", path) for path in others))
    assert server.lines(5) == [("/a", 200, 1000)] + [(path.decode(), 499, 0) for path in others]


def test_metrics_count_unsent_responses_as_499(logging):
    server = logging()
    connection = server.connect()
    connection.sendall(GET)
    assert read_response(connection)[0] == 200
    request_and_disconnect(server, connection, GET * 3)

    def counted():
        text = server.get("/status/metrics")[2].decode()
        lines = [line for line in text.splitlines() if line.startswith("http_server_request_duration_seconds_count")]
        return {
            status: sum(int(line.split()[-1]) for line in lines if f'"{status}"' in line and "/status" not in line)
            for status in (200, 499)
        }

    wait_until(lambda: counted() == {200: 1, 499: 3}, "the counts")


def test_without_a_log_metrics_count_unsent_responses(serve, page):
    server = serve(more=STATUS)
    connection = server.connect()
    connection.sendall(GET)
    assert read_response(connection)[0] == 200
    request_and_disconnect(server, connection, GET * 2)

    def counted():
        text = server.get("/status/metrics")[2].decode()
        lines = [line for line in text.splitlines() if line.startswith("http_server_request_duration_seconds_count")]
        return sum(int(line.split()[-1]) for line in lines if '"499"' in line)

    wait_until(lambda: counted() == 2, "the counts")


def waits_for_room(server):
    text = server.get("/status/metrics")[2].decode()
    return 'dunlin_connections{state="send"} 1' in text


def test_aborted_pipelined_responses_are_recorded_by_their_sent_bytes(logging, site):
    size = 8000
    write(site / "large", b"y" * size)
    server = logging()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(server.address)
        count = 2000
        connection.sendall(GET.replace(b"/a", b"/large") * count)
        # The server has written all that it can.
        received = len(connection.recv(1000))
        wait_until(lambda: waits_for_room(server), "a full socket")
        reset(connection)

    def cut():
        return any(status == 499 or sent < size for _, status, sent in server.lines(1))

    wait_until(cut, "the record of what was cut")
    found = server.lines(2)
    # In order: complete responses, at most one truncated one, and then those of which nothing was sent.
    statuses = [status for _, status, _ in found]
    assert statuses == sorted(statuses) and set(statuses) <= {200, 499}
    whole = [size_ for _, status, size_ in found if status == 200]
    assert all(length == size for length in whole[:-1]) and whole[-1] <= size
    assert all(length == 0 for _, status, length in found if status == 499)
    assert received and len(found) < count


def test_a_client_that_disconnects_over_http2(logging):
    server = logging()
    client = Client(server)
    client.send(request(1, "/a"))
    client.body(1)
    requests = request(3, "/a") + request(5, "/respond") + request(7, "/none") + request(9, "/a", "HEAD")
    request_and_disconnect(server, client.socket, requests)
    found = server.lines(5)
    assert found[0] == ("/a", 200, 1000)
    assert sorted(found[1:]) == sorted([("/a", 499, 0), ("/respond", 499, 0), ("/none", 499, 0), ("/a", 499, 0)])


def test_a_truncated_body_over_http2(logging, site):
    with open(site / "big", "wb") as file:
        file.truncate(64 << 20)
    server = logging()
    client = Client(server, [(4, 1 << 30)])
    client.send(window_update(0, 1 << 30) + request(1, "/big"))
    received = 0
    while received < 1 << 20:
        received += len(client.socket.recv(1 << 16))
    reset(client.socket)
    [(path, status, size)] = server.lines(1)
    assert (path, status) == ("/big", 200) and 0 < size < 64 << 20


def test_a_client_that_disconnects_over_tls(logging, tmp_path):
    file, key = certificate(tmp_path, "own")
    keys = f'tls = {{ certificate = "{file}", key = "{key}" }}'
    server = logging(listen="tls = true", keys=keys, more="")
    context = ssl._create_unverified_context()
    connection = context.wrap_socket(server.connect(), server_hostname="localhost")
    connection.sendall(GET)
    assert read_response(connection)[0] == 200
    pause(server)
    connection.sendall(GET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain = socket.socket(fileno=connection.detach())
    plain.close()
    os.kill(server.pid, signal.SIGCONT)
    assert server.lines(2) == [("/a", 200, 1000), ("/a", 499, 0)]


def test_sent_responses_are_recorded(logging, site):
    write(site / "big", b"z" * 300_000)
    server = logging()
    data = server.exchange(
        GET + GET.replace(b"GET", b"HEAD") + GET.replace(b"/a", b"/big") + GET.replace(b"/a", b"/respond")
        + GET.replace(b"Host", b"Connection: close\r\nHost").replace(b"/a", b"/none")
    )
    assert data.count(b"HTTP/1.1 ") == 5
    found = server.lines(5)
    assert [line[:2] for line in found] == [("/a", 200), ("/a", 200), ("/big", 200), ("/respond", 200), ("/none", 404)]
    assert [size for *_, size in found[:4]] == [1000, 0, 300_000, 5]


def test_subscribers_see_unsent_responses(logging):
    server = logging()
    with server.connect() as watcher:
        watcher.sendall(b"GET /status/watch?level=line HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: b"\n\r\n" in watcher.recv(1 << 16, socket.MSG_PEEK), "the head")
        connection = server.connect()
        request_and_disconnect(server, connection, GET)
        seen = b""
        while b'"/a"' not in seen:
            seen += watcher.recv(1 << 16)
        line = next(line for line in seen.split(b"\n") if b'"/a"' in line)
        event = json.loads(line[line.index(b"{") :])
        assert (event["status"], event["broken_off"]) == (499, True)
