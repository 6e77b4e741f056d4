"""Certificates that are obtained and renewed by ACME, from a real authority (Pebble)."""

import json
import socket
import ssl
import subprocess
import time

import pytest

from support.acme import authority, free_port, handshake  # noqa: F401
from support.files import write
from support.http import read_response
from support.server import DUNLIN
from support.tls import certificate
from support.waiting import wait_until


@pytest.fixture
def start(tmp_path, serve, site, authority):
    """Starts a server with a site whose certificate is to be obtained, and one that has its own."""
    own = certificate(tmp_path, "own", ("own.example",))
    write(site / "hello.txt", b"hello\n")

    def begin(more="", listeners=("true", "false"), ports=(0, 0)):
        addresses = "".join(
            f'[[listen]]\naddress = "127.0.0.1:{port}"\ntls = {tls}\n' for tls, port in zip(listeners, ports)
        )
        server = serve(
            text=f'[server]\nthreads = 1\nstate = "state"\nadmin = "admin"\n{addresses}'
            f'[[site]]\nhost = ["a.example", "b.example"]\nroot = "{site}"\n'
            f'tls = {{ acme = {{ contact = "admin@a.example", directory = "{authority.directory}", authority = "{authority.trust}", {more} }} }}\n'
            f'[[site]]\nhost = "own.example"\nroot = "{site}"\n'
            f'tls = {{ certificate = "{own[0]}", key = "{own[1]}" }}\n'
        )
        server.plain = int(server.process.stdout.readline().decode().rsplit(":", 1)[1].strip("/\n"))
        return server

    begin.own = own[0]
    return begin


def check(tmp_path, number=0):
    done = subprocess.run(
        [DUNLIN, "check", "--config", tmp_path / f"dunlin-{number}.toml"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("challenge", ["tls-alpn-01", "http-01"])
def test_a_certificate_is_obtained_and_survives_a_restart(tmp_path, start, authority, challenge):
    # The authority is not there yet.
    server = start(f'challenge = "{challenge}"')
    server.logged("the certificate was not obtained, there is none yet")
    assert handshake(server, "own.example", start.own.read_text())
    assert handshake(server, "a.example", start.own.read_text()) is None
    server.logged("TLS handshakes fail until a certificate is available")
    reported = check(tmp_path)
    assert "not obtained yet" in reported and "tried 1 time," in reported and "next try" in reported
    if challenge == "http-01":
        authority.start(http=server.plain)
    else:
        authority.start(tls=server.port)
    shown = wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate", 25)
    assert handshake(server, "b.example", authority.root()) == shown
    assert handshake(server, "own.example", start.own.read_text())
    wait_until(lambda: list((tmp_path / "state").rglob("*.renewal")), "the server requests the renewal time")
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert len(files) == 3 and all(path.stat().st_mode & 0o777 == 0o600 for path in files), files
    reported = check(tmp_path)
    assert "for a.example, b.example: until" in reported and "renewal on" in reported and "tried" not in reported
    # It is stored: the authority gets no further request.
    root = authority.root()
    server.stop()
    authority.stop()
    again = start(f'challenge = "{challenge}"')
    assert handshake(again, "a.example", root) == shown
    assert "is ordered" not in again.log


def test_it_is_renewed_and_outlives_its_authority(tmp_path, start, authority):
    first_port = free_port()
    # A busy machine needs a part of the remaining lifetime.
    authority.start(tls=first_port, life=12)
    server = start('challenge = "tls-alpn-01"', ports=(first_port, 0))
    first = wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate")
    made = ssl.create_default_context(cadata=authority.root())
    kept = made.wrap_socket(socket.create_connection(server.address), server_hostname="a.example")
    second = wait_until(
        lambda: (shown := handshake(server, "a.example", authority.root())) not in (None, first) and shown, "renewal"
    )
    # Open connections continue.
    kept.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert read_response(kept)[2] == b"hello\n"
    assert second
    root = authority.root()
    authority.stop()
    server.logged("the certificate was not obtained, the current one stays in use")
    assert handshake(server, "a.example", root)
    # It may have ended in the middle of an order first.
    wait_until(lambda: "Connection refused" in check(tmp_path), "that no server responds", 25)

    def status():
        done = subprocess.run(["curl", "-sS", "--unix-socket", tmp_path / "admin", "http://x/status.json"], capture_output=True)
        reported, own = json.loads(done.stdout)["certificates"]
        assert own["names"] == ["own.example", "127.0.0.1"] and (own["failures"], own["renewal"]) == (0, None)
        return reported if "Connection refused" in (reported["error"] or "") else None

    reported = wait_until(status, "the failure in the status")
    assert reported["failures"] and "Connection refused" in reported["error"] and reported["failed_at"] < reported["next_try"] < time.time() + 3600
    assert reported["names"] == ["a.example", "b.example"] and reported["expires"] and reported["renewal"]
    # It restarts without any state: the account is created again.
    authority.start(tls=first_port, life=3600)
    wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate of the new root", 25)
    assert "tried" not in check(tmp_path)


def test_a_certificate_is_renewed_when_the_authority_suggests(tmp_path, start, authority):
    port = free_port()
    authority.start(tls=port, life=300)
    server = start('challenge = "tls-alpn-01"', ports=(port, 0))
    first = wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate")
    (kept,) = wait_until(lambda: list((tmp_path / "state").rglob("*.renewal")), "the server requests the renewal time")
    planned = json.loads(kept.read_text())
    # It will revoke it.
    pem = ssl.DER_cert_to_PEM_cert(first)
    window = {"suggestedWindow": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}}
    authority.manage("set-renewal-info/", {"Certificate": pem, "ARIResponse": json.dumps(window)})
    server.stop()
    again = start('challenge = "tls-alpn-01"', ports=(port, 0))
    again.logged("the authority has set the time of renewal")
    wait_until(
        lambda: (shown := handshake(again, "a.example", authority.root())) not in (None, first) and shown, "renewal", 25
    )
    # The result of the old certificate does not apply to the new one.
    wait_until(lambda: json.loads(kept.read_text())["certificate"] != planned["certificate"], "the renewal time is requested again")
    # The order names the certificate that it replaces.
    assert "has been marked as replaced" in (tmp_path / "pebble.log").read_text()


def test_external_account_binding(tmp_path, start, authority):
    key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
    port = free_port()
    authority.start(tls=port, keys={"kid-1": key})
    unknown = start('challenge = "tls-alpn-01"', ports=(port, 0))
    unknown.logged("externalAccountRequired")
    unknown.stop()
    (tmp_path / "eab.key").write_text(key + "\n")
    external = 'external_account = { id = "kid-1", key = "eab.key" }'
    server = start(f'challenge = "tls-alpn-01", {external}', ports=(port, 0))
    wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate", 25)
    (tmp_path / "eab.key").write_text("no key!\n")
    done = subprocess.run([DUNLIN, "check", "-c", tmp_path / "dunlin-1.toml"], capture_output=True, text=True)
    assert done.returncode == 1 and "eab.key: it is not in base64url" in done.stderr, done.stderr


def test_when_one_proof_fails_the_other_is_tried(start, authority):
    plain = free_port()
    authority.start(http=plain, tls=free_port())
    server = start(ports=(0, plain))
    wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate", 40)
    for text in ('challenge="tls-alpn-01"', 'challenge="http-01"', "for the tls-alpn-01 challenge"):
        server.logged(text)


def test_a_site_that_cannot_have_a_certificate_is_an_error_with_its_location(tmp_path):
    def problem(site, listen="tls = true"):
        file = tmp_path / "bad.toml"
        file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n{listen}\n[[site]]\nroot = "."\n{site}\n')
        done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr

    assert ":6:16: acme: the site has no `host`" in problem("tls = { acme = {} }")
    assert "https://" in problem('host = "a.example"\ntls = { acme = { directory = "http://x/" } }')
    assert "no listener is without TLS" in problem('host = "a.example"\ntls = { acme = { challenge = "http-01" } }')
    assert "did you mean `http-01`" in problem('host = "a.example"\ntls = { acme = { challenge = "http-1" } }')
    assert "either named or obtained" in problem(
        'host = "a.example"\ntls = { acme = {}, certificate = "a", key = "b" }'
    )
    assert "there is no certificate" in problem("tls = {}")
    assert "has no key" in problem('tls = { certificate = "a" }')
