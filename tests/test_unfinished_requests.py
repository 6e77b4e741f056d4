"""Connections without a complete request: they are closed before they keep others out."""

import socket
import ssl
import struct
import time

import pytest

from support.files import write
from support.http import request_a, GET, read_response
from support.tls import certificate
from support.waiting import wait_until

# So long that nothing is closed by a timeout within a test.
PATIENT = '[server.http1]\nhead_timeout = "300s"\nidle_timeout = "300s"\n'
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ATTACKERS = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]


@pytest.fixture
def page(site):
    return write(site / "a", "x" * 1000)


@pytest.fixture
def limited(serve, page):
    """Starts a server with few connections and long timeouts."""

    def start(connections=60, soft=50, threads=1, listen="", site=""):
        return serve(
            text=f"[server]\nthreads = {threads}\nconnections = {connections}\n"
            f"evict_idle_above = {soft}\n{PATIENT}\n"
            f'[[listen]]\naddress = "127.0.0.1:0"\n{listen}\n'
            f'[[site]]\nroot = "{page.parent}"\n{site}\n'
        )

    return start


def flood(server, count, data):
    """Opens connections from a few addresses, each of which sends `data` and no more."""
    held = []
    for number in range(count):
        source = (ATTACKERS[number % len(ATTACKERS)], 0)
        connection = socket.create_connection(server.address, timeout=15, source_address=source)
        connection.sendall(data)
        held.append(connection)
    return held


def is_closed(connection):
    """Whether the server has ended the connection, whatever it has sent before."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    finally:
        connection.settimeout(15)


def hello():
    """The first message of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_half_heads_do_not_keep_a_new_client_out(limited):
    for data in [
        b"",
        b"GET /a HTTP/1.1\r\nHost: x\r\nA: ",
        b"\r\n\r\n",
        PREFACE[:10],
        PREFACE,
        PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x20\1\4\0\0\0\1\x82",
    ]:
        server = limited()
        held = flood(server, 3 * 60, data)
        with server.connect() as client:
            assert request_a(client) == 200, data
        assert sum(map(is_closed, held)) >= 2 * 60
        # New connections are kept, old ones are closed. A busy machine accepts some of both in one tick of the clock.
        assert sum(map(is_closed, held[-20:])) <= 8
        for connection in held:
            connection.close()
        server.stop()


def test_half_heads_over_several_loops_do_not_keep_a_new_client_out(limited):
    server = limited(threads=3)
    held = flood(server, 3 * 60, b"GET /a HTTP/1.1\r\nHost: x\r\nA: ")
    for _ in range(10):
        with server.connect() as client:
            assert request_a(client) == 200
    for connection in held:
        connection.close()


def test_half_handshakes_do_not_keep_a_new_client_out(limited, tmp_path):
    file, key = certificate(tmp_path, "own")
    site = f'tls = {{ certificate = "{file}", key = "{key}" }}'
    server = limited(listen="tls = true", site=site)
    for data in [b"", hello()[:50], hello()]:
        held = flood(server, 3 * 60, data)
        context = ssl._create_unverified_context()
        with context.wrap_socket(server.connect(), server_hostname="localhost") as client:
            client.sendall(GET)
            assert client.recv(12) == b"HTTP/1.1 200"
        assert sum(map(is_closed, held)) >= 2 * 60
        for connection in held:
            connection.close()


def test_half_proxy_headers_do_not_keep_a_new_client_out(limited):
    server = limited(listen="proxy_protocol = true")
    line = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"
    binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack(">H", 12)
    for data in [b"", line[:20], binary, line, line + GET[:20]]:
        held = flood(server, 3 * 60, data)
        with server.connect() as client:
            client.sendall(line.replace(b"2.1 ", b"2.9 "))
            assert request_a(client) == 200
        assert sum(map(is_closed, held)) >= 2 * 60
        for connection in held:
            connection.close()


def test_past_the_soft_limit_the_oldest_half_head_is_closed(limited):
    server = limited(connections=100, soft=20)
    held = flood(server, 40, b"GET /a HTTP/1.1\r\nA: ")

    def complete():
        with server.connect() as client:
            assert request_a(client) == 200
        return is_closed(held[0])

    # They have a second to be completed.
    wait_until(complete, "the oldest half head is closed")
    assert not is_closed(held[-1])
    held[-1].sendall(b"\r\nHost: x\r\n\r\n")
    assert read_response(held[-1])[0] == 200


def test_half_heads_of_one_address_go_before_idle_connections_of_others(limited):
    server = limited(connections=100, soft=40)
    idle = [server.connect() for _ in range(5)]
    assert [request_a(connection) for connection in idle] == [200] * 5
    held = []
    for _ in range(30):
        source = ("127.0.0.2", 0)
        held.append(socket.create_connection(server.address, timeout=15, source_address=source))
        held[-1].sendall(b"GET /a HTTP/1.1\r\nA: ")
    # They are not closed within their first second.
    time.sleep(1.3)
    new = []

    def enough():
        new.append(server.connect())
        new[-1].sendall(b"GET /a HTTP/1.1\r\n")
        return sum(map(is_closed, held)) >= 10

    wait_until(enough, "half heads are closed")
    assert not any(map(is_closed, idle))
    assert [request_a(connection) for connection in idle] == [200] * 5
    for connection in new:
        connection.close()


def test_a_body_that_is_being_read_is_not_closed_for_others(limited):
    server = limited(connections=20, soft=10)
    with server.connect() as busy:
        busy.sendall(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n1234")
        assert read_response(busy)[0] == 405
        held = flood(server, 60, b"GET /a HTTP/1.1\r\nA: ")
        with server.connect() as client:
            assert request_a(client) == 200
        busy.sendall(b"5" + GET)
        assert read_response(busy)[0] == 200
        for connection in held:
            connection.close()


def test_one_address_has_half_of_the_connections_for_unfinished_requests(limited):
    server = limited(connections=100, soft=100)
    held = []
    for _ in range(70):
        held.append(socket.create_connection(server.address, source_address=("127.0.0.2", 0)))
    other = [
        socket.create_connection(server.address, source_address=("127.0.0.3", 0)) for _ in range(20)
    ]
    wait_until(lambda: sum(map(is_closed, held)) == 20, "the oldest are closed")
    assert all(map(is_closed, held[:20]))
    assert not any(map(is_closed, other))
    server.logged("127.0.0.2")
