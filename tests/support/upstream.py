"""Upstream servers that do what a test tells them."""

import re
import socket
import ssl
import threading

from support.http import dechunk
from support.stub import StubServer


class Request:
    """A request that an upstream has received."""

    def __init__(self, head, body):
        line, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = line.split(" ")
        self.fields = {}
        for line in lines:
            name, _, value = line.partition(": ")
            name = name.lower()
            self.fields[name] = f"{self.fields[name]}, {value}" if name in self.fields else value
        self.head, self.body = head, body


def response(body=b"", status="200 OK", *fields, length=True):
    lines = "".join(f"{field}\r\n" for field in fields)
    if length:
        lines += f"Content-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def chunked(*parts, trailers=(), fields=()):
    """A chunked response."""
    lines = "".join(f"{field}\r\n" for field in fields)
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    end = "".join(f"{field}\r\n" for field in trailers).encode()
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{lines}\r\n".encode() + body + b"0\r\n" + end + b"\r\n"


class Upstream(StubServer):
    """A server of HTTP/1.1. `answer(upstream, connection, request)` writes responses: it returns bytes to send, or None
    to close the connection. `requests` has what arrived, `connections` their number."""

    def __init__(self, answer=None, path=None, tls=None, host="127.0.0.1", port=0):
        self.requests, self.connections, self.open = [], 0, []
        self.lock = threading.Lock()
        self.answer = answer or (lambda *_: response(b"hello"))
        self.tls = tls
        if path:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen(64)
            self.url = f"unix:{path}"
        else:
            listener = socket.create_server((host, port), backlog=64)
            self.port = listener.getsockname()[1]
            self.authority = f"{host}:{self.port}"
            self.url = f"{'https' if tls else 'http'}://{self.authority}"
        super().__init__(listener)

    def serve(self, connection):
        with self.lock:
            self.connections += 1
            self.open.append(connection)
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            while request := read_request(connection):
                with self.lock:
                    self.requests.append(request)
                sent = self.answer(self, connection, request)
                if sent is None:
                    break
                connection.sendall(sent)
        except (OSError, ssl.SSLError):
            pass
        finally:
            connection.close()

    def close_connections(self):
        """Closes what clients keep open."""
        with self.lock:
            for connection in self.open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.open.clear()

    def stop(self):
        """Accepts no more connections."""
        # A thread that waits in accept() keeps the socket alive otherwise.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.close_connections()


def read_head(connection):
    """The head of a request, and what came after it; None if the client closes the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(1 << 16)
        if not part:
            return None
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def read_request(connection):
    """A request with its body; None if the client closes the connection."""
    found = read_head(connection)
    if not found:
        return None
    head, rest = found
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    if re.search(rb"(?i)\r\nexpect: ", head):
        return Request(head, rest)
    if re.search(rb"(?i)\r\ntransfer-encoding: chunked", head):
        body = bytearray(rest)
        while not body.endswith(b"0\r\n\r\n"):
            part = connection.recv(1 << 18)
            if not part:
                return None
            body += part
        return Request(head, b"".join(dechunk(bytes(body))))
    body = bytearray(rest)
    while length and len(body) < int(length[1]):
        part = connection.recv(1 << 18)
        if not part:
            return None
        body += part
    return Request(head, bytes(body))
