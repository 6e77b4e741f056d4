"""HTTP/1 over sockets: requests as bytes, and the parts of responses."""

import contextlib
import re

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


def post(server, path, body, *fields, chunked=False):
    """One request with a body: status, fields (lower case), body of the response."""
    head = "".join(f"{field}\r\n" for field in fields)
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    if chunked:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    data = f"POST {path} HTTP/1.1\r\nHost: Example.org:81\r\nConnection: close\r\n{head}{length}\r\n\r\n"
    return parse(server.exchange(data.encode() + body, 60))


def request_a(connection):
    """Requests /a, and returns the status."""
    connection.sendall(GET)
    return read_response(connection)[0]


def read_all(connection):
    """Everything until the server closes the connection."""
    parts = []
    while True:
        part = connection.recv(1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


def read_until_cut(server, path):
    """Requests a path: every byte until the server closes or resets the connection."""
    with server.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        data = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                data += part
    return bytes(data)


def read_response(connection, buffer=b""):
    """Reads one response with Content-Length: status, fields, body, and the bytes after it."""
    while b"\r\n\r\n" not in buffer:
        part = connection.recv(1 << 16)
        assert part, f"closed within a head: {buffer!r}"
        buffer += part
    head, _, rest = buffer.partition(b"\r\n\r\n")
    found = re.search(rb"(?i)content-length: (\d+)", head)
    length = int(found[1]) if found else 0
    rest = bytearray(rest)
    while len(rest) < length:
        part = connection.recv(1 << 18)
        assert part, "closed within a body"
        rest += part
    status, fields, _ = parse(head + b"\r\n\r\n", "HEAD")
    return status, fields, bytes(rest[:length]), bytes(rest[length:])


def read_any(connection):
    """A response with Content-Length or in chunks."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        assert part, data
        data += part
    if b"ransfer-Encoding: chunked" not in data.partition(b"\r\n\r\n")[0]:
        return read_response(connection, data)
    while not data.endswith(b"0\r\n\r\n"):
        part = connection.recv(65536)
        assert part, data
        data += part
    return *parse(data), b""


def parse(data, method="GET"):
    """One complete response: status, fields (lower case), body. A truncated chunked body is not decoded."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ")[1])
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        name = name.lower()
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    if method != "HEAD" and status not in (204, 304) and "content-length" in fields:
        assert len(body) == int(fields["content-length"]), "the body is not as long as stated"
    if fields.get("transfer-encoding") == "chunked" and body.endswith(b"0\r\n\r\n"):
        body = b"".join(dechunk(body))
    return status, fields, body


def dechunk(body):
    """The chunks of a chunked body that is complete."""
    chunks, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        length, at = int(body[at:end], 16), end + 2
        if not length:
            assert body[at:] == b"\r\n"
            return chunks
        chunks.append(body[at : at + length])
        at += length + 2
        assert body[at - 2 : at] == b"\r\n"


def upload(path, length, method="POST", *fields):
    """The head of a request with a body, which is chunked where `length` is None."""
    how = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = "".join(f"{field}\r\n" for field in fields)
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{how}\r\n{lines}\r\n".encode()


def chunks(data, size=30_000):
    """A chunked body."""
    parts = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@contextlib.contextmanager
def slow_uploads(server, path, count, length=200_000, begin=b"x" * 100):
    """Uploads that have begun and pause while the block runs."""
    connections = []
    try:
        for _ in range(count):
            connection = server.connect()
            if length is None:
                connection.sendall(upload(path, None) + b"64\r\n" + begin[:100] + b"\r\n")
            else:
                connection.sendall(upload(path, length) + begin)
            connections.append(connection)
        yield connections
    finally:
        for connection in connections:
            connection.close()
