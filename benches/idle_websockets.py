#!/usr/bin/env python3
"""Memory of idle WebSockets through the reverse proxy.

Usage: idle_websockets.py [NUMBER]. Starts an upstream and the server that DUNLIN names (default: target/checked/dunlin), opens
NUMBER (10,000) WebSockets from several loopback addresses, and prints the resident memory of the server for each of them.
"""

import base64
import hashlib
import multiprocessing
import os
import re
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = base64.b64encode(b"0123456789abcdef")
ACCEPT = base64.b64encode(hashlib.sha1(KEY + GUID).digest())
REQUEST = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\n\r\n"
)
RESPONSE = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + ACCEPT + b"\r\n\r\n"
)
# Ports of one pair of addresses are limited.
PER_ADDRESS = 5_000


def upstream(listener):
    """Accepts every WebSocket, and sends back what comes."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, None)
    switched = set()
    while True:
        for key, _ in selector.select():
            if key.data is None:
                connection, _ = listener.accept()
                selector.register(connection, selectors.EVENT_READ, connection)
                continue
            data = key.data.recv(65536)
            if not data:
                selector.unregister(key.data)
                switched.discard(key.data)
                key.data.close()
            elif key.data in switched:
                key.data.sendall(data)
            else:
                switched.add(key.data)
                key.data.sendall(RESPONSE)


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def main(number):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 2 * number + 200:
        sys.exit(f"{number} WebSockets need {2 * number + 200} descriptors; the limit is {hard}")
    listeners = [socket.create_server((f"127.0.1.{at + 1}", 0), backlog=1024) for at in range(-(-number // PER_ADDRESS))]
    processes = [multiprocessing.Process(target=upstream, args=(listener,), daemon=True) for listener in listeners]
    for process in processes:
        process.start()
    urls = ", ".join('"http://%s:%d"' % listener.getsockname() for listener in listeners)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "dunlin.toml"
        config.write_text(
            f'[server]\nthreads = 1\nconnections = {number + 200}\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{folder}"\n'
            f'[[site.route]]\npath = "/*"\nproxy = {{ to = [{urls}], balance = "round-robin", connections = {number} }}\n'
        )
        program = os.environ.get("DUNLIN", str(ROOT / "target" / "checked" / "dunlin"))
        server = subprocess.Popen([program, "serve", "--config", str(config)], stdout=subprocess.PIPE, text=True)
        try:
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
            clients = []

            def opened(at):
                client = socket.socket()
                client.bind((f"127.0.2.{at // PER_ADDRESS + 1}", 0))
                client.connect(("127.0.0.1", port))
                client.sendall(REQUEST)
                data = b""
                while b"\r\n\r\n" not in data:
                    part = client.recv(4096)
                    assert part, "closed"
                    data += part
                assert data.startswith(b"HTTP/1.1 101"), data
                return client

            # The first ones fill caches.
            clients = [opened(0) for _ in range(100)]
            time.sleep(2)
            before = resident(server.pid)
            clients += [opened(at) for at in range(number)]
            time.sleep(2)
            after = resident(server.pid)
            for client in clients:
                client.sendall(b"are you there?")
                assert client.recv(100) == b"are you there?"
            time.sleep(2)
            used = resident(server.pid)
            idle, later = (after - before) / number, (used - before) / number
            print(f"{number} idle WebSockets: {idle:.0f} bytes each, {later:.0f} after a message (both sides together)")
        finally:
            server.kill()
            server.wait()
            for process in processes:
                process.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
