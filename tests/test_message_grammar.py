"""The authority of a request, and messages that break the grammar of HTTP."""

import re

import pytest

from support.files import write
from support.http import parse
from support.http2 import block, Client, END_HEADERS, END_STREAM, frame, HEADERS, RST_STREAM

SHOW = 'printf "Content-Type: text/plain\\n\\n$HTTP_HOST|$SERVER_NAME|$REQUEST_URI"\n'


@pytest.fixture
def kind():
    """Of the scripts that `cgi` starts."""
    return "cgi"


def over_http2(server, *requests):
    """The outcome of each request on one connection: `reset`, or status, fields as bytes and body."""
    outcomes = []
    with Client(server) as client:
        for number, fields in enumerate(requests):
            stream = 2 * number + 1
            client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block(fields)))
            frames = client.read_until(
                lambda kind, flags, of, _: of == stream and (kind == RST_STREAM or flags & END_STREAM)
            )
            own = [found for found in frames if found[2] == stream]
            if own[-1][0] == RST_STREAM:
                assert int.from_bytes(own[-1][3], "big") == 1, "the code is PROTOCOL_ERROR"
                outcomes.append("reset")
            else:
                outcomes.append(b"".join(payload for _, _, _, payload in own))
    return outcomes


def pseudo(method="GET", scheme="http", path="/small", authority="x"):
    fields = [(":method", method), (":scheme", scheme), (":path", path), (":authority", authority)]
    return [field for field in fields if field[1] is not None]


def script_sees(server, line, *fields):
    message = "\r\n".join([line, "Connection: close", *fields, "", ""])
    status, _, body = parse(server.exchange(message.encode()))
    assert status == 200, (line, status)
    return body.decode()


def test_scripts_get_the_authority_of_an_absolute_target(cgi):
    server = cgi({"show": SHOW})
    path = "/cgi-bin/show?q"
    for line, host, expected in [
        (f"GET http://a.test{path} HTTP/1.1", "evil.test", f"a.test|a.test|{path}"),
        (f"GET HTTP://a.test:81{path} HTTP/1.1", "evil.test:82", f"a.test:81|a.test|{path}"),
        (f"GET http://[::1]:81{path} HTTP/1.1", "evil.test", f"[::1]:81|[::1]|{path}"),
        (f"GET http://a.test{path} HTTP/1.0", "evil.test", f"a.test|a.test|{path}"),
        (f"GET http://a.test{path} HTTP/1.0", None, f"a.test|a.test|{path}"),
        (f"GET {path} HTTP/1.1", "b.test", f"b.test|b.test|{path}"),
    ]:
        assert script_sees(server, line, *([f"Host: {host}"] if host else [])) == expected, line


def test_the_authority_of_an_absolute_target_chooses_the_site_of_a_local_redirect(serve, tmp_path):
    directory = tmp_path / "scripts"
    for host in ["a.test", "evil.test"]:
        write(tmp_path / host / "own.txt", host)
    script = directory / "go"
    directory.mkdir()
    script.write_text("#!/bin/sh\nprintf 'Location: /own.txt\\n\\n'\n")
    script.chmod(0o755)
    sites = "".join(
        f"""
        [[site]]
        host = "{host}"
        root = "{tmp_path / host}"
        [[site.route]]
        path = "/cgi-bin/*"
        script = {{ kind = "cgi", directory = "{directory}" }}
        """
        for host in ["a.test", "evil.test"]
    )
    text = f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n{sites}'
    server = serve(text=text)
    line = "GET http://a.test/cgi-bin/go HTTP/1.1"
    assert script_sees(server, line, "Host: evil.test") == "a.test"


def test_redirects_log_and_forward_authentication_use_the_authority_of_the_target(serve, site, tmp_path):
    directory = tmp_path / "scripts"
    directory.mkdir()
    requests = tmp_path / "requests"
    script = directory / "check"
    script.write_text(
        f'#!/bin/sh\necho "$HTTP_X_FORWARDED_HOST $HTTP_X_FORWARDED_URI $HTTP_X_ORIGINAL_URI" >> {requests}\n'
        "printf 'Content-Type: text/plain\\n\\n'\n"
    )
    script.chmod(0o755)
    write(site / "closed.txt", "closed")
    log = tmp_path / "access.log"
    server = serve(
        server=f'access_log = {{ path = "{log}", format = "{{host}} {{status}}" }}',
        more=f"""
        [[site.route]]
        path = "/old"
        redirect = {{ to = "https://{{host}}/new" }}
        [[site.route]]
        path = "/secure"
        redirect_https = true
        [[site.route]]
        path = "/closed.txt"
        auth = {{ forward = "/auth/check" }}
        [[site.route]]
        path = "/auth/*"
        internal = true
        script = {{ kind = "cgi", directory = "{directory}" }}
        """,
    )

    def fetch(path):
        message = f"GET http://a.test:81{path} HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"
        return parse(server.exchange(message.encode()))

    assert fetch("/old")[1]["location"] == "https://a.test:81/new"
    assert fetch("/secure")[1]["location"] == "https://a.test/secure"
    assert fetch("/closed.txt?q")[0] == 200, server.log
    assert requests.read_text().split() == ["a.test:81", "/closed.txt?q", "/closed.txt?q"]
    server.stop()
    assert {line.split()[0] for line in log.read_text().splitlines()} == {"a.test:81"}


MALFORMED_HOSTS = ["", ":80", "a%", "a%2", "a%zz", "a b", "u@a", "a/b", "a:x", "a:99999", "[::1", "[x]", "a,b c"]


def test_a_malformed_or_empty_host_gets_400(serve, site):
    write(site / "small", "s")
    server = serve()
    for host in MALFORMED_HOSTS:
        for target in ["/small", "http://x/small"] if host != "" else ["/small"]:
            message = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\nGET /small HTTP/1.1\r\nHost: x\r\n\r\n"
            response = server.exchange(message.encode())
            assert response.startswith(b"HTTP/1.1 400 "), (host, response)
            assert response.count(b"HTTP/1.1 ") == 1, (host, response)
    for host in ["x", "X.", "x:80", "x:", "[::1]:80", "[v1.a]", "a%20b", "a;b"]:
        message = f"GET /small HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert parse(server.exchange(message.encode()))[0] == 200, host


def test_a_malformed_absolute_target_gets_400(serve, site):
    write(site / "small", "s")
    server = serve()
    for target in [
        "http://", "http:///small", "http:/small", "http:small", "://x/small", "ftp://x/small", "http://u@x/small",
        "http://x:y/small", "http://x%/small", "http://[::1/small", "x/small", "x:80",
    ]:
        message = f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert parse(server.exchange(message.encode()))[0] == 400, target


def test_chunk_extensions_have_to_keep_to_their_grammar(serve, site):
    write(site / "small", "s")
    server = serve(more='[[site.route]]\npath = "/fixed"\nrespond = { body = "fixed" }\n')
    head = "POST /fixed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    behind = "GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for extension in [";a", ";a=b", ';a="b;\\"c"', " ; a = b", ";a;b=c\t;d"]:
        response = server.exchange(f"{head}5{extension}\r\nhello\r\n0{extension}\r\n\r\n{behind}".encode())
        assert re.findall(rb"HTTP/1.1 (\d+) ", response) == [b"200", b"200"], extension
    for extension in [
        ";", ";;", ";=", ";a=", ';a="b', ";[]", ";bad[=x", ";a b", ';a="b"c', ';a=b"c', " ", " a", ";a ", ";a=\x01",
        ';a="\\\x01"', ";a;", ";a/b",
    ]:
        for chunks in [f"5{extension}\r\nhello\r\n0\r\n\r\n", f"5\r\nhello\r\n0{extension}\r\n\r\n"]:
            response = server.exchange(f"{head}{chunks}{behind}".encode())
            assert re.findall(rb"HTTP/1.1 (\d+) ", response) == [b"400"], (extension, response)


def test_other_protocols_get_400_whatever_their_method(serve):
    server = serve()
    for line in [
        "SOURCE / ICE/1.0", "OPTIONS / RTSP/1.0", "ANNOUNCE / RTSP/1.0", "GET / ICE/1.0", "A / B", "EHLO x/y z", "A B",
        "PRI * HTTP/1.2x",
    ]:
        response = server.exchange(f"{line}\r\nHost: x\r\n\r\n".encode())
        assert response.startswith(b"HTTP/1.1 400 "), (line, response)


def test_malformed_requests_over_http_2_are_reset_and_the_next_is_served(serve, site):
    write(site / "small", b"s" * 100)
    server = serve()
    malformed = [
        *(pseudo(authority=host) for host in MALFORMED_HOSTS),
        pseudo(authority=None),
        [*pseudo(authority=None), ("host", "")],
        [*pseudo(authority=None), ("host", "x"), ("host", "x")],
        [*pseudo(), ("host", "x"), ("host", "x")],
        [*pseudo(), ("host", "y")],
        [*pseudo(), ("host", "")],
        [*pseudo(), (":authority", "x")],
        [*pseudo(), (":path", "/small")],
        [("a", "b"), *pseudo()],
        *(pseudo(scheme=scheme) for scheme in [None, "", "http:", "http://x", "ht tp", "1http", ":", "-", "h/"]),
        *(pseudo(path=path) for path in [None, "", "*", "small", "http://x/small", "?q"]),
        [(":method", "CONNECT"), (":authority", "")],
        [(":method", "CONNECT"), ("host", "x:80")],
        pseudo(method="CONNECT"),
        [*pseudo(), (":protocol", "websocket")],
    ]
    served = pseudo()
    requests = [request for fields in malformed for request in (fields, served)]
    for start in range(0, len(requests), 8):
        some = requests[start : start + 8]
        for fields, outcome in zip(some, over_http2(server, *some)):
            if fields is served:
                assert outcome.endswith(b"s" * 100), fields
            else:
                assert outcome == "reset", (fields, outcome)


def test_one_authority_over_http_2_is_enough_in_either_field(cgi):
    server = cgi({"show": SHOW})
    path = "/cgi-bin/show"
    for fields in [
        pseudo(path=path, authority="a.test:81"),
        [*pseudo(path=path, authority="a.test:81"), ("host", "a.test:81")],
        [*pseudo(path=path, authority=None), ("host", "a.test:81")],
    ]:
        (outcome,) = over_http2(server, fields)
        assert outcome.endswith(b"a.test:81|a.test|/cgi-bin/show"), (fields, outcome)
