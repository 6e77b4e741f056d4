"""The reverse proxy: requests, responses and bodies, and what upstreams do wrong."""

import hashlib
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

from support import http2
from support.http import chunks, dechunk, parse, post, read_all, read_response, read_until_cut, upload
from support.server import DUNLIN
from support.tls import certificate
from support.upstream import Upstream, chunked, read_head, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")


@pytest.fixture
def proxy(serve):
    """Starts a server before upstreams: `proxy(upstream, "more keys", route="...")`."""

    def start(*upstreams, keys="", route="", server="", more=""):
        urls = ", ".join(f'"{getattr(upstream, "url", upstream)}"' for upstream in upstreams)
        return serve(route=f"proxy = {{ to = [{urls}], {keys} }}\n{route}", server=server, more=more)

    return start


def free_port():
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


# Requests and their fields


def test_an_upstream_gets_the_request_and_the_client_the_response(proxy):
    upstream = Upstream(lambda *_: response(b"made", "201 Created", "X-A: 1", "Set-Cookie: a=b", "Set-Cookie: c=d"))
    server = proxy(upstream)
    status, fields, body = post(server, "/a%20b;c?x=%2F&y", b"data", "X-B: 2", "Content-Type: text/x")
    assert (status, body, fields["x-a"], fields["set-cookie"]) == (201, b"made", "1", "a=b, c=d")
    [request] = upstream.requests
    assert (request.method, request.target, request.version) == ("POST", "/a%20b;c?x=%2F&y", "HTTP/1.1")
    assert request.body == b"data"
    assert request.fields["host"] == "Example.org:81"
    assert request.fields["x-b"] == "2" and request.fields["content-type"] == "text/x"
    assert request.fields["content-length"] == "4"


@pytest.mark.parametrize("form", ['"{}"', '["{}"]', '{{ to = "{}" }}', '{{ to = ["{}"] }}'])
def test_a_proxy_is_a_text_a_list_or_a_table(serve, form):
    upstream = Upstream()
    assert serve(route=f"proxy = {form.format(upstream.url)}").get("/")[2] == b"hello"


def test_upstreams_get_the_client_as_the_server_knows_it(proxy):
    upstream = Upstream()
    server = proxy(upstream)
    server.get(
        "/", "X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6", "X-Real-IP: 6.6.6.6", "X_Forwarded_For: 6.6.6.6",
        "X-Forwarded-Proto: https", "X-Forwarded-Anything: 6.6.6.6", "Remote-User: root", "remote_user: root",
        "Via: 1.0 other", "Proxy: http://6.6.6.6",
    )
    fields = upstream.requests[0].fields
    assert b"6.6.6.6" not in upstream.requests[0].head and b"root" not in upstream.requests[0].head
    assert fields["x-forwarded-for"] == "127.0.0.1"
    assert (fields["x-forwarded-proto"], fields["x-forwarded-host"]) == ("http", "x")
    assert fields["forwarded"] == 'for=127.0.0.1;host="x";proto=http'
    assert fields["via"] == "1.0 other, 1.1 dunlin"


def test_behind_a_trusted_proxy_upstreams_get_its_client(proxy):
    upstream = Upstream()
    server = proxy(upstream, server='trusted_proxies = ["127.0.0.1"]')
    server.get("/", "X-Forwarded-For: 6.6.6.6, 2001:db8::7", "X-Forwarded-Proto: https", "X-Forwarded-Port: 443")
    fields = upstream.requests[0].fields
    assert fields["x-forwarded-for"] == "2001:db8::7" and fields["x-forwarded-proto"] == "https"
    assert fields["forwarded"] == 'for="[2001:db8::7]";host="x";proto=https'
    assert fields["x-forwarded-port"] == "443"


def test_fields_of_one_connection_are_not_forwarded(proxy):
    upstream = Upstream(
        lambda *_: response(b"", "200 OK", "Connection: keep-alive, X-Hop", "X-Hop: 1", "Keep-Alive: timeout=5", "X-End: 1")
    )
    server = proxy(upstream)
    data = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, X-Own\r\nX-Own: 1\r\nKeep-Alive: 5\r\nTE: gzip\r\nX-Rest: 1\r\n\r\n"
    status, fields, _ = parse(server.exchange(data))
    sent = upstream.requests[0].fields
    assert not {"connection", "x-own", "keep-alive", "te"} & set(sent) and sent["x-rest"] == "1"
    assert status == 200 and fields["x-end"] == "1" and fields["connection"] == "close"
    assert not {"x-hop", "keep-alive"} & set(fields)


def test_a_prefix_is_stripped_and_named(proxy):
    upstream = Upstream()
    server = proxy(upstream, keys='strip = "/app"')
    for path in ["/app/x?y", "/app", "/%61pp/z", "/apple"]:
        server.get(path)
    assert [request.target for request in upstream.requests] == ["/x?y", "/", "/z", "/apple"]
    assert [request.fields.get("x-forwarded-prefix") for request in upstream.requests] == ["/app", "/app", "/app", None]


def test_the_host_is_the_clients_or_the_upstreams(proxy):
    upstream = Upstream()
    server = proxy(upstream, keys='host = "upstream", set_request_fields = { "X-Edge" = "1", "User-Agent" = "" }')
    server.get("/", "User-Agent: me", "X-Edge: 2")
    fields = upstream.requests[0].fields
    assert fields["host"] == upstream.authority and fields["x-forwarded-host"] == "x"
    assert fields["x-edge"] == "1" and "user-agent" not in fields


def test_the_host_can_be_another_one(proxy):
    upstream = Upstream()
    server = proxy(upstream, keys='host = "app_backend"')
    server.get("/")
    server = proxy(upstream, keys='host = "{host}"')
    server.get("/", host="Site.Test:8080")
    assert [request.fields["host"] for request in upstream.requests] == ["app_backend", "site.test"]


def test_the_path_can_be_another_one(proxy):
    upstream = Upstream()
    server = proxy(upstream, keys='path = "/v2{path}"')
    server.get("/a%20b/c?x=%26")
    server = proxy(upstream, keys='path = "/find?path={path}&by={method}&{query}"')
    server.get("/a/b&c?x=1")
    server.get("/d")
    assert [request.target for request in upstream.requests] == [
        "/v2/a%20b/c?x=%26",
        "/find?path=/a/b%26c&by=GET&x=1",
        "/find?path=/d&by=GET",
    ]


def test_fields_have_values_of_the_request(proxy):
    upstream = Upstream()
    values = '"X-Method" = "{method} {target}", "X-Kind" = "{header.Kind}", "X-Login" = "{cookie.login}/{query.q}", "Early-Data" = "{early}"'
    server = proxy(upstream, keys=f"set_request_fields = {{ {values} }}")
    server.get("/a%2eb?q=1%0d%0aX:2", "Kind: big", "Cookie: login=ann")
    fields = upstream.requests[0].fields
    assert fields["x-method"] == "GET /a%2eb?q=1%0d%0aX:2"
    assert (fields["x-kind"], fields["x-login"]) == ("big", "ann/1  X:2")
    assert "early-data" not in fields and "x" not in fields


def test_a_path_is_forwarded_as_it_was_matched(proxy):
    upstream = Upstream()
    server = proxy(upstream)
    with server.connect() as connection:
        for path in ["/a/%2e%2e/b", "/a//b", "/%2E/c", "/a.b"]:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            read_response(connection)
    assert [request.target for request in upstream.requests] == ["/b", "/a/b", "/c", "/a.b"]


def test_the_authenticated_user_is_named_and_the_password_is_not(proxy, tmp_path):
    users = tmp_path / "users"
    done = subprocess.run([DUNLIN, "passwd", users, "ann"], input=b"secret\n", capture_output=True)
    assert done.returncode == 0, done.stderr
    upstream = Upstream()
    server = proxy(upstream, route=f'auth = {{ basic = "{users}" }}')
    assert server.get("/")[0] == 401 and not upstream.requests
    assert server.get("/", "Authorization: Basic YW5uOnNlY3JldA==", "Remote-User: root")[0] == 200
    fields = upstream.requests[0].fields
    assert fields["remote-user"] == "ann" and "authorization" not in fields


def test_a_request_in_a_loop_ends(serve, tmp_path):
    port = free_port()
    server = serve(
        text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:{port}"\n[[site]]\n[[site.route]]\npath = "/*"\n'
        f'proxy = "http://127.0.0.1:{port}"\n'
    )
    status, fields, _ = server.get("/")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=proxy_loop_detected"


# Bodies

LARGE = os.urandom(1 << 20) * 8


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("size", [1, 1000, 64 << 10, 100_000, 8 << 20])
def test_bodies_arrive_whole_in_both_directions(proxy, size, is_chunked):
    upstream = Upstream(lambda _, __, request: chunked(request.body) if is_chunked else response(request.body))
    server = proxy(upstream, route='body_size = "100MB"')
    body = LARGE[:size]
    status, fields, got = post(server, "/", body, chunked=is_chunked)
    assert status == 200 and got == body
    sent = upstream.requests[0]
    assert sent.body == body and ("content-length" in sent.fields) != is_chunked


def test_http2_clients_get_bodies_in_both_directions(proxy):
    upstream = Upstream(lambda _, __, request: chunked(request.body, fields=["X-A: 1"]))
    server = proxy(upstream, route='body_size = "100MB"')
    status, fields, body = http2.curl(server, "/x?y", "--data-binary", "@-", "-H", "Expect:", data=LARGE[:3_000_000])
    assert status == 200 and body == LARGE[:3_000_000] and fields["x-a"] == "1"
    assert upstream.requests[0].fields["host"] == f"127.0.0.1:{server.port}"
    assert upstream.requests[0].target == "/x?y"


def test_an_upload_reaches_the_upstream_while_it_is_sent(proxy):
    seen = []

    def serve(upstream, connection, request):
        return response(b"done")

    class Streaming(Upstream):
        def serve(self, connection):
            head, rest = read_head(connection)
            seen.append(rest)
            while not seen[-1].endswith(b"0\r\n\r\n"):
                seen.append(seen[-1] + connection.recv(1 << 16))
            connection.sendall(response(b"done"))
            connection.close()

    server = proxy(Streaming(serve))
    with server.connect() as connection:
        connection.sendall(upload("/", None) + b"3\r\nabc\r\n")
        wait_until(lambda: seen and b"abc" in seen[-1], "the first chunk at the upstream")
        connection.sendall(b"3\r\ndef\r\n0\r\n\r\n")
        assert read_response(connection)[2] == b"done"


def test_a_slow_client_holds_no_upstream_for_a_small_body(proxy):
    upstream = Upstream()
    server = proxy(upstream, keys="connections = 1")
    with server.connect() as slow:
        slow.sendall(upload("/", 100) + b"x")
        assert server.get("/")[2] == b"hello"
        assert upstream.connections == 1
        slow.sendall(b"x" * 99)
        assert read_response(slow)[0] == 200


def test_a_client_that_does_not_read_holds_the_upstream_up(proxy):
    sent = [0]

    def flood(upstream, connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        connection.settimeout(2)
        try:
            while True:
                sent[0] += connection.send(b"x" * 65536)
        except TimeoutError:
            return None

    server = proxy(Upstream(flood))
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        before = -1
        while before != sent[0] or not before:
            before = sent[0]
            time.sleep(0.2)
        assert sent[0] < 30_000_000


def test_events_arrive_as_they_are_sent(proxy):
    gates = [threading.Event() for _ in range(3)]

    def events(upstream, connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number, gate in enumerate(gates):
            connection.sendall(b"9\r\ndata: %d\n\n\r\n" % number)
            gate.wait(15)
        return b"0\r\n\r\n"

    server = proxy(Upstream(events))
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        seen = b""
        for number, gate in enumerate(gates):
            while b"data: %d\n\n" % number not in seen:
                part = connection.recv(4096)
                assert part, seen
                seen += part
            gate.set()
        seen += read_all(connection)
    assert b"".join(dechunk(seen.partition(b"\r\n\r\n")[2])) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


@pytest.mark.parametrize(
    "method, sent, status, length",
    [
        ("HEAD", response(b"", "200 OK", "Content-Length: 1234", length=False), 200, "1234"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, None),
        ("GET", response(b"", "204 No Content", length=False), 204, None),
        ("GET", response(b"", "304 Not Modified", "ETag: x", length=False), 304, None),
        ("GET", response(b""), 200, "0"),
    ],
)
def test_responses_without_a_body_keep_both_connections(proxy, method, sent, status, length):
    upstream = Upstream(lambda *_: sent)
    server = proxy(upstream)
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(f"{method} / HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            got, fields, body = parse(data, method)
            assert (got, fields.get("content-length"), body) == (status, length, b"")
    assert (len(upstream.requests), upstream.connections) == (2, 1)


def test_a_body_may_end_with_the_connection_of_the_upstream(proxy):
    def until_close(upstream, connection, request):
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\npart")
        connection.sendall(b"more")

    server = proxy(Upstream(until_close))
    assert server.get("/")[2] == b"partmore"


def test_trailers_are_forwarded(proxy):
    upstream = Upstream(lambda *_: chunked(b"data", trailers=["X-Sum: 1", "Set-Cookie: a=b"], fields=["Trailer: X-Sum"]))
    server = proxy(upstream)
    data = server.exchange(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTE: trailers\r\n\r\n")
    assert data.endswith(b"4\r\ndata\r\n0\r\nX-Sum: 1\r\n\r\n"), data
    assert upstream.requests[0].fields["te"] == "trailers"
    with http2.Client(server) as client:
        client.send(http2.request(1))
        frames = client.read_until(lambda kind, flags, *_: flags & http2.END_STREAM and kind != http2.SETTINGS)
        kinds = [(kind, flags & http2.END_STREAM) for kind, flags, stream, _ in frames if stream == 1]
    assert kinds[0] == (http2.HEADERS, 0) and kinds[-1] == (http2.HEADERS, http2.END_STREAM)
    assert b"".join(payload for kind, _, _, payload in frames if kind == http2.DATA) == b"data"


def test_interim_responses_are_passed_on(proxy):
    def hint(upstream, connection, request):
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n")
        return b"HTTP/1.1 102 Processing\r\n\r\n" + response(b"end")

    server = proxy(Upstream(hint))
    data = server.exchange(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    heads = data.split(b"\r\n\r\n")
    assert heads[0] == b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>"
    assert heads[1].startswith(b"HTTP/1.1 102 ") and heads[2].startswith(b"HTTP/1.1 200 ") and heads[3] == b"end"


def test_the_upstream_decides_on_a_body_that_waits(proxy):
    def decide(upstream, connection, request):
        if request.target == "/no":
            connection.sendall(response(b"", "417 Expectation Failed"))
            return None
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return response(connection.recv(100))

    upstream = Upstream(decide)
    server = proxy(upstream)
    with server.connect() as connection:
        connection.sendall(upload("/yes", 4, "POST", "Expect: 100-continue"))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"body")
        assert read_response(connection)[2] == b"body"
        connection.sendall(upload("/no", 4, "POST", "Expect: 100-continue"))
        assert read_response(connection)[0] == 417


def test_a_response_before_the_end_of_the_upload_is_sent(proxy):
    def reject(upstream, connection, request):
        pass

    class Rejecting(Upstream):
        def serve(self, connection):
            read_head(connection)
            connection.sendall(response(b"too large", "413 Content Too Large", "Connection: close"))
            time.sleep(0.2)
            connection.close()

    server = proxy(Rejecting(reject), route='body_size = "10MB"')
    with server.connect() as connection:
        connection.sendall(upload("/", 1_000_000) + b"x" * 1000)
        status, _, body, _ = read_response(connection)
        assert (status, body) == (413, b"too large")


# Connections


def test_connections_are_kept_and_those_that_the_upstream_closed_are_replaced(proxy):
    upstream = Upstream()
    server = proxy(upstream)
    for _ in range(3):
        assert server.get("/")[2] == b"hello"
    assert upstream.connections == 1
    upstream.close_connections()
    for method in ["GET", "PUT", "POST"]:
        assert server.get("/", method=method)[2] == b"hello"
    assert upstream.connections == 2


def test_a_request_is_repeated_if_an_idle_connection_ends_as_it_is_used(proxy):
    def serve(upstream, connection, request):
        # The second request on a connection finds it closed.
        if id(connection) in seen:
            return None
        seen.add(id(connection))
        kept.append(connection)
        return response(b"hello")

    seen, kept = set(), []
    upstream = Upstream(serve)
    server = proxy(upstream)
    for _ in range(3):
        assert server.get("/")[2] == b"hello"
    assert len(upstream.requests) == 5
    # A request that may have been processed is not.
    status, fields, _ = post(server, "/", b"x")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=connection_terminated"
    assert len(upstream.requests) == 6


def test_idle_connections_are_closed(proxy):
    upstream = Upstream()
    server = proxy(upstream, keys='keep_alive = "1s"')
    server.get("/")
    connection = upstream.open[0]
    wait_until(lambda: connection.fileno() == -1, "the end of the idle connection")


def test_no_idle_connection_is_kept_if_there_may_be_none(proxy):
    upstream = Upstream()
    server = proxy(upstream, keys="idle_connections = 0")
    server.get("/"), server.get("/")
    assert upstream.connections == 2


def test_further_requests_wait_for_a_connection_and_too_many_are_rejected(proxy):
    gate = threading.Event()

    def wait(upstream, connection, request):
        gate.wait(15)
        return response(b"hello")

    upstream = Upstream(wait)
    server = proxy(upstream, keys="connections = 1, queue = 1")
    with server.connect() as first, server.connect() as second:
        for connection in (first, second):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: upstream.requests, "the first request")
        wait_until(lambda: server.get("/")[0] == 503, "a full queue")
        gate.set()
        assert read_response(first)[2] == read_response(second)[2] == b"hello"
    assert upstream.connections == 1 and len(upstream.requests) == 2


def test_a_client_that_leaves_ends_the_request(proxy):
    ended = threading.Event()

    def wait(upstream, connection, request):
        assert connection.recv(1) == b""
        ended.set()

    upstream = Upstream(wait)
    server = proxy(upstream)
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: upstream.requests, "the request")
    assert ended.wait(15)


# Addresses


def test_an_upstream_at_a_unix_socket(proxy, tmp_path):
    upstream = Upstream(path=tmp_path / "app.sock")
    server = proxy(upstream)
    assert server.get("/")[2] == b"hello" and server.get("/")[2] == b"hello"
    assert upstream.requests[0].fields["host"] == "x" and upstream.connections == 1


def test_an_upstream_with_tls_has_to_prove_its_name(proxy, tmp_path):
    authority = certificate(tmp_path, "authority")
    own = certificate(tmp_path, "upstream", issuer=authority)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*map(str, own))
    tls.set_alpn_protocols(["h2", "http/1.1"])
    upstream = Upstream(lambda _, __, request: response(request.body), tls=tls)
    server = proxy(upstream, keys=f'authority = "{authority[0]}"')
    assert post(server, "/", b"secret")[2] == b"secret"
    other = certificate(tmp_path, "other")
    server = proxy(upstream, keys=f'authority = "{other[0]}"')
    status, fields, _ = server.get("/")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=tls_protocol_error"
    assert "the TLS handshake failed" in server.logged("the upstream failed")


def test_a_name_is_resolved(proxy):
    upstream = Upstream()
    server = proxy(f"http://localhost:{upstream.port}")
    assert server.get("/")[2] == b"hello"
    server = proxy("http://does-not-exist.invalid")
    status, fields, _ = server.get("/")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=dns_error"


# Failures


def test_an_upstream_that_does_not_listen_gives_502(proxy):
    port = free_port()
    server = proxy(f"http://127.0.0.1:{port}")
    status, fields, body = server.get("/")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=connection_refused"
    assert str(port).encode() not in body
    log = server.logged("the response is 502")
    assert f"http://127.0.0.1:{port}" in log and "refused" in log
    for _ in range(20):
        server.get("/")
    assert server.log.count("the upstream failed") < 10, "one line a second"


def test_a_failure_names_the_request(proxy, tmp_path):
    log = tmp_path / "access.log"
    url = f"http://127.0.0.1:{free_port()}"
    for sent, fields in [("", []), ("edge-7", ["X-Request-Id: edge-7"])]:
        server = proxy(url, server=f'access_log = {{ path = "{log}", format = "json" }}')
        assert post(server, "/a%20b?x=1&token=abc", b"data", *fields)[0] == 502
        [line] = [line for line in server.logged("the upstream failed").splitlines() if "the upstream failed" in line]
        assert 'method="POST"' in line and 'route="/*"' in line and 'client="127.0.0.1"' in line and f'upstream="{url}"' in line
        assert 'url="http://Example.org:81/a%20b?x=1&token=REDACTED"' in line
        [number] = re.findall(r'request_id="([^"]+)"', line)
        assert number == sent or not sent and len(number) == 32
        server.stop()
        assert json.loads(log.read_text().splitlines()[-1])["request_id"] == number, "the same in the access log"


def test_a_failure_of_a_script_names_the_request(cgi):
    server = cgi({"bad": "echo nonsense"})
    assert server.get("/cgi-bin/bad?token=abc&x=1")[0] == 502
    [line] = [line for line in server.logged("the response is invalid").splitlines() if "the response is invalid" in line]
    assert 'method="GET"' in line and 'route="/cgi-bin/*"' in line and 'client="127.0.0.1"' in line
    assert 'url="http://x/cgi-bin/bad?token=REDACTED&x=1"' in line and re.search(r'request_id="\w{32}"', line)


def test_a_missing_unix_socket_is_an_unavailable_destination(proxy, tmp_path):
    server = proxy(f"unix:{tmp_path}/none.sock")
    status, fields, _ = server.get("/")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=destination_unavailable"


def test_a_response_keeps_the_date_of_the_upstream(proxy):
    date = "Sun, 06 Nov 1994 08:49:37 GMT"
    sent = []
    upstream = Upstream(lambda *_: response(b"hello", "200 OK", *sent))
    server = proxy(upstream)
    for sent[:], expected in [([f"Date: {date}", "Expires: x"], date), ([f"Date: {date}", "Date: x"], date), (["Date: yesterday"], None), ([], None)]:
        head = server.exchange(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").partition(b"\r\n\r\n")[0]
        dates = [line[6:].decode() for line in head.split(b"\r\n") if line.lower().startswith(b"date: ")]
        assert len(dates) == 1 and (dates[0] == expected if expected else "1994" not in dates[0] and dates[0].endswith(" GMT"))
        over_http2 = http2.curl(server, "/")[1]["date"]
        assert over_http2 == expected if expected else over_http2.endswith(" GMT")


@pytest.mark.parametrize("length", [5, 300_000])
@pytest.mark.parametrize("delay", [0, 1, 4])
def test_a_client_that_has_closed_its_sending_side_gets_the_response(proxy, length, delay):
    def answer(*_):
        time.sleep(delay)
        return response(b"x" * length)

    server = proxy(Upstream(answer))
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"):
        with server.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            head, _, body = read_all(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ") and body == b"x" * length


def test_a_half_closed_client_gets_a_response_with_pauses_and_may_still_reset(proxy):
    left = threading.Event()

    def answer(_, connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        if request.target == "/reset":
            connection.settimeout(15)
            if connection.recv(1) == b"":
                left.set()
            return None
        time.sleep(2.5)
        return b"1\r\nb\r\n0\r\n\r\n"

    server = proxy(Upstream(answer))
    with server.connect() as connection:
        connection.sendall(b"GET /pause HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert parse(read_all(connection))[2] == b"ab"
    connection = server.connect()
    connection.sendall(b"GET /reset HTTP/1.1\r\nHost: x\r\n\r\n")
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b"H"
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    assert left.wait(5), "the upstream's connection stays open"


@pytest.mark.parametrize(
    "sent, error",
    [
        (b"", "connection_terminated"),
        (b"SSH-2.0-x\r\n", "http_protocol_error"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "http_response_incomplete"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "http_protocol_error"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "http_protocol_error"),
        (b"HTTP/1.1 200 OK\r\nA B: c\r\n\r\n", "http_protocol_error"),
        (b"HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n", "http_protocol_error"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "http_protocol_error"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000, "http_protocol_error"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "http_protocol_error"),
    ],
)
def test_an_invalid_response_gives_502(proxy, sent, error):
    def answer(upstream, connection, request):
        connection.sendall(sent)

    server = proxy(Upstream(answer))
    status, fields, _ = server.get("/")
    assert (status, fields["proxy-status"]) == (502, f"dunlin; error={error}")
    server.logged("the upstream failed")


def test_a_response_that_is_cut_off_is_incomplete_for_the_client(proxy):
    def cut(upstream, connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            connection.sendall(b"4\r\npart\r\n")
            time.sleep(0.05)

    server = proxy(Upstream(cut))
    data = read_until_cut(server, "/")
    assert b"part" in data and not data.endswith(b"0\r\n\r\n")
    server.logged("the response is incomplete")


def test_bytes_behind_a_response_end_the_connection(proxy):
    upstream = Upstream(lambda *_: response(b"hello") + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother")
    server = proxy(upstream)
    assert [server.get("/")[2] for _ in range(3)] == [b"hello"] * 3
    assert upstream.connections == 3


def test_a_late_response_gives_504(proxy):
    gate = threading.Event()
    upstream = Upstream(lambda *_: gate.wait(15) and None)
    server = proxy(upstream, keys='first_byte_timeout = "300ms"')
    for sent in (server.get("/"), post(server, "/", b"x")):
        assert sent[0] == 504 and sent[1]["proxy-status"] == "dunlin; error=http_response_timeout"
    assert "first_byte_timeout" in server.logged("the upstream failed")
    gate.set()


def test_a_body_that_stands_still_is_aborted(proxy):
    gate = threading.Event()

    def stand(upstream, connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
        gate.wait(15)

    server = proxy(Upstream(stand), keys='idle_timeout = "300ms"')
    assert read_until_cut(server, "/").endswith(b"\r\n\r\npart")
    server.logged("idle_timeout")
    gate.set()


def test_a_connection_that_is_not_accepted_gives_504(proxy):
    # The backlog of the listener is full.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        server = proxy(f"http://127.0.0.1:{listener.getsockname()[1]}", keys='connect_timeout = "300ms"')
        status, fields, _ = server.get("/")
        assert (status, fields["proxy-status"]) == (504, "dunlin; error=connection_timeout")


def test_an_error_page_of_the_route_replaces_that_of_the_server(proxy, site):
    (site / "down.html").write_text("down for a moment")
    server = proxy(
        f"http://127.0.0.1:{free_port()}", route='error_pages = { 502 = "/errors/down.html" }',
        more=f'[[site.route]]\npath = "/errors/*"\nroot = "{site.parent}"\n',
    )
    (site.parent / "errors").mkdir()
    (site.parent / "errors" / "down.html").write_text("down for a moment")
    status, fields, body = server.get("/")
    assert (status, body) == (502, b"down for a moment") and "proxy-status" in fields


def test_another_upstream_gets_the_request_if_one_cannot_be_reached(proxy):
    upstream = Upstream()
    server = proxy(f"http://127.0.0.1:{free_port()}", upstream)
    assert [post(server, "/", b"x")[0] for _ in range(4)] == [200] * 4


# The rest of the server


def test_the_log_and_the_status_name_the_upstream(proxy, tmp_path):
    log = tmp_path / "access.log"
    upstream = Upstream()
    server = proxy(
        upstream,
        server=f'access_log = {{ path = "{log}", format = "json" }}',
        more='[[site.route]]\npath = "/status/*"\nstatus = true\n[[site.route]]\npath = "/status"\nstatus = false\n',
    )
    server.get("/a")
    line = wait_until(lambda: log.exists() and log.read_text(), "the line of the request").splitlines()[0]
    record = json.loads(line)
    assert record["upstream"] == upstream.url and record["retries"] == 0
    assert record["upstream_us"] >= 0 and record["upstream_connect_us"] >= 0
    [report] = json.loads(server.get("/status/status.json")[2])["upstreams"]
    assert (report["name"], report["route"], report["requests"], report["failures"]) == (upstream.url, "/*", 1, 0)
    assert (report["connections"], report["in_flight"]) == (1, 0)
    metrics = server.get("/status/metrics")[2].decode()
    assert re.search(rf'dunlin_upstream_requests_total{{.*upstream="{upstream.url}"}} 1', metrics)


def test_placeholders_of_the_log_have_the_upstream_and_its_times(proxy, tmp_path):
    log = tmp_path / "access.log"
    template = "{status} {upstream} {upstream_connect_us} {upstream_us} {retries}"
    upstream = Upstream()
    server = proxy(
        f"http://127.0.0.1:{free_port()}", upstream, server=f'access_log = {{ path = "{log}", format = "{template}" }}'
    )
    for _ in range(2):
        server.get("/")
    text = wait_until(lambda: log.exists() and log.read_text().count("\n") == 2 and log.read_text(), "two lines")
    for line in text.splitlines():
        assert re.fullmatch(rf"200 {upstream.url} \d+ \d+ [01]", line), line


def test_server_timing_has_the_times_of_the_upstream(proxy):
    server = proxy(Upstream(), route="server_timing = true\nset_fields = { X-Set = \"1\" }\nremove_fields = [\"X-Off\"]")
    _, fields, _ = server.get("/")
    assert re.search(r"connect;dur=[\d.]+, upstream;dur=[\d.]+", fields["server-timing"])
    assert fields["x-set"] == "1"


def test_a_reload_keeps_connections_and_requests(proxy, tmp_path):
    gate = threading.Event()

    def wait(upstream, connection, request):
        if request.target == "/wait":
            gate.wait(15)
        return response(b"hello")

    upstream = Upstream(wait)
    server = proxy(upstream)
    server.get("/")
    with server.connect() as connection:
        connection.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: len(upstream.requests) == 2, "the request")
        server.process.send_signal(1)
        server.logged("reloaded")
        gate.set()
        assert read_response(connection)[2] == b"hello"
    server.get("/")
    assert upstream.connections == 1


def test_a_stop_completes_requests(proxy):
    gate = threading.Event()

    def wait(upstream, connection, request):
        gate.wait(15)
        return response(b"hello")

    upstream = Upstream(wait)
    server = proxy(upstream)
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: upstream.requests, "the request")
        server.process.send_signal(15)
        gate.set()
        assert read_response(connection)[2] == b"hello"
    assert server.stop() == 0


def test_explain_names_the_upstream(tmp_path):
    file = tmp_path / "dunlin.toml"
    file.write_text('[[listen]]\naddress = ":8080"\n[[site]]\n[[site.route]]\npath = "/app/*"\nproxy = "http://127.0.0.1:3000"\n'
                    '[[site.route]]\npath = "/*"\nrespond = { status = 404 }\n')
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", "/app/x"], capture_output=True, text=True)
    assert "setting   proxy from /app/*" in done.stdout and "from the upstream http://127.0.0.1:3000" in done.stdout
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", "/app"], capture_output=True, text=True)
    assert "301 to /app/" in done.stdout


def test_a_name_without_an_address_is_a_warning(tmp_path):
    file = tmp_path / "dunlin.toml"
    file.write_text('[[listen]]\naddress = ":8080"\n[[site]]\n[[site.route]]\npath = "/*"\nproxy = ["http://localhost:1", "http://x.invalid"]\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert done.returncode == 0 and "5" in done.stderr and "resolving x.invalid failed" in done.stderr
    assert "localhost" not in done.stderr


@pytest.mark.parametrize(
    "value, what",
    [
        ('"127.0.0.1:3000"', 'did you mean "http://127.0.0.1:3000"?'),
        ('["http://a/b", "http://a/c"]', "have the same path"),
        ("[]", "the list of upstreams is empty"),
        ('["http://a", "http://a"]', "is listed twice"),
        ('{ to = "http://a", stripp = "/x" }', "did you mean `strip`?"),
        ('{ to = "http://a", strip = "x" }', "is not a prefix such as"),
        ('{ to = "http://a", host = "x y" }', "is neither `preserve` nor `upstream` nor a host"),
        ('{ to = "http://a", host = "{header.X}" }', "host: a client chooses {header.X}"),
        ('{ to = "http://a", path = "x" }', "begins neither with `/` nor with a placeholder"),
        ('{ to = "http://a", path = "/{cookie.x}" }', "{cookie.x} is no part of the URL"),
        ('{ to = "http://a/b", path = "/x" }', "replaces `strip` and the paths of URLs"),
        ('{ to = "http://a", connections = 0 }', "connections is 0"),
        ('{ to = "http://a", set_request_fields = { Host = "x" } }', "chosen by `host`"),
        ('{ to = "http://a", authority = "x.pem" }', "without an https upstream"),
        ('{ to = "http://a", server_name = "b" }', "server_name does nothing without an https upstream"),
        ('{ to = "http://a", verify = false }', "verify does nothing without an https upstream"),
        ('{ to = "https://a", verify = false, authority = "a.pem" }', "with verify = false, no certificate has to be from `authority`"),
        ('{ to = "https://a", server_name = "b c" }', 'server_name: "b c" is not a host name'),
        ('{ to = "https://a", client_certificate = { certificate = "x.pem" } }', "lacks the key `key`"),
        ('{ to = "https://a", client_certificate = { certificate = "x.pem", key = "y" } }', "client_certificate: certificate"),
        ('{ to = "http://a", proxy_protocol = "v3" }', "not one of `v1`, `v2`"),
        ('{ to = "http://a", forward_client_certificate = "leaf" }', "does nothing without `client_authority`"),
        ('"srv+http://_http._tcp.a:80"', "is not a service such as"),
        ('"dns+http://127.0.0.1:80"', "has no name whose addresses"),
        ('{ to = ["http://a", "http://b"], balance = "roundrobin" }', "did you mean `round-robin`?"),
        ('{ to = "http://a", keepalive = "5s" }', "did you mean `keep_alive`?"),
        ('{ to = "http://a", health = "/health" }', 'a table such as { path = "/health" }, found "/health"'),
        ('{ to = "http://a", eject = false }', "a table such as { failures = 3"),
        ("{ }", "lacks the key `to`"),
        ("1", "expected a URL, a list of URLs, or a table"),
    ],
)
def test_a_wrong_proxy_is_explained(tmp_path, value, what):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = ":8080"\n[[site]]\n[[site.route]]\npath = "/*"\nproxy = {value}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert done.returncode == 1 and what in done.stdout + done.stderr, done.stdout + done.stderr
