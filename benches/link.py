"""A link between two network namespaces that delays and loses packets, for kernels without netem.

Both ends are TUN devices; a process of its own moves packets between them.
"""

import collections
import fcntl
import os
import random
import select
import struct
import subprocess
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SERVER, CLIENT = "10.99.0.1", "10.99.0.2"


class Link:
    """Namespaces `server` and `client`, with the addresses SERVER and CLIENT."""

    def __init__(self, seconds, loss, seed=1):
        self.names = {end: f"dunlin-{end}-{os.getpid()}" for end in ("server", "client")}
        ends = []
        for end, own, other in (("server", SERVER, CLIENT), ("client", CLIENT, SERVER)):
            name, device = self.names[end], f"d{end[0]}{os.getpid()}"
            run("ip", "netns", "add", name)
            descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
            run("ip", "link", "set", device, "netns", name)
            inside = ("ip", "-n", name)
            run(*inside, "link", "set", "lo", "up")
            run(*inside, "address", "add", own, "peer", other, "dev", device)
            run(*inside, "link", "set", device, "mtu", "1500", "txqueuelen", "10000", "up")
            ends.append(descriptor)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                move(*ends, seconds, loss, random.Random(seed))
            finally:
                os._exit(1)
        for descriptor in ends:
            os.close(descriptor)

    def inside(self, end, command):
        """The command that runs `command` in a namespace."""
        return ["ip", "netns", "exec", self.names[end], *map(str, command)]

    def close(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        for name in self.names.values():
            run("ip", "netns", "delete", name)


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


def move(one, other, seconds, loss, chance):
    """Moves packets between two devices, each after `seconds`, but for a share of them."""
    ways = {one: (other, collections.deque()), other: (one, collections.deque())}
    events = select.poll()
    events.register(one, select.POLLIN)
    events.register(other, select.POLLIN)
    while True:
        dues = [waiting[0][0] for _, waiting in ways.values() if waiting]
        wait = max(0, (min(dues) - time.monotonic()) * 1000) if dues else None
        for descriptor, _ in events.poll(wait):
            _, waiting = ways[descriptor]
            due = time.monotonic() + seconds
            for _ in range(256):
                try:
                    packet = os.read(descriptor, 65536)
                except BlockingIOError:
                    break
                if chance.random() >= loss:
                    waiting.append((due, packet))
        now = time.monotonic()
        for to, waiting in ways.values():
            while waiting and waiting[0][0] <= now:
                try:
                    os.write(to, waiting.popleft()[1])
                except OSError:
                    # The device has no room: the packet is lost.
                    pass
