"""The reverse proxy before upstreams of HTTP/2, with Node's server: bodies, trailers, streams in both directions."""

import json
import os
import re
import subprocess
import threading

import pytest
from hpack import Decoder

from support import http2
from support.http import post, read_response
from support.tls import certificate
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

SERVER = """
const http2 = require("http2"), fs = require("fs");
const [certificate, key] = process.argv.slice(2);
const server = certificate
  ? http2.createSecureServer({ cert: fs.readFileSync(certificate), key: fs.readFileSync(key) })
  : http2.createServer();
let sessions = 0;
server.on("session", () => { sessions += 1; });
server.on("stream", (stream, headers) => {
  const path = headers[":path"];
  stream.on("error", () => {});
  if (path === "/fields") {
    stream.respond({ ":status": 200, "content-type": "application/json" });
    return stream.end(JSON.stringify({ ...headers, sessions }));
  }
  if (path === "/empty") {
    return stream.respond({ ":status": 204 }, { endStream: true });
  }
  if (path === "/only") {
    return stream.respond({ ":status": 200, "grpc-status": "5" }, { endStream: true });
  }
  if (path === "/hint") {
    stream.additionalHeaders({ ":status": 103, link: "</a.css>" });
    stream.respond({ ":status": 200 });
    return stream.end("end");
  }
  if (path === "/reset") {
    return stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
  }
  stream.respond({ ":status": 200, "x-te": headers.te || "none" }, { waitForTrailers: path !== "/plain" });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.pipe(stream);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""


@pytest.fixture
def node(tmp_path):
    """Starts Node's server: `node(certificate, key)` returns its port."""
    running = []
    script = tmp_path / "server.js"
    script.write_text(SERVER)

    def start(*pair):
        process = subprocess.Popen(["node", str(script), *map(str, pair)], stdout=subprocess.PIPE, text=True)
        running.append(process)
        start.process = process
        return int(process.stdout.readline())

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def server(serve, node):
    return serve(route=f'proxy = "h2c://127.0.0.1:{node()}"\nbody_size = "100MB"')


def test_no_idle_connection_is_kept_if_there_may_be_none(serve, node):
    server = serve(route=f'proxy = {{ to = "h2c://127.0.0.1:{node()}", idle_connections = 0 }}')
    sessions = [json.loads(server.get("/fields")[2])["sessions"] for _ in range(2)]
    assert sessions == [1, 2]


def test_an_upstream_of_http2_gets_requests_of_http1(server):
    status, fields, body = server.get("/fields", "X-A: 1", "X-Real-IP: 6.6.6.6", "Connection: x", "Cookie: a=b")
    assert status == 200 and fields["content-type"] == "application/json"
    text = body.decode()
    assert '":method":"GET"' in text and '":authority":"x"' in text and '"x-a":"1"' in text
    assert '"x-forwarded-for":"127.0.0.1"' in text and '"via":"1.1 dunlin"' in text
    assert "6.6.6.6" not in text and '"host"' not in text and '"connection"' not in text


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("size", [1, 70_000, 3_000_000])
def test_bodies_arrive_whole(server, size, is_chunked):
    body = os.urandom(size)
    status, _, got = post(server, "/plain", body, chunked=is_chunked)
    assert status == 200 and got == body


def test_responses_without_a_body(server):
    assert server.get("/empty")[0] == 204
    status, fields, body = server.get("/only")
    assert (status, fields["grpc-status"], body) == (200, "5", b"")


def test_interim_responses_are_passed_on(server):
    data = server.exchange(b"GET /hint HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    hint, head, _ = data.split(b"\r\n\r\n", 2)
    assert hint.lower() == b"http/1.1 103 early hints\r\nlink: </a.css>"
    assert head.startswith(b"HTTP/1.1 200 ") and b"a.css" not in head and b"end" in data
    with http2.Client(server) as client:
        client.send(http2.request(1, "/hint"))
        frames = client.read_until(lambda _, flags, stream, __: stream == 1 and flags & http2.END_STREAM)
    decoder = Decoder()
    hint, head = (dict(decoder.decode(payload)) for kind, _, stream, payload in frames if (kind, stream) == (http2.HEADERS, 1))
    assert hint == {":status": "103", "link": "</a.css>"}
    assert head[":status"] == "200" and "link" not in head
    assert b"".join(payload for kind, _, _, payload in frames if kind == http2.DATA) == b"end"


def test_requests_share_a_connection(server):
    def fetch():
        assert server.get("/fields")[0] == 200

    threads = [threading.Thread(target=fetch) for _ in range(20)]
    server.get("/fields")
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert '"sessions":1' in server.get("/fields")[2].decode()


def test_both_directions_flow_at_once_and_end_with_trailers(server):
    """As bidirectional gRPC does."""
    with http2.Client(server) as client:
        client.send(http2.request(1, "/", "POST", ("te", "trailers"), ended=False))
        for message in (b"one", b"two"):
            client.send(http2.frame(http2.DATA, 0, 1, message))
            frames = client.read_until(lambda kind, _, stream, __: kind == http2.DATA and stream == 1)
            assert frames[-1][3] == message
        client.send(http2.frame(http2.DATA, http2.END_STREAM, 1, b"end"))
        frames = client.read_until(lambda kind, flags, stream, _: stream == 1 and flags & http2.END_STREAM)
        assert b"".join(payload for kind, _, _, payload in frames if kind == http2.DATA) == b"end"
        assert frames[-1][0] == http2.HEADERS, "the trailer fields"


def test_an_upstream_that_resets_a_stream_gives_502(server):
    status, fields, _ = server.get("/reset")
    assert status == 502 and "proxy-status" in fields
    assert server.get("/fields")[0] == 200


def test_a_restarted_upstream_is_connected_again(serve, node, tmp_path):
    port = node()
    server = serve(route=f'proxy = "h2c://127.0.0.1:{port}"')
    assert server.get("/fields")[0] == 200
    node.process.kill()
    node.process.wait()
    assert server.get("/fields")[0] == 502
    script = tmp_path / "server.js"
    script.write_text(SERVER.replace("listen(0", f"listen({port}"))
    node()
    wait_until(lambda: server.get("/fields")[0] == 200, "the new upstream")


def test_http2_over_tls_is_negotiated(serve, node, tmp_path):
    authority = certificate(tmp_path, "authority")
    own = certificate(tmp_path, "upstream", issuer=authority)
    port = node(*own)
    server = serve(route=f'proxy = {{ to = "h2://127.0.0.1:{port}", authority = "{authority[0]}" }}')
    text = server.get("/fields")[2].decode()
    assert '":scheme":"https"' in text and re.search(r'":authority":"x"', text)


def test_a_client_that_leaves_resets_the_stream_only(server):
    server.get("/fields")
    with server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx")
        connection.settimeout(15)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
    assert '"sessions":1' in server.get("/fields")[2].decode()
    with server.connect() as connection:
        connection.sendall(b"GET /empty HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_response(connection)[0] == 204
