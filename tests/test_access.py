"""Address rules, methods, and clients behind proxies."""

import socket
import struct
import subprocess

import pytest

from support.files import write
from support.http import parse, read_all

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def statuses(server, paths, *fields, method="GET"):
    return [server.get(path, *fields, method=method)[0] for path in paths]


def test_the_smallest_network_decides_for_files_scripts_and_cached_responses(serve, site):
    write(site / "open.txt", "open")
    write(site / "a/closed.txt", "closed")
    write(site / "a/b/mine.txt", "mine")
    server = serve(
        more="""
        [[site.route]]
        path = "/a/*"
        deny = ["127.0.0.0/8"]
        [[site.route]]
        path = "/a/b/*"
        allow = ["127.0.0.1"]
        [[site.route]]
        path = "/fixed"
        respond = { body = "x" }
        allow = ["192.0.2.0/24"]
        [[site.route]]
        path = "/secret.txt"
        allow = ["192.0.2.0/24"]
        """
    )
    write(site / "secret.txt", "secret")
    # From the second time on, the responses come from the cache.
    for _ in range(3):
        paths = ["/open.txt", "/a/closed.txt", "/a/b/mine.txt", "/fixed", "/secret.txt"]
        assert statuses(server, paths) == [200, 403, 200, 403, 403]
        # However the path is written, it is the same file.
        assert statuses(server, ["/%61/closed.txt", "/a/./closed.txt", "//secret.txt"]) != [200] * 3
        assert 200 not in statuses(server, ["/%61/closed.txt", "/a/b/../closed.txt", "/%73ecret.txt"])
    assert server.get("/a/closed.txt")[2] != b"closed"


def test_an_index_or_try_file_has_the_checks_of_its_own_path_too(serve, site):
    write(site / "index.html", "front")
    write(site / "hidden.html", "hidden")
    write(site / "d/index.html", "inner")
    server = serve(
        more="""
        [[site.route]]
        path = "/index.html"
        deny = ["0.0.0.0/0"]
        [[site.route]]
        path = "/app/*"
        try = ["{path}", "/hidden.html"]
        [[site.route]]
        path = "/hidden.html"
        deny = ["0.0.0.0/0"]
        """
    )
    for _ in range(3):
        assert statuses(server, ["/", "/index.html", "/app/x", "/hidden.html", "/d/"]) == [
            403, 403, 403, 403, 200,
        ]


def test_disallowed_methods_get_405_with_the_allowed_ones(serve, site):
    write(site / "x.txt", "x")
    server = serve(route='methods = ["GET"]')
    assert statuses(server, ["/x.txt"]) == statuses(server, ["/x.txt"], method="HEAD") == [200]
    status, fields, _ = server.get("/x.txt", method="OPTIONS")
    assert status == 405 and fields["allow"] == "GET, HEAD"


def test_only_trusted_proxies_are_believed(serve, site, tmp_path):
    write(site / "x.txt", "x")
    log = tmp_path / "access.log"
    config = f"""
        access_log = {{ path = "{log}", format = "{{remote}}" }}
        """
    route = 'allow = ["192.0.2.7", "2001:db8::/32"]'
    trusting = serve(route=route, server=config + 'trusted_proxies = ["127.0.0.0/8", "10.0.0.0/8"]')
    for field, status in [
        ("X-Forwarded-For: 192.0.2.7", 200),
        ("X-Forwarded-For: 192.0.2.7, 10.2.3.4", 200),
        ("X-Forwarded-For: 192.0.2.7, 192.0.2.8", 403),
        ("X-Forwarded-For: [2001:db8::5]:99", 200),
        ('Forwarded: for="[2001:db8::5]:99";proto=https', 403),
        ("X-Other: 1", 403),
    ]:
        assert trusting.get("/x.txt", field)[0] == status, field
    trusting.stop()
    assert log.read_text().split() == ["192.0.2.7", "192.0.2.7", "192.0.2.8", "2001:db8::5", "127.0.0.1", "127.0.0.1"]
    assert serve(route=route).get("/x.txt", "X-Forwarded-For: 192.0.2.7")[0] == 403


@pytest.mark.parametrize("tls", [False, True])
def test_checks_scripts_and_log_use_the_address_of_the_proxy_protocol(serve, site, tmp_path, tls):
    script = write(site / "who", '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n$REMOTE_ADDR $REMOTE_PORT $SERVER_PORT"\n')
    script.chmod(0o755)
    log = tmp_path / "access.log"
    text = f"""
        [server]
        threads = 1
        access_log = {{ path = "{log}", format = "{{remote}}" }}
        [[listen]]
        address = "127.0.0.1:0"
        proxy_protocol = true
        tls = {str(tls).lower()}
        [[site]]
        root = "{site}"
        {'tls = { certificate = "c.pem", key = "k.pem" }' if tls else ''}
        [[site.route]]
        path = "/*"
        allow = ["192.0.2.0/24", "2001:db8::/32"]
        script = {{ kind = "cgi", directory = "{site}" }}
    """
    if tls:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-keyout", tmp_path / "k.pem", "-out", tmp_path / "c.pem", "-subj", "/CN=x"],
            check=True, capture_output=True,
        )
    server = serve(text=text)

    def fetch(header):
        import ssl

        with server.connect() as connection:
            connection.sendall(header)
            if tls:
                context = ssl._create_unverified_context()
                connection = context.wrap_socket(connection)
            connection.sendall(b"GET /who HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return parse(read_all(connection))

    assert fetch(b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 443\r\n")[2] == b"192.0.2.9 4711 443"
    address = socket.inet_pton(socket.AF_INET6, "2001:db8::9")
    body = address + address + struct.pack("!HH", 99, 8443)
    v6 = SIGNATURE + b"\x21\x21" + struct.pack("!H", len(body)) + body
    assert fetch(v6)[2] == b"2001:db8::9 99 8443"
    assert fetch(b"PROXY TCP4 198.51.100.1 192.0.2.1 4711 443\r\n")[0] == 403
    with server.connect() as connection:
        connection.sendall(b"GET /who HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            assert connection.recv(100) == b""
        except ConnectionResetError:
            pass
    assert "no PROXY protocol" in server.logged("PROXY protocol")
    server.stop()
    assert log.read_text().split() == ["192.0.2.9", "2001:db8::9", "198.51.100.1"]
