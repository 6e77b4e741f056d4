"""Connections that receive one response and then stay idle."""

import socket
import ssl

REQUEST = b"GET /1k.bin HTTP/1.1\r\nHost: localhost\r\n\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA = 4, 1, 0
ACK = END_STREAM = 1
END_HEADERS = 4


def connect(server, kind, number):
    """Opens a connection and reads one response on it."""
    http2, encrypted = kind.startswith("HTTP/2"), kind.endswith("TLS")
    port = server.tls_port if encrypted else server.http2_port if http2 else server.port
    connection = socket.socket()
    # One address has too few ports for all connections.
    connection.bind((f"127.0.0.{2 + number % 8}", 0))
    connection.connect(("127.0.0.1", port))
    if encrypted:
        connection = context(http2).wrap_socket(connection)
    request = request_http2 if http2 else request_http1
    request(connection, encrypted)
    return connection


def context(http2, made={}):
    if http2 not in made:
        made[http2] = ssl.create_default_context()
        made[http2].check_hostname = False
        made[http2].verify_mode = ssl.CERT_NONE
        made[http2].set_alpn_protocols(["h2" if http2 else "http/1.1"])
    return made[http2]


def request_http1(connection, _):
    connection.sendall(REQUEST)
    got = b""
    while len(got.partition(b"\r\n\r\n")[2]) < 1024:
        got += receive(connection)


def request_http2(connection, encrypted):
    scheme = 0x87 if encrypted else 0x86
    path, host = b"/1k.bin", b"localhost"
    # GET and the scheme by their index, path and authority as they are (RFC 7541 §6).
    block = bytes([0x82, scheme, 0x04, len(path)]) + path + bytes([0x01, len(host)]) + host
    connection.sendall(PREFACE + frame(SETTINGS) + frame(HEADERS, END_STREAM | END_HEADERS, 1, block))
    got, at, ended, settled = b"", 0, False, 0
    while not ended:
        got += receive(connection)
        while len(got) >= at + 9 + int.from_bytes(got[at : at + 3], "big"):
            kind, flags = got[at + 3], got[at + 4]
            ended |= kind == DATA and flags & END_STREAM != 0
            settled += kind == SETTINGS and not flags & ACK
            at += 9 + int.from_bytes(got[at : at + 3], "big")
    connection.sendall(frame(SETTINGS, ACK) * settled)


def frame(kind, flags=0, stream=0, content=b""):
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def receive(connection):
    got = connection.recv(65536)
    if not got:
        raise RuntimeError("the server closed an idle connection")
    return got
