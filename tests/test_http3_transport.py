"""Rules of QUIC (RFC 9000, RFC 9001) that a client of HTTP/3 breaks: the server closes the connection with the error that they name."""

import asyncio

import pytest
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicPreferredAddress
from aioquic.quic import connection as quic_connection

from support.files import write
from support.http3 import configuration, connect
from support.quic_raw import frame, send
from support.tls import certificate

FLOW_CONTROL, STREAM_LIMIT, STREAM_STATE, FINAL_SIZE, FRAME_ENCODING, PARAMETER, PROTOCOL_VIOLATION = 3, 4, 5, 6, 7, 8, 10
# Alerts of TLS (RFC 9001 §4.8).
UNEXPECTED_MESSAGE, NO_APPLICATION_PROTOCOL, MISSING_EXTENSION = 0x10A, 0x178, 0x16D


@pytest.fixture
def server(tmp_path, serve, site):
    own = certificate(tmp_path, "own")
    write(site / "hello.txt", b"hello\n")
    return serve(
        text='[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\nhttp3 = true\n'
        f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{own[0]}", key = "{own[1]}" }}\n'
    )


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def code_of(client):
    await asyncio.wait_for(client.gone.wait(), 20)
    return client.closed[0]


# The client's streams are 0, 4, 8 (both directions) and 2, 6, 10, those of the server 3, 7, 11.
FRAMES = {
    "STREAM with an offset beyond the limit": (frame(0x0C, 4, 1 << 40, b"x"), FLOW_CONTROL),
    "a frame of an unknown type": (frame(0x3F), FRAME_ENCODING),
    "RESET_STREAM of a stream that the server alone sends": (frame(0x04, 3, 0, 0), STREAM_STATE),
    "STOP_SENDING of a stream of the server that does not exist": (frame(0x05, 101, 0), STREAM_STATE),
    "STOP_SENDING of a stream that the client alone sends": (frame(0x05, 2, 0), STREAM_STATE),
    "NEW_TOKEN": (frame(0x07, 1, b"x"), PROTOCOL_VIOLATION),
    "STREAM of a stream of the server that does not exist": (frame(0x08, 101, b"x"), STREAM_STATE),
    "STREAM of a stream that the server alone sends": (frame(0x08, 3, b"x"), STREAM_STATE),
    "MAX_STREAM_DATA of a stream of the server that does not exist": (frame(0x11, 101, 9), STREAM_STATE),
    "MAX_STREAM_DATA of a stream that the server only receives": (frame(0x11, 2, 9), STREAM_STATE),
    "MAX_STREAMS beyond 2^60": (frame(0x12, (1 << 60) + 1), FRAME_ENCODING),
    "STREAMS_BLOCKED beyond 2^60": (frame(0x16, (1 << 60) + 1), {FRAME_ENCODING, STREAM_LIMIT}),
    "NEW_CONNECTION_ID that retires what it is not yet": (frame(0x18, 50, 51, b"\x08" + bytes(8) + bytes(16)), FRAME_ENCODING),
    "NEW_CONNECTION_ID without an ID": (frame(0x18, 50, 0, b"\x00" + bytes(16)), FRAME_ENCODING),
    "NEW_CONNECTION_ID of 21 bytes": (frame(0x18, 50, 0, b"\x15" + bytes(21) + bytes(16)), FRAME_ENCODING),
    "RETIRE_CONNECTION_ID of an ID that was not issued": (frame(0x19, 1 << 20), PROTOCOL_VIOLATION),
    "HANDSHAKE_DONE": (frame(0x1E), PROTOCOL_VIOLATION),
    "KeyUpdate of TLS": (frame(0x06, 0, 5, b"\x18\x00\x00\x01\x01"), UNEXPECTED_MESSAGE),
    "a frame that is cut": (frame(0x04, 0), FRAME_ENCODING),
}


@pytest.mark.parametrize("what", FRAMES)
def test_frames(server, what):
    sent, wanted = FRAMES[what]

    async def both():
        async with connect(server) as client:
            assert (await client.request("/hello.txt")).status == 200
            send(client, sent)
            code = await code_of(client)
            assert code in wanted if isinstance(wanted, set) else code == wanted, client.closed

    run(both())


def test_the_final_size_of_a_stream_changes(server):
    async def both():
        async with connect(server) as client:
            assert (await client.request("/hello.txt")).status == 200
            # The end of a stream behind 9 bytes, and another.
            send(client, frame(0x0F, 4, 8, 1, b"x"), frame(0x0F, 4, 9, 1, b"x"))
            assert await code_of(client) == FINAL_SIZE

    run(both())


PARAMETERS = {
    "no initial_source_connection_id": {"initial_source_connection_id": None},
    "another initial_source_connection_id": {"initial_source_connection_id": b"another"},
    "original_destination_connection_id": {"original_destination_connection_id": b"x" * 8},
    "preferred_address": {"preferred_address": QuicPreferredAddress(("127.0.0.1", 1), None, b"x" * 8, bytes(16))},
    "retry_source_connection_id": {"retry_source_connection_id": b"x" * 8},
    "stateless_reset_token": {"stateless_reset_token": bytes(16)},
    "max_udp_payload_size below 1200": {"max_udp_payload_size": 1199},
    "ack_delay_exponent above 20": {"ack_delay_exponent": 21},
    "max_ack_delay of 2^14": {"max_ack_delay": 1 << 14},
    "active_connection_id_limit below 2": {"active_connection_id_limit": 1},
    "initial_max_streams_bidi above 2^60": {"initial_max_streams_bidi": (1 << 60) + 1},
}


@pytest.mark.parametrize("what", PARAMETERS)
def test_transport_parameters(server, what, monkeypatch):
    push = quic_connection.push_quic_transport_parameters

    def changed(buffer, parameters):
        # The client's own token is none that a client may send.
        parameters.stateless_reset_token = None
        for name, value in PARAMETERS[what].items():
            setattr(parameters, name, value)
        push(buffer, parameters)

    monkeypatch.setattr(quic_connection, "push_quic_transport_parameters", changed)

    async def both():
        with pytest.raises(ConnectionError):
            async with connect(server) as client:
                await client.request("/hello.txt")
        return True

    closed = []
    received = QuicConnection._handle_connection_close_frame

    def note(self, context, frame_type, buffer):
        before = buffer.tell()
        closed.append(buffer.pull_uint_var())
        buffer.seek(before)
        return received(self, context, frame_type, buffer)

    monkeypatch.setattr(QuicConnection, "_handle_connection_close_frame", note)
    assert run(both()) and closed and closed[0] == PARAMETER, closed


def test_a_handshake_without_the_protocol(server):
    config = configuration()
    config.alpn_protocols = ["h3-unknown"]
    assert handshake_error(server, config) == NO_APPLICATION_PROTOCOL


def test_a_handshake_without_transport_parameters(server, monkeypatch):
    connect_tls = QuicConnection._initialize

    def without(self, peer_cid):
        connect_tls(self, peer_cid)
        self.tls.handshake_extensions = []

    monkeypatch.setattr(QuicConnection, "_initialize", without)
    assert handshake_error(server, configuration()) in (MISSING_EXTENSION, PARAMETER)


def handshake_error(server, config):
    """The error with which the server ends a handshake."""
    errors = []

    async def both():
        try:
            async with connect(server, config, wait_connected=False) as client:
                client.transmit()
                errors.append(await code_of(client))
        except ConnectionError:
            pass

    run(both())
    return errors[0]


def test_nobody_else_is_affected(server):

    async def both():
        async with connect(server) as good:
            for sent, _ in FRAMES.values():
                async with connect(server) as client:
                    send(client, sent)
                    await code_of(client)
            assert (await good.request("/hello.txt")).status == 200

    run(both())
