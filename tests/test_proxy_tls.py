"""TLS between the reverse proxy and its upstreams: names, and certificates of the server."""

import signal
import ssl
import subprocess

import pytest

from support.server import DUNLIN
from support.tls import certificate
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")


class Peer:
    """An upstream with TLS. `names` has the server names of handshakes, `clients` the common names of clients."""

    def __init__(self, folder, hosts=("app.internal",), clients=None):
        self.authority = certificate(folder, "authority")
        own = certificate(folder, "upstream", hosts, issuer=self.authority)
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(*map(str, own))
        self.names, self.clients = [], []
        made.sni_callback = lambda _, name, __: self.names.append(name)
        if clients:
            made.load_verify_locations(str(clients[0]))
            made.verify_mode = ssl.CERT_REQUIRED
        self.upstream = Upstream(self.answer, tls=made)

    def answer(self, _, connection, __):
        subject = (connection.getpeercert() or {}).get("subject", ())
        name = dict(pair for part in subject for pair in part).get("commonName")
        self.clients.append(name)
        return response(str(name).encode())


def test_the_server_name_is_sent_and_verified(serve, tmp_path):
    peer = Peer(tmp_path)
    url = f"https://localhost:{peer.upstream.port}"
    keys = f'to = "{url}", authority = "{peer.authority[0]}"'
    server = serve(route=f'proxy = {{ {keys}, server_name = "app.internal" }}')
    assert server.get("/")[0] == 200 and peer.names == ["app.internal"]
    assert peer.upstream.requests[0].fields["host"] == "x"
    other = serve(route=f'proxy = {{ {keys}, server_name = "other.internal" }}')
    status, fields, _ = other.get("/")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=tls_protocol_error"
    assert "the TLS handshake failed" in other.logged("the upstream failed")
    without = serve(route=f"proxy = {{ {keys} }}")
    assert without.get("/")[0] == 502 and peer.names[-1] == "localhost"


def test_an_upstream_gets_the_certificate_and_its_successor_after_a_reload(serve, tmp_path):
    issuer = certificate(tmp_path, "clients")
    peer = Peer(tmp_path, clients=issuer)
    first = certificate(tmp_path, "first", issuer=issuer)
    files = tmp_path / "own.pem", tmp_path / "own.key"

    def use(pair):
        for source, target in zip(pair, files):
            target.write_bytes(source.read_bytes())

    use(first)
    keys = f'to = "{peer.upstream.url}", authority = "{peer.authority[0]}"'
    server = serve(route=f"proxy = {{ {keys} }}")
    assert server.get("/")[0] == 502
    pair = f'client_certificate = {{ certificate = "{files[0]}", key = "{files[1]}" }}'
    server = serve(route=f"proxy = {{ {keys}, {pair} }}")
    assert [server.get("/")[2] for _ in range(2)] == [b"first", b"first"]
    server.process.send_signal(signal.SIGHUP)
    server.logged("reloaded")
    opened = peer.upstream.connections
    assert server.get("/")[2] == b"first" and peer.upstream.connections == opened
    use(certificate(tmp_path, "second", issuer=issuer))
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.get("/")[2] == b"second", "the other certificate")
    files[1].write_text("no key")
    done = subprocess.run([DUNLIN, "check", "-c", tmp_path / "dunlin-1.toml"], capture_output=True, text=True)
    assert done.returncode == 1 and "proxy: client_certificate: key" in done.stdout + done.stderr
    assert server.get("/")[2] == b"second"
