"""Several authorities, profiles, and certificates for addresses, with real authorities (Pebble)."""

import socket
import ssl
import subprocess

import pytest

from support.acme import Authority, authority, free_port, handshake, serve_acme  # noqa: F401
from support.http import read_response
from support.server import DUNLIN
from support.tls import certificate, openssl
from support.waiting import wait_until


@pytest.fixture
def other(tmp_path):
    (tmp_path / "other").mkdir()
    made = Authority(tmp_path / "other")
    yield made
    made.close()


def table(authority, more=""):
    return f'{{ url = "{authority.directory}", authority = "{authority.trust}"{more} }}'


def test_the_next_authority_is_used_when_the_first_fails(tmp_path, serve, site, authority, other):
    port = free_port()
    other.start(tls=port)
    acme = f"directory = [{table(authority)}, {table(other)}]"
    server = serve_acme(serve, site, f'{acme}, challenge = "tls-alpn-01"', ports=(port, 0))
    wait_until(lambda: handshake(server, "a.example", other.root()), "a certificate of the second", 25)
    server.logged("the next authority is tried: ")
    # The certificate is kept with the first one; each has an account of its own.
    (kept,) = (tmp_path / "state").rglob("*.pem")
    (account,) = (tmp_path / "state").rglob("account.json")
    assert kept.parent != account.parent
    # The second one is queried for the renewal time of its certificate.
    wait_until(lambda: list((tmp_path / "state").rglob("*.renewal")), "the renewal time")
    server.stop()
    # Without a certificate, the first one is preferred again.
    kept.unlink()
    authority.start(tls=port)
    again = serve_acme(serve, site, f'{acme}, challenge = "tls-alpn-01"', ports=(port, 0))
    wait_until(lambda: handshake(again, "a.example", authority.root()), "a certificate of the first", 25)
    assert len(list((tmp_path / "state").rglob("account.json"))) == 2


def test_the_failures_of_all_authorities_are_reported(serve, site, authority, other):
    other.start(profiles={"classic": 7776000, "tlsserver": 7776000})
    lacking = table(other, ', profile = "none"')
    acme = f"directory = [{table(authority)}, {lacking}]"
    server = serve_acme(serve, site, acme)
    server.logged(f'{other.directory}: the authority has no profile "none"; it has classic, tlsserver')
    line = next(line for line in server.log.splitlines() if "there is none yet" in line)
    assert f"{authority.directory}: " in line and "Connection refused" in line


def test_a_certificate_has_the_profile(tmp_path, serve, site, authority):
    port = free_port()
    lives = {f"other{number}": 7776000 for number in range(20)}
    authority.start(tls=port, profiles={**lives, "shortlived": 518400})
    acme = f'directory = "{authority.directory}", authority = "{authority.trust}", challenge = "tls-alpn-01", profile = "shortlived"'
    server = serve_acme(serve, site, acme, ports=(port, 0))
    shown = wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate", 25)
    (tmp_path / "shown.pem").write_text(ssl.DER_cert_to_PEM_cert(shown))
    openssl("x509", "-in", tmp_path / "shown.pem", "-noout", "-checkend", 5 * 86400)
    # It has ended after six days.
    ends = subprocess.run(["openssl", "x509", "-in", tmp_path / "shown.pem", "-noout", "-checkend", str(7 * 86400)], capture_output=True)
    assert ends.returncode == 1


@pytest.mark.parametrize("challenge", ["tls-alpn-01", "http-01"])
@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_an_address_has_a_certificate(tmp_path, serve, site, authority, address, challenge):
    tls, plain, bare = free_port(), free_port(), address.strip("[]")
    authority.start(tls=tls, http=plain)
    own = certificate(tmp_path, "own", ("own.example",))
    (site / "hello.txt").write_text("hello\n")
    serve(
        text=f'[server]\nthreads = 1\nstate = "state"\n'
        f'[[listen]]\naddress = "{address}:{tls}"\ntls = true\n[[listen]]\naddress = "{address}:{plain}"\n'
        f'[[site]]\nhost = "own.example"\nroot = "{site}"\ntls = {{ certificate = "{own[0]}", key = "{own[1]}" }}\n'
        f'[[site]]\nhost = "{address}"\nroot = "{site}"\ntls = {{ acme = {{ '
        f'directory = "{authority.directory}", authority = "{authority.trust}", challenge = "{challenge}" }} }}\n'
    )
    def connect():
        if not (root := authority.root()):
            return None
        try:
            trusting = ssl.create_default_context(cadata=root)
            # A client names no address in the handshake. The site of the address is not the first one.
            return trusting.wrap_socket(socket.create_connection((bare, tls)), server_hostname=bare)
        except ssl.SSLError:
            return None

    with wait_until(connect, "a certificate", 25) as connection:
        assert [kind for kind, _ in connection.getpeercert()["subjectAltName"]] == ["IP Address"]
        # Its policy is that of its own site.
        connection.sendall(f"GET /hello.txt HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        assert read_response(connection)[2] == b"hello\n"
    done = subprocess.run([DUNLIN, "check", "-c", tmp_path / "dunlin-0.toml"], capture_output=True, text=True)
    assert f"for {bare}: until" in done.stdout, done.stdout


def test_settings_of_several_authorities_are_checked(tmp_path):
    def problem(acme, code=1):
        file = tmp_path / "bad.toml"
        file.write_text(f'[[listen]]\naddress = "127.0.0.1:443"\ntls = true\n[[site]]\nhost = "192.0.2.7"\nroot = "."\ntls.acme = {{ {acme} }}\n')
        done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
        assert done.returncode == code, (acme, done.stdout, done.stderr)
        return done.stderr

    first, second = "https://a.example/dir", "https://b.example/dir"
    account = 'external_account = { id = "kid-1", key = "eab.key" }'
    assert "each of several directories has its own external_account" in problem(f'directory = ["{first}", "{second}"], {account}')
    assert f'the directory "{first}" is listed twice' in problem(f'directory = ["{first}", {{ url = "{first}" }}]')
    assert "the list of directories is empty" in problem("directory = []")
    assert '"http://b" is not a URL that begins with https://' in problem(f'directory = ["{first}", "http://b"]')
    assert "a URL or a list of URLs" in problem("directory = 1")
    # Let's Encrypt needs the profile for addresses.
    advice = 'Let\'s Encrypt issues certificates for addresses with profile = "shortlived" only'
    assert advice in problem("", code=0)
    assert advice not in problem('profile = "shortlived"', code=0)
    assert advice not in problem(f'directory = "{first}"', code=0)
