"""Machines for tests: network namespaces, connected by wires with delay and loss."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

WIRE = Path(__file__).parent.parent / "namespace" / "wire.py"


class Machine:
    """A network namespace, in which commands run."""

    def __init__(self, name):
        self.name, self.started = name, []
        subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)

    def command(self, *words):
        """The command that runs `words` there."""
        return ["ip", "netns", "exec", self.name, *map(str, words)]

    def start(self, *words, **options):
        """Starts a program that ends with the test."""
        process = subprocess.Popen(self.command(*words), **options)
        self.started.append(process)
        return process

    def run(self, *words, **options):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=120, **options)

    def remove(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        subprocess.run(["ip", "netns", "delete", self.name], check=True)


class Wire:
    """A wire between two machines. `addresses` are theirs."""

    def __init__(self, machines, delay_ms, loss, number):
        self.addresses = [f"10.213.{number}.{n}" for n in (1, 2)]
        ends = [word for machine, address in zip(machines, self.addresses) for word in (machine.name, f"{address}/30")]
        command = [sys.executable, WIRE, str(delay_ms), str(loss), *ends]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            reason = self.process.communicate()[1].strip().splitlines()
            pytest.skip(f"a wire between network namespaces cannot be made: {reason[-1] if reason else ''}")

    def change(self, **state):
        """Changes `delay` (ms), `loss`, `reorder`, `duplicate` (shares) or `largest` (bytes of a packet)."""
        self.process.stdin.write(json.dumps(state) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "changed\n"

    def cut(self):
        """Nothing passes any more, and no end notices it."""
        self.process.send_signal(signal.SIGSTOP)

    def remove(self):
        self.process.kill()
        self.process.communicate()


class Network:
    """Makes machines and wires, and removes them."""

    def __init__(self):
        if os.getuid() != 0:
            pytest.skip("network namespaces need root")
        if not shutil.which("ip") or not os.path.exists("/dev/net/tun"):
            pytest.skip("ip (iproute2) or /dev/net/tun is missing")
        probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            pytest.skip(f"network namespaces cannot be made: {probe.stderr.strip()}")
        self.machines, self.wires, self.numbers = [], [], itertools.count()

    def machine(self):
        self.machines.append(Machine(f"dunlin-{os.getpid()}-{next(self.numbers)}"))
        return self.machines[-1]

    def wire(self, one, other, delay_ms=0, loss=0.0):
        self.wires.append(Wire((one, other), delay_ms, loss, len(self.wires)))
        return self.wires[-1]

    def remove(self):
        for part in (*self.wires, *self.machines):
            part.remove()


@pytest.fixture
def network():
    made = Network()
    yield made
    made.remove()
