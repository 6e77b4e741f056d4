"""HTTP/3 as a whole: settings, early data, policies of sites, priorities, trailers, interim responses, tunnels, other clients."""

import asyncio
import base64
import hashlib
import json
import os
import re
import socket
import subprocess
import threading

import pytest

from support.browser import CHROMIUM, FLAGS
from support.files import settle, write
from support.http3 import configuration, connect
from support.server import DUNLIN, ROOT
from support.stub import StubServer
from support.tls import certificate
from support.upstream import chunked, Upstream


@pytest.fixture
def http3(tmp_path, serve, site):
    """Starts a server with HTTP/3: `http3(more TOML, server=keys, tls=keys)`."""
    own = certificate(tmp_path, "own")
    write(site / "hello.txt", b"hello\n")

    def start(more="", server="", tls="", threads=1):
        return serve(
            text=f'[server]\nthreads = {threads}\naccess_log = {{ path = "{tmp_path}/access.log", format = "json" }}\n{server}\n'
            '[[listen]]\naddress = "127.0.0.1:0"\ntls = true\nhttp3 = true\n'
            f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{own[0]}", key = "{own[1]}", {tls} }}\n{more}\n'
        )

    start.own, start.log, start.file = own, tmp_path / "access.log", tmp_path / "dunlin-0.toml"
    return start


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def resumed(server, requests, tickets, **options):
    """Runs `requests(client)` on a connection that resumes a session, before its handshake is complete."""

    async def connected():
        config = configuration()
        config.session_ticket = tickets.pop()
        async with connect(server, config, wait_connected=False, session_ticket_handler=tickets.append, **options) as client:
            return await requests(client)

    return run(connected())


def first_session(server):
    """Tickets of a first connection."""
    tickets = []

    async def requests():
        async with connect(server, session_ticket_handler=tickets.append) as client:
            assert (await client.request("/hello.txt")).status == 200

    run(requests())
    return tickets


def test_early_data_is_off_by_default(http3):
    tickets = first_session(http3())
    # QUIC permits early data by the maximum of TLS.
    assert tickets and all(ticket.max_early_data_size is None for ticket in tickets)


def test_early_data_is_for_safe_methods(http3):
    server = http3(tls="early_data = true")
    tickets = first_session(server)
    assert tickets[0].max_early_data_size == 0xFFFFFFFF

    async def requests(client):
        # Both are sent together: the handshake may be complete before a later packet is read.
        client.transmit = lambda: None
        safe, post = client.begin("/hello.txt")[1], client.begin("/hello.txt", "POST")[1]
        del client.transmit
        client.transmit()
        await asyncio.gather(safe.done.wait(), post.done.wait())
        assert client._quic.tls.early_data_accepted
        assert (safe.status, safe.body) == (200, b"hello\n")
        # What came before the end of the handshake may be a replay.
        assert post.status == 425
        # After it, nothing is.
        later = await client.request("/hello.txt", "POST")
        assert later.status == 405

    resumed(server, requests, tickets)


def test_a_replay_of_early_data_is_not_processed(http3):
    server = http3(tls="early_data = true")
    tickets = first_session(server)
    ticket = tickets[0]

    async def requests(client):
        response = client.begin("/hello.txt")[1]
        await response.done.wait()
        return client._quic.tls.early_data_accepted

    assert resumed(server, requests, [ticket])
    # A session is resumed once. The client then sends its request again, or gives it up.
    config = configuration()
    config.session_ticket = ticket

    async def again():
        async with connect(server, config, wait_connected=False) as client:
            client.begin("/hello.txt?again")
            await client.wait_connected()
            return client._quic.tls.early_data_accepted

    assert not run(again())


def test_sessions_are_resumed_and_counted(http3):
    server = http3(more='[[site.route]]\npath = "/status/*"\nstatus = true\n')
    tickets = first_session(server)

    async def requests(client):
        # The handshake begins with the first transmission.
        client.transmit()
        await client.wait_connected()
        assert client._quic.tls.session_resumed
        # The figures are those of a moment before.
        for _ in range(50):
            text = (await client.request("/status/metrics")).body.decode()
            if 'dunlin_tls_handshakes_total{result="resumed"} 1' in text:
                break
            await asyncio.sleep(0.2)
        return text

    text = resumed(server, requests, tickets)
    assert 'dunlin_tls_handshakes_total{result="full"} 1' in text and 'dunlin_tls_handshakes_total{result="resumed"} 1' in text, text
    assert re.search(r'http_server_request_duration_seconds_count\{[^}]*network_protocol_version="3"[^}]*\} 1', text), text


def test_congestion_control_is_chosen(http3, site):
    body = os.urandom(5_000_000)
    write(site / "large.bin", body)
    settle(site / "large.bin")
    server = http3(server='http3 = { congestion = "bbr" }')

    async def requests():
        async with connect(server) as client:
            assert (await client.request("/large.bin")).body == body

    run(requests())
    text = http3.file.read_text().replace('"bbr"', '"reno"')
    http3.file.write_text(text)
    done = subprocess.run([DUNLIN, "check", "--config", http3.file], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "cubic" in done.stderr and ":4:" in done.stderr, done.stderr


def test_connections_are_recorded(http3, site, tmp_path):
    write(site / "large.bin", bytes(300_000))
    directory = tmp_path / "qlog"
    server = http3(server=f'http3 = {{ qlog = "{directory}" }}')

    async def requests():
        async with connect(server) as client:
            assert (await client.request("/large.bin")).status == 200

    run(requests())
    server.stop()
    [file] = directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    records = [json.loads(record) for record in file.read_text().split("\x1e")[1:]]
    assert records[0]["qlog_format"] == "JSON-SEQ" and records[0]["trace"]["vantage_point"] == {"type": "server"}
    by_name = {}
    for record in records[1:]:
        by_name.setdefault(record["name"], []).append(record["data"])
    assert by_name["connectivity:connection_started"][0]["src_ip"] == "127.0.0.1"
    sent = sum(one["length"] for data in by_name["transport:datagrams_sent"] for one in data["raw"])
    assert sent > 300_000 and by_name["transport:datagrams_received"]
    assert any(data["congestion_window"] > 0 for data in by_name["recovery:metrics_updated"])
    times = [record["time"] for record in records[1:]]
    assert times == sorted(times)


def test_records_are_not_for_clients(http3, site):
    server = http3()
    server.stop()
    text = http3.file.read_text().replace("threads = 1", f'threads = 1\nhttp3 = {{ qlog = "{site}/qlog" }}')
    http3.file.write_text(text)
    done = subprocess.run([DUNLIN, "check", "--config", http3.file], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "http3: qlog" in done.stderr and "whose files clients can request" in done.stderr, done.stderr


def test_a_site_with_client_certificates_is_reached_by_those_alone(tmp_path, serve):
    own = certificate(tmp_path, "own", ("*.test", "localhost"))
    authority = certificate(tmp_path, "authority")
    client = certificate(tmp_path, "client", issuer=authority)
    other = certificate(tmp_path, "other", issuer=certificate(tmp_path, "other-authority"))
    script = tmp_path / "scripts" / "env"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\nprintf \'Content-Type: text/plain\\n\\n%s|%s\' "$SSL_CLIENT_VERIFY" "$SSL_CLIENT_S_DN"\n')
    script.chmod(0o755)
    pair = f'certificate = "{own[0]}", key = "{own[1]}"'
    route = f'[[site.route]]\npath = "/*"\nscript = {{ kind = "cgi", directory = "{script.parent}" }}\n'
    server = serve(
        text='[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\nhttp3 = true\n'
        f'[[site]]\nhost = "a.test"\ntls = {{ {pair} }}\n{route}'
        f'[[site]]\nhost = "b.test"\ntls = {{ {pair}, client_authority = "{authority[0]}" }}\n{route}'
    )

    def config(name, pair=None):
        made = configuration()
        made.server_name = name
        if pair:
            made.load_cert_chain(*map(str, pair))
        return made

    async def requests():
        async with connect(server, config("a.test")) as plain:
            assert (await plain.request("/env", host="a.test")).body == b"NONE|"
            # The handshake has not met the policy of the other site.
            for method in ("GET", "POST"):
                assert (await plain.request("/env", method, host="b.test")).status == 421
            assert (await plain.request("/env", host="a.test")).status == 200
        async with connect(server, config("b.test", client)) as known:
            assert (await known.request("/env", host="b.test")).body == b"SUCCESS|CN=client"
            assert (await known.request("/env", host="a.test")).status == 421
        for pair in (None, other):
            async with connect(server, config("b.test", pair)) as unknown:
                response = unknown.begin("/env", host="b.test")[1]
                await asyncio.wait_for(unknown.gone.wait(), 20)
                assert response.status is None and unknown.closed[0] >= 0x100

    run(requests())


@pytest.mark.parametrize("limits", [
    pytest.param({}, id="usual"),
    pytest.param({"max_data": 100_000}, id="little credit"),
])
def test_more_urgent_responses_are_first(http3, site, limits):
    for name in "abcd":
        write(site / name, os.urandom(200_000))
        settle(site / name)
    server = http3()

    async def requests():
        orders = []
        for _ in range(5):
            async with connect(server, configuration(**limits)) as client:
                # The kernel must not drop packets, whose bytes would come later.
                client._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
                assert (await client.request("/hello.txt")).status == 200
                orders.append(await one_order(client))
        # A packet that is lost or late changes the order now and then.
        assert orders.count(["c", "b", "d"]) >= 3, orders

    run(requests())


async def one_order(client):
    """The order in which responses of different urgency are complete."""
    order, begun = [], {}
    # All requests are sent together.
    client.transmit = lambda: None
    for name, priority in (("a", "u=6"), ("d", "u=5"), ("b", "u=3"), ("c", "u=0")):
        begun[name] = client.begin(f"/{name}", fields=[("priority", priority)])[1]
    del client.transmit
    client.transmit()

    async def note(name):
        await begun[name].done.wait()
        order.append(name)

    await asyncio.gather(*map(note, begun))
    # The first response may be sent before the other requests are read.
    order.remove("a")
    return order


def test_interim_responses_and_trailers_of_responses_pass(http3):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    upstream = Upstream(lambda *_: hints + chunked(b"abc", trailers=["X-Sum: 6"], fields=["Trailer: X-Sum"]))
    server = http3(f'[[site.route]]\npath = "/*"\nproxy = "{upstream.url}"\n')

    async def requests():
        async with connect(server) as client:
            response = await client.request("/", fields=[("te", "trailers")])
            assert (response.status, response.body) == (200, b"abc")
            assert response.interim == [(103, {"link": "</a.css>; rel=preload"})]
            assert response.trailers == {"x-sum": "6"}

    run(requests())


class Chunks(StubServer):
    """An upstream that keeps requests with their trailers as they arrive."""

    def __init__(self):
        self.received, listener = [], socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        super().__init__(listener)

    def serve(self, connection):
        data = b""
        while not re.search(rb"\r\n0\r\n(.+\r\n)*\r\n$", data):
            part = connection.recv(1 << 16)
            if not part:
                return
            data += part
        self.received.append(data)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_trailers_of_requests_pass(http3):
    upstream = Chunks()
    server = http3(f'[[site.route]]\npath = "/*"\nproxy = "{upstream.url}"\n')

    async def requests():
        async with connect(server) as client:
            stream, response = client.begin("/", "POST", [("trailer", "x-sum")], ends=False)
            client.send(stream, b"abc")
            client.http.send_headers(stream, [(b"x-sum", b"6"), (b"authorization", b"Basic eA==")], end_stream=True)
            client.transmit()
            await asyncio.wait_for(response.done.wait(), 20)
            assert response.status == 200

    run(requests())
    assert re.search(rb"(?i)\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n$", upstream.received[0]), upstream.received


def test_a_websocket_passes_by_extended_connect(http3):
    ended = threading.Event()

    def respond(upstream, connection, request):
        key = request.fields["sec-websocket-key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n"
        connection.sendall(head % accept)
        while data := connection.recv(1 << 16):
            connection.sendall(data)
        ended.set()

    upstream = Upstream(respond)
    server = http3(f'[[site.route]]\npath = "/*"\nproxy = "{upstream.url}"\n')

    async def requests():
        async with connect(server) as client:
            fields = [(":protocol", "websocket"), ("sec-websocket-version", "13")]
            stream, response = client.begin("/chat", "CONNECT", fields, ends=False)
            await asyncio.wait_for(response.begun.wait(), 20)
            assert response.status == 200
            for size in (1, 1000, 200_000):
                data, before = os.urandom(size), len(response.body)
                client.send(stream, data)
                while len(response.body) < before + size:
                    await client.ping()
                assert response.body[before:] == data
            client.send(stream, b"", ends=True)
            await asyncio.wait_for(response.done.wait(), 20)

    run(requests())
    assert ended.wait(10)


def test_the_log_and_the_live_view_have_it(http3):
    server = http3(server=f'admin = "{http3.log.parent}/admin.sock"')

    async def requests():
        async with connect(server) as client:
            watch = subprocess.Popen([DUNLIN, "watch", "--admin", f"{http3.log.parent}/admin.sock"], stdout=subprocess.PIPE, text=True)
            seen = []
            reader = threading.Thread(target=lambda: seen.append(watch.stdout.readline()))
            reader.start()
            # It may subscribe a little later.
            while reader.is_alive():
                assert (await client.request("/hello.txt")).status == 200
            watch.kill()
            watch.wait()
            return seen[0]

    line = run(requests())
    assert "/hello.txt" in line and "200" in line, line
    server.stop()
    records = [json.loads(line) for line in http3.log.read_text().splitlines()]
    assert all("HTTP/3.0" in record.values() for record in records), records
    # The phases are those of TCP: what came first has the connection and the handshake.
    assert len({record["connection"] for record in records}) == 1


def test_a_client_of_curl(http3, site):
    curl = pytest.importorskip("curl_cffi")
    body = os.urandom(1_000_000)
    write(site / "large.bin", body)
    server = http3()
    with curl.requests.Session(http_version=curl.CurlHttpVersion.V3ONLY, verify=str(http3.own[0])) as session:
        for path, expected in (("/hello.txt", b"hello\n"), ("/large.bin", body), ("/large.bin", body)):
            response = session.get(f"https://localhost:{server.port}{path}", timeout=30)
            assert (response.status_code, response.content) == (200, expected)
            assert response.http_version == curl.CurlHttpVersion.V3
        posted = session.post(f"https://localhost:{server.port}/hello.txt", data=b"x" * 100_000, timeout=30)
        assert posted.status_code == 405


def test_quic_go_uses_it(http3, site):
    """The client that the module of quic-go has as an example. It checks lengths, and reads responses in gzip."""
    client = ROOT / "target" / "tools" / "quic-go" / "client"
    if not client.exists():
        pytest.skip("the client of quic-go is not installed")
    large = "".join(f"line {number}\n" for number in range(200_000))
    write(site / "large.txt", large)
    server = http3()
    urls = [f"https://localhost:{server.port}/{path}" for path in ("hello.txt", "large.txt", "none.txt")]
    done = subprocess.run([client, "-insecure", *urls], capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    statuses = dict(re.findall(r'Got response for (\S+): &http.Response\{Status:"(\d+)[^"]*", StatusCode:\d+, Proto:"HTTP/3.0"', said))
    assert statuses == dict(zip(urls, ["200", "200", "404"])), said[-2000:]
    assert f"Response Body ({len(large)} bytes)" in said and large in said


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_a_browser_uses_it(http3, site, tmp_path):
    write(site / "a.css", "p { color: green }")
    write(
        site / "index.html",
        '<!doctype html><link rel="stylesheet" href="a.css"><p id="protocols"><script>onload = () => {'
        'const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];'
        'protocols.textContent = entries.map(entry => entry.name.split("/").pop() + "=" + entry.nextHopProtocol).join(" ")}</script>',
    )
    server = http3()
    key = subprocess.run(f"openssl x509 -in {http3.own[0]} -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64", shell=True, capture_output=True, text=True, check=True).stdout.strip()
    flags = [flag for flag in FLAGS if flag != "--disable-quic"]
    done = subprocess.run(
        [
            CHROMIUM, *flags, f"--origin-to-force-quic-on=localhost:{server.port}", f"--ignore-certificate-errors-spki-list={key}",
            "--host-resolver-rules=MAP localhost 127.0.0.1",
            f"--user-data-dir={tmp_path}/profile", "--dump-dom", f"https://localhost:{server.port}/",
        ],
        capture_output=True, text=True, timeout=120,
    )
    assert re.search('<p id="protocols">=h3 a.css=h3</p>', done.stdout), done.stdout + done.stderr
