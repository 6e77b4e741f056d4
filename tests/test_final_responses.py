"""One final response to each request, whatever becomes of its body; and the same limits for every version of HTTP."""

import struct
import time

import pytest

from support.files import write
from support.http import read_all, read_response
from support.http2 import Client, DATA, END_HEADERS, END_STREAM, frame, HEADERS, request, RST_STREAM, section
from support.waiting import wait_until

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
HASTY = '[server.http1]\nbody_timeout = "300ms"\n'
ROUTES = (
    '[[site.route]]\npath = "/sink"\nrespond = { body = "taken" }\nbody_size = "100KB"\n'
    '[[site.route]]\npath = "/denied"\ndeny = ["0.0.0.0/0"]\n'
)


@pytest.fixture
def page(site):
    return write(site / "a", "x" * 1000)


def statuses(data):
    return [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]]


FINAL = [
    ("GET", "/a", 200),
    ("HEAD", "/a", 200),
    ("OPTIONS", "/a", 204),
    ("POST", "/a", 405),
    ("DELETE", "/a", 405),
    ("GET", "/none", 404),
    ("GET", "/denied", 403),
    ("GET", "/big", 200),
]


@pytest.mark.parametrize("chunked", [False, True])
def test_an_unfinished_body_has_no_second_response(serve, site, page, chunked):
    write(site / "big", b"x" * 3_000_000)
    server = serve(server=HASTY, more=ROUTES)
    for method, path, status in FINAL:
        framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 100"
        body = b"5\r\nhel" if chunked else b"hel"
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode()
        # The server ends the connection, which shows that there is no second response.
        data = server.exchange(head + body)
        assert statuses(data) == [status], (method, path)
        # A body that is wrong after the response is no reason for another one either.
        if chunked:
            data = server.exchange(head + b"5\r\nhelloX\r\n\r\n" + GET)
            assert statuses(data) == [status], (method, path)


def test_a_body_that_drips_has_no_second_response(serve, page):
    server = serve(server=HASTY + 'body_rate = "100KB/s"\n', more=ROUTES)
    with server.connect() as connection:
        connection.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n")
        data = b""
        connection.settimeout(0.05)
        for _ in range(300):
            try:
                connection.sendall(b"x")
                part = connection.recv(1 << 16)
                if not part:
                    break
                data += part
            except TimeoutError:
                pass
            except OSError:
                break
        else:
            raise AssertionError("the connection is never closed")
        assert statuses(data) == [200]


def test_a_body_above_the_limit_has_no_second_response(serve, page):
    server = serve(route='body_size = "10KB"')
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    data = server.exchange(
        b"GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 5 + b"0\r\n\r\n" + GET
    )
    assert statuses(data) == [200]


def test_a_body_that_is_waited_for_has_one_response(serve, page):
    server = serve(server=HASTY, more=ROUTES)
    data = server.exchange(b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
    assert statuses(data) == [408] and b"Connection: close" in data


def test_a_request_after_a_finished_body_is_served(serve, page):
    server = serve(server=HASTY, more=ROUTES)
    for method, path, status in FINAL[:-1]:
        with server.connect() as connection:
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n".encode()
            connection.sendall(head + b"hello" + GET.replace(b"Host", b"Connection: close\r\nHost"))
            assert statuses(read_all(connection)) == [status, 200], (method, path)


def test_the_408_of_a_body_is_logged_with_its_request(serve, page, tmp_path):
    log = tmp_path / "access.log"
    server = serve(server=f'access_log = "{log}"\n{HASTY}', more=ROUTES)
    server.exchange(b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
    line = wait_until(lambda: log.exists() and log.read_text(), "the log line")
    assert '"POST /sink HTTP/1.1" 408' in line


def fetch_http1(server, path, expect, body, length=True):
    """The statuses of the responses over HTTP/1, where the client does not wait."""
    fields = "".join(f"Expect: {value}\r\n" for value in expect)
    framing = f"Content-Length: {len(body)}\r\n" if length else ""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}{framing}\r\n"
    with server.connect() as connection:
        connection.sendall(head.encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(1 << 16)
        if b" 100 " in data.split(b"\r\n")[0]:
            connection.sendall(body)
        return statuses(data + read_all(connection))


def fetch_http2(server, path, expect, body, length=True):
    """The same over HTTP/2."""
    fields = [("expect", value) for value in expect]
    if length:
        fields.append(("content-length", str(len(body))))
    found = []
    with Client(server) as client:
        client.send(request(1, path, "POST", *fields, ended=not body))
        while True:
            kind, flags, stream, payload = client.read()
            if stream != 1:
                continue
            if kind == HEADERS:
                found.append(status_of(payload))
                if found[-1] == 100:
                    client.send(frame(DATA, END_STREAM, 1, body))
            if kind == RST_STREAM or flags & END_STREAM:
                return found


# Codes of the static table (RFC 7541 appendix A).
INDEXED = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}


def status_of(block):
    while block[0] & 0xE0 == 0x20:
        block = block[1:]
    if block[0] in INDEXED:
        return INDEXED[block[0]]
    length = block[1] & 0x7F
    value = block[2 : 2 + length]
    return int(value) if not block[1] & 0x80 else int(digits(value))


def digits(value):
    """Huffman-coded digits (RFC 7541 appendix B)."""
    codes = {"00000": "0", "00001": "1", "00010": "2"}
    codes |= {format(0b011001 + n, "06b"): str(3 + n) for n in range(7)}
    bits, out = "".join(format(byte, "08b") for byte in value), ""
    while len(out) < 3:
        length = 5 if bits[:5] in codes else 6
        out, bits = out + codes[bits[:length]], bits[length:]
    return out


@pytest.mark.parametrize("fetch", [fetch_http1, fetch_http2])
def test_expectations_mean_the_same_in_every_version(serve, page, fetch):
    server = serve(more=ROUTES)
    for expect, body, length, responses in [
        (["100-continue"], b"hello", True, [100, 200]),
        (["100-Continue"], b"hello", True, [100, 200]),
        (["100-continue, 100-continue"], b"hello", True, [100, 200]),
        (["100-continue", "100-continue"], b"hello", True, [100, 200]),
        ([", 100-continue ,"], b"hello", True, [100, 200]),
        (["tea"], b"hello", True, [417]),
        (["100-continue", "tea"], b"hello", True, [417]),
        (["tea", "100-continue"], b"hello", True, [417]),
        (["100-continue, tea"], b"hello", True, [417]),
        (["100-continue=1"], b"hello", True, [417]),
        (["tea"], b"", False, [417]),
        # There is no body to wait for.
        (["100-continue"], b"", True, [200]),
        (["100-continue"], b"", False, [200]),
    ]:
        assert fetch(server, "/sink", expect, body, length) == responses, expect
    # A request whose body is not needed, or too large, gets its final response at once.
    assert fetch(server, "/a", ["100-continue"], b"hello")[0] == 405
    assert fetch(server, "/sink", ["100-continue"], b"x" * 100_001)[0] == 413


def test_no_100_continue_for_a_body_that_has_arrived(serve, page):
    server = serve(more=ROUTES)
    with server.connect() as connection:
        for path, status in (("/sink", 200), ("/a", 405)):
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
            connection.sendall(head.encode() + b"hello")
            got, fields, _, rest = read_response(connection)
            assert (got, rest) == (status, b"") and "connection" not in fields
    with Client(server) as client:
        section_of = section("/sink", "POST", ("expect", "100-continue"))
        client.send(frame(HEADERS, END_HEADERS, 1, section_of) + frame(DATA, END_STREAM, 1, b"hello"))
        frames = client.read_until(lambda _, flags, stream, __: stream == 1 and flags & END_STREAM)
        heads = [payload for kind, _, stream, payload in frames if (kind, stream) == (HEADERS, 1)]
        assert [status_of(head) for head in heads] == [200]


@pytest.mark.parametrize("path", ["/sink", "/cgi/cat"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_slow_body_gets_408_in_every_version(serve, page, tmp_path, path, version):
    script = write(tmp_path / "cgi" / "cat", "#!/bin/sh\ncat > /dev/null\nprintf 'Content-Type: text/plain\\n\\nok'\n")
    script.chmod(0o755)
    routes = ROUTES + (
        f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{script.parent}" }}\n'
    )
    server = serve(server=HASTY + 'body_rate = "100KB/s"\n', more=routes)
    if version == 1:
        with server.connect() as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n".encode())
            connection.settimeout(0.05)
            assert drip(lambda: connection.sendall(b"x"), lambda: connection.recv(100))[9:12] == b"408"
        return
    with Client(server) as client:
        client.send(request(1, path, "POST", ended=False))
        client.socket.settimeout(0.05)

        def final_status():
            kind, _, stream, payload = client.read()
            return (kind, stream) == (HEADERS, 1) and str(status_of(payload))

        assert drip(lambda: client.send(frame(DATA, 0, 1, b"x")), final_status) == "408"


def drip(send, receive):
    for _ in range(300):
        send()
        try:
            if found := receive():
                return found
        except TimeoutError:
            pass
    raise AssertionError("no response")


def test_http2_sends_one_response_to_an_unfinished_body(serve, page):
    server = serve(server=HASTY, more=ROUTES)
    for path, expected in (("/a", 405), ("/denied", 403), ("/sink", 408)):
        with Client(server) as client:
            client.send(request(1, path, "POST", ended=False) + frame(DATA, 0, 1, b"abc"))
            found = client.read_until(lambda _, flags, stream, __: stream == 1 and flags & END_STREAM)
            # A ping behind the timeout shows that nothing follows.
            time.sleep(0.8)
            client.send(frame(6, 0, 0, struct.pack(">Q", 7)))
            found += client.read_until(lambda kind, flags, *_: kind == 6 and flags & 1)
            heads = [payload for kind, _, stream, payload in found if (kind, stream) == (HEADERS, 1)]
            assert [status_of(head) for head in heads] == [expected], path
