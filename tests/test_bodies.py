"""Changed bodies: substitution and server-side includes, of files, upstreams and scripts."""

import gzip
import re
import subprocess
import time

import pytest

from support.files import write
from support.http import parse
from support.http2 import Client, DATA, END_STREAM, HEADERS, request
from support.server import DUNLIN
from support.upstream import Upstream

SUBSTITUTE = 'substitute = { "old" = "new" }'


class Application(Upstream):
    """An upstream that responds with the parts that `respond` yields: bytes, and pauses in seconds."""

    def __init__(self, respond):
        def write(upstream, connection, received):
            for part in respond(received.head.decode()):
                if isinstance(part, float):
                    time.sleep(part)
                else:
                    connection.sendall(part)

        super().__init__(write)

    @property
    def heads(self):
        return [received.head.decode() for received in self.requests]


def page(body, *fields, status="200 OK", kind="text/html"):
    lines = "".join(f"{field}\r\n" for field in fields)
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{lines}Connection: close\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def application():
    # All stub servers are ended after the test.
    return Application


def test_texts_of_files_are_replaced(serve, site):
    write(site / "a.html", "old OLD older bold")
    write(site / "a.txt", "old")
    server = serve(SUBSTITUTE)
    for _ in range(3):
        status, fields, body = server.get("/a.html")
        assert (status, body) == (200, b"new new newer bnew")
        assert fields["content-length"] == str(len(body)) and "accept-ranges" not in fields
        assert server.get("/a.txt")[2] == b"old"
    time.sleep(0.1)
    tag = server.get("/a.html")[1]["etag"]
    assert tag.startswith('W/"')
    status, fields, _ = server.get("/a.html", f"If-None-Match: {tag}")
    assert (status, fields["etag"]) == (304, tag)
    assert server.get("/a.txt", "Range: bytes=1-1")[::2] == (206, b"l")
    for ranges in ("bytes=1-1", "bytes=0-0,2-2", "bytes=-1"):
        assert server.get("/a.html", f"Range: {ranges}")[::2] == (200, b"new new newer bnew")
    status, fields, _ = server.get("/a.html", method="HEAD")
    assert status == 200 and "content-length" not in fields and fields["etag"] == tag
    write(site / "a.html", "old again")
    assert server.get("/a.html")[2] == b"new again"


def test_compressed_forms_are_avoided(serve, site):
    write(site / "a.html", "old " * 2000)
    write(site / "a.css", "old " * 2000)
    (site / "b.html").write_text("old")
    (site / "b.html.gz").write_bytes(gzip.compress(b"old"))
    server = serve(SUBSTITUTE)
    for name, expected in [("a.html", b"new " * 2000), ("b.html", b"new")]:
        for _ in range(3):
            status, fields, body = server.get(f"/{name}", "Accept-Encoding: gzip")
            # The changed body is compressed, and no form of the file is sent.
            body = gzip.decompress(body) if fields.get("content-encoding") == "gzip" else body
            assert (status, body) == (200, expected)
    for _ in range(50):
        fields = server.get("/a.css", "Accept-Encoding: gzip")[1]
        if "content-encoding" in fields:
            break
        time.sleep(0.1)
    assert fields["content-encoding"] == "gzip"


def test_large_files_are_changed_in_pieces(serve, site):
    (site / "a.html").write_bytes((b"x" * 60_001 + b"oLd") * 100)
    server = serve(SUBSTITUTE + "\ncache = false")
    status, fields, body = server.get("/a.html")
    assert (status, body) == (200, (b"x" * 60_001 + b"new") * 100)
    assert "content-length" not in fields


def test_bodies_of_upstreams_are_changed_as_they_arrive(serve, application):
    def respond(head):
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n"
        for byte in b"<a>old</a>":
            yield b"1\r\n" + bytes([byte]) + b"\r\n"
            yield 0.01
        yield b"0\r\n\r\n"

    app = application(respond)
    server = serve(f'proxy = "{app.url}"\ncompress = false\n{SUBSTITUTE}')
    status, fields, body = server.get("/x", "Accept-Encoding: gzip, br")
    assert (status, body, fields["etag"]) == (200, b"<a>new</a>", 'W/"a"')
    assert "accept-encoding" not in app.heads[0].lower()
    with Client(server) as client:
        client.send(request(1, "/x"))
        data = b""
        while True:
            kind, flags, _, payload = client.read()
            if kind == DATA:
                data += payload
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                break
    assert data == b"<a>new</a>"


def test_requests_with_bodies_keep_them(serve, application):
    app = application(lambda head: [page(b"old")])
    server = serve(f'proxy = "{app.url}"\n{SUBSTITUTE}')
    text = b"POST /x HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
    assert parse(server.exchange(text))[2] == b"new"
    assert re.search("content-length: 3", app.heads[0], re.I) and app.heads[0].startswith("POST /x ")


def test_what_cannot_be_changed_is_passed_on(serve, application):
    coded = gzip.compress(b"old")

    def respond(head):
        if "/coded" in head:
            return [page(coded, "Content-Encoding: gzip")]
        if "/empty" in head:
            return [page(b"")]
        if "range:" in head.lower():
            return [page(b"ol", "Content-Range: bytes 0-1/3", status="206 Partial Content")]
        return [page(b"old", "Content-MD5: x", "Digest: y")]

    app = application(respond)
    server = serve(f'proxy = "{app.url}"\n{SUBSTITUTE}')
    status, fields, body = server.get("/coded")
    assert (body, fields["content-encoding"]) == (coded, "gzip")
    status, fields, body = server.get("/part", "Range: bytes=0-1")
    assert (status, body) == (200, b"new")
    assert "content-md5" not in fields and "digest" not in fields and "content-range" not in fields
    assert server.get("/empty")[2] == b""


def test_a_body_that_breaks_off_is_seen_as_such(serve, application):
    app = application(lambda head: [page(b"old" * 1000)[:-500], 0.3])
    server = serve(f'proxy = "{app.url}"\n{SUBSTITUTE}')
    connection = server.connect()
    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    data = b""
    try:
        while more := connection.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    assert b"newnew" in data and not data.endswith(b"0\r\n\r\n")


def test_cached_responses_are_changed_at_each_use(serve, application):
    app = application(lambda head: [page(b"http://here/ old", "Cache-Control: max-age=60")])
    server = serve(
        f'proxy = "{app.url}"\ncache = {{ responses = true }}\n'
        'substitute = { "http://here/" = "{scheme}://{host}/", "old" = "new" }'
    )
    for host in ("a.test", "b.test"):
        for _ in range(2):
            text = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            assert parse(server.exchange(text))[2] == f"http://{host}/ new".encode()
    assert len(app.heads) == 2


def test_lists_have_once_and_types(serve, site):
    write(site / "a.html", "aa bb")
    write(site / "a.css", "aa bb")
    server = serve(
        'substitute = [{ from = "a", to = "1", once = true }, { from = "b", to = "2", types = ["text/css"] }]\n'
        'error_pages = { "404" = "/a.html" }'
    )
    assert server.get("/a.html")[2] == b"1a bb"
    assert server.get("/a.css")[2] == b"aa 22"
    status, _, body = server.get("/none")
    assert (status, body) == (404, b"1a bb")


def test_routes_replace_and_end_it_and_each_body_is_changed_once(serve, site):
    write(site / "a.html", "a")
    write(site / "plain" / "a.html", "a")
    more = (
        '[[site.route]]\npath = "/plain/*"\nsubstitute = false\n'
        '[[site.route]]\npath = "/to-plain"\nrewrite = "/plain/a.html"\n'
        '[[site.route]]\npath = "/to-a"\nrewrite = "/a.html"\n'
        '[[site.route]]\npath = "/fixed"\nrespond = { body = "a", content_type = "text/html" }\n'
    )
    server = serve('substitute = { "a" = "aa" }', more=more)
    for path, expected in [("/a.html", b"aa"), ("/plain/a.html", b"a"), ("/to-plain", b"a"), ("/to-a", b"aa"), ("/fixed", b"aa")]:
        assert server.get(path)[2] == expected, path


def test_pages_include_documents(serve, site, cgi):
    write(site / "menu.html", "<menu old>")
    write(site / "part" / "sub.shtml", '[<!--#echo var="DOCUMENT_URI" -->]')
    write(site / "raw" / "sub.html", '[<!--#echo var="DOCUMENT_URI" -->]')
    write(site / "part" / "page.shtml", '<!--#include file="sub.shtml" --><!--#include virtual="/cgi-bin/run?a=b" --><!--#include virtual="/menu.html" -->'
          '<!--#include virtual="/raw/sub.html" --><!--#include virtual="/none" --><!--#include virtual="/secret/x" --><!--#fsize virtual="/menu.html" -->')
    write(site / "secret" / "x", "secret")
    server = cgi(
        {"run": "printf 'Content-Type: text/plain\\n\\n%s %s' \"$REQUEST_METHOD\" \"$QUERY_STRING\""},
        more='[[site.route]]\npath = "/*"\nssi = true\n[[site.route]]\npath = "/raw/*"\nssi = false\n'
        '[[site.route]]\npath = "/secret/*"\nallow = ["192.0.2.1"]\n',
    )
    error = b"[an error occurred while processing the directive]"
    status, fields, body = server.get("/part/page.shtml")
    assert status == 200
    assert body == b'[/part/sub.shtml]GET a=b<menu old>[<!--#echo var="DOCUMENT_URI" -->]' + error + error + b"10"
    assert "etag" not in fields and "last-modified" not in fields
    assert server.get("/part/page.shtml", method="HEAD")[0] == 200
    with Client(server) as client:
        client.send(request(1, "/part/page.shtml"))
        data = b""
        while True:
            kind, flags, _, payload = client.read()
            data += payload if kind == DATA else b""
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                break
    assert data == body


def test_includes_are_bounded(serve, site):
    write(site / "loop.html", 'x<!--#config errmsg="E" --><!--#include virtual="/loop.html" -->')
    write(site / "many.html", '<!--#config errmsg="E" --><!--#include virtual="/one.txt" -->' * 1 + '<!--#include virtual="/one.txt" -->' * 600)
    write(site / "tree.html", '<!--#config errmsg="" -->x<!--#include virtual="/tree.html" --><!--#include virtual="/tree.html" -->')
    write(site / "one.txt", "1")
    server = serve("ssi = true")
    assert server.get("/loop.html")[2] == b"x" * 11 + b"E"
    assert server.get("/many.html")[2] == b"1" * 500 + b"E" * 101
    assert server.get("/tree.html")[2] == b"x" * 501
    assert "includes more documents, or deeper" in server.log


def test_variables_are_those_of_the_request(serve, site):
    names = ["DOCUMENT_NAME", "QUERY_STRING", "REQUEST_METHOD", "REMOTE_ADDR", "HTTP_X_A", "http_x_a", "arg_a", "SERVER_NAME", "HTTPS"]
    write(site / "a.html", "|".join(f'<!--#echo var="{name}" -->' for name in names))
    write(site / "env.html", "<!--#printenv -->")
    server = serve("ssi = true")
    body = server.get("/a.html?a=%3C1&b", "X-A: <v>")[2].decode()
    assert body.split("|") == ["a.html", "a=%3C1&amp;b", "GET", "127.0.0.1", "&lt;v&gt;", "&lt;v&gt;", "%3C1", "x", "(none)"]
    body = server.get("/env.html", "X-A: b", "Authorization: Basic eHg6eHg=")[2].decode()
    assert "HTTP_X_A=b\n" in body and "eHg6eHg" not in body


def test_pages_of_upstreams_have_includes_and_substitutions(serve, application, site):
    write(site / "files" / "m.html", "old menu")
    app = application(lambda head: [page(b'old <!--#INCLUDE virtual="/files/m.html" -->')])
    server = serve(
        f'proxy = "{app.url}"\nssi = true\nsubstitute = {{ "old" = "new", "#include" = "#include" }}',
        more=f'[[site.route]]\npath = "/files/*"\nroot = "{site}"\nsubstitute = false',
    )
    assert server.get("/x")[2] == b"new old menu"


def test_a_page_with_includes_is_never_unchanged(serve, application, site):
    """Its file has validators, which clients may have from before."""
    write(site / "m.html", "menu")
    write(site / "a.html", '<!--#include virtual="/m.html" -->')
    write(site / "a.txt", "text")
    (plain, server), since = (serve("cache = false"), serve("ssi = true")), "If-Modified-Since: Sun, 06 Nov 2044 08:49:37 GMT"
    time.sleep(0.1)
    for _ in range(3):
        tag = plain.get("/a.html")[1]["etag"]
        for fields in ([f"If-None-Match: {tag}"], [f"If-None-Match: W/{tag}"], ["If-None-Match: *"], [since], [f"If-None-Match: {tag}", since]):
            for more in ([], ["Accept-Encoding: gzip"]):
                status, got, body = server.get("/a.html", *fields, *more)
                body = gzip.decompress(body) if more else body
                assert status == 200 and body == b"menu" and "etag" not in got and "last-modified" not in got
        assert server.get("/a.html", since, method="HEAD")[0] == 200
        # Other types have their own.
        tag = server.get("/a.txt")[1]["etag"]
        status, got, _ = server.get("/a.txt", f"If-None-Match: {tag}")
        assert (status, got["etag"]) == (304, tag)
        assert server.get("/a.txt", since)[0] == 304
    kind = lambda head: "text/html" if "/page" in head else "text/plain"
    unchanged = lambda head: "If-None-Match" in head
    app = application(lambda head: [b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n' if unchanged(head) else page(b"<!--#echo var=DOCUMENT_NAME -->", 'ETag: "a"', kind=kind(head))])
    server = serve(f'proxy = "{app.url}"\nssi = true')
    assert server.get("/page", 'If-None-Match: "a"')[0] == 200
    status, got, body = server.get("/text", 'If-None-Match: "a"')
    assert (status, got["etag"], body) == (304, '"a"', b"")
    assert server.get("/page", 'If-None-Match: "a"', method="POST")[0] == 304


@pytest.mark.parametrize("tag", ['"a"', 'W/"a"'])
@pytest.mark.parametrize("cached", [False, True])
def test_a_304_varies_as_the_changed_body(serve, application, tag, cached):
    unchanged = lambda head: "If-None-Match" in head
    fields = [f"ETag: {tag}", "Cache-Control: max-age=60"]
    not_modified = f"HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n\r\n".encode()
    app = application(lambda head: [not_modified if unchanged(head) else page(b"old " * 200, *fields)])
    cache = "cache = { responses = true }\n" if cached else ""
    for key, vary in [("", "Accept-Encoding"), ("compress = false\n", None)]:
        server = serve(f'{SUBSTITUTE}\n{cache}{key}proxy = "{app.url}"')
        for coding in ([], ["Accept-Encoding: gzip"]):
            for _ in range(2):
                status, whole, _ = server.get("/a", *coding)
                assert (status, whole["etag"], whole.get("vary")) == (200, 'W/"a"', vary)
                status, got, _ = server.get("/a", *coding, 'If-None-Match: W/"a"')
                assert (status, got["etag"], got.get("vary")) == (304, 'W/"a"', vary)


def test_a_304_of_a_file_varies_as_the_changed_body(serve, site):
    write(site / "a.html", "old " * 200)
    write(site / "a.txt", "old " * 200)
    server = serve(SUBSTITUTE)
    time.sleep(0.1)
    for path in ("/a.html", "/a.txt"):
        for coding in ([], ["Accept-Encoding: gzip"]):
            for _ in range(3):
                whole = server.get(path, *coding)[1]
                status, got, _ = server.get(path, *coding, f"If-None-Match: {whole['etag']}")
                assert (status, got["etag"], got["vary"]) == (304, whole["etag"], whole["vary"])


def check(tmp_path, route, *arguments):
    file = tmp_path / "check.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:1"\n[[site]]\nroot = "."\n[[site.route]]\npath = "/*"\n{route}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file, *arguments], capture_output=True, text=True, cwd=tmp_path)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "route, message",
    [
        ("substitute = 1", "substitute"),
        ("substitute = true", "a table such as"),
        ('substitute = { "" = "x" }', "substitute: the text that is replaced is empty"),
        ('substitute = { "' + "x" * 1025 + '" = "" }', "has more than 1024 bytes"),
        ('substitute = { "a" = "$host" }', "write {host}"),
        ('substitute = [{ from = "a", to = "b", types = ["html"] }]', '"html" is not a media type'),
        ('substitute = [{ from = "a" }]', "to"),
        ("ssi = 1", "ssi"),
        ('ssi = { types = ["html"] }', 'ssi: "html" is not a media type'),
        ('set_fields = { X-A = { value = "a", status = [999] } }', "a status such as 404"),
        ('set_fields = { X-A = { value = "a", status = ["9xx"] } }', "a class such as"),
        ('set_fields = { X-A = { value = "a", status = [] } }', "set_fields: X-A is for no status"),
        ('set_fields = { ETag = { value = "a" } }', "set_fields: ETag is the server's to set"),
        ('set_fields = { X-A = { status = [200] } }', "value"),
        ('cache = { lifetime = { "200" = "1s" } }', "cache: `lifetime` needs `responses = true`"),
        ('cache = { responses = true, lifetime = { "20" = "1s" } }', 'cache: "20" is not a status'),
        ('cache = { responses = true, lifetime = { "206" = "1s" } }', "cache: responses with status 206 are not stored"),
        ('cache = { responses = true, lifetime = { "200" = "x" } }', "x"),
    ],
)
def test_errors_name_their_place(tmp_path, route, message):
    output = check(tmp_path, route)
    assert message in output and re.search("check.toml:[67]:", output), output


def test_explain_describes_the_keys(tmp_path):
    route = (
        'substitute = [{ from = "a", to = "b", once = true }]\nssi = true\nproxy = "http://127.0.0.1:1"\n'
        'cache = { responses = true, lifetime = { "200" = "1m", any = "1s" } }\n'
        'set_fields = { X-A = "1", X-B = { value = "2", status = [404, "5xx"], absent = true } }'
    )
    output = check(tmp_path, route, "--explain", "http://x/a")
    for text in ['"a" = "b" once in text/html', "in text/html", "200 for 60 s, any for 1 s", 'X-A = "1", X-B = "2" for 404, 5xx if absent']:
        assert text in output, output


def test_fields_with_conditions_in_every_kind_of_response(serve, site, application, cgi):
    app = application(lambda head: [page(b"x", "X-There: own", status="418 Teapot" if "/tea" in head else "200 OK")])
    write(site / "a.txt", "0123456789")
    server = cgi(
        {"run": "printf 'Content-Type: text/plain\\nX-There: own\\n\\nx'"},
        more=f'[[site.route]]\npath = "/*"\nlisting = true\nset_fields = {{ X-All = "all", X-Ok = {{ value = "ok", status = ["2xx"] }}, X-Not = {{ value = "not", status = [304] }}, '
        f'X-Lost = {{ value = "lost", status = [404, 418] }}, X-There = {{ value = "set", absent = true }}, X-Moved = {{ value = "moved", status = ["3xx"] }} }}\n'
        f'[[site.route]]\npath = "/app/*"\nproxy = "{app.url}"\n'
        '[[site.route]]\npath = "/fixed"\nrespond = { body = "x" }\n[[site.route]]\npath = "/moved"\nredirect = "/"\n',
    )
    time.sleep(0.1)
    tag = server.get("/a.txt")[1]["etag"]

    def of(path, *fields, method="GET"):
        status, got, _ = server.get(path, *fields, method=method)
        assert got["x-all"] == "all"
        return status, {name for name in ("x-ok", "x-not", "x-lost", "x-moved") if name in got}, got["x-there"]

    for _ in range(3):
        assert of("/a.txt") == (200, {"x-ok"}, "set")
        assert of("/a.txt", method="HEAD") == (200, {"x-ok"}, "set")
        assert of("/a.txt", f"If-None-Match: {tag}") == (304, {"x-not", "x-moved"}, "set")
        assert of("/a.txt", "Range: bytes=0-0") == (206, {"x-ok"}, "set")
        assert of("/a.txt", "Range: bytes=90-") == (416, set(), "set")
        assert of("/none") == (404, {"x-lost"}, "set")
        assert of("/") == (200, {"x-ok"}, "set")
        assert of("/fixed") == (200, {"x-ok"}, "set")
        assert of("/moved") == (302, {"x-moved"}, "set")
        assert of("/cgi-bin/run") == (200, {"x-ok"}, "own")
        assert of("/app/x") == (200, {"x-ok"}, "own")
        assert of("/app/tea") == (418, {"x-lost"}, "own")
    with Client(server) as client:
        for stream, path in [(1, "/a.txt"), (3, "/a.txt")]:
            client.send(request(stream, path))
    server = serve('cache = false\nset_fields = { X-Ok = { value = "ok", status = [200] }, X-Not = { value = "not", status = [404] } }')
    for _ in range(3):
        fields = server.get("/a.txt")[1]
        assert fields["x-ok"] == "ok" and "x-not" not in fields


def test_lifetimes_by_status(serve, application):
    def respond(head):
        path = head.split(" ")[1]
        fields = {"/own": ["Cache-Control: max-age=0"], "/private": ["Cache-Control: private"], "/cookie": ["Set-Cookie: a=b"]}
        status = {"/404": "404 Not Found", "/500": "500 Internal Server Error", "/302": "302 Found"}.get(path, "200 OK")
        return [page(b"x", *fields.get(path, []), status=status)]

    app = application(respond)
    server = serve(f'proxy = "{app.url}"\ncache = {{ responses = true, lifetime = {{ "200" = "1m", "404" = "1s", "302" = "1m" }} }}')
    for path, stored in [("/", True), ("/own", False), ("/private", False), ("/cookie", False), ("/302", True), ("/500", False), ("/404", True)]:
        app.requests.clear()
        for _ in range(3):
            fields = server.get(path)[1]
        assert (len(app.heads) == 1) == stored, (path, fields)
    time.sleep(1.1)
    app.requests.clear()
    server.get("/404")
    server.get("/")
    assert [head.split(" ")[1] for head in app.heads] == ["/404"]
    server = serve(f'proxy = "{app.url}"\ncache = {{ responses = true, lifetime = {{ any = "1m" }} }}')
    app.requests.clear()
    for _ in range(2):
        server.get("/500")
    assert len(app.heads) == 1


def test_lifetimes_of_routes_for_scripts_and_upstreams(serve, application, cgi):
    def respond(head):
        path = head.split(" ")[1]
        fields = {"/own": ["Cache-Control: private"], "/expires": ["Expires: 0"], "/cookie": ["Set-Cookie: a=b"]}
        status = {"/404": "404 Not Found", "/302": "302 Found"}.get(path, "200 OK")
        return [page(b"x", *fields.get(path, []), status=status)]

    app = application(respond)
    control = lambda fields: (fields.get("cache-control"), "expires" in fields)
    server = serve(f'proxy = "{app.url}"\ncache_control = "public, max-age=60"')
    for path, wanted in [("/", "public, max-age=60"), ("/302", "public, max-age=60"), ("/own", "private"), ("/cookie", None), ("/404", None)]:
        assert server.get(path)[1].get("cache-control") == wanted, path
    assert control(server.get("/expires")[1]) == (None, True)
    server = serve(f'proxy = "{app.url}"\nexpires = "1h"')
    for path, wanted in [("/", ("max-age=3600", True)), ("/own", ("private", False)), ("/cookie", (None, False)), ("/404", (None, False))]:
        assert control(server.get(path)[1]) == wanted, path
    # The response cache follows it, as it follows what the upstream states.
    server = serve(f'proxy = "{app.url}"\ncache_control = "max-age=60"\ncache = {{ responses = true }}')
    app.requests.clear()
    for _ in range(3):
        assert server.get("/")[1]["cache-control"] == "max-age=60"
    assert len(app.heads) == 1
    script = "printf 'Content-Type: text/plain\\n%s\\n\\nx' \"$QUERY_STRING\""
    server = cgi({"run": script}, route='cache_control = "max-age=5"\nexpires = "1h"')
    assert control(server.get("/cgi-bin/run?X-A:1")[1]) == ("max-age=5", True)
    assert control(server.get("/cgi-bin/run?Cache-Control:no-store")[1]) == ("no-store", False)
