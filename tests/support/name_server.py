"""A name server with a zone that is changed by dynamic updates (Knot DNS)."""

import base64
import shutil
import socket
import struct
import subprocess

import pytest

from support.acme import free_port
from support.waiting import wait_until

KNOT = shutil.which("knotd") or "/usr/sbin/knotd"
KNOTC = shutil.which("knotc") or "/usr/sbin/knotc"

ZONE = """$TTL 60
@ SOA ns hostmaster 1 3600 600 86400 1
@ NS ns
ns A NS
@ A 127.0.0.1
* A 127.0.0.1
_acme-challenge.alias CNAME alias.proofs
"""


class KnotServer:
    """Knot DNS with a zone. The keys `acme`, `sha384` and `sha512` can change all of it, the key `narrow` only what is below `proofs`."""

    def __init__(self, folder, zone="a.example", rules=None):
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.secret = base64.b64encode(b"a secret of the tests, 32 bytes.").decode()
        # The address of the zone's NS record; each instance has another one.
        self.ns = f"127.{self.port >> 8}.{self.port & 255}.1"
        (folder / "zone").write_text(ZONE.replace("A NS", f"A {self.ns}"))
        place = f'    storage: "{folder}"\n    file: zone\n'
        self.zone, self.settings = zone, f"{rules or self.rules(zone)}{place}"
        self.socket = folder / "knot.sock"
        self.start()

    def start(self, *more):
        """Starts the server, which listens also on `more`."""
        listen = ", ".join([f"127.0.0.1@{self.port}", *more])
        (self.folder / "knot.conf").write_text(
            f'server:\n    rundir: "{self.folder}"\n    listen: [{listen}]\n'
            f'database:\n    storage: "{self.folder}"\n'
            "log:\n  - target: stdout\n    any: info\n"
            f"{self.settings}"
        )
        with (self.folder / "knot.log").open("a") as log:
            self.process = subprocess.Popen([KNOT, "-c", self.folder / "knot.conf"], stdout=log, stderr=log)
        wait_until(lambda: self.texts(self.zone) is not None, "the name server responds")

    def rules(self, zone):
        """The keys, what they can change, and the begin of the zone."""
        keys = {"acme": "hmac-sha256", "sha384": "hmac-sha384", "sha512": "hmac-sha512", "narrow": "hmac-sha256"}
        listed = "".join(f"  - id: {name}\n    algorithm: {kind}\n    secret: {self.secret}\n" for name, kind in keys.items())
        return (
            f"key:\n{listed}"
            "acl:\n"
            "  - id: all\n    key: [acme, sha384, sha512]\n    action: update\n"
            "  - id: narrow\n    key: narrow\n    action: update\n"
            "    update-owner: name\n    update-owner-match: sub\n    update-owner-name: [proofs]\n"
            f"zone:\n  - domain: {zone}\n    acl: [all, narrow]\n"
        )

    def texts(self, name):
        """The texts of the TXT records of a name; nothing if the server does not respond."""
        labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
        query = struct.pack("!HHHHHH", 7, 0, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", 16, 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            plain.settimeout(5)
            try:
                plain.connect(("127.0.0.1", self.port))
                plain.send(query)
                response = plain.recv(4096)
            except OSError:
                assert self.process.poll() is None, self.log
                return None
        at, texts = len(query), []
        for _ in range(struct.unpack_from("!H", response, 6)[0]):
            # The name is a pointer.
            kind, _, _, length = struct.unpack_from("!HHIH", response, at + 2)
            data = response[at + 12 : at + 12 + length]
            at += 12 + length
            if kind == 16:
                texts.append(data[1 : 1 + data[0]].decode())
        return texts

    @property
    def log(self):
        return (self.folder / "knot.log").read_text()

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def knot(tmp_path):
    made = KnotServer(tmp_path / "knot")
    yield made
    made.close()
