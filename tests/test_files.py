"""Files, conditions, ranges, codings, listings: as a client sees them."""

import base64
import gzip
import hashlib
import json
import os
import subprocess
import time

import pytest

from support.files import settle, write
from support.waiting import wait_until


def test_a_file_has_the_fields_that_caching_needs(serve, site):
    write(site / "a.html", "<p>hello")
    server = serve()
    status, fields, body = server.get("/a.html")
    assert (status, body) == (200, b"<p>hello")
    assert fields["content-type"] == "text/html; charset=utf-8"
    assert fields["etag"].startswith('"') and fields["accept-ranges"] == "bytes"
    assert fields["x-content-type-options"] == "nosniff" and "date" in fields
    head_status, head_fields, head_body = server.get("/a.html", method="HEAD")
    assert (head_status, head_body) == (200, b"")
    head_fields["date"] = fields["date"]
    assert head_fields == fields


def test_a_young_file_has_a_weak_tag_that_becomes_strong(serve, site):
    (site / "young").write_bytes(b"1")
    # Whole seconds: a file system with a resolution of one second.
    now = int(time.time())
    os.utime(site / "young", (now, now))
    server = serve()
    assert server.get("/young")[1]["etag"].startswith('W/"')
    wait_until(lambda: server.get("/young")[1]["etag"].startswith('"'), "a strong tag")


@pytest.mark.parametrize("cache", ["true", "false"])
def test_conditional_requests(serve, site, cache):
    write(site / "a.txt", "content")
    server = serve(f"cache = {cache}")
    _, fields, _ = server.get("/a.txt")
    tag, date = fields["etag"], fields["last-modified"]
    past, future = "Sun, 06 Nov 1994 08:49:37 GMT", "Sat, 06 Nov 2094 08:49:37 GMT"
    for field, status in [
        (f"If-None-Match: {tag}", 304),
        (f"If-None-Match: W/{tag}", 304),
        (f'If-None-Match: "x", {tag}', 304),
        ("If-None-Match: *", 304),
        ('If-None-Match: "x"', 200),
        (f"If-Modified-Since: {date}", 304),
        (f"If-Modified-Since: {past}", 200),
        (f"If-Modified-Since: {future}", 304),
        ("If-Modified-Since: soon", 200),
        (f"If-Match: {tag}", 200),
        (f"If-Match: W/{tag}", 412),
        ('If-Match: "x"', 412),
        ("If-Match: *", 200),
        (f"If-Unmodified-Since: {date}", 200),
        (f"If-Unmodified-Since: {past}", 412),
    ]:
        for method in ("GET", "HEAD"):
            got, response, body = server.get("/a.txt", field, method=method)
            assert got == status, (method, field)
            if status == 304:
                assert response["etag"] == tag and body == b"" and "content-type" not in response
    got, _, _ = server.get("/a.txt", 'If-None-Match: "x"', f"If-Modified-Since: {date}")
    assert got == 200, "the tag counts, not the date"


def test_ranges(serve, site):
    content = bytes(range(256)) * 4
    write(site / "a.bin", content)
    write(site / "empty", b"")
    server = serve()
    for value, status, expected in [
        ("bytes=0-9", 206, content[:10]),
        ("bytes=-10", 206, content[-10:]),
        ("bytes=1000-", 206, content[1000:]),
        ("bytes=0-99999", 206, content),
        ("bytes=10-5", 200, content),
        ("lines=1-2", 200, content),
        ("bytes=1024-", 416, None),
    ]:
        got, fields, body = server.get("/a.bin", f"Range: {value}")
        assert got == status, value
        if expected is not None:
            assert body == expected, value
        if status == 416:
            assert fields["content-range"] == "bytes */1024"
    assert server.get("/empty", "Range: bytes=0-")[0] == 416
    _, fields, _ = server.get("/a.bin")
    tag, date = fields["etag"], fields["last-modified"]
    for value, status in [(tag, 206), (date, 206), ('"x"', 200), (f"W/{tag}", 200)]:
        assert server.get("/a.bin", "Range: bytes=0-9", f"If-Range: {value}")[0] == status, value
    status, fields, body = server.get("/a.bin", "Range: bytes=0-9", method="HEAD")
    assert (status, fields["content-length"]) == (200, "1024")


@pytest.mark.parametrize("size", [3000, 100_000, 1_000_000])
def test_several_ranges_are_one_multipart_body(serve, site, size):
    import email

    content = os.urandom(size)
    write(site / "a.bin", content)
    server = serve()
    status, fields, body = server.get("/a.bin", "Range: bytes=0-9, 500-999, -20, 5-14")
    assert status == 206
    message = email.message_from_bytes(
        b"Content-Type: " + fields["content-type"].encode() + b"\r\n\r\n" + body
    )
    parts = [(part["Content-Range"], part.get_payload(decode=True)) for part in message.get_payload()]
    assert [where for where, _ in parts] == [
        f"bytes 0-14/{size}",
        f"bytes 500-999/{size}",
        f"bytes {size - 20}-{size - 1}/{size}",
    ]
    raw = body.split(b"\r\n\r\n", 2)[1]
    assert raw.startswith(content[:15])
    many = ",".join(f"{n * 10}-{n * 10 + 1}" for n in range(100))
    assert server.get("/a.bin", f"Range: bytes={many}")[0] == 200, "an attack gets the whole"


def test_content_codings_are_negotiated_and_cached(serve, site):
    text = ("<p>The same words again.\n" * 2000).encode()
    write(site / "a.html", text)
    server = serve()
    tags = set()
    for accept, coding, tool in [
        ("gzip", "gzip", ["gzip", "-dc"]),
        ("br", "br", ["brotli", "-dc"]),
        ("zstd", "zstd", ["zstd", "-dc"]),
        ("gzip, deflate, br, zstd", "zstd", ["zstd", "-dc"]),
        ("gzip;q=1, br;q=0.5", "gzip", ["gzip", "-dc"]),
        ("*", "zstd", ["zstd", "-dc"]),
    ]:
        status, fields, body = server.get("/a.html", f"Accept-Encoding: {accept}")
        assert (status, fields.get("content-encoding")) == (200, coding), accept
        assert fields["vary"] == "Accept-Encoding" and len(body) < len(text) / 10
        assert subprocess.run(tool, input=body, capture_output=True, check=True).stdout == text
        tags.add(fields["etag"])
        again = server.get("/a.html", f"Accept-Encoding: {accept}", f"If-None-Match: {fields['etag']}")
        assert again[0] == 304
        part = server.get("/a.html", f"Accept-Encoding: {accept}", "Range: bytes=5-14")
        assert part[0] == 206 and part[2] == body[5:15], "a range is of the coded form"
    for accept in ("", "deflate", "gzip;q=0", "identity"):
        status, fields, body = server.get("/a.html", f"Accept-Encoding: {accept}")
        assert (status, body) == (200, text) and "content-encoding" not in fields
        tags.add(fields["etag"])
    assert len(tags) == 4, "each form has a tag of its own"
    assert server.get("/a.html", "Accept-Encoding: identity;q=0, deflate")[0] == 406
    write(site / "a.png", text)
    assert "content-encoding" not in server.get("/a.png", "Accept-Encoding: gzip")[1]


def test_siblings_are_served_while_they_are_newer(serve, site):
    write(site / "a.css", "body{} " * 100)
    (site / "a.css.gz").write_bytes(gzip.compress(b"the sibling"))
    server = serve("compress = false")
    status, fields, body = server.get("/a.css", "Accept-Encoding: gzip")
    assert fields["content-encoding"] == "gzip" and gzip.decompress(body) == b"the sibling"
    assert fields["content-type"].startswith("text/css")
    (site / "a.css").write_bytes(b"newer")
    os.utime(site / "a.css", (time.time() + 5, time.time() + 5))
    status, fields, body = server.get("/a.css", "Accept-Encoding: gzip")
    assert "content-encoding" not in fields and body == b"newer"
    (site / "a.css.gz").write_bytes(gzip.compress(b"newest"))
    os.utime(site / "a.css.gz", (time.time() + 9, time.time() + 9))
    assert gzip.decompress(server.get("/a.css", "Accept-Encoding: gzip")[2]) == b"newest"


def test_tags_and_digests_from_the_content(serve, site):
    content = b"content " * 100
    write(site / "a.txt", content)
    server = serve('etag = "sha256"')
    status, fields, body = server.get("/a.txt", "Want-Repr-Digest: sha-256=5")
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    assert fields["repr-digest"] == f"sha-256=:{digest}:"
    assert fields["etag"].startswith('"' + hashlib.sha256(content).hexdigest()[:32])
    assert "repr-digest" not in server.get("/a.txt")[1]
    assert "repr-digest" not in server.get("/a.txt", "Want-Repr-Digest: sha-256=0")[1]
    status, fields, body = server.get("/a.txt", "Want-Repr-Digest: sha-256=5", "Accept-Encoding: gzip")
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    assert fields["repr-digest"] == f"sha-256=:{digest}:", "of the form that is sent"
    settle(site / "a.txt")
    assert server.get("/a.txt")[1]["etag"].startswith('"' + hashlib.sha256(content).hexdigest()[:32])


def test_index_files_and_slashes(serve, site):
    write(site / "a b" / "index.html", "index")
    (site / "empty").mkdir()
    server = serve()
    status, fields, _ = server.get("/a%20b?x=1")
    assert (status, fields["location"]) == (301, "/a%20b/?x=1")
    assert server.get("/a%20b/")[2] == b"index"
    assert server.get("/empty/")[0] == 403
    assert server.get("/none/")[0] == 404 and server.get("/a%20b/index.html/")[0] == 404
    assert server.get("//a%20b")[1]["location"] == "/a%20b/", "never another host"


def test_try_lists_errors_redirects_and_fixed_responses(serve, site):
    write(site / "app.html", "app")
    write(site / "page.html", "page")
    write(site / "404.html", "<h1>gone")
    server = serve(
        'error_pages = { "404" = "/404.html" }\nset_fields = { X-Extra = "1", Content-Type = "text/x" }\n'
        'remove_fields = ["ETag"]\ncache_control = "no-store"',
        more="""
[[site.route]]
path = "/app/*"
try = ["{path}", "/app.html"]
[[site.route]]
path = "/clean/*"
try = ["/{path}", "{path}.html", "=404"]
[[site.route]]
path = "/old/*"
redirect = { to = "/new/{rest}{query}", status = 308 }
[[site.route]]
path = "/fixed"
respond = { status = 418, body = "short", content_type = "text/y" }
[[site.route]]
path = "/keep.html"
expires = "1h"
""",
    )
    write(site / "clean" / "page.html", "clean")
    write(site / "keep.html", "keep")
    assert server.get("/app/any/where")[2] == b"app"
    assert server.get("/clean/page")[2] == b"clean"
    assert server.get("/clean/none")[0] == 404
    status, fields, body = server.get("/none")
    assert (status, body) == (404, b"<h1>gone") and fields["content-type"].startswith("text/html")
    status, fields, _ = server.get("/old/a%20b/c?d=e")
    assert (status, fields["location"]) == (308, "/new/a%20b/c?d=e")
    assert server.get("/fixed")[0::2] == (418, b"short")
    assert server.get("/fixed", method="POST")[0] == 418
    status, fields, _ = server.get("/page.html")
    assert fields["x-extra"] == "1" and fields["content-type"] == "text/x"
    assert "etag" not in fields and fields["cache-control"] == "no-store"
    assert "expires" in server.get("/keep.html")[1]


def test_a_try_list_ends_for_directories(serve, site):
    write(site / "app.html", "app")
    write(site / "with" / "index.html", "with")
    write(site / "without" / "x", "x")
    server = serve('try = ["{path}", "=directory", "/app.html"]', more='[[site.route]]\npath = "/with/list/*"\nlisting = true\n')
    write(site / "with" / "list" / "x", "x")
    for path, status in (("/with/", 200), ("/with", 301), ("/without/", 403), ("/without", 301), ("/none/", 200), ("/without/x", 200), ("/with/list/", 200)):
        assert server.get(path)[0] == status, path
    assert server.get("/with/")[2] == b"with" and server.get("/none/")[2] == b"app"
    assert b">x<" in server.get("/with/list/")[2]


def test_other_methods_get_the_statuses_of_nginx_if_that_is_wanted(serve, site):
    write(site / "a", "a")
    write(site / "sub" / "x", "x")
    requests = [("POST", "/a"), ("POST", "/none"), ("POST", "/sub/"), ("POST", "/sub"), ("OPTIONS", "/a"), ("PUT", "/a"), ("PROPFIND", "/a")]

    def statuses(server):
        return [server.get(path, method=method)[0] for method, path in requests]

    assert statuses(serve()) == [405, 404, 403, 308, 204, 405, 501]
    assert statuses(serve(server="nginx_statuses = true")) == [405, 404, 403, 301, 405, 405, 405]


def test_a_listing_has_times_before_1970(serve, site):
    write(site / "old.txt", "x")
    os.utime(site / "old.txt", (-86_400, -86_400))
    server = serve("listing = true")
    [entry] = json.loads(server.get("/", "Accept: application/json")[2])["entries"]
    assert entry["modified"] == "1969-12-31T00:00:00Z"
    assert b"1969-12-31" in server.get("/")[2]


def test_listings_in_the_formats_of_nginx(serve, site):
    write(site / "list" / "a.txt", b"12345")
    write(site / "list" / ".hidden", b"x")
    (site / "list" / "dir").mkdir()

    def listed(name, query=""):
        status, fields, body = serve(f'listing = true\nhidden = true\nlisting_format = "{name}"').get("/list/" + query, "Accept: application/json")
        assert status == 200 and b".hidden" not in body
        return fields["content-type"], body.decode()

    kind, text = listed("nginx-json")
    entries = json.loads(text)
    assert kind == "application/json" and [entry["name"] for entry in entries] == ["dir", "a.txt"]
    assert entries[1]["type"] == "file" and entries[1]["size"] == 5 and "size" not in entries[0]
    kind, text = listed("nginx-xml")
    assert kind == "text/xml; charset=utf-8" and '<file mtime="' in text and '" size="5">a.txt</file>' in text
    kind, text = listed("nginx-jsonp", "?callback=show")
    assert kind == "application/javascript" and "show([" in text
    kind, text = listed("nginx")
    assert kind.startswith("text/html") and '<a href="dir/">dir/</a>' in text and '<a href="a.txt">a.txt</a>' in text


def test_listings_for_people_and_programs(serve, site):
    write(site / "b.txt", "12345")
    write(site / "a:c<d>.txt", "1")
    (site / "folder").mkdir()
    write(site / ".hidden", "x")
    os.mkfifo(site / "fifo")
    server = serve("listing = true")
    status, fields, body = server.get("/")
    assert status == 200 and b'href="./a:c%3Cd%3E.txt"' in body and b"./.hidden" not in body
    assert b"fifo" not in body and "content-security-policy" in fields
    status, fields, body = server.get("/?sort=size&order=desc", "Accept: application/json")
    names = [entry["name"] for entry in json.loads(body)["entries"]]
    assert names == ["folder", "b.txt", "a:c<d>.txt"]


def test_hosts(serve, site, tmp_path):
    for name in ("one", "two", "other"):
        write(tmp_path / name / "index.html", name)
    server = serve(
        text=f"""
[[listen]]
address = "127.0.0.1:0"
[[site]]
host = ["one.example", "*.one.example"]
root = "{tmp_path}/one"
[[site]]
host = "two.example"
root = "{tmp_path}/two"
"""
    )

    def fetch(host, target="/"):
        data = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        return server.exchange(data.encode())

    assert fetch("ONE.example:8080").endswith(b"one")
    assert fetch("a.b.one.example").endswith(b"one")
    assert fetch("two.example.").endswith(b"two")
    assert fetch("two.example", "http://one.example/").endswith(b"one")
    assert fetch("three.example").startswith(b"HTTP/1.1 421")


def test_record_files_become_lines(serve, site):
    records = [b"first", b"", b"the third"]
    data = b"".join(
        len(r).to_bytes(2, "little") + r + (b"\0" if len(r) % 2 else b"") for r in records
    )
    write(site / "a.txt", data)
    write(site / "bad.txt", data + b"\x09\x00x")
    vfc = b"".join(
        (len(r) + 2).to_bytes(2, "little") + b"\x01\x8d" + r + (b"\0" if len(r) % 2 else b"")
        for r in records
    )
    write(site / "vfc" / "a.txt", vfc)
    server = serve(
        'records = "variable"',
        more='[[site.route]]\npath = "/vfc/*"\nrecords = { format = "vfc", control = 2, write = true }\n',
    )
    status, fields, body = server.get("/a.txt")
    assert (status, body) == (200, b"first\n\nthe third\n")
    assert server.get("/a.txt", "Range: bytes=0-4")[2] == b"first"
    assert server.get("/bad.txt")[0] == 500
    server.logged(f"offset {len(data)}")
    assert server.get("/vfc/a.txt")[2] == b"first\n\nthe third\n"
    assert (site / "vfc" / "a.txt.stmlf").read_bytes() == b"first\n\nthe third\n"


def test_the_rust_documentation(serve, site):
    """Every tenth file of a real site, through curl with a connection kept."""
    sysroot = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    docs = f"{sysroot}/share/doc/rust/html"
    if not os.path.isdir(docs):
        pytest.skip("the toolchain came without its documentation")
    server = serve(text=f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{docs}"\n')
    import http.client
    import urllib.parse

    files = sorted(
        os.path.join(folder, name) for folder, _, names in os.walk(docs) for name in names
    )
    connection = http.client.HTTPConnection(*server.address)
    for file in files[::10]:
        name = urllib.parse.quote(os.path.relpath(file, docs))
        connection.request("GET", "/" + name)
        response = connection.getresponse()
        hidden = any(part.startswith(".") for part in name.split("/"))
        body = response.read()
        assert response.status == (404 if hidden else 200), name
        with open(file, "rb") as content:
            assert hidden or body == content.read(), name
    connection.close()
