"""Frames of QUIC that no library sends, on a connection of aioquic."""

import asyncio
import time

from aioquic.buffer import Buffer
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.tls import Epoch


def varint(number):
    buffer = Buffer(8)
    buffer.push_uint_var(number)
    return buffer.data


def frame(kind, *parts):
    """A frame: numbers become integers of variable length, bytes stay."""
    return kind, b"".join(part if isinstance(part, bytes) else varint(part) for part in parts)


def send(client, *frames, size=1280):
    """Sends one packet with these frames."""
    quic = client._quic
    builder = QuicPacketBuilder(
        host_cid=quic.host_cid, is_client=True, max_datagram_size=size, packet_number=quic._packet_number,
        peer_cid=quic._peer_cid.cid, peer_token=b"", quic_logger=None, spin_bit=False, version=quic._version,
    )
    builder.start_packet(QuicPacketType.ONE_RTT, quic._cryptos[Epoch.ONE_RTT])
    for kind, rest in frames:
        builder.start_frame(kind, capacity=8 + len(rest)).push_bytes(rest)
    datagrams, packets = builder.flush()
    quic._packet_number = builder.packet_number
    for packet in packets:
        packet.sent_time = time.monotonic()
        quic._loss.on_packet_sent(packet=packet, space=quic._spaces[Epoch.ONE_RTT])
    for datagram in datagrams:
        client._transport.sendto(datagram, quic._network_paths[0].addr)


async def flood(client, make, count, burst=50):
    """Sends `count` packets of the frames that `make(number)` returns, as fast as the server takes them."""
    for number in range(count):
        if client.closed:
            return
        send(client, *make(number))
        if number % burst == burst - 1:
            await asyncio.sleep(0.002)
