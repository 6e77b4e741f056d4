"""Compression of responses that are made for one request: of scripts, applications, upstreams and the configuration."""

import contextlib
import gzip
import random
import re
import subprocess
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.browser import CHROMIUM, dom
from support.files import lines, write
from support.http import parse
from support.server import DUNLIN
from support.upstream import Upstream, chunked, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

WORDS = "the same words again and again, in another order each time".split()
TEXT = " ".join(random.Random(1).choices(WORDS, k=4000)).encode()
HTML = "Content-Type: text/html"


def decoded(coding, body):
    if coding == "gzip":
        return gzip.decompress(body)
    program = {"zstd": ["zstd", "-dc"], "br": ["brotli", "-dc"]}[coding]
    return subprocess.run(program, input=body, capture_output=True, check=True).stdout


METRICS = '[[site.route]]\npath = "/status/*"\nstatus = true\n'


def proxied(serve, *fields, body=TEXT, status="200 OK", route="", answer=None, server=""):
    upstream = Upstream(answer or (lambda *_: response(body, status, *fields)))
    return serve(route=f'proxy = "{upstream.url}"\n{route}', server=server, more=METRICS), upstream


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_response_of_an_upstream_is_compressed(serve, coding):
    server, _ = proxied(serve, HTML, 'ETag: "a"', "Accept-Ranges: bytes")
    status, fields, body = server.get("/", f"Accept-Encoding: {coding}")
    assert (status, fields["content-encoding"], fields["vary"]) == (200, coding, "Accept-Encoding")
    assert decoded(coding, body) == TEXT and len(body) < len(TEXT) / 2
    assert fields["etag"] == 'W/"a"' and "accept-ranges" not in fields
    plain = server.get("/")
    assert plain[2] == TEXT and "content-encoding" not in plain[1] and plain[1]["vary"] == "Accept-Encoding"
    assert plain[1]["etag"] == '"a"' and plain[1]["content-length"] == str(len(TEXT))


def test_the_preferred_coding_is_chosen(serve):
    server, _ = proxied(serve, HTML)
    coding = lambda value: server.get("/", f"Accept-Encoding: {value}")[1].get("content-encoding")
    assert coding("gzip, br, zstd") == "zstd" and coding("gzip, br") in ("br", "gzip")
    assert coding("zstd;q=0.5, gzip") == "gzip" and coding("identity, gzip;q=0") is None and coding("x") is None
    server, _ = proxied(serve, HTML, route='compress = ["gzip"]')
    assert coding("gzip, br, zstd") == "gzip"


@pytest.mark.parametrize(
    "fields, more",
    [
        (("Content-Type: image/png",), {}),
        ((), {}),
        ((HTML, "Cache-Control: max-age=1, no-transform"), {}),
        ((HTML, "Content-Encoding: x-own"), {}),
        ((HTML, "Content-Digest: sha-256=:AAAA:"), {}),
        ((HTML, "Repr-Digest: sha-256=:AAAA:"), {}),
        (("Content-Type: text/event-stream",), {}),
        ((HTML, "Content-Range: bytes 0-9/100"), {"status": "206 Partial Content"}),
        ((HTML,), {"route": "compress = false"}),
        ((HTML,), {"body": b"short"}),
    ],
)
def test_other_responses_are_sent_as_they_are(serve, fields, more):
    server, _ = proxied(serve, *fields, **more)
    status, found, body = server.get("/", "Accept-Encoding: gzip, zstd, br")
    assert body == more.get("body", TEXT) and found.get("content-encoding") in (None, "x-own")
    assert found["content-length"] == str(len(body))


@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error"])
def test_errors_are_compressed_and_redirects_are_not(serve, status):
    server, _ = proxied(serve, HTML, status=status)
    assert server.get("/", "Accept-Encoding: gzip")[1]["content-encoding"] == "gzip"
    server, _ = proxied(serve, HTML, "Location: /x", status="302 Found")
    assert "content-encoding" not in server.get("/", "Accept-Encoding: gzip")[1]


def test_a_response_to_head_has_the_fields_of_get(serve):
    server, _ = proxied(serve, answer=lambda *_: response(b"", "200 OK", HTML, f"Content-Length: {len(TEXT)}", length=False))
    status, fields, body = server.get("/", "Accept-Encoding: gzip", method="HEAD")
    assert (status, fields.get("content-encoding"), body) == (200, "gzip", b"") and "content-length" not in fields
    fields = server.get("/", method="HEAD")[1]
    assert fields["content-length"] == str(len(TEXT)) and fields["vary"] == "Accept-Encoding"


def test_a_response_without_content_stays_so(serve):
    server, _ = proxied(serve, answer=lambda *_: b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n')
    status, fields, body = server.get("/", "Accept-Encoding: gzip", 'If-None-Match: W/"a"')
    assert status == 304 and body == b"" and "content-encoding" not in fields


def test_trailers_follow_compressed_content(serve):
    server, _ = proxied(serve, answer=lambda *_: chunked(TEXT, trailers=["X-End: 1"], fields=[HTML, "Trailer: X-End"]))
    data = server.exchange(b"GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nAccept-Encoding: gzip\r\nConnection: close, TE\r\n\r\n")
    assert b"content-encoding: gzip" in data.lower() and data.endswith(b"0\r\nX-End: 1\r\n\r\n")


def test_an_unfinished_response_of_an_upstream_is_cut(serve):
    server, _ = proxied(serve, answer=lambda _, connection, __: connection.sendall(response(TEXT * 200, "200 OK", HTML)[:-100]))
    data = until_cut(server, "gzip")
    assert b"gzip" in data and not data.endswith(b"0\r\n\r\n")


def until_cut(server, accepted):
    """What comes until the connection ends in any way."""
    with server.connect() as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {accepted}\r\n\r\n".encode())
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                data += part
    return data


class Slow:
    """An upstream that sends events on request of the test."""

    def __init__(self, kind):
        self.go, self.kind = threading.Semaphore(0), kind

    def __call__(self, upstream, connection, request):
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {self.kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for number in range(3):
            assert self.go.acquire(timeout=20)
            part = f"part {number} of the stream\n\n".encode()
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(b"0\r\n\r\n")


@pytest.mark.parametrize("kind, route", [("text/html", ""), ("text/event-stream", "compress_events = true")])
def test_what_the_upstream_flushes_leaves_at_once(serve, kind, route):
    slow = Slow(kind)
    server, _ = proxied(serve, answer=slow, route=route)
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        data, decoder, text = b"", zlib.decompressobj(31), b""
        for number in range(3):
            slow.go.release()
            while f"part {number} of the stream\n\n".encode() not in text:
                part = connection.recv(1 << 16)
                assert part, (data, text)
                data += part
                head, mark, rest = data.partition(b"\r\n\r\n")
                text = zlib.decompressobj(31).decompress(dechunked(rest)) if mark else b""
                assert not mark or b"content-encoding: gzip" in head.lower()


def dechunked(data):
    """The content of chunks that have arrived completely."""
    content = b""
    while b"\r\n" in data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if length == 0 or len(data) < length + 2:
            break
        content, data = content + data[:length], data[length + 2 :]
    return content


def test_scripts_and_fixed_responses_are_compressed(serve, tmp_path):
    script = write(tmp_path / "script", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nfor i in $(seq 500); do echo line $i; done\n")
    script.chmod(0o755)
    more = f'[[site.route]]\npath = "/cgi"\nscript = {{ kind = "cgi", file = "{tmp_path}/script" }}\n'
    more += f'[[site.route]]\npath = "/fixed"\nrespond = {{ body = "{"text " * 200}" }}\n'
    server = serve(more=more)
    status, fields, body = server.get("/cgi", "Accept-Encoding: gzip")
    expected = b"".join(b"line %d\n" % number for number in range(1, 501))
    assert fields["content-encoding"] == "gzip" and gzip.decompress(body) == expected
    status, fields, body = server.get("/fixed", "Accept-Encoding: zstd")
    assert decoded("zstd", body) == b"text " * 200 and fields["content-length"] == str(len(body))


def test_cached_responses_are_compressed(serve):
    server, upstream = proxied(serve, HTML, "Cache-Control: max-age=60", 'ETag: "a"', route="cache = { responses = true }")
    for coding in ("gzip", "zstd", "br", None, "gzip"):
        status, fields, body = server.get("/", *([f"Accept-Encoding: {coding}"] if coding else []))
        assert (decoded(coding, body) if coding else body) == TEXT
        assert fields["vary"] == "Accept-Encoding" and fields["etag"] == ('W/"a"' if coding else '"a"')
    status, fields, _ = server.get("/", "Accept-Encoding: gzip", 'If-None-Match: W/"a"')
    assert status == 304


def test_the_log_has_bytes_before_and_after(serve, tmp_path):
    log = tmp_path / "access.log"
    upstream = Upstream(lambda *_: response(TEXT, "200 OK", HTML))
    server = serve(route=f'proxy = "{upstream.url}"', server=f'access_log = {{ path = "{log}", format = "{{coding}} {{plain_bytes}} {{bytes}}" }}')
    length = len(server.get("/", "Accept-Encoding: gzip")[2])
    server.get("/")
    wait_until(lambda: len(lines(log)) == 2, "two lines", 3)
    coding, plain, sent = lines(log)[0].split()
    assert (coding, plain) == ("gzip", str(len(TEXT))) and int(sent) < len(TEXT) / 2
    assert lines(log)[1] == f"- - {len(TEXT)}"


def curl(server, path, accepted, *options):
    """The header and the body over HTTP/2."""
    done = subprocess.run(
        ["curl", "-s", "-i", "--http2-prior-knowledge", "-H", f"Accept-Encoding: {accepted}", *options, server.url + path], capture_output=True, check=True
    )
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    return head.decode().lower(), body


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_bodies_are_coded_and_decoded_over_http2(serve, coding):
    large = TEXT * 150
    answer = Coded(coding, TEXT, "Cache-Control: max-age=60")
    upstream = Upstream(lambda *call: answer(*call) if call[2].target == "/coded" else response(large, "200 OK", HTML, "Cache-Control: max-age=60"))
    route = f'proxy = "{upstream.url}"\ncache = {{ responses = true, response_size = "4MB" }}'
    server = serve(route=route, server="compress_share = 100")
    # The second time, the body is in the response cache.
    for _ in range(2):
        head, body = curl(server, "/coded", "identity")
        assert head.startswith("http/2 200") and "content-encoding" not in head and body == TEXT
        head, body = curl(server, "/large", coding)
        assert f"content-encoding: {coding}" in head and decoded(coding, body) == large
    assert curl(server, "/coded", "identity", "-I")[1] == b""


@pytest.mark.parametrize("length", [131_071, 131_072, 500_000, 3_000_000])
def test_bodies_of_any_size_arrive(serve, length):
    body = (TEXT * (length // len(TEXT) + 1))[:length]
    server, _ = proxied(serve, HTML, "Cache-Control: max-age=60", body=body, server="compress_share = 100", route="cache = { responses = true, response_size = \"4MB\" }")
    for version in ("1.1", "1.0"):
        for _ in range(3):
            data = server.exchange(f"GET / HTTP/{version}\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode(), 30)
            status, fields, content = parse(data)
            assert (status, fields["content-encoding"]) == (200, "gzip") and gzip.decompress(content) == body
    fixed = serve(server="compress_share = 100", more=f'[[site.route]]\npath = "/fixed"\nrespond = {{ body = "{body.decode()}" }}\n')
    status, fields, content = fixed.get("/fixed", "Accept-Encoding: gzip")
    assert fields["content-encoding"] == "gzip" and gzip.decompress(content) == body


def test_a_304_has_the_tag_of_the_compressed_response(serve):
    server, _ = proxied(serve, HTML, 'ETag: "a"', "Cache-Control: max-age=60", route="cache = { responses = true }")
    assert server.get("/", "Accept-Encoding: gzip")[1]["etag"] == 'W/"a"'
    status, fields, _ = server.get("/", "Accept-Encoding: gzip", 'If-None-Match: W/"a"')
    assert (status, fields["etag"], fields["vary"]) == (304, 'W/"a"', "Accept-Encoding")
    status, fields, _ = server.get("/", 'If-None-Match: "a"')
    assert (status, fields["etag"]) == (304, '"a"')


def test_head_is_as_get_for_a_short_body(serve):
    server, _ = proxied(serve, answer=lambda *_: response(b"", "200 OK", HTML, "Content-Length: 100", length=False))
    fields = server.get("/", "Accept-Encoding: gzip", method="HEAD")[1]
    assert fields["content-length"] == "100" and "content-encoding" not in fields


def coded(coding, body=TEXT):
    if coding == "gzip":
        return gzip.compress(body)
    program = {"zstd": ["zstd", "-c"], "br": ["brotli", "-c"]}[coding]
    return subprocess.run(program, input=body, capture_output=True, check=True).stdout


class Coded:
    """An upstream that compresses whatever the client accepts."""

    def __init__(self, coding, body=TEXT, *fields):
        self.body, self.accepted = coded(coding, body), []
        self.fields = [HTML, f"Content-Encoding: {coding}", 'ETag: "a"', *fields]

    def __call__(self, upstream, connection, request):
        self.accepted.append(request.fields.get("accept-encoding"))
        return response(b"" if request.method == "HEAD" else self.body, "200 OK", *self.fields)


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_coding_that_the_client_rejects_is_decoded(serve, coding):
    server, _ = proxied(serve, answer=Coded(coding, TEXT, "Accept-Ranges: bytes", "Content-Digest: sha-256=:AAAA:"))
    for value in ("identity", "", f"{coding};q=0"):
        status, fields, body = server.get("/", f"Accept-Encoding: {value}")
        assert (status, body, fields["vary"]) == (200, TEXT, "Accept-Encoding"), value
        assert not {"content-encoding", "accept-ranges", "content-digest"} & set(fields) and fields["etag"] == 'W/"a"'
    head = server.get("/", "Accept-Encoding: identity", method="HEAD")
    assert head[2] == b"" and not {"content-encoding", "content-length"} & set(head[1])
    # What the client accepts passes, and so does what a client that states nothing gets.
    for fields in ([f"Accept-Encoding: {coding}"], []):
        status, found, body = server.get("/", *fields)
        assert found["content-encoding"] == coding and decoded(coding, body) == TEXT and found["etag"] == '"a"'
    # Another coding is made of the content.
    other = {"gzip": "zstd"}.get(coding, "gzip")
    status, found, body = server.get("/", f"Accept-Encoding: {other}")
    assert found["content-encoding"] == other and decoded(other, body) == TEXT and found["vary"] == "Accept-Encoding"
    assert 'dunlin_decoded_responses_total 4' in metrics(server)


def metrics(server):
    return server.get("/status/metrics")[2].decode()


def test_what_must_not_be_changed_is_not_decoded(serve):
    server, _ = proxied(serve, answer=Coded("gzip", TEXT, "Cache-Control: no-transform"))
    assert server.get("/", "Accept-Encoding: identity")[1]["content-encoding"] == "gzip"
    server, _ = proxied(serve, answer=Coded("gzip"), route="compress = false")
    assert server.get("/", "Accept-Encoding: gzip;q=0, identity;q=0")[1]["content-encoding"] == "gzip"


@pytest.mark.parametrize("kind", ["reject", "pass"])
def test_a_coding_that_the_client_rejects_is_not_decoded_by_setting(serve, kind):
    server, _ = proxied(serve, answer=Coded("gzip"), route=f'unaccepted_coding = "{kind}"')
    for method in ("GET", "HEAD"):
        status, fields, body = server.get("/", "Accept-Encoding: identity", method=method)
        if kind == "reject":
            assert (status, fields["vary"]) == (406, "Accept-Encoding") and "content-encoding" not in fields
        else:
            assert (status, fields["content-encoding"]) == (200, "gzip")
        assert server.get("/", "Accept-Encoding: gzip", method=method)[0] == 200


def test_decoded_content_is_bounded(serve):
    bomb = Coded("zstd", b"0" * (64 << 20))
    server, _ = proxied(serve, answer=bomb, route='decode_size = "1MiB"')
    assert len(bomb.body) < 1 << 16
    data = until_cut(server, "identity")
    assert b" 200 " in data and 1 << 19 < len(data) < 3 << 20 and not data.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("body", [b"no gzip", coded("gzip")[:-4], coded("gzip")[:200]])
def test_content_that_cannot_be_decoded_is_cut(serve, body):
    answer = lambda *_: response(body, "200 OK", HTML, "Content-Encoding: gzip")
    server, _ = proxied(serve, answer=answer)
    assert not until_cut(server, "identity").endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("answer", [response(b"", "200 OK", HTML, "Content-Encoding: gzip"), chunked(fields=[HTML, "Content-Encoding: gzip"])])
def test_no_content_may_have_a_coding(serve, answer):
    server, _ = proxied(serve, answer=lambda *_: answer)
    status, fields, body = server.get("/", "Accept-Encoding: identity")
    assert (status, body) == (200, b"") and "content-encoding" not in fields


def test_decoded_content_is_streamed(serve):
    decoder_input, go = zlib.compressobj(wbits=31), threading.Semaphore(0)

    def answer(upstream, connection, request):
        connection.sendall(f"HTTP/1.1 200 OK\r\n{HTML}\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for number in range(3):
            assert go.acquire(timeout=20)
            part = decoder_input.compress(b"part %d\n" % number) + decoder_input.flush(zlib.Z_SYNC_FLUSH)
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        rest = decoder_input.flush()
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))

    server, _ = proxied(serve, answer=answer)
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: identity\r\n\r\n")
        data = b""
        for number in range(3):
            go.release()
            while b"part %d\n" % number not in data:
                data += connection.recv(1 << 16)
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(1 << 16)


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_one_stored_body_serves_all_codings(serve, coding):
    """The upstream gets one request, without `Accept-Encoding`, and whatever it sends then serves all clients."""
    fields = (HTML, "Cache-Control: max-age=60", "Vary: Accept-Encoding")
    answer = Coded(coding, TEXT, *fields[1:]) if coding else None
    server, upstream = proxied(serve, *fields, answer=answer, route="cache = { responses = true }")
    for value in ("gzip", "zstd", "br", "identity", "gzip", "zstd;q=0.1, br"):
        status, found, body = server.get("/", f"Accept-Encoding: {value}")
        used = found.get("content-encoding")
        assert used == {"identity": None, "zstd;q=0.1, br": "br"}.get(value, value)
        assert (decoded(used, body) if used else body) == TEXT
        assert re.findall(r"[\w-]+", found["vary"]) == ["Accept-Encoding"]
    assert len(upstream.requests) == 1 and "accept-encoding" not in upstream.requests[0].fields


def test_a_popular_stored_body_is_compressed_again_at_a_better_level(serve):
    server, upstream = proxied(serve, HTML, "Cache-Control: max-age=60", route="cache = { responses = true }")
    lengths = [len(server.get("/", "Accept-Encoding: gzip")[2]) for _ in range(5)]
    assert len(set(lengths[-3:])) == 1 and lengths[-1] < lengths[0] and len(upstream.requests) == 1
    before = re.search(r"dunlin_compressed_responses_total (\d+)", metrics(server))[1]
    server.get("/", "Accept-Encoding: gzip")
    assert re.search(r"dunlin_compressed_responses_total (\d+)", metrics(server))[1] == before


def test_responses_with_certain_fields_are_not_compressed(serve):
    answer = lambda _, __, request: response(TEXT, "200 OK", HTML, *(["Set-Cookie: a=b"] if request.target == "/secret" else []))
    server, _ = proxied(serve, answer=answer, route='compress_unless = ["x-token", "set-cookie"]')
    assert "content-encoding" not in server.get("/secret", "Accept-Encoding: gzip")[1]
    assert server.get("/", "Accept-Encoding: gzip")[1]["content-encoding"] == "gzip"


@pytest.mark.parametrize("length", [1000, 10_000, len(TEXT)])
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_the_length_of_compressed_content_is_random_by_setting(serve, coding, length):
    server, _ = proxied(serve, HTML, body=TEXT[:length], route='compress_padding = "1KiB"')
    lengths = []
    for _ in range(24):
        body = server.get("/", f"Accept-Encoding: {coding}")[2]
        assert decoded(coding, body) == TEXT[:length]
        lengths.append(len(body))
    assert len(set(lengths)) > 12 and 256 < max(lengths) - min(lengths) < 1100


def checked(folder, *arguments, server="", route=""):
    """The output of `dunlin check` for a configuration with these keys."""
    file = folder / "new.toml"
    file.write_text(
        f'[server]\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "/tmp"\n'
        f'[[site.route]]\npath = "/*"\nproxy = "http://127.0.0.1:1"\n{route}\n'
    )
    done = subprocess.run([DUNLIN, "check", "-c", file, *arguments], capture_output=True, text=True)
    return done.stdout + done.stderr


KEYS = 'compress_padding = "1KiB"\ncompress_unless = ["Set-Cookie"]\nunaccepted_coding = "reject"\ndecode_size = "5MiB"'


def test_the_keys_of_codings_are_checked_explained_and_compared(tmp_path):
    assert "compress_share" in checked(tmp_path, server="compress_share = 101")
    assert "compress_padding: it is at most 32KiB" in checked(tmp_path, route='compress_padding = "33KiB"')
    assert '"a b" is not a field name' in checked(tmp_path, route='compress_unless = ["a b"]')
    assert "`x` is not one of" in checked(tmp_path, route='unaccepted_coding = "x"')
    explained = checked(tmp_path, "--explain", "/", route=KEYS)
    for key, value in (("compress_padding", "1"), ("compress_unless", "Set-Cookie"), ("unaccepted_coding", "reject"), ("decode_size", "5")):
        assert re.search(rf"^setting\s+{key} from .*: {value}", explained, re.M), explained
    assert "unless it has Set-Cookie, with up to 1024 random bytes more; 406 if" in explained
    checked(tmp_path)
    (tmp_path / "old.toml").write_text((tmp_path / "new.toml").read_text())
    compared = checked(tmp_path, "--diff", tmp_path / "old.toml", server="compress_share = 30", route=KEYS)
    for key in ("server.compress_share", "compress_padding", "compress_unless", "unaccepted_coding", "decode_size"):
        assert key in compared, compared


def test_configuration_of_codings(serve):
    server, _ = proxied(serve, HTML, server="compress_share = 0")
    assert "content-encoding" not in server.get("/", "Accept-Encoding: gzip")[1]
    assert "dunlin_compression_skipped_total 1" in metrics(server)


class Pauses:
    """An upstream that sends a page in parts, with pauses in which encoders rest."""

    PARTS = [f"<!DOCTYPE html><title>x</title><p>{TEXT.decode()}</p>".encode(), f"<p>second {TEXT.decode()[::-1]}</p>".encode(), b"<p id=end>" + TEXT + b"</p>"]

    def __init__(self):
        self.go, self.is_waiting = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, upstream, connection, request):
        if request.target != "/":
            return response(b"", "404 Not Found")
        connection.sendall(f"HTTP/1.1 200 OK\r\n{HTML}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for number, part in enumerate(self.PARTS):
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            if number < 2:
                self.is_waiting.release()
                assert self.go.acquire(timeout=30)
        return b"0\r\n\r\n"

    def wait(self, server):
        """Has the encoder rest twice, which releases its memory."""
        held = lambda: int(re.search(r"^dunlin_memory_held_bytes (\d+)", metrics(server), re.M)[1])
        for _ in range(2):
            assert self.is_waiting.acquire(timeout=30)
            wait_until(lambda: held() < 100_000, "little memory", 10)
            self.go.release()


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_content_continues_after_a_pause_without_the_memory_of_the_encoder(serve, coding):
    pauses = Pauses()
    server, _ = proxied(serve, answer=pauses, route='compress_padding = "1KiB"')
    with ThreadPoolExecutor() as pool:
        got = pool.submit(server.get, "/", f"Accept-Encoding: {coding}")
        pauses.wait(server)
    status, fields, body = got.result()
    assert fields["content-encoding"] == coding and decoded(coding, body) == b"".join(pauses.PARTS)


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_browser_reads_padding_and_content_after_a_pause(serve, tmp_path, coding):
    pauses, log = Pauses(), tmp_path / "access.log"
    server, _ = proxied(
        serve, answer=pauses, route=f'compress = ["{coding}"]\ncompress_padding = "1KiB"', server=f'access_log = {{ path = "{log}", format = "{{target}} {{coding}}" }}'
    )
    with ThreadPoolExecutor() as pool:
        got = pool.submit(dom, server.url, tmp_path / "profile")
        pauses.wait(server)
    page, console = got.result()
    assert TEXT.decode() in page and TEXT.decode()[::-1] in page and '<p id="end">' in page, console
    wait_until(lambda: f"/ {coding}" in lines(log), "the line of the page", 5)
