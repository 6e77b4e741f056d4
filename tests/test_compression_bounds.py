"""What compression may take: memory of slow clients, and processor time of a worker and of a client."""

import asyncio
import contextlib
import gzip
import random
import re
import socket
import threading
import time
import zlib

import pytest

from support.component_server import metric, resident
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

STATUS = '[[site.route]]\npath = "/status/*"\nstatus = true\n'
LINES = "".join(f"<p>line {number * 7919 % 10007} of {number} lines</p>\n" for number in range(6000)).encode()


class Endless:
    """An upstream with pages that have no end."""

    def __init__(self, part=LINES):
        self.part = b"%x\r\n%s\r\n" % (len(part), part)
        self.loop = asyncio.new_event_loop()
        self.server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=1024), self.loop)
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.port = self.server.result().sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(self.part)
                await writer.drain()

    def stop(self):
        async def end():
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self.loop)


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
def test_slow_clients_of_compressed_streams_hold_little_memory(serve, coding):
    # Hardly compressible, so that clients hold as much as they may soon.
    upstream, clients = Endless(random.Random(1).randbytes(50_000).hex().encode()), []
    proxy = f'proxy = "http://127.0.0.1:{upstream.port}"'
    text = f'[[site.route]]\npath = "/text"\nrespond = {{ template = "{{client}} {"text " * 100}" }}\n'
    server = serve(route=proxy, server='memory = "1GiB"\ncompress_share = 100\nconnections = 4000', more=STATUS + text)
    server.get("/status/metrics")
    before = resident(server)
    try:
        for _ in range(500):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(server.address)
            client.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n".encode())
            clients.append(client)
        for client in clients:
            client.settimeout(60)
            assert f"content-encoding: {coding}" in client.recv(4096).decode("latin-1").lower()
        assert metric(server, "dunlin_compressed_responses_total") == 500
        # It is little while they do not read. Free memory returns to the system while the server is at work.
        wait_until(lambda: held_beside_work(server, coding) - before <= 500 * (300 << 10), "little memory", 30)
    finally:
        for client in clients:
            client.close()
        upstream.stop()


def held_beside_work(server, coding):
    for _ in range(100):
        assert server.get("/text", f"Accept-Encoding: {coding}")[0] == 200
    return resident(server)


class Load:
    """A client that has pages compressed, over some connections at once, until the end of the block."""

    def __init__(self, server, address, connections):
        self.server, self.address, self.is_over = server, address, False
        self.coded = self.plain = 0
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(connections)]

    def run(self):
        while not self.is_over:
            coding = get(self.server, self.address)
            self.coded, self.plain = self.coded + (coding is not None), self.plain + (coding is None)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join()


def get(server, address):
    """Requests a page from an address. Returns the coding."""
    with socket.create_connection(server.address, timeout=15, source_address=(address, 0)) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        data = b""
        while part := connection.recv(1 << 16):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"(?i)\r\ncontent-encoding: (\w+)", head)
    assert (gzip.decompress(body) if found else body) == LINES
    return found and found[1].decode()


def test_the_level_falls_and_then_compression_stops(serve):
    upstream = Upstream(lambda *_: response(LINES, "200 OK", "Content-Type: text/html"))
    server = serve(route=f'proxy = "{upstream.url}"', server="compress_share = 6", more=STATUS)
    with Load(server, "127.0.0.1", 4) as load:
        wait_until(lambda: load.plain >= 5 and load.coded >= 5, "both kinds of responses", 30)
        wait_until(lambda: metric(server, "dunlin_compression_lowered_total") >= 5, "lower levels", 30)
    assert metric(server, "dunlin_compression_skipped_total") >= 5


def test_one_client_leaves_time_for_others(serve):
    upstream = Upstream(lambda *_: response(LINES, "200 OK", "Content-Type: text/html"))
    server = serve(route=f'proxy = "{upstream.url}"', server="compress_share = 12", more=STATUS)
    with Load(server, "127.0.0.1", 4) as load:
        wait_until(lambda: load.plain >= 5, "responses that are not compressed", 30)
        others = []
        for number in range(40):
            others.append(get(server, f"127.0.0.{2 + number}"))
            # What the client leaves of a tick is enough for one or two of them on a slow machine, too.
            time.sleep(0.06)
        assert others.count("gzip") >= 36, others
    assert load.plain >= 5


def test_endless_streams_of_one_client_are_not_compressed_without_end(serve):
    """Those that have begun go on in the same coding, without compression, so that they remain valid."""
    upstream, clients = Endless(), []
    server = serve(route=f'proxy = "http://127.0.0.1:{upstream.port}"', server="compress_share = 6", more=STATUS)
    try:
        for _ in range(4):
            client = server.connect()
            client.sendall(b"GET / HTTP/1.0\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
            clients.append([client, zlib.decompressobj(31), b"", 0])
        until = time.monotonic() + 30
        while metric(server, "dunlin_compression_skipped_total") < 1 or min(client[3] for client in clients) < len(LINES) * 3:
            assert time.monotonic() < until
            for client in clients:
                data = client[0].recv(1 << 18)
                if client[2] is not None:
                    head, mark, data = (client[2] + data).partition(b"\r\n\r\n")
                    client[2] = None if mark else head
                    if not mark or b"gzip" not in head:
                        client[1], data = (None, data) if mark else (client[1], b"")
                content = client[1].decompress(data) if client[1] else data
                expected = (LINES * 2)[client[3] % len(LINES) :]
                while content:
                    part = expected[: len(content)]
                    assert content[: len(part)] == part
                    content, client[3] = content[len(part) :], client[3] + len(part)
                    expected = (LINES * 2)[client[3] % len(LINES) :]
    finally:
        for client in clients:
            client[0].close()
        upstream.stop()
