"""Trailer fields of requests, from clients of HTTP/1.1 and HTTP/2 to upstreams of both."""

import json
import re
import socket
import subprocess

import pytest

from support import http2
from support.http import read_response
from support.stub import StubServer

pytestmark = pytest.mark.usefixtures("orderly_stop")

NODE = """
const server = require("http2").createServer();
server.on("stream", (stream) => {
  let trailers = {}, length = 0;
  stream.on("trailers", (fields) => { trailers = fields; });
  stream.on("data", (part) => { length += part.length; });
  stream.on("end", () => {
    stream.respond({ ":status": 200 });
    stream.end(JSON.stringify({ trailers: { ...trailers }, length }));
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""

# The end of a chunked body, or of one with a stated length.
END = rb"(?i)\r\n0\r\n(.+\r\n)*\r\n$|\r\ncontent-length: 3\r\n(.+\r\n)*\r\nabc$"

PASSING = [("x-checksum", "abc"), ("digest", "d")]
FORBIDDEN = [("x-forwarded-for", "6.6.6.6"), ("remote_user", "root"), ("authorization", "Basic eA=="), ("client-cert", ":eA==:")]


class Chunks(StubServer):
    """An upstream of HTTP/1.1 that keeps requests with chunked bodies as they arrive."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.received = []
        super().__init__(listener)

    def serve(self, connection):
        with connection:
            while True:
                data = b""
                while not re.search(END, data):
                    part = connection.recv(1 << 16)
                    if not part:
                        return
                    data += part
                self.received.append(data)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.fixture
def node(tmp_path):
    script = tmp_path / "server.js"
    script.write_text(NODE)
    process = subprocess.Popen(["node", str(script)], stdout=subprocess.PIPE, text=True)
    yield int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()


def upload_http1(server, trailers):
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers)
    head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Checksum\r\n\r\n"
    with server.connect() as client:
        client.sendall(f"{head}3\r\nabc\r\n0\r\n{lines}\r\n".encode())
        return read_response(client)


def upload_http2(server, trailers):
    with http2.Client(server) as client:
        client.send(
            http2.request(1, "/", "POST", ("trailer", "x-checksum"), ended=False)
            + http2.frame(http2.DATA, 0, 1, b"abc")
            + http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 1, http2.block(trailers))
        )
        return None, None, client.body(1)


@pytest.mark.parametrize("buffer", ["", 'buffer = { request = "1MiB" }'])
@pytest.mark.parametrize("send", [upload_http1, upload_http2])
def test_an_upstream_of_http1_gets_trailer_fields_in_chunks(serve, send, buffer):
    upstream = Chunks()
    server = serve(route=f'proxy = {{ to = "http://127.0.0.1:{upstream.port}", {buffer} }}')
    send(server, PASSING + FORBIDDEN)
    send(server, [])
    first, second = upstream.received
    assert first.endswith(b"abc\r\n0\r\nx-checksum: abc\r\ndigest: d\r\n\r\n")
    assert second.endswith(b"abc\r\n0\r\n\r\n") or b"\r\ncontent-length: 3" in second.lower()
    assert b"\r\ntrailer: x-checksum\r\n" in first.lower()


@pytest.mark.parametrize("send", [upload_http1, upload_http2])
def test_an_upstream_of_http2_gets_trailer_fields_as_a_section(serve, node, send):
    server = serve(route=f'proxy = "h2c://127.0.0.1:{node}"')
    for trailers in (PASSING + FORBIDDEN, []):
        body = json.loads(send(server, trailers)[2])
        passing = dict(trailers[:2])
        assert body == {"trailers": passing, "length": 3}


def test_trailer_fields_for_files_and_scripts_are_received_and_dropped(serve, site):
    (site / "a.txt").write_text("a")
    server = serve()
    assert upload_http1(server, PASSING)[0] == 403


def test_trailer_fields_beyond_their_limit_are_rejected(serve):
    upstream = Chunks()
    server = serve(route=f'proxy = "http://127.0.0.1:{upstream.port}"')
    status, *_ = upload_http1(server, [("x-long", "y" * 20_000)])
    assert status == 431 and not upstream.received
