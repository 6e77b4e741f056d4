"""Clients of HTTP/3 that attack the server: what each may cost is bounded, and others are served meanwhile."""

import asyncio
import os
import socket
import time
from types import SimpleNamespace

import pytest
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import FrameType, encode_frame
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from support.files import write
from support.http3 import configuration, connect
from support.processes import rss
from support.quic_raw import flood, frame, send, varint
from support.tls import certificate

# Errors of HTTP/3 and QPACK (RFC 9114 §8.1, RFC 9204 §6).
EXCESSIVE_LOAD, REQUEST_INCOMPLETE, STREAM_CREATION, ID_ERROR = 0x107, 0x10D, 0x103, 0x108
DECOMPRESSION_FAILED, ENCODER_STREAM_ERROR, DECODER_STREAM_ERROR = 0x200, 0x201, 0x202
# Errors of QUIC (RFC 9000 §20.1).
FLOW_CONTROL, STREAM_LIMIT, FINAL_SIZE, FRAME_ENCODING, CONNECTION_ID_LIMIT, PROTOCOL_VIOLATION = 3, 4, 6, 7, 9, 10


@pytest.fixture
def server(tmp_path, serve, site):
    own = certificate(tmp_path, "own")
    write(site / "hello.txt", b"hello\n")
    write(site / "large.bin", os.urandom(2_000_000))

    def start(keys="", listen=""):
        return serve(
            text=f'[server]\nthreads = 1\n{keys}\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\nhttp3 = true\n{listen}\n'
            f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{own[0]}", key = "{own[1]}" }}\n'
        )

    return start


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


async def serves(server):
    """Others are served."""
    async with connect(server) as other:
        assert (await other.request("/hello.txt")).status == 200


def ends_with(server, attack, code):
    """The connection of `attack(client)` is closed with that code."""

    async def both():
        async with connect(server) as client:
            assert (await client.request("/hello.txt")).status == 200
            await attack(client)
            await asyncio.wait_for(client.gone.wait(), 30)
            assert client.closed[0] == code, (hex(client.closed[0]), client.closed[1])
        await serves(server)

    run(both())


def stays(server, attack, memory=20_000_000):
    """`attack(client)` costs little memory, and its connection and others are served."""

    async def both():
        async with connect(server) as client:
            assert (await client.request("/hello.txt")).status == 200
            before = rss(server)
            await attack(client)
            assert client.closed is None, client.closed
            await serves(server)
            assert rss(server) - before < memory
            assert (await client.request("/hello.txt")).status == 200

    run(both())


async def rest(client):
    """Waits until the server has received everything, or has closed the connection."""
    try:
        await client.ping()
    except ConnectionError:
        assert client.closed


async def until_closed(client, step, count, burst=20):
    """Repeats `step(number)`, until the server has closed the connection."""
    for number in range(count):
        if client.closed:
            return
        step(number)
        client.transmit()
        if number % burst == burst - 1:
            await rest(client)


def control(client, data):
    client._quic.send_stream_data(client.http._local_control_stream_id, data)


def encoder(client, data):
    client._quic.send_stream_data(client.http._local_encoder_stream_id, data)


@pytest.mark.serial  # A client that gets little of the processor resets fewer streams per second than are permitted.
def test_rapid_reset(server):
    async def attack(client):
        for _ in range(2000):
            if client.closed:
                return
            stream, _ = client.begin("/large.bin")
            # aioquic resets streams that the server does not permit yet, too, which is another error.
            while stream // 4 >= client._quic._remote_max_streams_bidi and not client.closed:
                await rest(client)
            client._quic.reset_stream(stream, 0x10C)
            client._quic.stop_stream(stream, 0x10C)
            client.transmit()
            await asyncio.sleep(0)

    ends_with(server(), attack, EXCESSIVE_LOAD)


def test_requests_that_have_to_be_reset(server):
    async def attack(client):
        for _ in range(150):
            if client.closed:
                return
            _, response = client.begin("/hello.txt", fields=[("connection", "close")])
            await response.done.wait()

    ends_with(server(), attack, EXCESSIVE_LOAD)


@pytest.mark.parametrize(
    "make",
    [
        # aioquic has already sent a number, below which no other may be.
        lambda number: encode_frame(FrameType.MAX_PUSH_ID, encode_uint_var(1000 + number)),
        # PRIORITY_UPDATE of requests to come.
        lambda number: encode_frame(0xF0700, encode_uint_var(4 * number) + b"u=1"),
        # Frames that are reserved.
        lambda number: encode_frame(0x21, b""),
        lambda number: encode_frame(FrameType.GOAWAY, encode_uint_var(2000 - number)),
    ],
    ids=["MAX_PUSH_ID", "PRIORITY_UPDATE", "reserved", "GOAWAY"],
)
def test_floods_of_control_frames(server, make):
    async def attack(client):
        await until_closed(client, lambda number: control(client, make(number)), 2000)

    ends_with(server(), attack, EXCESSIVE_LOAD)


def test_frames_without_effect_in_a_request(server):
    async def attack(client):
        stream, _ = client.begin("/hello.txt", "POST", ends=False)
        await until_closed(client, lambda _: client._quic.send_stream_data(stream, b"\x00\x00\x21\x00"), 2000)

    ends_with(server(), attack, EXCESSIVE_LOAD)


def test_streams_of_unknown_types(server):
    async def attack(client):
        for _ in range(1000):
            if client.closed:
                return
            stream = client._quic.get_next_available_stream_id(is_unidirectional=True)
            client._quic.send_stream_data(stream, encode_uint_var(0x21) + b"x", end_stream=True)
            client.transmit()
            await rest(client)

    ends_with(server(), attack, EXCESSIVE_LOAD)


def test_a_control_frame_that_is_too_large(server):
    async def attack(client):
        control(client, encode_uint_var(0xF0700) + encode_uint_var(1 << 20))
        client.transmit()

    ends_with(server(), attack, EXCESSIVE_LOAD)


def test_insertions_into_the_table(server):
    async def attack(client):
        # The encoder of aioquic would close the connection for acknowledgements of insertions that it has not made.
        client.http._encoder = SimpleNamespace(encode=client.http._encoder.encode, feed_decoder=lambda data: None)
        # Insert with a literal name of one byte and a value of one byte.
        await until_closed(client, lambda _: encoder(client, b"\x41a\x01b" * 200), 200)

    ends_with(server(), attack, EXCESSIVE_LOAD)


def test_a_table_beyond_its_limit(server):
    async def attack(client):
        # Set Dynamic Table Capacity to 2^20.
        encoder(client, b"\x3f" + b"\xe1\xff\x3f")
        client.transmit()

    ends_with(server(), attack, ENCODER_STREAM_ERROR)


def blocked(number):
    """A section that waits for an entry of the table."""
    return encode_frame(FrameType.HEADERS, bytes([2 + number % 100, 0x00, 0x80]))


def test_blocked_streams_beyond_their_limit(server):
    async def attack(client):
        for number in range(40):
            stream = client._quic.get_next_available_stream_id()
            client._quic.send_stream_data(stream, blocked(0))
        client.transmit()

    ends_with(server(), attack, DECOMPRESSION_FAILED)


def test_an_acknowledgement_of_nothing(server):
    async def attack(client):
        client._quic.send_stream_data(client.http._local_decoder_stream_id, b"\x84")
        client.transmit()

    ends_with(server(), attack, DECODER_STREAM_ERROR)


def test_heads_that_are_not_complete(server):
    async def attack(client):
        # 30 KB of a head of 60 KB each.
        part = encode_uint_var(FrameType.HEADERS) + encode_uint_var(60_000) + b"\x00\x00" + bytes(30_000)
        for _ in range(60):
            if client.closed:
                return
            stream = client._quic.get_next_available_stream_id()
            client._quic.send_stream_data(stream, part)
            client.transmit()
            await rest(client)

    ends_with(server(), attack, EXCESSIVE_LOAD)


def test_heads_beyond_the_limit(server):
    async def attack(client):
        for _ in range(60):
            if client.closed:
                return
            _, response = client.begin("/", fields=[("x-large", "x" * 40_000)])
            await response.done.wait()

    ends_with(server(), attack, EXCESSIVE_LOAD)


def test_more_streams_than_are_permitted(server):
    async def attack(client):
        send(client, frame(0x08, 4 * 5000, b"\x01"))

    ends_with(server(), attack, STREAM_LIMIT)


def test_more_bytes_than_are_permitted(server):
    async def attack(client):
        stream = client._quic.get_next_available_stream_id()
        send(client, frame(0x0C, stream, 1 << 30, b"x"))

    ends_with(server(), attack, FLOW_CONTROL)


def test_slow_heads_and_bodies(server):
    running = server("http1 = { head_timeout = '1s', body_timeout = '1s' }")

    async def attack(client):
        stream = client._quic.get_next_available_stream_id()
        client._quic.send_stream_data(stream, b"\x01\x40\x64\x00")
        client.transmit()

    ends_with(running, attack, REQUEST_INCOMPLETE)

    async def body():
        async with connect(running) as client:
            stream, response = client.begin("/hello.txt", "POST", [("content-length", "100")], ends=False)
            client.send(stream, b"x")
            await response.done.wait()
            # The method is not permitted, which needs no body.
            assert response.status in (405, 408)
            assert (await client.request("/hello.txt")).status == 200

    run(body())


def test_packets_of_padding(server):
    async def attack(client):
        await flood(client, lambda _: [frame(0x01), frame(0x00, bytes(1200))], 3000)

    stays(server(), attack)


def test_many_small_frames(server):
    async def attack(client):
        await flood(client, lambda _: [frame(0x01, b"\x01" * 1000)], 1000)

    stays(server(), attack)


def test_challenges_of_the_path(server):
    async def attack(client):
        await flood(client, lambda number: [frame(0x1A, number.to_bytes(8, "big"))] * 1, 5000)

    stays(server(), attack)


def test_connection_ids(server):
    async def attack(client):
        # More than the server keeps at a time, all of which stay in use.
        for number in range(1, 40):
            send(client, frame(0x18, 100 + number, 0, b"\x08", os.urandom(8), os.urandom(16)))

    ends_with(server(), attack, CONNECTION_ID_LIMIT)


def test_connection_ids_that_are_retired(server):
    async def attack(client):
        # Each new one retires all before it.
        await flood(client, lambda n: [frame(0x18, 100 + n, 100 + n, b"\x08", os.urandom(8), os.urandom(16))], 2000)
        send(client, frame(0x18, 9000, 9000, b"\x08", client._quic._peer_cid.cid[:0] + os.urandom(8), os.urandom(16)))

    async def both():
        running = server()
        async with connect(running) as client:
            assert (await client.request("/hello.txt")).status == 200
            before = rss(running)
            await attack(client)
            await serves(running)
            assert rss(running) - before < 20_000_000

    run(both())


def test_gaps_in_a_stream(server):
    async def attack(client):
        stream = client._quic.get_next_available_stream_id()
        # One byte of two, in packets of 60 pieces: the stream is never read.
        def pieces(number):
            return [frame(0x0E, stream, 2 * (60 * number + piece) + 1, 1, b"x") for piece in range(60)]

        await flood(client, pieces, 2000)

    async def both():
        running = server()
        async with connect(running) as client:
            assert (await client.request("/hello.txt")).status == 200
            before = rss(running)
            await attack(client)
            await serves(running)
            assert rss(running) - before < 30_000_000

    run(both())


def test_gaps_in_the_numbers_of_packets(server):
    async def attack(client):
        def step(_):
            client._quic._packet_number += 2
            return [frame(0x01)]

        await flood(client, step, 5000)

    stays(server(), attack)


def test_acknowledgements_of_packets_that_were_not_sent(server):
    async def attack(client):
        send(client, frame(0x02, 1 << 20, 0, 0, 0))

    ends_with(server(), attack, PROTOCOL_VIOLATION)


def test_datagrams_that_are_no_packets(server):
    running = server()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.connect(("127.0.0.1", running.port))
        sent = 0
        for length in [*range(0, 60), 1199, 1200, 1400]:
            for first in (b"", b"\x40", b"\xc0", b"\xff"):
                data = (first + os.urandom(length))[:length]
                plain.send(data)
                sent += len(data)
        run(serves(running))
        plain.setblocking(False)
        received = 0
        while True:
            try:
                received += len(plain.recv(65536))
            except BlockingIOError:
                break
    assert received < sent


def hello(name="localhost"):
    """The first datagrams of a client, and the client."""
    quic = QuicConnection(configuration=configuration())
    quic.connect(("127.0.0.1", 1), now=time.monotonic())
    return quic, [data for data, _ in quic.datagrams_to_send(now=time.monotonic())]


def test_a_client_that_has_not_shown_its_address_gets_three_times_its_bytes(server):
    running = server()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.connect(("127.0.0.1", running.port))
        _, datagrams = hello()
        sent = sum(map(plain.send, datagrams))
        plain.settimeout(2)
        received, until = 0, time.monotonic() + 6
        while time.monotonic() < until:
            try:
                received += len(plain.recv(65536))
            except TimeoutError:
                break
    assert 0 < received <= 3 * sent


def test_handshakes_that_stop_make_others_show_their_address(server):
    running = server("connections = 4000")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.connect(("127.0.0.1", running.port))
        plain.settimeout(10)
        first = [b"".join(hello()[1][:1]) for _ in range(300)]
        for datagram in first:
            plain.send(datagram)
        # Type 3 of a long header is Retry (RFC 9000 §17.2.5).
        while True:
            kind = plain.recv(65536)[0]
            if kind & 0xB0 == 0xB0:
                break

        # Those that show it are served.
        async def requests():
            tokens = []
            async with connect(running, configuration(), token_handler=tokens.append) as client:
                assert client._quic._retry_count == 1
                assert (await client.request("/hello.txt")).status == 200

        run(requests())


def test_connections_of_one_address(server):
    running = server("connections_per_address = 3")

    async def requests():
        first = [connect(running) for _ in range(3)]
        clients = [await one.__aenter__() for one in first]
        for client in clients:
            assert (await client.request("/hello.txt")).status == 200
        with pytest.raises((ConnectionError, asyncio.TimeoutError)):
            async with asyncio.timeout(5):
                async with connect(running) as another:
                    await another.request("/hello.txt")
        for client, one in zip(clients, first):
            assert (await client.request("/hello.txt")).status == 200
            await one.__aexit__(None, None, None)

    run(requests())


def test_a_version_that_is_not_known_gets_those_that_are(server):
    running = server()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.connect(("127.0.0.1", running.port))
        plain.settimeout(10)
        plain.send(b"\xc0\x0a\x0a\x0a\x0a\x08" + os.urandom(8) + b"\x08" + os.urandom(8) + bytes(1200))
        answer = plain.recv(65536)
    # Version Negotiation (RFC 9000 §17.2.1).
    assert answer[1:5] == bytes(4) and b"\x00\x00\x00\x01" in answer[5:]
    run(serves(running))
