"""Run within a network namespace of its own, where 192.0.2.1 is an address of the loopback
interface: names of 127.0.0.1 are never looked up (RFC 6761)."""

import re
import socket
import struct
import subprocess
import threading
from pathlib import Path

from support.files import write
from support.waiting import wait_until

ADDRESS = "192.0.2.1"


class Resolver:
    """A name server that has one name for every address, or one that never responds."""

    def __init__(self, name):
        self.name = name
        self.asked = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((ADDRESS, 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            query, client = self.socket.recvfrom(512)
            self.asked += 1
            if self.name is None:
                continue
            end = query.index(b"\0", 12) + 5
            encoded = b"".join(bytes([len(p)]) + p.encode() for p in self.name.split(".")) + b"\0"
            response = b"\xc0\x0c\0\x0c\0\x01\0\0\0\x3c" + struct.pack("!H", len(encoded)) + encoded
            head = query[:2] + b"\x81\x80\0\x01\0\x01\0\0\0\0"
            self.socket.sendto(head + query[12:end] + response, client)


def start(serve, site, server):
    return serve(
        text=f'[server]\nthreads = 1\n{server}\n[[listen]]\naddress = "{ADDRESS}:0"\n'
        f'[[site]]\nroot = "{site}"\n'
    )


def dns(resolver, log):
    return (
        f'access_log = {{ path = "{log}", format = "{{remote_name}}" }}\n'
        f'[server.reverse_dns]\nresolver = "{ADDRESS}:{resolver.port}"\ntimeout = "5s"'
    )


def test_names_of_clients_come_when_they_are_known(serve, site, tmp_path):
    write(site / "a.txt", "x")
    log = tmp_path / "access.log"
    resolver = Resolver("client.example")
    server = start(serve, site, dns(resolver, log))
    wait_until(lambda: server.get("/a.txt") and "client.example" in log.read_text(), "the name")
    assert resolver.asked == 1, "a name is looked up once"


def test_a_resolver_that_does_not_answer_costs_nothing(serve, site, tmp_path):
    """WASD's table: 210 requests a second without look-ups, 32 with them. Here: within 10 %."""
    write(site / "a.txt", "x" * 1000)
    silent = Resolver(None)
    without = f'access_log = {{ path = "{tmp_path}/off.log", format = "{{remote_name}}" }}'
    off = start(serve, site, without)
    on = start(serve, site, dns(silent, tmp_path / "on.log"))

    def cpu(server):
        tasks = Path(f"/proc/{server.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

    def run(server):
        before = cpu(server)
        command = ["h2load", "--h1", "-n20000", "-c8", f"{server.url}/a.txt"]
        out = subprocess.run(command, capture_output=True, text=True).stdout
        assert "20000 succeeded" in out, out
        return cpu(server) - before, float(re.search(r"([\d.]+) req/s", out)[1])

    run(off), run(on)
    rounds = [(run(off), run(on)) for _ in range(9)]
    costs = sorted(with_dns[0] / without[0] for without, with_dns in rounds)
    rates = sorted(with_dns[1] / without[1] for without, with_dns in rounds)
    assert silent.asked >= 1
    # The processor's time is the steadier of the two on a machine that has other work as well.
    assert costs[4] < 1.1 or rates[4] > 0.9, (costs, rates)
