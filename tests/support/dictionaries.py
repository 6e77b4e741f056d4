"""A client with dictionaries (RFC 9842), which checks what it gets."""

import base64
import contextlib
import hashlib
import subprocess

import pytest

from support.http import parse, read_any, read_response
from support.tls import connect, context

VARY = "Accept-Encoding, Available-Dictionary"
MAGIC = bytes.fromhex("5e2a4d1820000000")


class Client:
    """A client that keeps dictionaries as a browser does, and checks what it gets."""

    def __init__(self, tls, server, directory):
        self.connection = connect(server, context(tls.own[0]))
        self.directory = directory
        self.dictionaries = []

    def request(self, path, *fields, method="GET"):
        lines = "".join(f"{field}\r\n" for field in fields)
        self.connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        if method == "HEAD":
            data = b""
            while not data.endswith(b"\r\n\r\n"):
                data += self.connection.recv(1 << 16)
            return read_response(Replay(data.replace(b"Content-Length", b"Length")))[:3]
        return read_any(self.connection)[:3]

    def get(self, path, *fields, dictionary=None, codings="gzip, br, zstd, dcb, dcz"):
        """The status, the fields, the decoded body and the bytes of the body; keeps a body that is a dictionary."""
        given = [f"Accept-Encoding: {codings}", *fields]
        if dictionary is not None:
            given.append(f"Available-Dictionary: {name_of(dictionary)}")
        status, found, body = self.request(path, *given)
        decoded = self.decode(found.get("content-encoding"), body, dictionary) if status == 200 else body
        return status, found, decoded, len(body)

    def parsed(self, data):
        """The fields and the body of a response whose bytes are all there."""
        return parse(data)[1:3]

    def decode(self, coding, body, dictionary):
        if coding == "dcz":
            assert body[:8] == MAGIC and body[8:40] == hashlib.sha256(dictionary).digest()
            file = self.directory / "dictionary"
            file.write_bytes(dictionary)
            return run(["zstd", "-dc", f"--patch-from={file}"], body)
        return body if coding is None else run({"zstd": ["zstd", "-dc"], "br": ["brotli", "-dc"], "gzip": ["gzip", "-dc"]}[coding], body)


class Replay:
    """A connection that has received bytes."""

    def __init__(self, data):
        self.data = data

    def recv(self, _):
        data, self.data = self.data, b""
        return data


def run(program, body):
    return subprocess.run(program, input=body, capture_output=True, check=True).stdout


def name_of(content):
    return f":{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


@pytest.fixture
def client(tls, tmp_path):
    with contextlib.ExitStack() as open_connections:

        def made(server):
            client = Client(tls, server, tmp_path)
            open_connections.enter_context(client.connection)
            return client

        yield made
