"""`close`: a connection ends without a response, as with nginx's status 444."""

import socket
import subprocess
import time

import pytest

from support.files import lines
from support.http import read_all
from support.http2 import CANCEL, DATA, END_STREAM, HEADERS, RST_STREAM, Client, frame, request
from support.server import DUNLIN
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

ROUTES = """
[[site.route]]
path = "/no/*"
close = true
[[site.route]]
path = "/no/but/*"
respond = { body = "yes" }
[[site.route]]
path = "/inherits/*"
close = true
[[site.route]]
path = "/inherits/not/*"
close = false
root = "."
[[site.route]]
path = "/when"
respond = { body = "friend" }
[[site.route]]
path = "/when"
when = { header = { User-Agent = "Bad*" } }
close = true
[[site.route]]
path = "/later"
close = true
auth = { forward = "/allows" }
[[site.route]]
path = "/allows"
auth = false
respond = { status = 204 }
"""


def ended(server, data):
    """What a connection brings until its end, in whatever way it ends."""
    with server.connect() as connection:
        connection.sendall(data)
        try:
            return read_all(connection)
        except ConnectionResetError:
            return b""


def head(path, *fields):
    return "".join(f"{line}\r\n" for line in (f"GET {path} HTTP/1.1", "Host: x", *fields, "")).encode()


def test_the_connection_ends_without_a_byte_and_the_log_has_444(serve, tmp_path):
    log = tmp_path / "access.log"
    server = serve(more=ROUTES, server=f'access_log = {{ path = "{log}", format = "{{path}} {{status}} {{bytes}}" }}')
    for data in [
        head("/no/x"),
        head("/when", "User-Agent: BadBot/1"),
        head("/later"),
        b"POST /no/body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nabc",
        b"POST /no/chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"POST /no/expects HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
        b"GET /no/old HTTP/1.0\r\n\r\n",
        head("/no/pipelined") + head("/no/but/after"),
    ]:
        start = time.monotonic()
        assert ended(server, data) == b"", data
        assert time.monotonic() - start < 2, data
    assert server.get("/no/but/x")[2] == b"yes" and server.get("/when")[2] == b"friend"
    assert server.get("/inherits/not/x")[0] == 404
    server.stop()
    paths = ["/no/x", "/when", "/later", "/no/body", "/no/chunked", "/no/expects", "/no/old", "/no/pipelined"]
    assert [line for line in lines(log) if " 444 " in line] == [f"{path} 444 0" for path in paths]


def test_earlier_responses_of_the_connection_are_complete(serve):
    server = serve(more=ROUTES)
    data = ended(server, head("/no/but/1") + head("/no/but/2") + head("/no/x") + head("/no/but/3"))
    assert data.count(b"HTTP/1.1 200 OK") == 2 and data.endswith(b"yes")


def test_over_http2_only_the_stream_is_reset(serve, tmp_path):
    log = tmp_path / "access.log"
    server = serve(more=ROUTES, server=f'access_log = {{ path = "{log}", format = "{{path}} {{status}}" }}')
    with Client(server) as client:
        client.send(request(1, "/no/x") + request(3, "/later") + request(5, "/no/body", "POST", ended=False) + request(7, "/no/but/x"))
        client.send(frame(DATA, END_STREAM, 5, b"late"))
        resets, served = {}, b""
        while len(resets) < 3 or not served:
            kind, _, stream, payload = client.read()
            assert not (kind == HEADERS and stream in (1, 3, 5)), stream
            if kind == RST_STREAM:
                resets[stream] = int.from_bytes(payload, "big")
            if kind == DATA:
                served += payload
        assert resets == {1: CANCEL, 3: CANCEL, 5: CANCEL} and served == b"yes"
        client.send(request(9, "/no/but/y"))
        assert client.body(9) == b"yes"
    wait_until(lambda: len(lines(log)) == 5, "five records")
    assert sorted(lines(log))[:2] == ["/later 444", "/no/body 444"] and "/no/x 444" in lines(log)


def test_over_tls_the_connection_ends(tls):
    import ssl

    from support.tls import context

    server = tls(more='[[site.route]]\npath = "/no"\nclose = true')
    with socket.create_connection(server.address, timeout=15) as plain:
        made = context(tls.own[0])
        with made.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(head("/no"))
            try:
                assert connection.recv(100) == b""
            except (ssl.SSLEOFError, ConnectionResetError):
                pass


def test_a_site_for_unknown_names_closes(serve):
    server = serve(
        text='[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nhost = "x"\nrespond = { body = "x" }\n[[site]]\nclose = true\n'
    )
    assert server.get("/")[2] == b"x" and ended(server, head("/").replace(b"Host: x", b"Host: y")) == b""


def test_it_is_explained_and_excludes_other_handlers(tmp_path):
    def check(routes, *arguments):
        file = tmp_path / "dunlin.toml"
        file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n[[site.route]]\npath = "/a"\n{routes}\n')
        done = subprocess.run([DUNLIN, "check", "-c", file, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, output = check("close = true", "--explain", "/a")
    assert code == 0 and "setting   close from /a" in output and "response  none: the connection is closed, 444 in the log" in output
    code, output = check('close = true\nrespond = { status = 404 }')
    assert code == 1 and "dunlin.toml:7:9: a route has either `close` or `respond`" in output
