"""`dunlin load --http3`: handshakes, early data, losses, verdicts, and servers of others (Caddy, aioquic)."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import threading

import pytest
from aioquic.asyncio import serve as serve_quic
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

from support.files import settle, write
from support.server import DUNLIN
from support.tls import certificate
from support.waiting import wait_until


def load(port, *options, path="/a.bin"):
    url = f"https://localhost:{port}{path}"
    done = subprocess.run([DUNLIN, "load", "--http3", "--insecure", "--json", "-", "--timeout", "10s", *options, url], capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def own(tmp_path):
    return certificate(tmp_path, "own")


@pytest.fixture
def files(site):
    for name, size in (("a.bin", 1000), ("large.bin", 700_000)):
        write(site / name, os.urandom(size))
        settle(site / name)
    return site


@pytest.fixture
def server(serve, files, own):
    def start(tls="", server=""):
        return serve(
            text=f'[server]\nthreads = 1\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\nhttp3 = true\n'
            f'[[site]]\nroot = "{files}"\ntls = {{ certificate = "{own[0]}", key = "{own[1]}", {tls} }}\n'
            '[[site.route]]\npath = "/status/*"\nstatus = true\n'
        )

    return start


def complete(result, count):
    assert (result["errors"], result["requests"]) == (0, count), result


def test_a_handshake_for_each_request(server, files):
    running = server()
    result = load(running.port, "-n", "60", "-c", "4", "--no-keepalive", f"--verify={files}")
    complete(result, 60)
    connections = result["connections"]
    # A connection that was opened when there were no more requests has none.
    assert 60 <= connections["opened"] <= 64 and connections["closed_by_server"] == 0, connections
    quic = connections["quic"]
    assert quic["connections"] >= 60 and quic["packets_sent"] > 60 and quic["packets_lost"] == 0 and quic["early_accepted"] == 0, quic


def test_several_requests_of_a_connection(server):
    result = load(server().port, "-n", "60", "-c", "2", "--streams", "2", "--requests-per-connection", "10")
    complete(result, 60)
    assert 6 <= result["connections"]["opened"] <= 8


def test_early_data(server):
    running = server(tls="early_data = true")
    result = load(running.port, "-n", "50", "-c", "2", "--no-keepalive", "--early-data", "--verify")
    complete(result, 50)
    quic = result["connections"]["quic"]
    # A session comes at the end of a handshake, and is resumed once. A connection of one response that was early data may end
    # before that, so that the next one has no session to resume.
    assert 20 <= quic["early_accepted"] <= 48 and quic["early_rejected"] == 0, quic
    assert result["connections"]["tls_resumed"] == quic["early_accepted"]
    # Without the setting there is none.
    result = load(server().port, "-n", "20", "-c", "2", "--no-keepalive", "--early-data")
    complete(result, 20)
    assert result["connections"]["quic"]["early_accepted"] == 0


def test_a_rate_and_a_verdict(server):
    result = load(server().port, "--rate", "200", "-c", "4", "-d", "2s")
    assert result["errors"] == 0 and abs(result["requests"] - 400) <= 20, result["requests"]
    result = load(server().port, "-n", "20", path="/missing")
    assert result["errors"] == 20


def test_text_shows_losses(server):
    running = server()
    done = subprocess.run(
        [DUNLIN, "load", "--http3", "--insecure", "-n", "50", f"https://localhost:{running.port}/a.bin"], capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 0 and "round trip" in done.stdout and "lost (0.00 %)" in done.stdout, done.stdout


@pytest.mark.parametrize("options, problem", [
    (["--early-data"], "--early-data is for connections that are closed"),
    (["--no-keepalive", "--streams", "2"], "--streams does nothing with one request on each connection"),
])
def test_options_that_do_nothing_are_errors(options, problem):
    done = subprocess.run([DUNLIN, "load", "--http3", *options, "https://127.0.0.1:1/"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and problem in done.stderr, done.stderr


@pytest.mark.skipif(not shutil.which("caddy"), reason="there is no Caddy here")
def test_caddy(files, own, tmp_path):
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    text = f"""{{
  admin off
  auto_https off
  servers {{
    protocols h1 h2 h3
  }}
}}
https://localhost:{port} {{
  bind 127.0.0.1
  tls {own[0]} {own[1]}
  root * {files}
  file_server
}}
"""
    file = write(tmp_path / "Caddyfile", text)
    process = subprocess.Popen(["caddy", "run", "--adapter", "caddyfile", "--config", file], stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(tmp_path)})
    try:
        def accepts():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(accepts, "Caddy listens")
        complete(load(port, "-n", "200", "-c", "4", "--streams", "8", f"--verify={files}"), 200)
        complete(load(port, "-n", "20", "-c", "2", "--streams", "4", f"--verify={files}", path="/large.bin"), 20)
        complete(load(port, "-n", "20", "-c", "2", "--no-keepalive"), 20)
    finally:
        process.terminate()
        process.wait(20)


class Server(QuicConnectionProtocol):
    """A server that responds with as many bytes as the path says."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = None

    def quic_event_received(self, event):
        if self.http is None:
            self.http = H3Connection(self._quic)
        for received in self.http.handle_event(event):
            if isinstance(received, HeadersReceived):
                size = int(dict(received.headers)[b":path"].strip(b"/"))
                self.http.send_headers(received.stream_id, [(b":status", b"200"), (b"content-length", str(size).encode())])
                self.http.send_data(received.stream_id, b"x" * size, end_stream=True)
                self.transmit()
            else:
                assert isinstance(received, DataReceived)


@pytest.mark.parametrize("retry", [False, True])
def test_aioquic(own, retry):
    config = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    config.load_cert_chain(str(own[0]), str(own[1]))
    loop, ports, ready = asyncio.new_event_loop(), [], threading.Event()

    async def start():
        tickets = {}
        server = await serve_quic(
            "127.0.0.1", 0, configuration=config, create_protocol=Server, retry=retry,
            session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}), session_ticket_fetcher=lambda label: tickets.pop(label, None),
        )
        ports.append(server._transport.get_extra_info("sockname")[1])
        # `dunlin load` looks by TCP whether the server runs.
        await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", ports[0])
        ready.set()

    def run():
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        complete(load(ports[0], "-n", "100", "-c", "2", "--streams", "4", "--verify", path="/1000"), 100)
        complete(load(ports[0], "-n", "10", "-c", "2", "--verify", path="/300000"), 10)
        complete(load(ports[0], "-n", "10", "-c", "1", "--no-keepalive", path="/10"), 10)
        result = load(ports[0], "-n", "10", "-c", "1", "--no-keepalive", "--early-data", path="/10")
        complete(result, 10)
        assert result["connections"]["quic"]["early_accepted"] > 0, result["connections"]["quic"]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
