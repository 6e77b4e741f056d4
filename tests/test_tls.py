"""TLS: certificates and how they are chosen, versions, resumption, renewal, clients' certificates."""

import asyncio
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from support.admin import run
from support.early_data import early
from support.files import settle, write
from support.http import read_all, read_response
from support.http2 import h2spec
from support.server import DUNLIN
from support.tls import fetch, certificate, certificate_of_version_1, connect, context, openssl
from support.waiting import wait_until


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_serve_files_and_keep_the_connection(tls, site, version):
    server = tls()
    assert server.url.startswith("https://")
    with connect(server, context(tls.own[0], version)) as connection:
        for _ in range(3):
            status, fields, body, _ = fetch(connection)
            assert (status, body) == (200, b"hello\n")
        tag = fields["etag"]
        connection.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: x\r\nIf-None-Match: " + tag.encode() + b"\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 304")
        connection.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        # The end is announced (close_notify), so that it is no truncation.
        assert read_all(connection).endswith(b"hello\n")


def test_large_files_arrive_complete_also_at_slow_clients(tls, site):
    sums = {}
    for name, size in {"a.bin": 100_000, "b.bin": 5_000_000, "c.bin": 40_000_000}.items():
        data = os.urandom(size)
        write(site / name, data)
        settle(site / name)
        sums[name] = hashlib.sha256(data).digest()
    server = tls()
    for name, wanted in sums.items():
        for _ in range(3):
            with connect(server, context(tls.own[0])) as connection:
                connection.sendall(f"GET /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                body = read_all(connection).partition(b"\r\n\r\n")[2]
                assert hashlib.sha256(body).digest() == wanted
    with connect(server, context(tls.own[0])) as connection:
        connection.sendall(b"GET /b.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        parts = []
        while part := connection.recv(20_000):
            parts.append(part)
            if len(parts) % 50 == 0:
                time.sleep(0.01)
        body = b"".join(parts).partition(b"\r\n\r\n")[2]
        assert hashlib.sha256(body).digest() == sums["b.bin"]


def test_pipelined_requests_and_uploads(tls, tmp_path):
    directory = tmp_path / "cgi-bin"
    directory.mkdir()
    script = directory / "sum"
    script.write_text("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\necho $HTTPS $REQUEST_SCHEME\nsha256sum\n")
    script.chmod(0o755)
    server = tls(more=f'[[site.route]]\npath = "/cgi-bin/*"\nscript = {{ kind = "cgi", directory = "{directory}" }}\nbody_size = "100MB"\n')
    with connect(server, context(tls.own[0])) as connection:
        connection.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        rest = b""
        for _ in range(50):
            status, _, body, rest = read_response(connection, rest)
            assert (status, body) == (200, b"hello\n")
        data = os.urandom(20_000_000)
        head = f"POST /cgi-bin/sum HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + data)
        response = read_all(connection)
        assert b"on https\n" in response and hashlib.sha256(data).hexdigest().encode() in response


def test_the_certificate_is_chosen_by_name(tls, site):
    other = certificate(tls.folder, "other", ("a.example", "*.b.example"))
    server = tls(more=f'[[site]]\nhost = ["a.example", "*.b.example"]\nroot = "{site}"\ntls = {{ certificate = "{other[0]}", key = "{other[1]}" }}\n[[site]]\nhost = "none.example"\nroot = "{site}"\n')
    for name in ("a.example", "x.b.example"):
        with connect(server, context(other[0]), name) as connection:
            assert fetch(connection)[0] == 200
    with connect(server, context(tls.own[0])) as connection:
        assert fetch(connection)[0] == 200
    with pytest.raises(ssl.SSLError, match="(?i)unrecognized"):
        connect(server, context(tls.own[0]), "none.example")


def test_clients_get_a_key_that_they_can_use(tls):
    rsa = certificate(tls.folder, "rsa", kind="rsa")
    ec = tls.own
    server = tls(pair=(f'{ec[0]}", "{rsa[0]}', f'{ec[1]}", "{rsa[1]}'))
    for wanted, kind in (("ECDSA+SHA256", b"id-ecPublicKey"), ("RSA-PSS+SHA256", b"rsaEncryption")):
        shown = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{server.address[1]}", "-sigalgs", wanted],
            input=b"", capture_output=True, timeout=30,
        ).stdout
        text = subprocess.run(["openssl", "x509", "-noout", "-text"], input=shown, capture_output=True).stdout
        assert kind in text, (wanted, shown[-500:])


def test_sessions_are_resumed_by_tickets(tls):
    server = tls()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        made = context(tls.own[0], version)
        with connect(server, made) as connection:
            fetch(connection)
            session = connection.session
            assert not connection.session_reused
        with connect(server, made, session=session) as connection:
            fetch(connection)
            assert connection.session_reused


def test_sessions_outlive_reloads_and_renewed_certificates(tls):
    admin = tls.folder / "admin.sock"
    server = tls(server=f'admin = "{admin}"')
    made = {version: context(tls.own[0], version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}
    sessions = {}
    for version in made:
        with connect(server, made[version]) as connection:
            fetch(connection)
            sessions[version] = connection.session

    def check():
        for version in made:
            with connect(server, made[version], session=sessions[version]) as connection:
                fetch(connection)
                assert connection.session_reused, version

    check()
    assert run("reload", "--admin", str(admin))[0] == 0
    check()
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log.count("reloaded") >= 2, "the second reload")
    check()
    os.utime(tls.own[0])
    server.logged("the certificate was reloaded from its files")
    check()
    # Another policy ends them.
    file = next(tls.folder.glob("dunlin-*.toml"))
    file.write_text(file.read_text().replace("tls = { certificate", 'tls = { min_version = "1.3", certificate'))
    assert run("reload", "--admin", str(admin))[0] == 0
    with connect(server, made[ssl.TLSVersion.TLSv1_3], session=sessions[ssl.TLSVersion.TLSv1_3]) as connection:
        fetch(connection)
        assert not connection.session_reused


def test_sessions_with_early_data_outlive_a_reload(tls):
    admin = tls.folder / "admin.sock"
    server = tls("early_data = true", server=f'admin = "{admin}"')
    session = tls.folder / "session"
    request = b"GET /hello.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert b"Early data was accepted" in early(server, tls.own[0], session, request, b"x")
    session.unlink()
    assert b"Early data was accepted" in early_after(server, tls, session, request, admin)


def early_after(server, tls, session, request, admin):
    """Early data that is sent after a reload."""
    first = b"GET /hello.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-servername", "localhost", "-CAfile", tls.own[0]]
    done = subprocess.run([*command, "-tls1_3", "-ign_eof", "-sess_out", session], input=first, capture_output=True, timeout=30)
    assert session.exists(), done
    assert run("reload", "--admin", str(admin))[0] == 0
    return early(server, tls.own[0], session, request, b"x")


def test_the_oldest_version_can_be_chosen(tls):
    server = tls('min_version = "1.3"')
    with connect(server, context(tls.own[0])) as connection:
        assert connection.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        connect(server, context(tls.own[0], ssl.TLSVersion.TLSv1_2))


def test_certificates_are_renewed_without_losing_a_connection(tls):
    server = tls(server=f'admin = "{tls.folder}/admin"', more='[[site.route]]\npath = "/status/*"\nstatus = true\n')
    first = tls.own[0].read_text()
    made = context(tls.own[0])
    kept = connect(server, made)
    assert fetch(kept)[0] == 200
    failed = []
    stop = threading.Event()
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

    def load():
        while not stop.is_set():
            try:
                with connect(server, trust) as connection:
                    assert fetch(connection)[0] == 200
            except Exception as error:
                failed.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    certificate(tls.folder, "own", days=60)

    def shown():
        with connect(server, trust) as connection:
            return ssl.DER_cert_to_PEM_cert(connection.getpeercert(True))

    wait_until(lambda: shown().strip() == tls.own[0].read_text().strip(), "the new certificate")
    assert shown() != first
    assert fetch(kept)[0] == 200
    good = tls.own[0].read_text()
    tls.own[0].write_text("nonsense")
    server.logged("the previous one stays in use")
    assert shown().strip() == good.strip()
    # The status has the certificate in use, and the failure of its replacement.
    with connect(server, trust) as connection:
        reported = json.loads(fetch(connection, "/status/status.json")[2])["certificates"]
        [series] = re.findall(rb"^dunlin_tls_certificate_failures{.*} (\d+)$", fetch(connection, "/status/metrics")[2], re.M)
    assert [(one["names"], one["failures"], one["next_try"]) for one in reported] == [(["localhost", "127.0.0.1"], 1, None)]
    assert "own.pem" in reported[0]["error"] and 59.9 < (reported[0]["expires"] - time.time()) / 86400 < 60
    assert series == b"1"
    done = subprocess.run(
        [DUNLIN, "top", "--once", "--interval", "0.1", "--admin", str(tls.folder / "admin")], capture_output=True, text=True
    )
    assert re.search(r"^certificate  default localhost.*: expires in 59 days, failed once: .*own.pem", done.stdout, re.M), done
    tls.own[0].write_text(good)
    server.logged("the certificate was reloaded from its files")
    wait_until(lambda: failures(server, trust) == [0], "the failure to be forgotten")
    stop.set()
    thread.join()
    assert not failed


def failures(server, trust):
    with connect(server, trust) as connection:
        return [one["failures"] for one in json.loads(fetch(connection, "/status/status.json")[2])["certificates"]]


def test_expiring_certificates_are_reported(tls):
    file, key, request = (tls.folder / name for name in ("old.pem", "old.key", "old.csr"))
    openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=old")
    extensions = write(tls.folder / "old.ext", "subjectAltName=DNS:old.example")
    openssl("x509", "-req", "-in", request, "-signkey", key, "-days", "0", "-extfile", extensions, "-out", file)
    server = tls(pair=(file, key))
    reported = server.logged("for old.example: until")
    assert re.search(r"ERROR.*certificate .*old.pem for old.example: until .*, it has expired", reported), reported


def test_client_certificates_can_be_required(tls):
    authority = certificate(tls.folder, "authority")
    client = certificate(tls.folder, "client", issuer=authority)
    stranger = certificate(tls.folder, "stranger")
    server = tls(f'client_authority = "{authority[0]}"')
    with connect(server, context(tls.own[0], client=client)) as connection:
        assert fetch(connection)[0] == 200
    for wrong in (None, stranger):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with connect(server, context(tls.own[0], client=wrong)) as connection:
                fetch(connection)
    server.stop()
    server = tls(f'client_authority = "{authority[0]}", client_required = false')
    with connect(server, context(tls.own[0])) as connection:
        assert fetch(connection)[0] == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    "kind, reason",
    [
        ("version 1", "its X.509 version is not 3"),
        ("stranger", "no authority in `client_authority` has issued it"),
    ],
)
def test_a_rejected_client_certificate_is_logged_once(tls, kind, reason, version):
    authority = certificate(tls.folder, "authority")
    if kind == "version 1":
        client = version_1(tls.folder, authority)
    else:
        client = certificate(tls.folder, kind, issuer=certificate(tls.folder, "another authority"))
    server = tls(f'client_authority = "{authority[0]}"')
    for _ in range(5):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with connect(server, context(tls.own[0], version, client=client)) as connection:
                fetch(connection)
    # A client without a certificate is nothing to report.
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with connect(server, context(tls.own[0], version)) as connection:
            fetch(connection)
    log = server.logged("client certificate")
    lines = [line for line in log.splitlines() if "the client certificate is rejected" in line]
    assert reason in lines[0] and "peer=127.0.0.1" in lines[0], log
    # At most one a second.
    assert len(lines) < 5, log


def version_1(folder, authority):
    """A certificate of X.509 version 1, which OpenSSL makes of a request without extensions."""
    key, file = folder / "old.key", folder / "old.pem"
    request = openssl(
        "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-subj", "/CN=old"
    )
    openssl(
        "x509", "-req", "-CA", authority[0], "-CAkey", authority[1], "-CAcreateserial", "-out", file,
        input=request.encode(),
    )
    assert "Version: 1" in openssl("x509", "-in", file, "-noout", "-text")
    return file, key


def test_curl_and_http_client(tls):
    server = tls()
    done = subprocess.run(
        ["curl", "-sS", "--cacert", tls.own[0], f"https://localhost:{server.address[1]}/hello.txt", "--resolve", f"localhost:{server.address[1]}:127.0.0.1"],
        capture_output=True, text=True, timeout=30,
    )
    assert done.stdout == "hello\n", done.stderr
    connection = http.client.HTTPSConnection("127.0.0.1", server.address[1], context=context(tls.own[0]))
    for _ in range(3):
        connection.request("GET", "/hello.txt")
        assert connection.getresponse().read() == b"hello\n"
    connection.close()


def ocsp_response(folder, authority, leaf):
    """The authority's response about its certificate: that it is good."""
    serial = openssl("x509", "-in", leaf[0], "-noout", "-serial").strip().partition("=")[2]
    index = write(folder / "index.txt", f"V\t400101000000Z\t\t{serial}\tunknown\t/CN=leaf\n")
    made = folder / "leaf.ocsp"
    openssl(
        "ocsp", "-index", index, "-CA", authority[0], "-rsigner", authority[0], "-rkey", authority[1],
        "-issuer", authority[0], "-cert", leaf[0], "-respout", made, "-ndays", "7",
    )
    return made


def test_openssl_can_connect(tls):
    authority = certificate(tls.folder, "authority")
    leaf = certificate(tls.folder, "leaf", issuer=authority)
    client = certificate(tls.folder, "client", ("client.example",), issuer=authority)
    ocsp = ocsp_response(tls.folder, authority, leaf)
    server = tls(f'ocsp = "{ocsp}", client_authority = "{authority[0]}", client_required = false', pair=leaf)
    base = [
        "openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-servername", "localhost",
        "-CAfile", authority[0], "-verify_return_error", "-ign_eof",
    ]

    def openssl_output(*more):
        http_request = b"GET /hello.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        done = subprocess.run([*base, *map(str, more)], input=http_request, capture_output=True, timeout=30)
        output = done.stdout.decode(errors="replace")
        assert "HTTP/1.1 200 OK" in output and "Verify return code: 0 (ok)" in output, output + done.stderr.decode()
        return output

    for option, version in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")]:
        output = openssl_output(option, "-status", "-cert", client[0], "-key", client[1])
        assert re.search(rf"New, {version}, Cipher is", output), output
        assert "OCSP Response Status: successful" in output and "Cert Status: good" in output, output
        # A ticket is stored, and resumes the session; one of TLS 1.2 is part of the handshake.
        session = tls.folder / f"session{option}"
        openssl_output(option, "-sess_out", session)
        assert f"Reused, {version}, Cipher is" in openssl_output(option, "-sess_in", session)
    refused = subprocess.run([*base, "-tls1_1"], input=b"", capture_output=True, timeout=30)
    assert refused.returncode != 0 and b"Cipher is (NONE)" in refused.stdout


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_httpx_sends_concurrent_requests(tls, site, version):
    httpx = pytest.importorskip("httpx")
    files = {f"/{n}.bin": os.urandom(n * 10_007) for n in range(20)}
    for name, data in files.items():
        write(site / name[1:], data)
    server = tls()

    async def everything():
        async with httpx.AsyncClient(
            verify=context(tls.own[0]), http2=version == "HTTP/2", base_url=f"https://localhost:{server.port}"
        ) as client:
            return await asyncio.gather(*(client.get(name) for name in [*files] * 5))

    responses = asyncio.run(everything())
    assert {response.http_version for response in responses} == {version}
    assert all(response.content == files[response.url.path] for response in responses)


def test_a_request_without_tls_gets_400_with_an_explanation(tls):
    server = tls()
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        response = read_all(connection)
        assert response.startswith(b"HTTP/1.1 400 ") and b"https" in response
    for junk in (b"\x16\x03\x01\xff\xff" + b"x" * 100, b"\x00" * 50, b""):
        with server.connect() as connection:
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            try:
                read_all(connection)
            except ConnectionError:
                pass
    with connect(server, context(tls.own[0])) as connection:
        assert fetch(connection)[0] == 200


def test_handshakes_that_stop_are_ended(tls):
    server = tls(server='[server.http1]\nhead_timeout = "300ms"')
    with server.connect() as connection:
        assert connection.recv(10) == b""
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert connection.recv(10) == b""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_of_version_1_is_sent_to_clients(tls, tmp_path, version):
    pair = certificate_of_version_1(tmp_path, "localhost")
    server = tls(pair=pair)
    trusting = context(pair[0], version)
    trusting.check_hostname = False
    with connect(server, trusting) as connection:
        assert fetch(connection)[0] == 200
    other = certificate_of_version_1(tmp_path, "other")
    file = tmp_path / "check.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n[[site]]\nroot = "{tmp_path}"\ntls = {{ certificate = "{pair[0]}", key = "{other[1]}" }}\n')
    result = subprocess.run([DUNLIN, "check", "--config", file], capture_output=True, text=True)
    assert result.returncode == 1 and "is not that of certificate" in result.stderr


def test_errors_are_reported_with_their_location(tls, tmp_path, site):
    own, key = tls.own
    other = certificate(tmp_path, "other")[1]
    file = tmp_path / "check.toml"

    def problem(text, listen="tls = true"):
        file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n{listen}\n[[site]]\nroot = "{site}"\ntls = {{ {text} }}\n')
        return subprocess.run([DUNLIN, "check", "--config", file], capture_output=True, text=True)

    assert "is not that of certificate" in problem(f'certificate = "{own}", key = "{other}"').stderr
    missing = problem(f'certificate = "{tmp_path}/none.pem", key = "{key}"').stderr
    assert ":6:" in missing and "none.pem" in missing and "there is no such file" in missing
    assert "it contains a private key" in problem(f'certificate = "{key}", key = "{key}"').stderr
    assert "not one key for each" in problem(f'certificate = ["{own}", "{own}"], key = "{key}"').stderr
    assert "client_authority" in problem(f'certificate = "{own}", key = "{key}", client_required = true').stderr
    fine = problem(f'certificate = "{own}", key = "{key}"')
    assert "for localhost, 127.0.0.1: until" in fine.stdout and "days are left" in fine.stdout


def test_a_certificate_for_development_is_created_and_stored(tmp_path, site):
    write(site / "index.html", b"hello\n")
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    made = []
    for _ in range(2):
        process = subprocess.Popen(
            [DUNLIN, "serve", site, "--tls-self-signed", "--listen", "127.0.0.1:0", "--access-log", "off"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        url = process.stdout.readline().strip()
        file = tmp_path / "data" / "dunlin" / "localhost.pem"
        reported = process.stdout.readline()
        assert url.startswith("https://") and str(file) in reported, (url, reported, process.stderr.read() if process.poll() else "")
        port = url.rsplit(":", 1)[1].strip("/")
        done = subprocess.run(
            ["curl", "-sS", "--cacert", file, f"https://localhost:{port}/", "--resolve", f"localhost:{port}:127.0.0.1"],
            capture_output=True, text=True, timeout=30,
        )
        assert done.stdout == "hello\n", done.stderr
        made.append(file.read_bytes())
        process.terminate()
        assert process.wait(20) == 0
        process.stdout.close()
        process.stderr.close()
    assert made[0] == made[1]
    assert (tmp_path / "data" / "dunlin" / "localhost.key").stat().st_mode & 0o777 == 0o600


def test_http2_is_agreed_upon_and_large_bodies_arrive(tls, site):
    data = os.urandom(30_000_000)
    write(site / "large.bin", data)
    settle(site / "large.bin")
    server = tls(more='[[listen]]\naddress = "127.0.0.1:0"\ntls = true\nhttp2 = false\n')
    base = ["curl", "-sS", "--cacert", tls.own[0], "--resolve", f"localhost:{server.port}:127.0.0.1"]
    url = f"https://localhost:{server.port}"
    for _ in range(3):
        done = subprocess.run(
            [*base, "-w", "%{stderr}%{http_version}", f"{url}/large.bin"], capture_output=True, timeout=60
        )
        assert done.stderr == b"2" and hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    slow = subprocess.run([*base, "--limit-rate", "8M", f"{url}/large.bin"], capture_output=True, timeout=60)
    assert hashlib.sha256(slow.stdout).digest() == hashlib.sha256(data).digest()
    made = context(tls.own[0])
    made.set_alpn_protocols(["http/1.1"])
    with connect(server, made) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1" and fetch(connection)[0] == 200
    other = int(server.process.stdout.readline().decode().rsplit(":", 1)[1].strip().strip("/"))
    made.set_alpn_protocols(["h2", "http/1.1"])
    with made.wrap_socket(socket.create_connection(("127.0.0.1", other)), server_hostname="localhost") as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"
    done = subprocess.run(
        ["h2load", "-n", "2000", "-c", "4", "-m", "20", f"https://127.0.0.1:{server.port}/hello.txt"],
        capture_output=True, text=True, timeout=60,
    )
    assert "2000 succeeded, 0 failed" in done.stdout, done.stdout


def test_h2spec_finds_nothing_over_tls(tls):
    h2spec(tls(), "-t", "-k")
