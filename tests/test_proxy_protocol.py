"""The PROXY protocol, however it arrives."""

import socket
import ssl
import struct

import pytest

from support.files import write
from support.http import parse, read_all
from support.http2 import frame, PREFACE, request, SETTINGS
from support.tls import certificate

LINE = b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 443\r\n"
BINARY = (
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11"
    + struct.pack(">H", 15)
    + socket.inet_aton("192.0.2.9")
    + socket.inet_aton("192.0.2.1")
    + struct.pack(">HH", 4711, 443)
    + b"\4\0\0"
)
GET = b"GET /who HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture
def proxied(serve, site, tmp_path):
    """Starts a server behind a proxy with a script that prints the client's address."""
    script = write(site / "who", '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n$REMOTE_ADDR $REMOTE_PORT"\n')
    script.chmod(0o755)

    def start(tls=False):
        file, key = certificate(tmp_path, "own") if tls else ("", "")
        keys = f'tls = {{ certificate = "{file}", key = "{key}" }}' if tls else ""
        return serve(
            text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\nproxy_protocol = true\n'
            f'tls = {str(tls).lower()}\n[[site]]\nroot = "{site}"\n{keys}\n'
            f'[[site.route]]\npath = "/*"\nscript = {{ kind = "cgi", directory = "{site}" }}\n'
        )

    return start


@pytest.mark.parametrize("header", [LINE, BINARY])
def test_header_and_request_may_be_split_anywhere(proxied, header):
    server = proxied()
    whole = header + GET
    for cut in range(len(whole) + 1):
        with server.connect() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if cut:
                connection.sendall(whole[:cut])
            connection.sendall(whole[cut:])
            assert b"192.0.2.9 4711" in read_all(connection), cut


@pytest.mark.parametrize("header", [LINE, BINARY])
def test_a_header_may_arrive_byte_by_byte(proxied, header):
    server = proxied()
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in header + GET:
            connection.sendall(bytes([byte]))
        assert b"192.0.2.9 4711" in read_all(connection)


def handshake(connection, first):
    """TLS, with `first` in one segment with the client's first message; then one request."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl._create_unverified_context().wrap_bio(incoming, outgoing, server_hostname="localhost")

    def carry(step):
        nonlocal first
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                connection.sendall(first + outgoing.read())
                first = b""
                data = connection.recv(1 << 16)
                incoming.write(data) if data else incoming.write_eof()

    carry(client.do_handshake)
    client.write(GET)
    data = b""
    while True:
        try:
            part = carry(lambda: client.read(1 << 16))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return data
        if not part:
            return data
        data += part


@pytest.mark.parametrize("header", [LINE, BINARY])
def test_tls_may_arrive_in_one_segment_with_the_header(proxied, header):
    server = proxied(tls=True)
    with server.connect() as connection:
        assert b"192.0.2.9 4711" in handshake(connection, header)


def test_http2_may_arrive_in_one_segment_with_the_header(proxied):
    server = proxied()
    with server.connect() as connection:
        connection.sendall(LINE + PREFACE + frame(SETTINGS) + request(1, "/who"))
        data = b""
        while b"192.0.2.9 4711" not in data:
            part = connection.recv(1 << 16)
            assert part, data
            data += part


@pytest.mark.parametrize("family, length", [(0x12, 12), (0x22, 36), (0x31, 216), (0x32, 216)])
def test_addresses_of_other_families_are_those_of_the_connection(proxied, family, length):
    server = proxied()
    with server.connect() as connection:
        connection.sendall(BINARY[:13] + bytes([family]) + struct.pack(">H", length) + b"\1" * length + GET)
        assert parse(read_all(connection))[2].startswith(b"127.0.0.1 ")


def test_a_wrong_header_ends_the_connection(proxied):
    server = proxied()
    for header in [b"PROXY TCP4 1.2.3.4\r\n", b"PROXY " + b"x" * 200, BINARY[:13] + b"\x31" + BINARY[14:], b"G"]:
        with server.connect() as connection:
            connection.sendall(header + GET)
            try:
                assert read_all(connection) == b"", header
            except ConnectionResetError:
                pass
