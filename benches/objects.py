#!/usr/bin/env python3
"""Measures files in object storage against local files, and cold objects against the store itself.

    DUNLIN=target/dist/dunlin benches/objects.py [--rounds 5] [--seconds 4] [--cold 200]

Needs `gofakes3`, and a `dunlin` with the feature `fleet`. Printed:

- CPU time of a request for an object that is held, relative to one for a local file with the same content. Two servers of one
  worker, on processor 0, are measured in turn; the load is on processor 1.
- Time to the first byte of an object that is not held, relative to the same request sent to the store: each of `--cold` objects is
  requested both ways, in turn.
- 1,000 connections that request one object that is not held: requests that reach the store, and the time from its first
  byte to that of the first and of the last client.
"""

import argparse
import http.client
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from servers import free_port

DUNLIN = os.environ.get("DUNLIN", "target/dist/dunlin")
TICKS = os.sysconf("SC_CLK_TCK")


def wait_for(port):
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nothing listens at port {port}")


def start_store(folder):
    port = free_port()
    program = shutil.which("gofakes3") or str(Path.home() / "go/bin/gofakes3")
    arguments = ["-host", f"127.0.0.1:{port}", "-backend", "memory", "-initialbucket", "pages", "-quiet"]
    process = subprocess.Popen([program, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(port)
    return process, port


def put(port, key, content):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", f"/pages/{key}", content)
    status = connection.getresponse().status
    connection.close()
    if status != 200:
        raise SystemExit(f"the store responds to PUT with {status}")


def start_server(folder, name, root, store=""):
    port = free_port()
    (folder / f"{name}.toml").write_text(
        f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:{port}"\n{store}[[site]]\nroot = "{root}"\n'
    )
    command = ["taskset", "-c", "0", DUNLIN, "serve", "--config", str(folder / f"{name}.toml")]
    log = open(folder / f"{name}.log", "w")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    wait_for(port)
    return process, port


def table(port):
    keys = 'region = "us-east-1"\naccess_key = "a"\nsecret_key = "b"\nrevalidate = "1h"'
    return f'[store.s3]\nendpoint = "http://127.0.0.1:{port}"\n{keys}\n'


def cpu(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def load(folder, server, seconds):
    """Microseconds of CPU time of the server for a request."""
    process, port = server
    report = folder / "load.json"
    before = cpu(process)
    command = ["taskset", "-c", "1", DUNLIN, "load", "-c", "32", "-d", f"{seconds}s", "--quiet", "--json", str(report)]
    subprocess.run([*command, f"http://127.0.0.1:{port}/hot.bin"], stdout=subprocess.DEVNULL, check=True)
    used = cpu(process) - before
    outcome = json.loads(report.read_text())
    return used / (outcome["requests_per_second"] * seconds) * 1e6


def first_byte(port, path):
    """Seconds from the request to the first byte of the body, on a new connection that is already open."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data or data.endswith(b"\r\n\r\n"):
            part = connection.recv(65536)
            if not part:
                raise SystemExit(f"{path} of port {port}: {data[:80]}")
            data += part
        took = time.perf_counter() - began
        if not data.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{path} of port {port}: {data[:80]}")
        return took


class SlowStore:
    """A store with one object, whose response begins half a second after the request."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.requests, self.sent = 0, None
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.respond, args=(connection,), daemon=True).start()

    def respond(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        self.requests += 1
        time.sleep(0.5)
        head = 'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nETag: "a"\r\nLast-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n\r\n'
        self.sent = time.perf_counter()
        connection.sendall(head.encode() + b"x" * 1000)


def crowd(port, count):
    """Requests one object on `count` connections: when the first byte of each came."""
    poll, waiting, came = select.epoll(), {}, []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        waiting[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
    for connection in waiting.values():
        connection.sendall(b"GET /cold.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    while waiting:
        ready = poll.poll(10)
        now = time.perf_counter()
        if not ready:
            raise SystemExit(f"{len(waiting)} connections have no response")
        for descriptor, _ in ready:
            poll.unregister(descriptor)
            connection = waiting.pop(descriptor)
            if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
                raise SystemExit("a response is not 200")
            connection.close()
            came.append(now)
    return came


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--cold", type=int, default=200)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="objects-"))
    (folder / "www").mkdir()
    content = os.urandom(1024)
    (folder / "www" / "hot.bin").write_bytes(content)
    running = []
    try:
        store, port = start_store(folder)
        running.append(store)
        put(port, "hot.bin", content)
        for number in range(options.cold):
            put(port, f"cold-{number}.bin", os.urandom(4096))
        local, remote = start_server(folder, "local", folder / "www"), start_server(folder, "remote", "s3://pages", table(port))
        running += [local[0], remote[0]]
        used = {"local": [], "remote": []}
        for server in (local, remote):
            load(folder, server, 1)
        for number in range(options.rounds):
            order = [("local", local), ("remote", remote)]
            for name, server in order if number % 2 else order[::-1]:
                used[name].append(load(folder, server, options.seconds))
        medians = {name: statistics.median(values) for name, values in used.items()}
        for name, values in used.items():
            print(f"{name}: CPU time of a request, each round: {', '.join(f'{value:.3f}' for value in values)} us")
        print(f"held object / local file, medians of CPU time: {medians['remote'] / medians['local']:.3f}")
        direct, through = [], []
        first_byte(remote[1], "/hot.bin")
        for number in range(options.cold):
            direct.append(first_byte(port, f"/pages/cold-{number}.bin"))
            through.append(first_byte(remote[1], f"/cold-{number}.bin"))
        added = [(there - own) * 1000 for own, there in zip(direct, through)]
        print(f"first byte of a cold object: store {statistics.median(direct) * 1000:.3f} ms, server {statistics.median(through) * 1000:.3f} ms, "
              f"added: median {statistics.median(added):.3f} ms, 90th percentile {sorted(added)[len(added) * 9 // 10]:.3f} ms")
        slow = SlowStore()
        crowded = start_server(folder, "crowded", "s3://pages", table(slow.port))
        running.append(crowded[0])
        came = crowd(crowded[1], 1000)
        print(f"1000 requests for a cold object: {slow.requests} to the store, first byte {(min(came) - slow.sent) * 1000:.3f} ms after the store's, "
              f"last {(max(came) - slow.sent) * 1000:.3f} ms")
    finally:
        for process in running:
            process.terminate()
            process.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
