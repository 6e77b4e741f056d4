"""A certificate authority that speaks ACME (Pebble), and the names that it looks up."""

import json
import os
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest

from support.files import write
from support.http import read_response
from support.tls import certificate
from support.waiting import wait_until

PEBBLE = shutil.which("pebble") or str(Path(os.environ.get("GOBIN", Path.home() / "go" / "bin")) / "pebble")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Names(socketserver.StreamRequestHandler):
    """A resolver, spoken to by TCP, for which every name is this machine."""

    def handle(self):
        while prefix := self.rfile.read(2):
            query = self.rfile.read(struct.unpack("!H", prefix)[0])
            end = query.index(b"\0", 12) + 5
            is_address = struct.unpack("!H", query[end - 4 : end - 2])[0] == 1
            record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + bytes([127, 0, 0, 1])
            response = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(is_address), 0, 0) + query[12:end]
            response += record if is_address else b""
            self.wfile.write(struct.pack("!H", len(response)) + response)


class Authority:
    """Pebble, which connects to the given ports for its challenges."""

    def __init__(self, folder):
        self.folder, self.process = folder, None
        self.port, self.management = free_port(), free_port()
        ca = certificate(folder, "ca")
        self.trust, self.own = ca[0], certificate(folder, "pebble", issuer=ca)
        self.directory = f"https://localhost:{self.port}/dir"
        self.names = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Names)
        self.names.daemon_threads = True
        threading.Thread(target=self.names.serve_forever, daemon=True).start()
        self.resolver = "127.0.0.1:%d" % self.names.server_address[1]

    def start(self, http=1, tls=1, life=7776000, keys=None, profiles=None):
        settings = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.own[0]), "privateKey": str(self.own[1]),
            "httpPort": http, "tlsPort": tls, "ocspResponderURL": "",
            "keyAlgorithm": "ecdsa",
            # Of an order that names none, Pebble chooses one by chance.
            "profiles": {name: {"description": name, "validityPeriod": life} for name, life in (profiles or {"default": life}).items()},
        }
        if keys:
            settings |= {"externalAccountBindingRequired": True, "externalAccountMACKeys": keys}
        file = self.folder / "pebble.json"
        file.write_text(json.dumps({"pebble": settings}))
        with (self.folder / "pebble.log").open("a") as log:
            self.process = subprocess.Popen(
                [PEBBLE, "-config", file, "-dnsserver", self.resolver],
                stdout=log, stderr=log, env={**os.environ, "PEBBLE_VA_NOSLEEP": "1"},
            )
        wait_until(self.root, "Pebble responds")

    def root(self):
        """The authority's own certificate; another after each start."""
        trusting = ssl.create_default_context(cafile=str(self.trust))
        try:
            with urllib.request.urlopen(f"https://localhost:{self.management}/roots/0", context=trusting) as response:
                return response.read().decode()
        except OSError:
            assert self.process.poll() is None, (self.folder / "pebble.log").read_text()
            return None

    def manage(self, path, content):
        trusting = ssl.create_default_context(cafile=str(self.trust))
        url = f"https://localhost:{self.management}/{path}"
        urllib.request.urlopen(url, data=json.dumps(content).encode(), context=trusting).close()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self):
        self.stop()
        self.names.shutdown()
        self.names.server_close()


@pytest.fixture
def authority(tmp_path):
    """An authority that is not started yet."""
    made = Authority(tmp_path)
    yield made
    made.close()


def handshake(server, name, root):
    """The certificate that is shown for a name, if the authority `root` vouches for it."""
    if not root:
        return None
    made = ssl.create_default_context(cadata=root)
    try:
        with socket.create_connection(server.address, timeout=15) as plain:
            with made.wrap_socket(plain, server_hostname=name) as connection:
                shown = connection.getpeercert(binary_form=True)
                connection.sendall(f"GET /hello.txt HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
                assert read_response(connection)[2] == b"hello\n"
                return shown
    except (ssl.SSLError, ConnectionError):
        return None


def serve_acme(serve, site, acme, hosts=("a.example",), server="", ports=(0, 0)):
    """Starts a server whose site has these settings of ACME. `ports` are those with and without TLS."""
    write(site / "hello.txt", b"hello\n")
    tls, plain = ports
    return serve(
        text=f'[server]\nthreads = 1\nstate = "state"\n{server}\n'
        f'[[listen]]\naddress = "127.0.0.1:{tls}"\ntls = true\n[[listen]]\naddress = "127.0.0.1:{plain}"\n'
        f'[[site]]\nhost = {json.dumps(list(hosts))}\nroot = "{site}"\n'
        f"tls = {{ acme = {{ {acme} }} }}\n"
    )


def serve_shared(serve, site, authority, number, challenge, ports, server="", tables=""):
    """Starts a server whose site shares its certificate with the others: each has files of its own. `ports` are those with and without TLS."""
    write(site / "hello.txt", b"hello\n")
    tls, plain = ports
    started = serve(
        text=f'[server]\nthreads = 1\nstate = "state{number}"\n{server}\n{tables}\n'
        f'[[listen]]\naddress = "127.0.0.1:{tls}"\ntls = true\n[[listen]]\naddress = "127.0.0.1:{plain}"\n'
        f'[[site]]\nhost = ["a.example", "b.example"]\nroot = "{site}"\n'
        f'tls = {{ acme = {{ contact = "admin@a.example", directory = "{authority.directory}", '
        f'authority = "{authority.trust}", challenge = "{challenge}" }} }}\n'
    )
    started.plain = int(started.process.stdout.readline().decode().rsplit(":", 1)[1].strip("/\n"))
    return started
