"""A wire between two network namespaces, with delay and loss.

Usage: wire.py DELAY_MS LOSS NAMESPACE ADDRESS NAMESPACE ADDRESS, with addresses such as 10.0.0.1/30. It prints `ready` and moves packets
until it is killed. A line of JSON on standard input changes it: `delay` in milliseconds, the shares `loss`, `reorder` and `duplicate`, and
`largest`, the bytes of the largest packet that passes. The kernel's netem does the same, but many kernels are built without it.
"""

import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


def end(name, namespace, address):
    """One end of the wire, in a namespace."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    within = ["ip", "-n", namespace]
    # The descriptor stays that of the device.
    subprocess.run(["ip", "link", "set", name, "netns", namespace], check=True)
    subprocess.run([*within, "address", "add", address, "dev", name], check=True)
    subprocess.run([*within, "link", "set", name, "up"], check=True)
    return device


class Wire:
    """The state of the wire, and the packets on it."""

    def __init__(self, delay, loss):
        self.state = {"delay": float(delay), "loss": float(loss), "reorder": 0.0, "duplicate": 0.0, "largest": 1 << 16}
        self.chance = random.Random(1)
        self.waiting, self.serial = [], 0

    def take(self, packet, device):
        """Puts a packet on the wire, which leaves it at `device`."""
        if self.happens("loss") or len(packet) > self.state["largest"]:
            return
        for _ in range(2 if self.happens("duplicate") else 1):
            # One that is overtaken waits as long as some others take.
            extra = self.chance.uniform(1, 8) if self.happens("reorder") else 0
            self.serial += 1
            due = time.monotonic() + (self.state["delay"] + extra) / 1000
            heapq.heappush(self.waiting, (due, self.serial, device, packet))

    def happens(self, what):
        return self.chance.random() < self.state[what]

    def pause(self):
        return max(self.waiting[0][0] - time.monotonic(), 0) if self.waiting else None

    def give(self):
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(self.waiting)
            try:
                os.write(device, packet)
            except OSError:
                # The queue is full: the packet is lost.
                pass


def main(delay, loss, ends):
    wire = Wire(delay, loss)
    names = [f"w{os.getpid()}{letter}" for letter in "ab"]
    devices = [end(name, *place) for name, place in zip(names, ends)]
    other = dict(zip(devices, reversed(devices)))
    sources = [*devices, sys.stdin]
    print("ready", flush=True)
    while True:
        for source in select.select(sources, [], [], wire.pause())[0]:
            if source is sys.stdin:
                line = sys.stdin.readline()
                if line:
                    wire.state.update(json.loads(line))
                    print("changed", flush=True)
                else:
                    sources.remove(sys.stdin)
                continue
            try:
                while True:
                    wire.take(os.read(source, 65536), other[source])
            except BlockingIOError:
                pass
        wire.give()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(arguments[0], arguments[1], [arguments[2:4], arguments[4:6]])
