"""TLS between the reverse proxy and its upstreams: names, and certificates of the server."""

import base64
import signal
import socket
import ssl
import struct
import subprocess

import pytest

from support.http import read_all, read_response
from support.server import DUNLIN
from support.tls import certificate, certificate_of_version_1, connect, context, fetch
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


def test_a_certificate_that_is_trusted_itself_may_be_one_of_an_authority(serve, tmp_path):
    """That of `openssl req -x509` is one."""
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")

    def status(pair, authority, name="localhost"):
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(*map(str, pair))
        upstream = Upstream(lambda *_: response(b"hello"), tls=made)
        url = f"https://127.0.0.1:{upstream.port}"
        server = serve(route=f'proxy = {{ to = "{url}", authority = "{authority[0]}", server_name = "{name}" }}')
        return server.get("/")[0]

    assert status(own, own) == 200
    assert status(own, other) == 502
    assert status(own, own, "other.internal") == 502


def test_any_certificate_is_accepted_without_verification(serve, tmp_path):
    peer = Peer(tmp_path)
    url = f"https://localhost:{peer.upstream.port}"
    server = serve(route=f'proxy = {{ to = "{url}", verify = false }}')
    assert server.get("/")[0] == 200 and peer.names == ["localhost"]
    assert serve(route=f'proxy = {{ to = "{url}", verify = true }}').get("/")[0] == 502


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_upstream_may_have_a_certificate_of_version_1_where_none_is_verified(serve, tmp_path, version):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*map(str, certificate_of_version_1(tmp_path, "localhost")))
    made.minimum_version = made.maximum_version = version
    upstream = Upstream(lambda *_: response(b"hello"), tls=made)
    url = f"https://localhost:{upstream.port}"
    assert serve(route=f'proxy = {{ to = "{url}", verify = false }}').get("/")[0] == 200
    assert serve(route=f'proxy = {{ to = "{url}" }}').get("/")[0] == 502


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


# What upstreams get of the certificates of clients


def encoded(file):
    der = ssl.PEM_cert_to_DER_cert(file.read_text())
    return f":{base64.b64encode(der).decode()}:"


@pytest.fixture
def front(tls, tmp_path):
    """Starts a server that asks clients for certificates: `front("leaf")`; and the authority of these certificates."""
    authority = certificate(tmp_path, "clients")

    def start(how, upstream, required="false"):
        route = f'proxy = {{ to = "{upstream.url}", forward_client_certificate = "{how}" }}'
        return tls(keys=f'client_authority = "{authority[0]}", client_required = {required}', route=route)

    start.authority = authority
    return start


SPOOFED = "".join(
    f"{name}: :c3Bvb2ZlZA==:\r\n"
    for name in ("Client-Cert", "Client_Cert", "client-cert-chain", "Client.Cert-Chain", "CLIENT-CERT")
)


@pytest.mark.parametrize("how", ["leaf", "chain"])
def test_an_upstream_gets_the_verified_certificate_of_the_client(front, tls, tmp_path, how):
    upstream = Upstream()
    server = front(how, upstream)
    middle = certificate(tmp_path, "middle", issuer=front.authority)
    own = certificate(tmp_path, "own-client", issuer=front.authority)
    both = tmp_path / "both.pem"
    both.write_text(own[0].read_text() + middle[0].read_text())
    with connect(server, context(tls.own[0], client=(both, own[1]))) as client:
        for _ in range(2):
            assert fetch(client, more=SPOOFED)[0] == 200
    for request in upstream.requests:
        assert request.fields["client-cert"] == encoded(own[0])
        assert request.fields.get("client-cert-chain") == (encoded(middle[0]) if how == "chain" else None)
        assert b"c3Bvb2ZlZA" not in request.head
    with connect(server, context(tls.own[0])) as client:
        assert fetch(client, more=SPOOFED)[0] == 200
    assert b"cert" not in upstream.requests[-1].head.lower()


# The PROXY protocol


SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


class Behind(Upstream):
    """An upstream whose connections begin with the PROXY protocol. `headers` has the headers."""

    def __init__(self, **options):
        self.headers = []
        super().__init__(**options)

    def serve(self, connection):
        start = connection.recv(12, socket.MSG_WAITALL)
        if start == SIGNATURE:
            rest = connection.recv(4, socket.MSG_WAITALL)
            length = int.from_bytes(rest[2:])
            self.headers.append((rest[0], rest[1], connection.recv(length, socket.MSG_WAITALL) if length else b""))
        else:
            while not start.endswith(b"\r\n"):
                start += connection.recv(1)
            self.headers.append(start.decode())
        super().serve(connection)


def ask(server):
    """A request: the address of the client."""
    with server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"hello" in read_all(client)
        return client.getsockname()


def test_the_proxy_protocol_names_the_client_of_each_request(serve):
    upstream = Behind()
    server = serve(route=f'proxy = {{ to = "{upstream.url}", proxy_protocol = "v2" }}')
    for _ in range(2):
        address, port = ask(server)
        ends = socket.inet_aton(address) + socket.inet_aton("127.0.0.1") + struct.pack("!HH", port, server.port)
        assert upstream.headers[-1] == (0x21, 0x11, ends)
    with server.connect() as client:
        for count in (3, 4):
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_response(client)[2] == b"hello" and upstream.connections == count
    server = serve(route=f'proxy = {{ to = "{upstream.url}", proxy_protocol = "v1" }}')
    address, port = ask(server)
    assert upstream.headers[-1] == f"PROXY TCP4 {address} 127.0.0.1 {port} {server.port}\r\n"


def test_the_proxy_protocol_names_the_client_behind_trusted_proxies(serve):
    upstream = Behind()
    route = f'proxy = {{ to = "{upstream.url}", proxy_protocol = "v1" }}'
    server = serve(route=route, server='trusted_proxies = ["127.0.0.1"]')
    assert server.get("/", "X-Forwarded-For: 2001:db8::7")[0] == 200
    assert upstream.headers == [f"PROXY TCP6 2001:db8::7 ::ffff:127.0.0.1 0 {server.port}\r\n"]


def test_health_checks_have_a_header_of_their_own(serve):
    upstream = Behind()
    route = f'proxy = {{ to = "{upstream.url}", proxy_protocol = "v2", health = {{ path = "/health", interval = "50ms" }} }}'
    serve(route=route)
    wait_until(lambda: upstream.headers, "a health check")
    assert upstream.headers[0] == (0x20, 0, b"")


def test_the_header_precedes_tls(serve, tmp_path):
    authority = certificate(tmp_path, "authority")
    own = certificate(tmp_path, "upstream", issuer=authority)
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(*map(str, own))
    upstream = Behind(tls=made)
    server = serve(route=f'proxy = {{ to = "{upstream.url}", authority = "{authority[0]}", proxy_protocol = "v2" }}')
    ask(server)
    assert upstream.headers[0][:2] == (0x21, 0x11) and len(upstream.requests) == 1
