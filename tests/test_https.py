"""TLS of a site: client names, cipher suites, redirects, early data, sizes of records."""

import os
import socket
import ssl
import subprocess
import time

import pytest

from support.early_data import early
from support.files import write
from support.http import read_response
from support.server import DUNLIN
from support.tls import fetch, certificate, connect, context
from support.waiting import wait_until


def cgi(tmp_path):
    """A script that prints its variables, and the route that runs it."""
    directory = tmp_path / "cgi-bin"
    directory.mkdir()
    script = directory / "env"
    script.write_text("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nenv\n")
    script.chmod(0o755)
    return f'[[site.route]]\npath = "/cgi-bin/*"\nscript = {{ kind = "cgi", directory = "{directory}" }}\n'


def variables(connection):
    status, _, body, _ = read_chunked(connection)
    assert status == 200
    return dict(line.partition("=")[::2] for line in body.decode().splitlines() if "=" in line)


def read_chunked(connection):
    connection.sendall(b"GET /cgi-bin/env HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    data = b""
    while part := connection.recv(1 << 16):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head, body, b""


def test_clients_are_named_in_logs_and_for_scripts(tls, tmp_path):
    authority = certificate(tls.folder, "authority")
    client = certificate(tls.folder, "ann", issuer=authority)
    log = tmp_path / "access.log"
    server = tls(
        keys=f'client_authority = "{authority[0]}", client_required = false',
        more=cgi(tmp_path),
        server=f'access_log = {{ path = "{log}", format = "{{path}} {{tls_client_verify}} {{tls_client_subject}} {{tls_protocol}} {{tls_cipher}}" }}',
    )
    for version, named in ((ssl.TLSVersion.TLSv1_3, True), (ssl.TLSVersion.TLSv1_2, True), (None, False)):
        made = context(tls.own[0], version, client if named else None)
        with connect(server, made) as connection:
            cipher, protocol = connection.cipher()[0], connection.version()
            seen = variables(connection)
        assert seen["HTTPS"] == "on" and seen["SSL_PROTOCOL"] == protocol and seen["SSL_CIPHER"] == cipher
        assert seen["SSL_CLIENT_VERIFY"] == ("SUCCESS" if named else "NONE")
        assert seen.get("SSL_CLIENT_S_DN") == ("CN=ann" if named else None)
        assert seen.get("SSL_CLIENT_I_DN") == ("CN=authority" if named else None)
        expected = f"/cgi-bin/env {'SUCCESS CN=ann' if named else 'NONE -'} {protocol} {cipher}"
        wait_until(lambda: log.exists() and log.read_text().splitlines()[-1:] == [expected], "a log line")


def test_cipher_suites_are_those_that_are_named(tls, tmp_path):
    server = tls(keys='ciphers = ["TLS_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"]')
    with connect(server, context(tls.own[0], ssl.TLSVersion.TLSv1_3)) as connection:
        assert connection.cipher()[0] == "TLS_CHACHA20_POLY1305_SHA256"
    with connect(server, context(tls.own[0], ssl.TLSVersion.TLSv1_2)) as connection:
        assert connection.cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    other = context(tls.own[0], ssl.TLSVersion.TLSv1_2)
    other.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    with pytest.raises(ssl.SSLError):
        connect(server, other)
    # With none for TLS 1.3, 1.2 is agreed upon rather than nothing.
    only = tls(keys='ciphers = ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]')
    with connect(only, context(tls.own[0])) as connection:
        assert connection.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384" and connection.version() == "TLSv1.2"
    reported = subprocess.run(
        [DUNLIN, "check", "-c", tmp_path / "dunlin-0.toml", "--explain", "/"], capture_output=True, text=True
    ).stdout
    assert "TLS13_CHACHA20_POLY1305_SHA256 TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" in reported
    file = tmp_path / "bad.toml"
    file.write_text(
        '[[listen]]\naddress = ":0"\ntls = true\n[[site]]\nroot = "."\n'
        'tls = { certificate = "a", key = "b", ciphers = [\n"TLS_AES_128_GCM_SHA265"] }\n'
    )
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert ':7:1: ciphers: there is no cipher suite "TLS_AES_128_GCM_SHA265"; did you mean "TLS_AES_128_GCM_SHA256"?' in done.stderr


def test_browsers_are_redirected_to_https_with_hsts(tls, tmp_path):
    server = tls(
        route='redirect_https = 8443\nhsts = { age = "365d", subdomains = true }',
        more='[[listen]]\naddress = "127.0.0.1:0"\n' + cgi(tmp_path) + f'[[site]]\nhost = "b.example"\nroot = "{tls.folder}/site"\n[[site.route]]\npath = "/*"\nredirect_https = true\n',
    )
    plain = int(server.process.stdout.readline().decode().rsplit(":", 1)[1].strip("/\n"))

    def clear(request):
        with socket.create_connection(("127.0.0.1", plain), timeout=15) as connection:
            connection.sendall(request)
            return read_response(connection)

    status, fields, _, _ = clear(b"POST /a%20b?c=d HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: 0\r\n\r\n")
    assert (status, fields["location"]) == (308, "https://localhost:8443/a%20b?c=d")
    # RFC 6797 §7.2: it would mean nothing here.
    assert "strict-transport-security" not in fields
    assert clear(b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n")[1]["location"] == "https://b.example/"
    assert clear(b"GET / HTTP/1.0\r\n\r\n")[0] == 400
    with connect(server, context(tls.own[0])) as connection:
        for path in ("/hello.txt", "/hello.txt", "/nothing"):
            fields = fetch(connection, path)[1]
            assert fields["strict-transport-security"] == "max-age=31536000; includeSubDomains"
        assert fetch(connection)[2] == b"hello\n"
        assert b"\r\nstrict-transport-security: " in read_chunked(connection)[1].lower()
    done = subprocess.run(
        ["curl", "-sS", "--http2", "-D-", "-o", "/dev/null", "--cacert", tls.own[0],
         "--resolve", f"localhost:{server.port}:127.0.0.1", f"https://localhost:{server.port}/hello.txt"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.stdout.startswith("HTTP/2 200") and "strict-transport-security: max-age=31536000" in done.stdout


CLOSE_WAIT = 8


def test_early_data_is_processed_only_for_safe_requests(tls, tmp_path):
    server = tls(keys="early_data = true", more=cgi(tmp_path))
    session = tmp_path / "session"
    hello = b"GET /hello.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"
    response = early(server, tls.own[0], session, hello)
    assert b"HTTP/1.1 200" in response and b"\nhello\n" in response, response.decode()
    # The same session again is a replay: the request is processed when it is repeated after the handshake.
    last = b"GET /cgi-bin/env?again HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    response = early(server, tls.own[0], session, hello, last)
    assert b"Early data was rejected" in response and b"\nhello\n" not in response
    assert b"QUERY_STRING=again" in response and b"HTTP_EARLY_DATA" not in response
    for request, wanted in (
        (b"POST /cgi-bin/env HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 425"),
        (b"GET /cgi-bin/env HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 425"),
        (b"GET /cgi-bin/env HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP_EARLY_DATA=1"),
    ):
        session.unlink()
        response = early(server, tls.own[0], session, request)
        assert wanted in response, response.decode()
    with connect(server, context(tls.own[0])) as connection:
        assert "HTTP_EARLY_DATA" not in variables(connection)


class Records:
    """A client that sees how long the records are that it gets."""

    def __init__(self, server, trust):
        self.socket = socket.create_connection(server.address, timeout=15)
        self.arrived, self.leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context(trust).wrap_bio(self.arrived, self.leaving, server_hostname="localhost")
        self.waiting, self.lengths = b"", []
        self.run(self.tls.do_handshake)

    def run(self, step, *arguments):
        while True:
            try:
                result = step(*arguments)
                self.socket.sendall(self.leaving.read())
                return result
            except ssl.SSLWantReadError:
                self.socket.sendall(self.leaving.read())
                part = self.socket.recv(1 << 16)
                assert part, "closed"
                self.count(part)
                self.arrived.write(part)

    def count(self, part):
        self.waiting += part
        while len(self.waiting) >= 5 and len(self.waiting) >= (end := 5 + int.from_bytes(self.waiting[3:5], "big")):
            self.lengths.append(end)
            self.waiting = self.waiting[end:]

    def get(self, path, size):
        """The lengths of the records that bring this file."""
        self.run(self.tls.write, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        first, body = len(self.lengths), b""
        while len(body.partition(b"\r\n\r\n")[2]) < size:
            body += self.run(self.tls.read, 1 << 16)
        # The ticket has a record of its own.
        return self.lengths[first + (1 if first < 8 and self.lengths[first] < 300 else 0) :]


@pytest.mark.parametrize("size", [60_000, 1_000_000])
def test_records_are_small_at_first_and_then_full(tls, site, size):
    write(site / "data.bin", os.urandom(size))
    client = Records(tls(), tls.own[0])
    lengths = client.get("/data.bin", size)
    assert all(length <= 1400 for length in lengths[:8]), lengths[:20]
    assert max(lengths) > 16_384 and sum(length <= 1400 for length in lengths) <= 9, lengths[:20]
    again = client.get("/data.bin", size)
    assert max(again[:4]) > 16_384 and sum(length <= 1400 for length in again) <= 3, again[:20]
    time.sleep(1.3)  # Then the connection is idle.
    lengths = client.get("/data.bin", size)
    assert all(length <= 1400 for length in lengths[:8]), lengths[:20]
