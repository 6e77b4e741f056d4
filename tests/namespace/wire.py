"""A wire between two network namespaces, with delay and loss.

Usage: wire.py DELAY_MS LOSS NAMESPACE ADDRESS NAMESPACE ADDRESS, with addresses such as 10.0.0.1/30. It prints `ready` and moves packets
until it is killed. The kernel's netem does the same, but many kernels are built without it.
"""

import fcntl
import heapq
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


def main(delay, loss, ends):
    delay, loss = float(delay) / 1000, float(loss)
    names = [f"w{os.getpid()}{letter}" for letter in "ab"]
    devices = [end(name, *place) for name, place in zip(names, ends)]
    other = dict(zip(devices, reversed(devices)))
    chance = random.Random(1)
    waiting, serial = [], 0
    print("ready", flush=True)
    while True:
        pause = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
        for device in select.select(devices, [], [], pause)[0]:
            try:
                while True:
                    packet = os.read(device, 65536)
                    if chance.random() >= loss:
                        serial += 1
                        heapq.heappush(waiting, (time.monotonic() + delay, serial, other[device], packet))
            except BlockingIOError:
                pass
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(waiting)
            try:
                os.write(device, packet)
            except OSError:
                # The queue is full: the packet is lost.
                pass


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(arguments[0], arguments[1], [arguments[2:4], arguments[4:6]])
