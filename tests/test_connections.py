"""Connections: persistence, rejection, timeouts and the end, byte for byte."""

import http.client
import os
import re
import select
import socket
import statistics
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.files import write
from support.http import read_all, read_response
from support.server import DUNLIN
from support.waiting import wait_until

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def page(site):
    return write(site / "a", "x" * 1000)


def test_pipelined_responses_are_sent_in_order_and_in_one_write(serve, site, page):
    for n in range(50):
        write(site / f"f{n}", f"file {n}")
    server = serve()
    with server.connect() as connection:
        connection.sendall(b"".join(b"GET /f%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(50)))
        rest = b""
        for n in range(50):
            status, _, body, rest = read_response(connection, rest)
            assert (status, body) == (200, b"file %d" % n)
        # Now cached: all responses are ready, so that they arrive together.
        connection.sendall(GET * 10)
        wait_until(lambda: len(connection.recv(1 << 20, socket.MSG_PEEK)) > 10_000, "ten responses")
        assert len(connection.recv(1 << 20)) > 10_000


@pytest.mark.parametrize("use", ["close", "persistent", "pipelined"])
def test_the_three_ways_to_use_a_connection(serve, page, use):
    server = serve(server=f'[server.http1]\nconnection = "{use}"')
    with server.connect() as connection:
        connection.sendall(GET * 3)
        data = b""
        if use == "close":
            data = read_all(connection)
            assert data.count(b"HTTP/1.1 200") == 1 and b"Connection: close" in data
            return
        for _ in range(3):
            status, fields, _, data = read_response(connection, data)
            assert status == 200 and "connection" not in fields


def test_http_1_0_connections_persist_only_on_request(serve, page):
    server = serve()
    assert b"Connection: close" in server.exchange(b"GET /a HTTP/1.0\r\n\r\n")
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert read_response(connection)[1]["connection"] == "keep-alive"


def test_a_connection_has_a_most_of_requests(serve, page):
    server = serve(server="[server.http1]\nrequests = 2")
    data = server.exchange(GET * 5)
    assert data.count(b"HTTP/1.1 200") == 2 and data.count(b"Connection: close") == 1


@pytest.mark.parametrize(
    "request_text, status",
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET /a%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET ftp://x/a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        (b"DELETE /a HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"TRACE /a HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n", 413),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: tea\r\n\r\n", 417),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
        (b"BREW /a HTTP/1.1\r\nHost: x\r\n\r\n", 501),
        (b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    ],
)
def test_errors_have_their_status_and_arrive_complete(serve, page, request_text, status):
    server = serve(more='[[site.route]]\npath = "/sink"\nrespond = { body = "taken" }\n')
    # A client that still sends must not lose the response to a reset.
    with server.connect() as connection:
        connection.sendall(request_text + b"x" * 100_000 if status in (400, 413, 431) else request_text)
        got, fields, body, _ = read_response(connection)
        assert got == status and len(body) > 10
        if status == 405:
            assert fields["allow"] == "GET, HEAD, OPTIONS"
        if status in (404, 405, 501) and b"CONNECT" not in request_text:
            connection.sendall(GET)
            assert read_response(connection)[0] == 200, "the connection goes on"
        else:
            assert fields["connection"] == "close"
            connection.shutdown(socket.SHUT_WR)
            assert read_all(connection) == b"", "an orderly end"


def test_options_and_absolute_targets(serve, page):
    server = serve()
    for target in (b"*", b"/a"):
        data = server.exchange(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert data.startswith(b"HTTP/1.1 204") and b"Allow: GET, HEAD, OPTIONS" in data
    data = server.exchange(b"GET http://y/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 200")


SINK = '[[site.route]]\npath = "/sink"\nrespond = { body = "taken" }\nbody_size = "100KB"\n'


def test_bodies_are_read_before_the_response_and_bounded(serve, page):
    server = serve(more=SINK)
    with server.connect() as connection:
        connection.sendall(b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        wait_until(lambda: connection.recv(100, socket.MSG_PEEK), "the interim response")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello" + GET)
        status, _, body, rest = read_response(connection)
        assert (status, body) == (200, b"taken")
        assert read_response(connection, rest)[0] == 200
        # A file needs no body: the final response is sent at once, and ends the connection.
        connection.sendall(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        status, fields, _, _ = read_response(connection)
        assert (status, fields["connection"]) == (405, "close")
    chunked = b"POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(chunked + b"5;x=y\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n" + GET)
        status, _, body, rest = read_response(connection)
        assert (status, body) == (200, b"taken")
        assert read_response(connection, rest)[0] == 200
        connection.sendall(chunked + b"1000\r\n" + b"x" * 4096 + b"\r\n")
        for _ in range(30):
            connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        assert read_response(connection)[0] == 413


@pytest.mark.serial
def test_no_response_waits_for_a_delayed_acknowledgement(serve, site, page):
    """The 200 ms of thttpd 2.00 and the 110 ms of a POST in two segments do not occur."""
    write(site / "big", b"y" * 100_000)
    write(site / "huge", b"z" * 600_000)
    server = serve(more=SINK)
    connection = server.connect()
    post = b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 542\r\n\r\n"
    exchanges = {
        "small": [GET],
        "pipelined": [GET * 10],
        "sealed": [b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"],
        "sendfile": [b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n"],
        "head": [b"GET /no", b"ne HTTP/1.1\r\nHost: x\r\n\r\n"],
        "post in two": [post, b"x" * 542],
        "post in three": [post, b"x" * 500, b"x" * 42],
        "range": [b"GET /huge HTTP/1.1\r\nHost: x\r\nRange: bytes=0-9,200000-500000\r\n\r\n"],
    }
    for name, parts in exchanges.items():
        times = []
        for _ in range(20):
            began = time.perf_counter()
            for part in parts:
                connection.sendall(part)
            rest = b""
            for _ in range(10 if name == "pipelined" else 1):
                _, _, _, rest = read_response(connection, rest)
            times.append(time.perf_counter() - began)
        assert statistics.median(times) < 0.035, f"{name}: {times}"
        assert sorted(times)[-3] < 0.035, f"{name}: {times}"
    connection.close()


def test_timeouts_end_slow_connections(serve, page):
    server = serve(
        server='[server.http1]\nhead_timeout = "300ms"\nidle_timeout = "300ms"\nbody_timeout = "300ms"',
        more=SINK,
    )
    for start, status in [
        (b"", None),
        (b"GET /a HTTP/1.1\r\n", b"408"),
        (b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab", b"408"),
    ]:
        with server.connect() as connection:
            connection.sendall(start)
            began = time.monotonic()
            data = read_all(connection)
            assert time.monotonic() - began > 0.2
            assert (data[9:12] == status) if status else data == b""
    # A head that arrives byte by byte has the same limit as one that does not arrive.
    with server.connect() as connection:
        with pytest.raises(OSError):
            for byte in (b"GET /a HTTP/1.1\r\nX: " + b"a" * 1000):
                connection.sendall(bytes([byte]))
                time.sleep(0.01)


def test_a_client_that_reads_nothing_is_dropped(serve, site):
    write(site / "huge", b"z" * 30_000_000)
    server = serve(server='[server.http1]\nsend_timeout = "300ms"')
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(server.address)
        connection.sendall(b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n")
        events = select.poll()
        events.register(connection, 0)
        wait_until(lambda: events.poll(10), "the connection to be dropped")


@pytest.mark.parametrize(("stopped", "confined"), [(False, ""), (True, ""), (False, "seccomp = true\n")])
def test_a_client_that_reads_slowly_is_kept(serve, site, stopped, confined):
    """The kernel, which has buffered a megabyte, reports room only when half of that is sent."""
    write(site / "huge", b"z" * 30_000_000)
    server = serve(server=confined + '[server.http1]\nsend_timeout = "1s"')
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(server.address)
        connection.sendall(b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n")
        taken = 0
        for _ in range(60):
            taken += len(connection.recv(4096))
            time.sleep(0.08)
        assert taken < 250_000, "less than half of what the kernel took"
        if stopped:
            events = select.poll()
            events.register(connection, 0)
            wait_until(lambda: events.poll(10), "the connection to be dropped")


HALF_BODY = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"


def test_new_connections_wait_beyond_the_limit(serve, page):
    server = serve(server="connections = 3")
    held = [server.connect() for _ in range(3)]
    for connection in held:
        connection.sendall(GET)
        assert read_response(connection)[0] == 200
        # An idle connection would be closed to make room, and so would one with half a head.
        connection.sendall(HALF_BODY)
        assert read_response(connection)[0] == 405
    late = server.connect()
    late.sendall(GET)
    late.settimeout(0.3)
    with pytest.raises(TimeoutError):
        late.recv(1)
    late.settimeout(10)
    held.pop().close()
    assert read_response(late)[0] == 200
    for connection in [*held, late]:
        connection.close()


def queued(server):
    """Bytes that the kernel holds for each of the server's connections."""
    # Of /proc/net/tcp all would have to be read, with the thousands that other tests have left behind.
    only = ["state", "established", "sport", "=", f":{server.address[1]}"]
    reported = subprocess.run(["ss", "-Htn", *only], capture_output=True, check=True, text=True)
    return [int(line.split()[1]) for line in reported.stdout.splitlines()]


@pytest.mark.parametrize(("others", "most"), [(0, 1280), (256, 256)])
def test_the_kernel_buffers_little_for_a_client_that_reads_slowly(serve, site, page, others, most):
    """By default it buffers megabytes per connection, independent of the client's window."""
    with open(site / "big", "wb") as file:
        file.truncate(64 << 20)
    server = serve()
    waiting = [server.connect() for _ in range(others)]
    for connection in waiting:
        connection.sendall(GET)
        assert read_response(connection)[0] == 200
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(server.address)
        slow.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.recv(1)
        for _ in range(200):
            assert slow.recv(4096)
            assert max(queued(server)) <= most * 1024
    for connection in waiting:
        connection.close()


def test_without_descriptors_accepting_pauses_and_recovers(serve, page):
    import resource

    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    server = serve(server="connections = 1000", preexec=limit)
    first = server.connect()
    first.sendall(GET)
    assert read_response(first)[0] == 200
    # An idle connection would be closed to make room, and so would one with half a head.
    first.sendall(HALF_BODY)
    assert read_response(first)[0] == 405
    crowd = [server.connect() for _ in range(100)]
    wait_until(lambda: "accepting is paused" in server.log, "the logged pause")
    first.sendall(b"x" + GET)
    assert read_response(first)[0] == 200, "open connections are served"
    for connection in crowd:
        connection.close()
    wait_until(lambda: server.get("/a")[0] == 200, "recovery")
    assert server.log.count("accepting is paused") <= 3
    first.close()


@pytest.mark.serial
def test_slow_clients_do_not_slow_a_fast_one(serve, page):
    server = serve(server='connections = 5000\n[server.http1]\nhead_timeout = "60s"')

    def rate():
        connection = http.client.HTTPConnection(*server.address)
        times = []
        for _ in range(2000):
            began = time.perf_counter()
            connection.request("GET", "/a")
            assert connection.getresponse().read() == b"x" * 1000
            times.append(time.perf_counter() - began)
        connection.close()
        return statistics.median(times)

    alone = min(rate() for _ in range(3))
    slow = [server.connect() for _ in range(2000)]
    done = threading.Event()

    def drip():
        while not done.is_set():
            for connection in slow[::4]:
                try:
                    connection.send(b"G")
                except OSError:
                    pass
                if done.wait(0.001):
                    return

    for connection in slow:
        connection.sendall(b"GET /a HTTP/1.1\r\nX: ")
    thread = threading.Thread(target=drip)
    thread.start()
    crowded = min(rate() for _ in range(3))
    done.set()
    thread.join()
    for connection in slow:
        connection.close()
    assert crowded < 2.5 * alone, f"{crowded * 1e6:.0f} us beside 2,000, {alone * 1e6:.0f} us alone"


def test_clients_that_vanish_leave_nothing_behind(serve, site, page):
    write(site / "huge", b"z" * 3_000_000)
    server = serve()
    fds = lambda: len(__import__("os").listdir(f"/proc/{server.pid}/fd"))
    server.get("/huge")
    wait_until(lambda: fds() < 40, "the first connection to go")
    before = fds()
    messages = [b"", b"GET /a HT", GET, GET * 5, b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n"]
    for n in range(2000):
        connection = server.connect()
        connection.sendall(messages[n % len(messages)])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    wait_until(lambda: fds() <= before, f"descriptors to come down to {before}")
    assert server.get("/a")[0] == 200


def test_a_graceful_stop_completes_requests_in_progress(serve, site):
    write(site / "huge", b"z" * 20_000_000)
    server = serve()
    with server.connect() as connection, server.connect() as idle:
        idle.sendall(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_response(idle)[0] == 404
        connection.sendall(b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n")
        first = connection.recv(1000)
        server.process.terminate()
        assert read_all(idle) == b"", "an idle connection is closed"
        wait_until(lambda: refused(server), "the listener to close")
        data = first + read_all(connection)
        assert len(data) - data.index(b"\r\n\r\n") - 4 == 20_000_000, server.log
    assert server.stop() == 0


def refused(server):
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def test_real_clients(serve, site):
    import subprocess

    write(site / "a.txt", "hello")
    server = serve()
    curl = ["curl", "-sS", "--fail", "--max-time", "10"]
    for flags in ([], ["--http1.0"], ["--compressed"], ["-H", "Connection: close"], ["-r", "0-4"]):
        out = subprocess.check_output([*curl, *flags, f"{server.url}/a.txt"])
        assert out == b"hello", flags
    connection = http.client.HTTPConnection(*server.address)
    for _ in range(100):
        connection.request("GET", "/a.txt")
        assert connection.getresponse().read() == b"hello"
    connection.close()
    out = subprocess.run(
        ["h2load", "--h1", "-n1000", "-c10", f"{server.url}/a.txt"], capture_output=True, text=True
    )
    assert re.search(r"1000 succeeded, 0 failed", out.stdout), out.stdout


def test_each_head_has_its_own_timeout(serve, page):
    """Heads that always end within a segment: none of them may pay for those before it."""
    server = serve(server='[server.http1]\nhead_timeout = "600ms"')
    with server.connect() as connection:
        connection.sendall(GET[:10])
        rest = b""
        began = time.monotonic()
        while time.monotonic() - began < 2:
            connection.sendall(GET[10:] + GET[:10])
            status, _, _, rest = read_response(connection, rest)
            assert status == 200
            time.sleep(0.05)


def test_a_worker_that_polls_its_sockets_sleeps_when_requests_are_rare(serve, site):
    write(site / "a.txt", "a")
    server = serve(server='busy_poll = "1ms"')

    def processor_time():
        fields = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with server.connect() as connection:
        for _ in range(200):
            connection.sendall(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_response(connection)[0] == 200
        before, waits = processor_time(), 100
        for _ in range(waits):
            time.sleep(0.01)
            connection.sendall(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_response(connection)[0] == 200
        # Polling through every wait would take at least a second.
        assert processor_time() - before < 0.5
    assert server.get("/a.txt")[2] == b"a"


def test_the_time_of_polling_is_bounded(tmp_path):
    configuration = tmp_path / "dunlin.toml"
    configuration.write_text('[server]\nbusy_poll = "2ms"\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "/tmp"\n')
    checked = subprocess.run([DUNLIN, "check", "--config", configuration], capture_output=True, text=True)
    assert checked.returncode != 0 and "dunlin.toml:2:13: busy_poll: the maximum is 1ms" in checked.stderr
