"""A site is served only on connections whose TLS handshake met the site's policy."""

import ssl
import subprocess

import pytest

from support.admin import run
from support.early_data import early
from support.files import write
from support.http import parse, read_all, read_response
from support.http2 import block, Client, DATA, END_HEADERS, END_STREAM, frame, GOAWAY, HEADERS, RST_STREAM
from support.server import DUNLIN
from support.tls import certificate, connect, openssl
from support.waiting import wait_until

ENV = """#!/bin/sh
printf 'Content-Type: text/plain\\n\\n%s|%s|%s' "$SSL_CLIENT_VERIFY" "$SSL_CLIENT_S_DN" "$HTTP_HOST"
"""
JUMP = """#!/bin/sh
printf 'X-Accel-Redirect: /inner/own.txt\\n\\n'
"""


class Sites:
    """Sites beside each other on one listener, and certificates of two authorities of clients."""

    def __init__(self, folder, serve):
        self.folder, self.serve = folder, serve
        self.own = certificate(folder, "own", ("*.test", "*.wild.test", "localhost"))
        self.authorities = {name: certificate(folder, f"authority-{name}") for name in "ab"}
        self.clients = {
            name: certificate(folder, f"client-{name}", issuer=authority)
            for name, authority in self.authorities.items()
        }
        self.scripts = folder / "scripts"
        self.scripts.mkdir()
        for name, text in {"env": ENV, "jump": JUMP}.items():
            (self.scripts / name).write_text(text)
            (self.scripts / name).chmod(0o755)

    def site(self, host, keys="", tls=True):
        """One site, whose file `own.txt` names it; `host` may be several, or none for every other host."""
        hosts = host.split()
        name = hosts[0] if hosts else "default"
        root = self.folder / "sites" / name.replace("*", "any")
        for path in ["own.txt", "inner/own.txt"]:
            if not (root / path).exists():
                write(root / path, f"secret of {name}")
        pair = f'certificate = "{self.own[0]}", key = "{self.own[1]}"'
        table = f"tls = {{ {pair}, {keys} }}\n" if tls else ""
        listed = ", ".join(f'"{host}"' for host in hosts)
        return (
            f'[[site]]\nroot = "{root}"\n{f"host = [{listed}]" if hosts else ""}\n{table}'
            f'[[site.route]]\npath = "/cgi-bin/*"\nscript = {{ kind = "cgi", directory = "{self.scripts}" }}\n'
            '[[site.route]]\npath = "/inner/*"\ninternal = true\n'
        )

    def verified_by(self, name, more=""):
        return f'client_authority = "{self.authorities[name][0]}", {more}'

    def text(self, *sites, listen="tls = true"):
        head = f'[server]\nthreads = 1\nadmin = "{self.folder}/admin.sock"\n[[listen]]\naddress = "127.0.0.1:0"\n{listen}\n'
        return head + "".join(sites)

    def start(self, *sites, **options):
        self.file = self.folder / "dunlin-0.toml"
        return self.serve(text=self.text(*sites, **options))

    def reload(self, server, *sites):
        self.file.write_text(self.text(*sites))
        code, _, error = run("reload", "--admin", str(self.folder / "admin.sock"))
        assert code == 0, error

    def connect(self, server, name, client=None, version=None, protocol="http/1.1", session=None):
        made = ssl.create_default_context(cafile=str(self.own[0]))
        made.check_hostname = False
        if version:
            made.minimum_version = made.maximum_version = version
        if client:
            made.load_cert_chain(*map(str, self.clients[client]))
        made.set_alpn_protocols([protocol])
        return connect(server, made, name, session)


@pytest.fixture
def sites(tmp_path, serve):
    return Sites(tmp_path, serve)


def fetch(connection, host, path="/own.txt", more=""):
    """Status and body of one request on a persistent connection; `host` is None for a request of HTTP/1.0."""
    line = f"GET {path} HTTP/1.{1 if host else 0}\r\n" + (f"Host: {host}\r\n" if host else "")
    connection.sendall(f"{line}Connection: keep-alive\r\n{more}\r\n".encode())
    status, fields, body, rest = read_response(connection)
    assert not rest
    return status, body.decode()


def env(connection, host):
    """The client certificate that a script of that host gets; then the connection ends."""
    connection.sendall(f"GET /cgi-bin/env HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    data = read_all(connection)
    status, fields, body = parse(data)
    return body.decode() if status == 200 else (status, data.decode())


class Http2(Client):
    """A connection of HTTP/2 over TLS that is open already."""

    def __init__(self, connection):
        class Open:
            def connect(self, timeout):
                return connection

        self.stream = -1
        super().__init__(Open())

    def fetch(self, host, path="/own.txt", field=":authority"):
        """Status and body of one request."""
        self.stream += 2
        fields = [(":method", "GET"), (":scheme", "https"), (":path", path), (field, host)]
        self.send(frame(HEADERS, END_HEADERS | END_STREAM, self.stream, block(fields)))
        frames = self.read_until(lambda kind, flags, of, _: of == self.stream and (flags & END_STREAM or kind == RST_STREAM))
        own = [found for found in frames if found[2] == self.stream]
        assert RST_STREAM not in [found[0] for found in own]
        body = b"".join(payload for kind, _, _, payload in own if kind == DATA)
        return 421 if b"421" in body else 200, body.decode()


OF_B = ["b.test", "B.test", "b.TEST.", "b.test:443", "b.test:", "other.wild.test", "Deep.Other.wild.test."]


def two_policies(sites):
    return [
        sites.site("a.test"),
        sites.site("also-a.test"),
        sites.site("b.test *.wild.test", sites.verified_by("b")),
        sites.site("f.test", sites.verified_by("a")),
        sites.site("also-b.test", sites.verified_by("b")),
        sites.site("optional-b.test", sites.verified_by("b", "client_required = false")),
    ]


@pytest.mark.parametrize("name,client", [("a.test", None), (None, None), ("f.test", "a"), ("optional-b.test", None)])
def test_a_site_with_clients_certificates_is_not_reached_through_another(sites, name, client):
    server = sites.start(*two_policies(sites))
    # Its file is in the caches.
    for _ in range(3):
        with sites.connect(server, "b.test", "b") as connection:
            assert fetch(connection, "b.test") == (200, "secret of b.test")
    own = {None: "a.test", "a.test": "a.test"}.get(name, name)
    with sites.connect(server, name, client) as connection:
        assert fetch(connection, own) == (200, f"secret of {own}")
        for host in OF_B:
            for path in ["/own.txt", f"https://{host}/own.txt", "/cgi-bin/env", "/nothing", "/cgi-bin/jump"]:
                # The connection persists, and serves allowed sites.
                status, body = fetch(connection, host if path[0] == "/" else own, path)
                assert status == 421 and "secret" not in body, (host, path, status)
        assert fetch(connection, own) == (200, f"secret of {own}")
    for host in OF_B:
        with sites.connect(server, name, client) as connection:
            assert fetch(connection, host)[0] == 421, host
        with sites.connect(server, name, client) as connection:
            assert "421" in env(connection, host)[1], host
    with Http2(sites.connect(server, name, client, protocol="h2")) as connection:
        assert connection.fetch(own) == (200, f"secret of {own}")
        for host in OF_B:
            for field in [":authority", "host"]:
                assert connection.fetch(host, field=field)[0] == 421, (host, field)
                assert connection.fetch(host, "/cgi-bin/env", field)[0] == 421, (host, field)
        assert connection.fetch(own) == (200, f"secret of {own}")


def test_a_misdirected_request_gets_421_whatever_its_method_and_body(sites):
    server = sites.start(*two_policies(sites))
    with sites.connect(server, "a.test") as connection:
        for method in ["GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "PROPFIND"]:
            for fields, body in [
                ("", b""),
                ("Content-Length: 5\r\n", b"hello"),
                ("Content-Length: 3000000\r\n", b"x" * 3_000_000),
                ("Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
            ]:
                connection.sendall(f"{method} /own.txt HTTP/1.1\r\nHost: b.test\r\n{fields}\r\n".encode() + body)
                if method == "HEAD":
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        head += connection.recv(1)
                    status = int(head.split(b" ")[1])
                else:
                    status, _, _, rest = read_response(connection)
                    assert not rest
                assert status == 421, (method, fields)
        connection.sendall(b"OPTIONS * HTTP/1.1\r\nHost: b.test\r\n\r\n")
        assert read_response(connection)[0] == 421
        assert fetch(connection, "a.test") == (200, "secret of a.test")


def test_sites_of_one_policy_share_connections(sites):
    server = sites.start(*two_policies(sites))
    for protocol in ["http/1.1", "h2"]:
        for name, client, hosts, others in [
            ("a.test", None, ["a.test", "also-a.test"], ["b.test", "f.test", "optional-b.test"]),
            ("b.test", "b", ["b.test", "x.wild.test", "also-b.test"], ["a.test", "f.test", "optional-b.test"]),
            ("optional-b.test", "b", ["optional-b.test"], ["a.test", "b.test", "also-b.test"]),
        ]:
            connection = sites.connect(server, name, client, protocol=protocol)
            with Http2(connection) if protocol == "h2" else connection as shared:
                for host in [*hosts, *others, *hosts]:
                    status = shared.fetch(host)[0] if protocol == "h2" else fetch(shared, host)[0]
                    assert status == (200 if host in hosts else 421), (protocol, name, host)


def test_scripts_get_only_certificates_that_their_own_site_verified(sites):
    server = sites.start(*two_policies(sites))
    for name, client, host, seen in [
        ("b.test", "b", "b.test", "SUCCESS|CN=client-b|b.test"),
        ("b.test", "b", "also-b.test", "SUCCESS|CN=client-b|also-b.test"),
        ("f.test", "a", "f.test", "SUCCESS|CN=client-a|f.test"),
        ("optional-b.test", None, "optional-b.test", "NONE||optional-b.test"),
        ("a.test", "b", "a.test", "NONE||a.test"),
        ("f.test", "a", "b.test", None),
        ("f.test", "a", "a.test", None),
        ("b.test", "b", "f.test", None),
    ]:
        with sites.connect(server, name, client) as connection:
            found = env(connection, host)
            assert found == seen if seen else found[0] == 421 and "CN=" not in found[1], (name, host, found)
    with sites.connect(server, "b.test", "b") as connection:
        assert fetch(connection, "b.test", "/cgi-bin/jump") == (200, "secret of b.test")


def test_versions_and_cipher_suites_apply_to_the_site_of_the_request(sites):
    suite = 'ciphers = ["TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"]'
    server = sites.start(
        sites.site("a.test"),
        sites.site("new.test", 'min_version = "1.3"'),
        sites.site("suite.test", suite),
        sites.site("same.test", 'ciphers = ["ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"]'),
    )
    with sites.connect(server, "a.test", version=ssl.TLSVersion.TLSv1_2) as connection:
        assert [fetch(connection, host)[0] for host in ["a.test", "new.test", "suite.test", "a.test"]] == [200, 421, 421, 200]
    with sites.connect(server, "suite.test") as connection:
        assert [fetch(connection, host)[0] for host in ["suite.test", "same.test", "a.test"]] == [200, 200, 421]
    with sites.connect(server, "new.test") as connection:
        assert fetch(connection, "new.test")[0] == 200


def test_a_site_without_tls_is_not_served_over_tls(sites, tmp_path):
    text = sites.text(sites.site("a.test"), sites.site("plain.test", tls=False), sites.site("", tls=False))
    server = sites.serve(text=text + '[[listen]]\naddress = "127.0.0.1:0"\n')
    plain = int(server.process.stdout.readline().decode().rsplit(":", 1)[1].strip().strip("/"))
    with sites.connect(server, "a.test") as connection:
        for host in ["plain.test", "Plain.test:80", "unknown.test", None]:
            assert fetch(connection, host)[0] == 421, host
        assert fetch(connection, "a.test") == (200, "secret of a.test")
    with Http2(sites.connect(server, "a.test", protocol="h2")) as connection:
        assert [connection.fetch(host)[0] for host in ["plain.test", "unknown.test", "a.test"]] == [421, 421, 200]
    # Without TLS there is no handshake to compare with.
    server.address = (server.host, plain)
    for host, name in [("plain.test", "plain.test"), ("unknown.test", "default"), ("a.test", "a.test")]:
        message = f"GET /own.txt HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert parse(server.exchange(message.encode()))[::2] == (200, f"secret of {name}".encode())


def test_a_site_that_requires_certificates_is_not_served_without_tls(sites):
    redirect = '[[site.route]]\npath = "/moved/*"\nredirect_https = true\n'
    text = sites.text(
        sites.site("a.test"),
        sites.site("b.test", sites.verified_by("b")) + redirect,
        sites.site("optional-b.test", sites.verified_by("b", "client_required = false")),
        listen="",
    )
    server = sites.serve(text=text + '[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n')
    secure = int(server.process.stdout.readline().decode().rsplit(":", 1)[1].strip().strip("/"))
    plain = server.address
    server.address = (server.host, secure)
    with sites.connect(server, "b.test", "b") as connection:
        for _ in range(3):
            assert fetch(connection, "b.test")[0] == 200
    server.address = plain
    with server.connect() as connection:
        for host in ["b.test", "B.test.", "b.test:80"]:
            for target in ["/own.txt", f"http://{host}/own.txt", "/cgi-bin/env", "/nothing"]:
                status, body = fetch(connection, host, target)
                assert status == 421 and "secret" not in body, (host, target)
        assert [fetch(connection, host)[0] for host in ["a.test", "optional-b.test"]] == [200, 200]
    status, fields, _ = parse(server.exchange(b"GET /moved/x?y HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n"))
    assert (status, fields["location"]) == (308, "https://b.test/moved/x?y")
    with Client(server) as connection:
        fields = [(":method", "GET"), (":scheme", "http"), (":path", "/own.txt"), (":authority", "b.test")]
        connection.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(fields)))
        assert b"421" in connection.body(1)


def test_check_warns_of_sites_that_no_listener_serves(sites):
    def warnings(text):
        file = sites.folder / "checked.toml"
        file.write_text(text)
        done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [line.partition(": warning: ")[2] for line in (done.stdout + done.stderr).splitlines() if ": warning: " in line]

    a, b = sites.site("a.test"), sites.site("b.test", sites.verified_by("b"))
    plain = sites.site("plain.test", tls=False)
    both = 'tls = true\n[[listen]]\naddress = "127.0.0.1:0"'
    assert [line for line in warnings(sites.text(a, b, plain)) if "not served" in line] == [
        'site plain.test: it is not served, as every listener has TLS and the site has no `tls`; write tls = { certificate = "FILE", key = "FILE" } into it'
    ]
    assert [line[:27] for line in warnings(sites.text(a, b, plain, listen="")) if "not served" in line] == ["tls: the site is not served"]
    assert not [line for line in warnings(sites.text(a, b, plain, listen=both)) if "not served" in line]


def test_a_handshake_without_a_name_meets_the_policy_of_the_default_site(sites):
    server = sites.start(sites.site("b.test", sites.verified_by("b")), sites.site("a.test"), sites.site(""))
    with sites.connect(server, None) as connection:
        statuses = {host: fetch(connection, host)[0] for host in ["a.test", "x.test", None, "b.test"]}
        assert statuses == {"a.test": 200, "x.test": 200, None: 200, "b.test": 421}
    server.stop()
    server = sites.start(sites.site("b.test", sites.verified_by("b")), sites.site("a.test"))
    with sites.connect(server, None, "b") as connection:
        assert [fetch(connection, host)[0] for host in ["b.test", "a.test", "x.test", None]] == [200, 421, 421, 421]


def test_early_data_is_for_sites_of_the_same_policy_that_take_it(sites, tmp_path):
    server = sites.start(
        sites.site("localhost", "early_data = true"),
        sites.site("also.test", "early_data = true"),
        sites.site("late.test"),
        sites.site("b.test", sites.verified_by("b")),
        sites.site("new.test", 'min_version = "1.3", early_data = true'),
    )
    write(tmp_path / "sites" / "localhost" / "hello.txt", "hello")
    session = tmp_path / "session"
    expected = {"localhost": 200, "also.test": 200, "late.test": 425, "b.test": 421, "new.test": 421}
    for host, status in expected.items():
        session.unlink(missing_ok=True)
        request = f"GET /own.txt HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        response = early(server, sites.own[0], session, request)
        assert f"HTTP/1.1 {status} ".encode() in response, response.decode()
        assert (b"secret" in response) == (status == 200)


def test_a_resumed_session_is_for_the_site_that_it_began_with(sites):
    server = sites.start(*two_policies(sites))
    for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
        made = ssl.create_default_context(cafile=str(sites.own[0]))
        made.check_hostname = False
        made.minimum_version = made.maximum_version = version
        with connect(server, made, "a.test") as connection:
            assert fetch(connection, "a.test")[0] == 200
            of_a = connection.session
        with connect(server, made, "a.test", session=of_a) as connection:
            assert connection.session_reused
            assert [fetch(connection, host)[0] for host in ["b.test", "a.test"]] == [421, 200]
        # With another site's ticket the handshake is a full one, for which a certificate is missing.
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            with connect(server, made, "b.test", session=of_a) as connection:
                fetch(connection, "b.test")
        made.load_cert_chain(*map(str, sites.clients["b"]))
        with connect(server, made, "b.test") as connection:
            assert fetch(connection, "b.test")[0] == 200
            of_b = connection.session
        with connect(server, made, "b.test", session=of_b) as connection:
            assert connection.session_reused
            assert [fetch(connection, host)[0] for host in ["b.test", "a.test", "b.test"]] == [200, 421, 200]
        with connect(server, made, "b.test", session=of_b) as connection:
            assert env(connection, "b.test") == "SUCCESS|CN=client-b|b.test"


def is_closed(connection):
    """Whether the server ends the connection without another response."""
    try:
        return read_all(connection) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def test_a_reloaded_policy_applies_to_open_connections(sites):
    a, c = sites.site("a.test"), sites.site("c.test")
    server = sites.start(a, c)
    kept = sites.connect(server, "a.test")
    other = sites.connect(server, "c.test")
    http2 = Http2(sites.connect(server, "a.test", protocol="h2"))
    assert fetch(kept, "a.test")[0] == fetch(other, "c.test")[0] == http2.fetch("a.test")[0] == 200
    sites.reload(server, a, c)
    assert fetch(kept, "a.test")[0] == fetch(other, "c.test")[0] == http2.fetch("a.test")[0] == 200
    guarded = sites.site("a.test", sites.verified_by("a"))
    sites.reload(server, guarded, c)
    status, body = fetch(kept, "a.test")
    assert status == 421 and "secret" not in body and is_closed(kept)
    assert [fetch(other, host)[0] for host in ["c.test", "a.test", "c.test"]] == [200, 421, 200]
    assert http2.fetch("a.test")[0] == 421
    assert GOAWAY in [found[0] for found in http2.read_rest()]
    with sites.connect(server, "a.test", "a") as verified:
        assert fetch(verified, "a.test")[0] == 200
        sites.reload(server, sites.site("a.test", sites.verified_by("b")), c)
        assert fetch(verified, "a.test")[0] == 421 and is_closed(verified)


def test_a_connection_that_meets_the_new_policy_continues(sites):
    server = sites.start(sites.site("a.test"), sites.site("b.test", sites.verified_by("b")))
    new = sites.connect(server, "a.test", version=ssl.TLSVersion.TLSv1_3)
    old = sites.connect(server, "a.test", version=ssl.TLSVersion.TLSv1_2)
    client = sites.connect(server, "b.test", "b")
    assert fetch(new, "a.test")[0] == fetch(old, "a.test")[0] == fetch(client, "b.test")[0] == 200
    sites.reload(server, sites.site("a.test", 'min_version = "1.3"'), sites.site("b.test"))
    assert fetch(new, "a.test")[0] == 200
    assert fetch(old, "a.test")[0] == 421 and is_closed(old)
    assert env(client, "b.test") == "NONE||b.test", "the site verifies no clients any more"
    sites.reload(server, sites.site("a.test", tls=False), sites.site("b.test"))
    assert fetch(new, "a.test")[0] == 421 and is_closed(new)


def revocation_list(sites, file, *revoked):
    """Has the authority b revoke these of its certificates."""
    folder = sites.folder / "ca"
    folder.mkdir(exist_ok=True)
    for name in ["index.txt", "index.txt.attr"]:
        (folder / name).touch()
    (folder / "crlnumber").write_text("1000\n")
    own = write(
        folder / "ca.conf",
        f"[ca]\ndefault_ca = own\n[own]\ndatabase = {folder}/index.txt\ncrlnumber = {folder}/crlnumber\n"
        "default_md = sha256\ndefault_crl_days = 7\ncrl_extensions = more\n"
        "[more]\nauthorityKeyIdentifier = keyid:always\n",
    )
    authority = ["-config", own, "-cert", sites.authorities["b"][0], "-keyfile", sites.authorities["b"][1]]
    for leaf in revoked:
        openssl("ca", *authority, "-revoke", leaf[0])
    made = folder / "made.pem"
    openssl("ca", *authority, "-gencrl", "-out", made)
    made.rename(file)


def test_a_revoked_certificate_ends_an_open_connection(sites):
    sites.clients["c"] = certificate(sites.folder, "client-c", issuer=sites.authorities["b"])
    lists = sites.folder / "revoked.pem"
    revocation_list(sites, lists)
    keys = sites.verified_by("b", f'client_revoked = "{lists}"')
    server = sites.start(sites.site("b.test", keys), sites.site("also-b.test", keys), sites.site("a.test", sites.verified_by("b")))
    bad, good = sites.connect(server, "b.test", "b"), sites.connect(server, "b.test", "c")
    assert [fetch(one, host)[0] for one in [bad, good] for host in ["b.test", "also-b.test", "a.test"]] == [200, 200, 421] * 2
    revocation_list(sites, lists, sites.clients["b"])
    wait_until(lambda: server.log.count("reloaded from its files") >= 2, "the new list")
    assert fetch(good, "b.test")[0] == 200
    assert fetch(bad, "b.test")[0] == 421 and is_closed(bad)
    assert [fetch(good, host)[0] for host in ["also-b.test", "a.test"]] == [200, 421]
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        with sites.connect(server, "b.test", "b") as connection:
            fetch(connection, "b.test")
