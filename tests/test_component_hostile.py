"""Components that misbehave: each request ends with the right status or a visible abort, with one line in the log, and
the others are served meanwhile."""

import socket
import struct
import threading
import time

import pytest

from support.component_server import component_server, metric, resident
from support.components import built, has_target
from support.http import post, read_any, read_until_cut, request_a
from support.http2 import Client, DATA, END_STREAM, frame, request, RST_STREAM, WINDOW_UPDATE
from support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(not has_target(), reason="rustup target add wasm32-wasip2"),
    pytest.mark.usefixtures("orderly_stop"),
]

LIMITS = 'memory = "32MB", cpu = "200ms", time = "1s"'


@pytest.fixture(scope="session")
def hostile():
    return built("hostile")


def failures(server):
    """The lines of the log that report a failed request, without the lines that components write."""
    return [line for line in server.log.splitlines() if "ERROR" in line and "hostile.wasm" in line]


def status_or_abort(server, kind):
    """The status of a response; 502 for one that is aborted after its head, which a slow instance can still cause."""
    try:
        return server.get(f"/app/{kind}")[0]
    except ConnectionResetError:
        if kind not in ("trap-after-head", "trap-after-end", "more-than-announced", "less-than-announced"):
            raise
        return 502


def assert_unused(server):
    wait_until(lambda: metric(server, "dunlin_component_instances") == 0, "no instance that is left")
    assert server.get("/app/ok")[2] == b"ok\n"


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("loop", 504, "it ran longer than `cpu`"),
        ("host-calls", 504, "it ran longer than `cpu`"),
        ("sleep", 504, "it took longer than `time`"),
        ("grow", 502, "it needs more than `memory`"),
        ("recurse", 502, "wasm trap"),
        ("trap", 502, "unreachable"),
        ("handles", 502, "resource"),
        ("no-response", 502, "it set no response"),
        ("trap-after-head", 502, "unreachable"),
        ("more-than-announced", 502, "body of its response"),
        ("less-than-announced", 502, "body of its response"),
    ],
)
def test_a_failure_has_a_status_and_one_line_in_the_log(serve, hostile, path, status, reason):
    server = component_server(serve, hostile, settings=f'{LIMITS}, instances = 1, stderr = "none"')
    assert status_or_abort(server, path) == status
    wait_until(lambda: failures(server), "a line in the log")
    assert_unused(server)
    assert len(failures(server)) == 1 and reason in failures(server)[0], server.log


def test_a_loop_after_the_head_aborts_the_response(serve, hostile):
    server = component_server(serve, hostile, settings=LIMITS)
    data = read_until_cut(server, "/app/loop-after-head")
    assert b"HTTP/1.1 200" in data and b"the beginning\n" in data and not data.endswith(b"0\r\n\r\n")
    assert "it ran longer than `cpu`" in server.logged("after the head")
    assert_unused(server)
    assert len(failures(server)) == 1, server.log


@pytest.mark.parametrize(("path", "reason"), [("loop-after-end", "`cpu`")])
def test_what_happens_after_the_end_of_a_response_is_logged_and_ends(serve, hostile, path, reason):
    server = component_server(serve, hostile, settings=f"{LIMITS}, instances = 1")
    status, _, body = server.get(f"/app/{path}")
    assert (status, body) == (200, b"complete\n")
    wait_until(lambda: len(failures(server)) == 1, "a line in the log")
    assert reason in failures(server)[0]
    assert_unused(server)


def test_a_trap_after_the_end_of_a_response_is_logged_once(serve, hostile):
    server = component_server(serve, hostile, settings=f"{LIMITS}, instances = 1")
    # The trap can come before the last bytes have left the instance.
    assert status_or_abort(server, "trap-after-end") in (200, 502)
    wait_until(lambda: len(failures(server)) == 1, "a line in the log")
    assert "unreachable" in failures(server)[0]
    assert_unused(server)


def test_a_response_without_an_end_takes_no_memory_and_ends_with_its_limits(serve, hostile):
    server = component_server(serve, hostile, settings=LIMITS)
    assert server.get("/app/ok")[0] == 200
    before = resident(server)
    # The client reads: the limits of the instance end the response, which the client sees.
    data = read_until_cut(server, "/app/huge")
    assert b"HTTP/1.1 200" in data and not data.endswith(b"0\r\n\r\n")
    wait_until(lambda: len(failures(server)) == 1, "a line in the log")
    # Clients that do not read: their instances wait.
    with socket.create_connection(server.address) as one, socket.create_connection(server.address) as two:
        for connection in (one, two):
            connection.sendall(b"GET /app/huge HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: metric(server, "dunlin_component_instances") == 2, "two instances")
        assert server.get("/app/ok")[0] == 200
        assert resident(server) < before + (48 << 20)
    assert_unused(server)


@pytest.mark.parametrize("path", ["fields", "long-field"])
def test_a_head_of_any_size_is_limited(serve, hostile, path):
    server = component_server(serve, hostile, settings=LIMITS)
    status, fields, _ = server.get(f"/app/{path}")
    assert status in (200, 502) and sum(len(name) + len(value) for name, value in fields.items()) < 256 << 10
    assert_unused(server)


def test_a_body_that_is_never_read_does_not_hold_the_response(serve, hostile):
    server = component_server(serve, hostile, settings=LIMITS, route='body_size = "64MB"')
    before = resident(server)
    for _ in range(3):
        status, _, body = post(server, "/app/ok", b"x" * (8 << 20))
        assert (status, body) == (200, b"ok\n")
    assert resident(server) < before + (64 << 20)
    assert_unused(server)


STREAM = 'body_size = "64MB"\nbody = "stream"'


def test_a_streamed_body_that_is_never_read_does_not_hold_the_response(serve, hostile):
    server = component_server(serve, hostile, settings=LIMITS, route=STREAM)
    before = resident(server)
    head = b"POST /app/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head % (b"ok", 8 << 20) + b"x" * 100)
        # The rest of the body has not been sent.
        status, _, body, _ = read_any(connection)
        assert (status, body) == (200, b"ok\n")
    for _ in range(3):
        # Less than the server receives and drops after a response.
        status, _, body = post(server, "/app/ok", b"x" * 500_000)
        assert (status, body) == (200, b"ok\n")
    with server.connect() as connection:
        # An instance that neither reads nor responds: the server does not receive more than it may hold.
        connection.sendall(head % (b"sleep", 50 << 20))
        sent, part = 0, b"x" * (1 << 16)
        connection.settimeout(0.3)
        try:
            while sent < 50 << 20:
                sent += connection.send(part)
        except TimeoutError:
            pass
        assert sent < 32 << 20
        connection.settimeout(15)
        assert read_any(connection)[0] == 504
    assert resident(server) < before + (32 << 20)
    assert_unused(server)


def test_bodies_that_are_never_read_leave_the_window_of_a_connection_open(serve, hostile):
    server = component_server(serve, hostile, settings=LIMITS, route=STREAM)
    first, size = 65_535, 16_384
    with Client(server) as client:
        window = client.window
        for stream in range(1, 41, 2):
            client.send(request(stream, "/app/ok", "POST", ("content-length", "8000000"), ended=False))
            # As much as the window of the stream permits, most of it after the response.
            left, body, is_over = first - first % size, b"", False
            while left or not is_over:
                while left and window >= size:
                    client.send(frame(DATA, 0, stream, bytes(size)))
                    left, window = left - size, window - size
                kind, flags, on, payload = client.read()
                if kind == WINDOW_UPDATE and on == 0:
                    window += struct.unpack(">I", payload)[0]
                if on == stream and kind == DATA:
                    body += payload
                    is_over |= flags & END_STREAM != 0
                if is_over and kind == RST_STREAM:
                    left = 0
            assert body == b"ok\n"
    assert_unused(server)


def test_noise_on_standard_error_is_bounded_in_the_log(serve, hostile):
    server = component_server(serve, hostile, settings='cpu = "20s", time = "20s"')
    assert server.get("/app/stderr")[0] == 200
    assert "noise" in server.logged("noise")
    assert_unused(server)
    assert max(map(len, server.log.splitlines())) < 5000


def test_a_thousand_stops_of_all_kinds_leave_memory_as_it_was(serve, hostile):
    settings = 'memory = "8MB", cpu = "5ms", instances = 2, stderr = "none"'
    server = component_server(serve, hostile, settings=settings)
    kinds = ["trap", "grow", "recurse", "loop", "trap-after-head", "no-response", "trap-after-end", "more-than-announced"]

    def stop(times):
        for _ in range(times):
            for kind in kinds:
                status = status_or_abort(server, kind)
                # One that runs on after its response may still hold a permit.
                assert status in (502, 504, 503) or kind == "trap-after-end", (kind, status)

    stop(20)
    before = resident(server)
    stop(125)
    assert resident(server) < before + (8 << 20)
    assert_unused(server)


def waits(connection, seconds):
    """The times of responses that are requested one after the other, in seconds."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        assert request_a(connection) == 200
        found.append(time.perf_counter() - began)
    assert len(found) > 50
    return found


@pytest.mark.serial
def test_others_wait_at_most_5_ms_for_an_instance_that_never_returns(serve, site, hostile):
    (site / "a").write_text("file")
    server = component_server(serve, hostile, settings='cpu = "1h", time = "5s"')
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request_a(connection)
        statuses = []
        loop = threading.Thread(target=lambda: statuses.append(server.get("/app/loop")[0]))
        loop.start()
        wait_until(lambda: metric(server, "dunlin_component_instances") == 1, "a running instance")
        # Other programs of the machine delay some responses; an instance that does not yield delays them in each run.
        longest = [max(waits(connection, 0.3)) for _ in range(8)]
        assert loop.is_alive()
        loop.join()
    assert statuses == [504]
    assert min(longest) < 0.005, longest
