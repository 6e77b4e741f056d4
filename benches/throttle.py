#!/usr/bin/env python3
"""Measures how well a throttle keeps to its rate.

    benches/throttle.py [--seconds 10] [--rates 1000,...] [--connections 1,1000] [--per-connection]

For each rate and number of connections the server (on processor 0) sends a large file to all of them. The rate limits
all connections together, or each of them with --per-connection. The client (on processor 1) reads all bytes. Printed:
bytes received relative to the rate, the most in any 100 ms relative to the rate, the smallest and largest share of a
connection, and the server's processor time.
"""

import argparse
import os
import select
import socket
import tempfile
import time
from pathlib import Path

import servers

RATES = "1000,10000,100000,1000000,10000000,100000000"
WINDOW = 0.1


def receive(port, connections, seconds):
    """Received bytes of bodies: of each connection, and of all connections in each 10 ms."""
    poll, buffer = select.epoll(), bytearray(1 << 20)
    sockets = {}
    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setblocking(False)
        sockets[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
    received = dict.fromkeys(sockets, None)
    begin = time.monotonic()
    for connection in sockets.values():
        connection.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    intervals = [0] * int(seconds * 100 + 1)
    while (left := begin + seconds - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left):
            try:
                size = sockets[descriptor].recv_into(buffer)
            except BlockingIOError:
                continue
            if received[descriptor] is None:
                head, separator, _ = bytes(buffer[:size]).partition(b"\r\n\r\n")
                if not separator or not head.startswith(b"HTTP/1.1 200"):
                    raise SystemExit(f"the server responds with {head[:80]}")
                size -= len(head) + 4
                received[descriptor] = 0
            received[descriptor] += size
            intervals[min(int((time.monotonic() - begin) * 100), len(intervals) - 1)] += size
    for connection in sockets.values():
        connection.close()
    return [bytes or 0 for bytes in received.values()], intervals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rates", default=RATES)
    parser.add_argument("--connections", default="1,1000")
    parser.add_argument("--per-connection", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="throttle-"))
    with open(folder / "big", "wb") as file:
        file.truncate(8 << 30)
    os.sched_setaffinity(0, {1})
    print("| rate, bytes/s | connections | received of due | most in 100 ms of due | least and most of a share | server CPU |")
    print("| ---: | ---: | ---: | ---: | --- | ---: |")
    for connections in map(int, options.connections.split(",")):
        for rate in map(int, options.rates.split(",")):
            rule = "per_connection" if options.per_connection else "bandwidth"
            whole = rate * connections if options.per_connection else rate
            throttle = f'throttle = {{ {rule} = "{rate}B/s" }}'
            server = servers.Dunlin(folder, folder / f"{rate}-{connections}", rules=throttle).start()
            try:
                before = server.cpu()
                received, intervals = receive(server.port, connections, options.seconds)
                spent = server.cpu() - before
            finally:
                server.stop()
            share = whole * options.seconds / connections
            most = max(sum(intervals[at : at + 10]) for at in range(len(intervals)))
            print(
                f"| {rate:,} | {connections:,} | {sum(received) / (whole * options.seconds):.3f}"
                f" | {most / (whole * WINDOW):.2f} | {min(received) / share:.2f}–{max(received) / share:.2f}"
                f" | {spent / options.seconds:.0%} |",
                flush=True,
            )


main()
