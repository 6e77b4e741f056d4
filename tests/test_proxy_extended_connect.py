"""Tunnels by extended CONNECT (RFC 8441) to upstreams of HTTP/2, with Node's server."""

import json
import os
import socket
import subprocess

import pytest
from h2.errors import ErrorCodes

from support.tunnel import Connection
from support.upstream import Upstream
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

NODE = """
const server = require("http2").createServer({ settings: { enableConnectProtocol: process.argv[2] === "true" } });
const ended = [];
server.on("stream", (stream, headers) => {
  stream.on("error", () => {});
  stream.on("close", () => ended.push(headers[":path"]));
  const path = headers[":path"];
  if (path === "/ended") {
    stream.respond({ ":status": 200 });
    return stream.end(JSON.stringify(ended));
  }
  if (path === "/403") {
    stream.respond({ ":status": 403 });
    return stream.end("no");
  }
  if (path === "/silent") return;
  stream.respond({ ":status": 200, "x-request": JSON.stringify(headers) });
  if (path === "/reset") return stream.once("data", () => stream.destroy(new Error("x")));
  stream.on("data", (part) => stream.write(part));
  stream.on("end", () => stream.end("bye"));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""


@pytest.fixture
def node(tmp_path):
    """Starts Node's server: `node(accepts extended CONNECT)` returns its port."""
    running = []
    script = tmp_path / "server.js"
    script.write_text(NODE)

    def start(accepts=True):
        arguments = ["node", str(script), str(accepts).lower()]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return int(process.stdout.readline())

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def test_bytes_flow_in_both_directions(serve, node):
    server = serve(route=f'proxy = "h2c://127.0.0.1:{node()}"')
    with Connection(server) as connection:
        tunnel = connection.open("/chat?room=1", ("sec-websocket-protocol", "chat"))
        assert tunnel.head() == 200
        seen = json.loads(tunnel.fields["x-request"])
        assert (seen[":method"], seen[":protocol"], seen[":path"]) == ("CONNECT", "websocket", "/chat?room=1")
        assert seen["sec-websocket-version"] == "13" and seen["sec-websocket-protocol"] == "chat"
        assert "sec-websocket-key" not in seen and seen["x-forwarded-for"] == "127.0.0.1"
        for size in (1, 100, 300_000):
            data = os.urandom(size)
            tunnel.send(data)
            assert tunnel.read(size) == data
        second = connection.open("/second")
        second.send(b"second")
        assert second.read(6) == b"second"
        tunnel.send(end=True)
        assert tunnel.read_rest() == b"bye" and tunnel.ended
        second.send(b"still")
        assert second.read(5) == b"still"
        second.cancel()
        wait_until(lambda: b"/second" in server.get("/ended")[2], "the end of the upstream's stream")


def test_a_reset_by_the_upstream_cancels_the_stream(serve, node):
    server = serve(route=f'proxy = "h2c://127.0.0.1:{node()}"')
    with Connection(server) as connection:
        tunnel = connection.open("/reset")
        assert tunnel.head() == 200
        tunnel.send(b"x")
        tunnel.read_rest()
        assert tunnel.reset == ErrorCodes.CANCEL and not tunnel.ended


def test_an_error_of_the_upstream_is_passed_on(serve, node):
    server = serve(route=f'proxy = "h2c://127.0.0.1:{node()}"')
    with Connection(server) as connection:
        tunnel = connection.open("/403")
        assert tunnel.head() == 403 and tunnel.read_rest() == b"no"


def test_an_upstream_without_extended_connect_gives_502(serve, node):
    server = serve(route=f'proxy = "h2c://127.0.0.1:{node(False)}"')
    with Connection(server) as connection:
        tunnel = connection.open()
        assert tunnel.head() == 502
        assert tunnel.fields["proxy-status"] == "dunlin; error=http_upgrade_failed"
        tunnel.read_rest()
    assert "does not accept extended CONNECT (SETTINGS_ENABLE_CONNECT_PROTOCOL)" in server.logged("502")
    assert server.get("/ended")[0] == 200, "the upstream is not at fault"


def test_the_limits_of_time_and_number_apply(serve, node):
    port = node()
    server = serve(route=f'proxy = {{ to = "h2c://127.0.0.1:{port}", first_byte_timeout = "100ms", tunnel_timeout = "200ms", tunnels = 1 }}')
    with Connection(server) as connection:
        assert connection.open("/silent").head() == 504
        tunnel = connection.open()
        assert tunnel.head() == 200
        assert connection.open().head() == 503
        tunnel.read_rest()
        assert tunnel.ended, "after tunnel_timeout"
        assert connection.open().head() == 200


def test_settings_that_do_not_come_give_504(serve):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        route = f'proxy = {{ to = "h2c://127.0.0.1:{silent.getsockname()[1]}", connect_timeout = "100ms" }}'
        server = serve(route=route)
        with Connection(server) as connection:
            assert connection.open().head() == 504


def test_an_upstream_of_the_other_version_gets_the_tunnel_after_a_failure(serve, node):
    gone = Upstream()
    gone.stop()
    port = node()
    keys = 'balance = "round-robin"'
    server = serve(route=f'proxy = {{ to = ["{gone.url}", "h2c://127.0.0.1:{port}"], {keys} }}')
    with Connection(server) as connection:
        for _ in range(3):
            tunnel = connection.open()
            assert tunnel.head() == 200
            tunnel.send(b"x")
            assert tunnel.read(1) == b"x"
