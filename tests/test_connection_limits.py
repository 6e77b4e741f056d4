"""Limits of connections: total, per address, and which connection is closed for a new one."""

import socket
import time

import pytest

from support.files import write
from support.http import request_a, GET, read_response
from support.http2 import Client, GOAWAY, request
from support.waiting import wait_until


@pytest.fixture
def page(site):
    return write(site / "a", "x" * 1000)


def is_closed(connection):
    """Whether the server has ended the connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    finally:
        connection.setblocking(True)
        connection.settimeout(15)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_most_idle_connection_is_closed_for_a_new_one(serve, page, threads):
    server = serve(
        text=f'[server]\nthreads = {threads}\nconnections = 40\nevict_idle_above = 20\n'
        f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{page.parent}"\n'
    )
    connections = []
    for _ in range(15):
        connections.append(server.connect())
        assert request_a(connections[-1]) == 200
    # Deadlines have a resolution of 100 ms: a connection that was used a tick later is less idle.
    time.sleep(0.25)
    for connection in connections[5:]:
        assert request_a(connection) == 200
    time.sleep(0.25)
    new = []
    for _ in range(10):
        new.append(server.connect())
        assert request_a(new[-1]) == 200
    wait_until(lambda: sum(map(is_closed, connections[:5])) >= 5, "the idlest are closed")
    assert sum(map(is_closed, connections[5:])) <= 2
    assert not any(map(is_closed, new))
    for connection in connections[10:] + new:
        if not is_closed(connection):
            assert request_a(connection) == 200


def test_a_full_server_accepts_new_connections_while_others_are_idle(serve, page):
    server = serve(server="connections = 10\nevict_idle_above = 10")
    held = []
    for _ in range(40):
        held.append(server.connect())
        assert request_a(held[-1]) == 200
    assert sum(map(is_closed, held)) >= 30


@pytest.mark.parametrize("threads", [1, 2])
def test_no_connection_is_closed_while_none_waits(serve, page, threads):
    server = serve(
        text=f'[server]\nthreads = {threads}\nconnections = 10\nevict_idle_above = 10\n'
        f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{page.parent}"\n'
    )
    held = [server.connect() for _ in range(10)]
    # Longer than the server searches for idle connections while one waits.
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert [request_a(connection) for connection in held] == [200] * 10
    new = server.connect()
    assert request_a(new) == 200
    wait_until(lambda: sum(map(is_closed, held)) == 1, "one to give way")


def test_busy_connections_are_not_closed(serve, page):
    server = serve(server="connections = 12\nevict_idle_above = 8")
    busy = [server.connect() for _ in range(8)]
    for connection in busy:
        connection.sendall(b"GET /a HTTP/1.1\r\n")
    new = []
    for _ in range(30):
        new.append(server.connect())
        assert request_a(new[-1]) == 200
    for connection in busy:
        connection.sendall(b"Host: x\r\n\r\n")
        assert read_response(connection)[0] == 200


def test_new_connections_do_not_replace_each_other(serve, page):
    server = serve(server="connections = 40\nevict_idle_above = 4")
    busy = [server.connect() for _ in range(4)]
    for connection in busy:
        connection.sendall(b"GET /a HTTP/1.1\r\n")
    # All are open before the first of them sends a request.
    new = [server.connect() for _ in range(20)]
    assert [request_a(connection) for connection in new] == [200] * 20


def test_an_idle_http2_connection_is_closed_gracefully_for_a_new_one(serve, page):
    server = serve(server="connections = 10\nevict_idle_above = 3")
    with Client(server) as client:
        client.send(request(1, "/a"))
        client.body(1)
        held = []

        def closed():
            held.append(server.connect())
            assert request_a(held[-1]) == 200
            return is_closed(client.socket) or any(kind == GOAWAY for kind, *_ in pending(client))

        # It counts as idle when it has released its buffers, after a second.
        wait_until(closed, "the end of the HTTP/2 connection")


def pending(client):
    """The frames that have arrived, without waiting for more."""
    frames = []
    client.socket.settimeout(0.02)
    try:
        while (found := client.read()) is not None:
            frames.append(found)
    except TimeoutError:
        pass
    finally:
        client.socket.settimeout(15)
    return frames


def test_connections_per_address_are_limited(serve, page):
    server = serve(server="connections_per_address = 3")
    held = [server.connect() for _ in range(3)]
    assert all(request_a(connection) == 200 for connection in held)
    with server.connect() as refused:
        wait_until(lambda: is_closed(refused), "the fourth is closed")
    server.logged("an address has reached its limit of connections")
    # Another address has its own.
    other = socket.create_connection(server.address, timeout=15, source_address=("127.0.0.2", 0))
    assert request_a(other) == 200
    held.pop().close()

    def accepted():
        with server.connect() as again:
            try:
                again.sendall(GET)
                return again.recv(12) == b"HTTP/1.1 200"
            except OSError:
                return False

    wait_until(accepted, "a place is free again")


def test_invalid_limits_are_rejected(serve):
    for server, what in [
        ("connections = 10\nevict_idle_above = 11", "evict_idle_above is more than 10"),
        ("evict_idle_above = 0", "evict_idle_above is less than 1"),
        ("connections_per_address = 0", "connections_per_address is less than 1"),
    ]:
        with pytest.raises(AssertionError, match=what):
            serve(server=server)
