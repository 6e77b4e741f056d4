"""Handwritten frames: a client that does what real ones do not."""

import re
import struct
import subprocess

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, PRIORITY_UPDATE = 6, 7, 8, 9, 16
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CANCEL, ENHANCE_YOUR_CALM = 8, 11
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def section(path="/", method="GET", *fields, authority="x"):
    """A section of literals without indexing or Huffman code."""
    pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", authority)]
    out = b""
    for name, value in [*pseudo, *fields]:
        name, value = name.encode(), value.encode()
        assert len(name) < 127 and len(value) < 127
        out += b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    return out


def request(stream, path="/", method="GET", *fields, ended=True):
    flags = END_HEADERS | (END_STREAM if ended else 0)
    return frame(HEADERS, flags, stream, section(path, method, *fields))


def window_update(stream, increment):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


class Client:
    """A connection whose settings are exchanged."""

    def __init__(self, server, settings=(), timeout=15):
        self.socket = server.connect(timeout)
        self.buffer = b""
        payload = b"".join(struct.pack(">HI", name, value) for name, value in settings)
        self.send(PREFACE + frame(SETTINGS, 0, 0, payload))
        kind, flags, _, _ = self.read()
        assert (kind, flags) == (SETTINGS, 0)
        self.send(frame(SETTINGS, ACK))
        kind, _, stream, more = self.read()
        assert (kind, stream) == (WINDOW_UPDATE, 0)
        # The bytes that the server receives before it grants more.
        self.window = 65_535 + struct.unpack(">I", more)[0]
        kind, flags, _, _ = self.read()
        assert (kind, flags) == (SETTINGS, ACK)

    def send(self, data):
        self.socket.sendall(data)

    def read(self):
        """The next frame: kind, flags, stream, payload; None at the end."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + self._length():
            try:
                part = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not part:
                assert not self.buffer, "closed within a frame"
                return None
            self.buffer += part
        length = self._length()
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        payload = self.buffer[9 : 9 + length]
        self.buffer = self.buffer[9 + length :]
        return kind, flags, stream, payload

    def _length(self):
        return int.from_bytes(self.buffer[:3], "big")

    def read_until(self, condition):
        """Frames up to the first for which `condition(kind, flags, stream, payload)` holds."""
        frames = []
        while True:
            found = self.read()
            assert found, f"closed before it came: {[frame[:3] for frame in frames][-20:]}"
            frames.append(found)
            if condition(*found):
                return frames

    def read_rest(self):
        frames = []
        while (found := self.read()) is not None:
            frames.append(found)
        return frames

    def body(self, stream):
        """The body of a response that is read to its end."""
        frames = self.read_until(lambda _, flags, of, __: of == stream and flags & END_STREAM)
        return b"".join(frame[3] for frame in frames if frame[0] == DATA and frame[2] == stream)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def goaways(frames):
    """Last stream, code and reason of each GOAWAY."""
    return [
        (*struct.unpack(">II", payload[:8]), payload[8:].decode())
        for kind, _, _, payload in frames
        if kind == GOAWAY
    ]


def block(fields):
    """A field section of literals without indexing or Huffman code."""
    out = b""
    for name, value in fields:
        name, value = name.encode(), value.encode()
        out += b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    return out


def curl(server, path, *arguments, data=None):
    """Status, fields, body and version by curl."""
    command = ["curl", "-sS", "-i", "--http2-prior-knowledge", "--path-as-is", "-m", "30", *arguments]
    done = subprocess.run([*command, server.url + path], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/2 1"):
        head, _, body = body.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    version, status = lines[0].split()[:2]
    assert version == "HTTP/2"
    return int(status), dict(line.split(": ", 1) for line in lines[1:]), body


def h2spec(server, *options):
    """Runs all of h2spec's cases, of which every one has to pass."""
    done = subprocess.run(
        ["h2spec", "-h", server.host, "-p", str(server.port), "-o", "5", *options],
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", done.stdout)
    assert found, done.stdout + done.stderr
    total, passed, skipped, failed = map(int, found.groups())
    assert (passed, skipped, failed) == (total, 0, 0), done.stdout[done.stdout.find("Failures:") :]
    assert total >= 145
