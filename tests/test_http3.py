"""HTTP/3: requests and their bodies, limits, flow control, the end of connections, and how clients learn of it."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess

import pytest

from support.files import settle, write
from support.http3 import configuration, connect
from support.processes import rss
from support.server import DUNLIN
from support.tls import certificate, connect as connect_tls, context, fetch
from support.waiting import wait_until


@pytest.fixture
def http3(tmp_path, serve, site):
    """Starts a server with HTTP/3: `http3(more TOML, server=keys, site=keys)`."""
    own = certificate(tmp_path, "own")
    write(site / "hello.txt", b"hello\n")

    def start(more="", server="", keys="", threads=1):
        return serve(
            text=f'[server]\nthreads = {threads}\naccess_log = "{tmp_path}/access.log"\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\nhttp3 = true\n'
            f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{own[0]}", key = "{own[1]}" }}\n{keys}\n{more}\n'
        )

    start.own, start.log, start.file = own, tmp_path / "access.log", tmp_path / "dunlin-0.toml"
    return start


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_files(http3, site):
    large = os.urandom(3_000_000)
    write(site / "large.bin", large)
    settle(site / "large.bin")
    server = http3()

    async def requests():
        async with connect(server, configuration(http3.own[0])) as client:
            for _ in range(3):
                response = await client.request("/hello.txt")
                assert (response.status, response.body) == (200, b"hello\n")
                assert response.fields["content-length"] == "6"
            head = await client.request("/hello.txt", method="HEAD")
            assert (head.status, head.body, head.fields["content-length"]) == (200, b"", "6")
            tag = [("if-none-match", response.fields["etag"])]
            assert (await client.request("/hello.txt", fields=tag)).status == 304
            part = await client.request("/large.bin", fields=[("range", "bytes=1000-1999")])
            assert (part.status, part.body) == (206, large[1000:2000])
            assert (await client.request("/large.bin")).body == large
            missing = await client.request("/missing")
            assert missing.status == 404
            refused = await client.request("/hello.txt", method="BREW")
            assert refused.status == 501

    run(requests())
    server.stop()
    assert re.search(r'"GET /hello.txt HTTP/3.0" 200 6', http3.log.read_text())


def test_many_requests_at_a_time(http3, site):
    for number in range(100):
        write(site / f"{number}.txt", str(number).encode() * number)
    server = http3(threads=2)

    async def requests():
        async with connect(server) as client:
            paths = [f"/{number}.txt" for number in range(100)]
            responses = await asyncio.gather(*map(client.request, paths))
            for number, response in enumerate(responses):
                assert (response.status, response.body) == (200, str(number).encode() * number)

    run(requests())


def test_bodies_of_requests(http3, tmp_path):
    directory = tmp_path / "cgi-bin"
    directory.mkdir()
    script = directory / "echo"
    script.write_text('#!/bin/sh\nprintf "Content-Type: text/plain\\nX-Protocol: $SERVER_PROTOCOL\\n\\n"\ncat\n')
    script.chmod(0o755)
    server = http3(
        f'[[site.route]]\npath = "/cgi-bin/*"\nbody_size = "10MB"\nscript = {{ kind = "cgi", directory = "{directory}" }}\n'
    )
    body = os.urandom(2_000_000)

    async def requests():
        async with connect(server) as client:
            response = await client.request("/cgi-bin/echo", "POST", body=body)
            assert (response.status, response.body) == (200, body)
            assert response.fields["x-protocol"] == "HTTP/3.0"
            empty = await client.request("/cgi-bin/echo", "POST", body=b"")
            assert (empty.status, empty.body) == (200, b"")
            # A part at a time, of which the length is not stated.
            stream, response = client.begin("/cgi-bin/echo", "POST", ends=False)
            for at in range(0, 100_000, 10_000):
                client.send(stream, body[at : at + 10_000])
                await asyncio.sleep(0)
            client.send(stream, b"", ends=True)
            await response.done.wait()
            assert response.body == body[:100_000]
            large = await client.request("/cgi-bin/echo", "POST", [("content-length", "20000000")], b"x")
            assert large.status == 413

    run(requests())


def test_a_proxied_site(http3, serve, site):
    upstream = serve()
    server = http3(f'[[site.route]]\npath = "/*"\nproxy = "{upstream.url}"\n')

    async def requests():
        async with connect(server) as client:
            response = await client.request("/hello.txt")
            assert (response.status, response.body) == (200, b"hello\n")

    run(requests())


def test_limits_of_heads(http3):
    server = http3(server='http1 = { head_size = "8KiB" }')

    async def requests():
        async with connect(server) as client:
            large = await client.request("/", fields=[("x-large", "x" * 20_000)])
            assert large.status == 431
            assert (await client.request("/hello.txt")).status == 200

    run(requests())


def test_malformed_requests_end_their_stream_alone(http3):
    server = http3()

    async def requests():
        async with connect(server) as client:
            for fields in [[("connection", "close")], [("Upper", "x")], [("te", "gzip")], [("content-length", "5")]]:
                response = await client.request("/hello.txt", fields=fields)
                # H3_MESSAGE_ERROR
                assert (response.status, response.reset) == (None, 0x10E), fields
            assert (await client.request("/hello.txt")).status == 200

    run(requests())


def test_errors_of_the_connection_close_it(http3):
    server = http3()

    async def requests():
        for stream, data, code in [
            # A second control stream: H3_STREAM_CREATION_ERROR.
            (lambda quic: quic.get_next_available_stream_id(is_unidirectional=True), b"\x00\x04\x00", 0x103),
            # DATA before HEADERS: H3_FRAME_UNEXPECTED.
            (lambda quic: quic.get_next_available_stream_id(), b"\x00\x01x", 0x105),
        ]:
            async with connect(server) as client:
                assert (await client.request("/hello.txt")).status == 200
                client._quic.send_stream_data(stream(client._quic), data)
                client.transmit()
                await client.gone.wait()
                assert client.closed[0] == code, client.closed

    run(requests())


def test_a_response_that_the_client_does_not_want_is_given_up(http3, site):
    write(site / "large.bin", bytes(50_000_000))
    settle(site / "large.bin")
    server = http3()

    async def requests():
        async with connect(server) as client:
            stream, response = client.begin("/large.bin")
            await response.begun.wait()
            client._quic.stop_stream(stream, 0x10C)
            client.transmit()
            assert (await client.request("/hello.txt")).status == 200
            assert len(response.body) < 50_000_000

    run(requests())
    server.stop()
    assert "/large.bin" in http3.log.read_text()


def test_a_client_that_reads_slowly_costs_little_memory(http3, site):
    write(site / "large.bin", bytes(30_000_000))
    settle(site / "large.bin")
    server = http3(keys="cache = false")

    async def requests():
        slow = configuration(max_stream_data=20_000, max_data=100_000)
        async with connect(server, slow) as client:
            assert (await client.request("/hello.txt")).status == 200
            # It lets the server send no more.
            client._quic._write_connection_limits = client._quic._write_stream_limits = lambda *arguments, **more: None
            before = rss(server)
            begun = [client.begin("/large.bin")[1] for _ in range(50)]
            await asyncio.gather(*(response.begun.wait() for response in begun[:4]))
            # The server acknowledges it after it has received all requests.
            await client.ping()
            assert rss(server) - before < 20_000_000

    run(requests())


def test_a_stop_lets_responses_finish(http3, tmp_path):
    directory = tmp_path / "cgi-bin"
    directory.mkdir()
    script = directory / "slow"
    script.write_text(f'#!/bin/sh\nprintf "Content-Type: text/plain\\n\\nbegun "\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.01; done\necho done\n')
    script.chmod(0o755)
    server = http3(f'[[site.route]]\npath = "/cgi-bin/*"\nscript = {{ kind = "cgi", directory = "{directory}" }}\n')

    async def requests():
        async with connect(server) as client:
            _, response = client.begin("/cgi-bin/slow")
            await response.begun.wait()
            server.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(wait_until, lambda: not accepts(server), "it accepts no connection")
            (tmp_path / "go").touch()
            await response.done.wait()
            assert response.body == b"begun done\n"
            await client.gone.wait()
            # H3_NO_ERROR
            assert client.closed[0] == 0x100

    run(requests())
    assert server.process.wait(20) == 0


def reload(server):
    count = server.log.count("reloaded")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log.count("reloaded") > count, "the configuration is reloaded")


def accepts(server):
    try:
        socket.create_connection(("127.0.0.1", server.port), 1).close()
    except ConnectionRefusedError:
        return False
    return True


def test_connections_survive_a_reload_and_see_it(http3, site):
    server = http3(threads=2)

    async def requests():
        async with connect(server) as client:
            assert (await client.request("/hello.txt")).status == 200
            text = http3.file.read_text()
            http3.file.write_text(text + '[[site.route]]\npath = "/new"\nrespond = { status = 200, body = "new" }\n')
            reload(server)
            assert (await client.request("/new")).body == b"new"
            # It is switched off: open connections stay.
            http3.file.write_text(http3.file.read_text().replace("http3 = true", "http3 = false"))
            reload(server)
            assert (await client.request("/hello.txt")).status == 200

    run(requests())


def test_clients_learn_of_it_by_the_first_response(http3):
    server = http3()
    line = f'h3=":{server.port}"; ma=86400'
    with connect_tls(server, context(http3.own[0])) as connection:
        assert fetch(connection)[1].get("alt-svc") == line
        assert "alt-svc" not in fetch(connection)[1]

    async def request():
        async with connect(server) as client:
            assert "alt-svc" not in (await client.request("/hello.txt")).fields

    run(request())


def test_a_client_whose_address_changes_keeps_its_connection(http3):
    server = http3(threads=2)

    async def requests():
        async with connect(server) as client:
            for _ in range(10):
                assert (await client.request("/hello.txt")).status == 200
                loop = asyncio.get_running_loop()
                before = client._transport
                transport, _ = await loop.create_datagram_endpoint(lambda: client, local_addr=("::", 0))
                client._transport = transport
                before._protocol = asyncio.DatagramProtocol()
                before.close()
            assert (await client.request("/hello.txt")).status == 200

    run(requests())


def load(server, *options, path="/hello.txt"):
    url = f"https://localhost:{server.port}{path}"
    done = subprocess.run([DUNLIN, "load", "--http3", "--insecure", "--json", "-", *options, url], capture_output=True, text=True, timeout=60)
    return done, json.loads(done.stdout)


def test_the_generator_measures_it(http3, site):
    write(site / "large.bin", os.urandom(300_000))
    settle(site / "large.bin")
    server = http3(threads=2)
    for path, options in [("/hello.txt", ["-c", "4", "--streams", "10"]), ("/large.bin", ["-c", "2", "--streams", "3"])]:
        done, result = load(server, "-n", "500", "--verify", *options, path=path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (result["status"], result["errors"]) == ({"200": 500}, 0), result
    done, _ = load(server, "-n", "100", "--fail-if", "errors>0", path="/missing")
    assert done.returncode != 0
    # A server without HTTP/3.
    http3.file.write_text(http3.file.read_text().replace("http3 = true", "http3 = false"))
    reload(server)
    done, _ = load(server, "-n", "10", "--timeout", "1s")
    assert done.returncode != 0


def test_what_cannot_have_it_is_an_error(tmp_path):
    for listen, problem in [
        ('address = "127.0.0.1:0"', "HTTP/3 is always encrypted; write tls = true"),
        ('address = "unix:/tmp/x.sock"', "a Unix socket has no UDP port"),
        ('address = "127.0.0.1:0"\ntls = true\nproxy_protocol = true', "datagrams have no header of the PROXY protocol"),
    ]:
        file = tmp_path / "dunlin.toml"
        file.write_text(f"[[listen]]\n{listen}\nhttp3 = true\n")
        done = subprocess.run([DUNLIN, "check", "--config", file], capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and f"http3: {problem}" in done.stderr, done.stderr
