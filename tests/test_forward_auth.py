"""Forward authentication: requests to the endpoint, and the use of its responses."""

import re
import socket
import ssl
import subprocess
import threading

import pytest

from support.files import write
from support.http import parse, read_all
from support.http2 import Client, request
from support.server import DUNLIN
from support.tls import certificate

ALWAYS = {
    "host", "x-original-method", "x-original-uri", "x-forwarded-method", "x-forwarded-uri",
    "x-forwarded-host", "x-forwarded-for", "x-forwarded-proto",
}


class Endpoint:
    """Another server: records requests, and responds with given bytes. Each connection serves one request."""

    def __init__(self, response=b"HTTP/1.1 204 No Content\r\n\r\n", tls=None):
        self.response, self.requests, self.tls = response, [], tls
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = "%s://127.0.0.1:%d/check" % ("https" if tls else "http", self.socket.getsockname()[1])
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
                if self.tls:
                    connection = self.tls.wrap_socket(connection, server_side=True)
            except ssl.SSLError:
                continue
            except OSError:
                return
            with connection:
                data = b""
                while b"\r\n\r\n" not in data and (part := connection.recv(1 << 16)):
                    data += part
                self.requests.append(data.decode("latin-1"))
                try:
                    connection.sendall(self.response)
                except ConnectionError:
                    # The server does not read a body that it does not use.
                    pass

    def names(self):
        """The names of the fields of the last request, as it spells them."""
        return [line.split(":")[0] for line in self.requests[-1].split("\r\n")[1:] if line]

    def value(self, name):
        values = re.findall(rf"(?im)^{re.escape(name)}: (.*)\r$", self.requests[-1])
        assert len(values) <= 1, f"{name} more than once"
        return values[0] if values else None


@pytest.fixture
def endpoint():
    endpoint = Endpoint()
    yield endpoint
    endpoint.socket.close()


def test_the_endpoint_gets_no_field_of_the_client_that_is_not_named(serve, site, endpoint):
    write(site / "x.txt", "x")
    server = serve(route=f'auth = {{ forward = "{endpoint.url}", user_field = "X-User" }}')
    spoofed = [
        "X_Forwarded_Uri", "X.Forwarded.Uri", "X-Forwarded_Uri", "X_Forwarded_For", "X_Forwarded_Method", "X_Original_URI",
        "X-Original-URI", "X-Original-URL", "X.Original.URI", "X-Forwarded-Uri", "X-Forwarded-User", "X-Forwarded-Anything",
        "Forwarded", "X-Real-IP", "X-User", "X_User", "X.User", "Remote-User", "Remote_User", "Proxy-Authorization",
        "Proxy-Connection", "Keep-Alive", "TE", "X-Whatever", "Range", "If-None-Match", "X-Rewrite-URL", "X!Y", "Content-Type",
    ]
    wanted = {"Cookie": "a=b", "Authorization": "Bearer x", "Accept": "text/html", "User-Agent": "me", "X-Requested-With": "r",
              "Accept-Language": "de", "Origin": "http://o", "Referer": "http://r/"}
    lines = [f"{name}: /public" for name in spoofed] + [f"{name.lower()}: {value}" for name, value in wanted.items()]
    status, _, body = server.get("/x.txt?q=1", *lines)
    assert (status, body) == (200, b"x")
    assert {name.lower() for name in endpoint.names()} == ALWAYS | {name.lower() for name in wanted}
    for name, value in {**wanted, "X-Forwarded-Uri": "/x.txt?q=1", "X-Original-URI": "/x.txt?q=1", "X-Forwarded-For": "127.0.0.1",
                        "X-Forwarded-Method": "GET", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "x"}.items():
        assert endpoint.value(name) == value, name
    assert "/public" not in endpoint.requests[-1]
    # The target with a host is the same path.
    server.exchange(b"GET http://x/x.txt?q=2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert endpoint.value("X-Forwarded-Uri") == endpoint.value("X-Original-URI") == "/x.txt?q=2"


def test_the_configuration_names_the_fields_that_the_endpoint_gets(serve, site, endpoint):
    write(site / "x.txt", "x")
    server = serve(route=f'auth = {{ forward = "{endpoint.url}", forward_fields = ["X-Token", "cookie"] }}')
    fields = ["X-Token: 1", "X_Token: 2", "x-token: 3", "Cookie: a=b", "Cookie: c=d", "Authorization: Bearer x", "Accept: */*"]
    assert server.get("/x.txt", *fields)[0] == 200
    assert {name.lower() for name in endpoint.names()} == ALWAYS | {"x-token", "cookie"}
    assert endpoint.value("X-Token") == "1, 3" and endpoint.value("Cookie") == "a=b; c=d"
    # Fields about the client's own connection are not forwarded.
    assert server.get("/x.txt", "Connection: X-Token", "X-Token: 1", "Cookie: a=b")[0] == 200
    assert endpoint.value("X-Token") is None and endpoint.value("Cookie") == "a=b"
    client = Client(server)
    client.send(request(1, "/x.txt", "GET", ("x-token", "5"), ("cookie", "a=b"), ("cookie", "c=d"), ("x_token", "6"), ("x-user", "u")))
    while not (frame := client.read())[1] & 1 or frame[2] != 1:
        pass
    assert {name.lower() for name in endpoint.names()} == ALWAYS | {"x-token", "cookie"}
    assert endpoint.value("X-Token") == "5" and endpoint.value("Cookie") == "a=b; c=d"


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_the_body_of_the_endpoint_may_be_large(serve, site, endpoint, framing):
    write(site / "x.txt", "x")
    server = serve(route=f'auth = {{ forward = "{endpoint.url}" }}')

    def respond(status, size):
        body = b"p" * size
        fields = {"length": b"Content-Length: %d\r\n" % size, "chunked": b"Transfer-Encoding: chunked\r\n", "close": b""}[framing]
        if framing == "chunked":
            body = (b"%x\r\n%s\r\n" % (size, body) if size else b"") + b"0\r\n\r\n"
        endpoint.response = b"HTTP/1.1 %s\r\nRemote-User: ann\r\n%s\r\n%s" % (status, fields, body)

    for size in (0, 100, 70_000, 3_000_000, 20_000_000):
        respond(b"200 OK", size)
        assert server.get("/x.txt")[::2] == (200, b"x"), size
    for size in (100, 70_000, 3_000_000, 4 << 20):
        respond(b"403 Forbidden", size)
        assert server.get("/x.txt")[::2] == (403, b"p" * size), size
    respond(b"403 Forbidden", (4 << 20) + 1)
    assert server.get("/x.txt")[0] == 502
    assert "larger than 4194304 bytes" in server.logged("the response is 502")


@pytest.mark.parametrize("name", ["X_Token", "Proxy-Authorization", "Host", "X-Forwarded-Uri", "Remote-User", "remote_user", "TE", ""])
def test_fields_that_an_endpoint_may_not_get_are_an_error(tmp_path, site, name):
    file = tmp_path / "dunlin.toml"
    file.write_text(
        f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n[[site.route]]\npath = "/*"\n'
        f'auth = {{ forward = "http://a/", forward_fields = ["{name}"] }}\n'
    )
    done = subprocess.run([DUNLIN, "check", "-c", str(file)], capture_output=True, text=True)
    assert done.returncode == 1 and "dunlin.toml:7:" in done.stderr and "forward_fields" in done.stderr


ENV = '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n"\nenv\n'


def test_scripts_get_the_user_of_the_endpoint_and_none_of_the_client(serve, site, endpoint):
    write(site / "env", ENV).chmod(0o755)
    script = f'script = {{ kind = "cgi", directory = "{site}" }}'
    server = serve(
        more=f"""
        [[site.route]]
        path = "/*"
        auth = {{ forward = "{endpoint.url}", user_field = "X-User" }}
        {script}
        [[site.route]]
        path = "/public/*"
        auth = false
        script = {{ kind = "cgi", directory = "{site}" }}
        """
    )
    spoofed = ["X-User: eve", "X_User: eve", "X.User: eve", "x-user: eve"]

    def variables(path, *fields):
        status, _, body = server.get(path, *fields)
        assert status == 200
        return dict(line.split("=", 1) for line in body.decode().splitlines())

    for user in ["ann", None]:
        named = f"X-User: {user}\r\n" if user else ""
        endpoint.response = f"HTTP/1.1 200 OK\r\n{named}Content-Length: 0\r\n\r\n".encode()
        seen = variables("/env", *spoofed)
        assert seen.get("REMOTE_USER") == user and "HTTP_X_USER" not in seen and "eve" not in seen.values()
    # Nor where the same site requires no authentication: the application behind may be the same.
    seen = variables("/public/env", *spoofed)
    assert "REMOTE_USER" not in seen and "eve" not in seen.values()


def rejection(fields):
    return b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n" + fields + b"\r\nno"


def test_fields_of_the_endpoints_connection_do_not_reach_the_client(serve, site, endpoint):
    write(site / "x.txt", "x")
    server = serve(route=f'auth = {{ forward = "{endpoint.url}" }}')
    endpoint.response = rejection(
        b"Connection: X-Hop, close\r\nX-Hop: 1\r\nconnection: x-other\r\nX-Other: 1\r\nUpgrade: h2c\r\nKeep-Alive: timeout=5\r\n"
        b"Proxy-Authenticate: Basic\r\nTE: trailers\r\nTrailer: a\r\nWWW-Authenticate: Bearer\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n"
    )
    status, fields, body = server.get("/x.txt")
    assert (status, body, fields["www-authenticate"], fields["set-cookie"]) == (401, b"no", "Bearer", "a=b, c=d")
    kept = {"www-authenticate", "set-cookie", "content-length", "date", "server", "connection"}
    assert set(fields) == kept and fields["connection"] == "close"


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nRemote-User: ann\r\nRemote-User: root\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nremote-user: ann\r\nRemote-User: ann\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nRemote-User: \xff\xfe\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA B: 1\r\nContent-Length: 0\r\n\r\n",
        b"",
    ],
)
def test_a_response_without_a_decision_is_502(serve, site, endpoint, response):
    write(site / "x.txt", "x")
    endpoint.response = response
    server = serve(route=f'auth = {{ forward = "{endpoint.url}" }}')
    assert server.get("/x.txt")[0] == 502
    server.logged(f"forward authentication at {endpoint.url}: ")
    done = subprocess.run(
        ["curl", "-sS", "-o", "-", "-w", " %{http_code}", "--http2-prior-knowledge", server.url + "/x.txt"],
        capture_output=True, text=True, timeout=30,
    )
    assert done.stdout.endswith(" 502"), done


CHECK = """#!/bin/sh
env > "$PROBE"
case "$HTTP_COOKIE" in
in=*) printf "Remote-User: ${HTTP_COOKIE#in=}\\n\\n" ;;
*) printf "Status: 403\\nConnection: X-Hop\\nX-Hop: 1\\nUpgrade: h2c\\nContent-Type: text/plain\\n\\nno" ;;
esac
"""


def test_a_path_of_the_same_site_works_like_another_server(serve, site, tmp_path):
    write(site / "x.txt", "x")
    write(site / "bin/check", CHECK).chmod(0o755)
    probe = tmp_path / "probe"
    server = serve(
        server='trusted_proxies = ["127.0.0.1"]',
        more=f"""
        [[site.route]]
        path = "/*"
        auth = {{ forward = "/bin/check" }}
        [[site.route]]
        path = "/bin/*"
        internal = true
        script = {{ kind = "cgi", directory = "{site}/bin", env = {{ PROBE = "{probe}" }} }}
        """
    )
    spoofed = ["X-Forwarded-Uri: /public", "X_Forwarded_Uri: /public", "Remote-User: eve", "X-Whatever: eve", "Forwarded: for=7.7.7.7"]
    assert server.get("/x.txt?a", "Cookie: in=ann", "X-Forwarded-For: 192.0.2.9", *spoofed)[0] == 200
    seen = dict(line.split("=", 1) for line in probe.read_text().splitlines())
    names = {name[5:].lower().replace("_", "-") for name in seen if name.startswith("HTTP_")}
    assert names == ALWAYS | {"cookie", "x-request-id", "traceparent"}
    assert seen["HTTP_X_FORWARDED_URI"] == "/x.txt?a" and seen["HTTP_X_FORWARDED_FOR"] == "192.0.2.9" == seen["REMOTE_ADDR"]
    assert "eve" not in seen.values() and "/public" not in seen.values()
    with server.connect() as connection:
        connection.sendall(b"GET /x.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status, fields, _ = parse(read_all(connection))
    assert status == 403 and "x-hop" not in fields and "upgrade" not in fields


def test_an_endpoint_by_https_has_to_be_trusted(serve, site, tmp_path):
    write(site / "x.txt", "x")
    authority, stranger = certificate(tmp_path, "authority"), certificate(tmp_path, "stranger")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path, "own", issuer=authority))
    endpoint = Endpoint(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", tls=context)
    auth = f'forward = "{endpoint.url}"'
    server = serve(route=f'auth = {{ {auth}, forward_authority = "{authority[0]}" }}')
    for _ in range(2):
        assert server.get("/x.txt", "Cookie: a=b")[0] == 200
        assert endpoint.value("Cookie") == "a=b" and endpoint.value("Host") == endpoint.url.split("/")[2]
    before = len(endpoint.requests)
    server = serve(route=f'auth = {{ {auth}, forward_authority = "{stranger[0]}" }}')
    assert server.get("/x.txt")[0] == 502 and len(endpoint.requests) == before
    assert "certificate" in server.logged(f"forward authentication at {endpoint.url}: ").lower()
    with pytest.raises(AssertionError, match="auth: .*none.pem"):
        serve(route=f'auth = {{ {auth}, forward_authority = "none.pem" }}')
    with pytest.raises(AssertionError, match="forward_authority does nothing without an https URL"):
        serve(route=f'auth = {{ forward = "/x", forward_authority = "{authority[0]}" }}')


class Persistent:
    """An endpoint that serves all requests of a connection, and counts its connections."""

    def __init__(self):
        self.connections = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d/" % self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.socket.accept()
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        while part := connection.recv(1 << 16):
            data += part
            while b"\r\n\r\n" in data:
                data = data.split(b"\r\n\r\n", 1)[1]
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_requests_to_an_endpoint_share_a_connection(serve, site):
    write(site / "x.txt", "x")
    endpoint = Persistent()
    server = serve(route=f'auth = {{ forward = "{endpoint.url}" }}')
    for _ in range(5):
        assert server.get("/x.txt")[0] == 200
    assert endpoint.connections == 1
