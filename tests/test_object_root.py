"""Files in object storage: requests are responded to as if they were in a directory."""

import gzip
import json
import os
import subprocess
from urllib.parse import quote

import pytest
from support.objects import BUCKET, each_store, serve_objects, store  # noqa: F401
from support.server import DUNLIN
from support.waiting import wait_until

LINES = b"".join(b"line %d of the text\n" % number for number in range(2000))


def test_objects_have_the_validators_of_the_store(each_store, serve_objects):
    each_store.put("a.txt", "some text")
    there = each_store.request("GET", "a.txt")
    server = serve_objects(each_store)
    status, fields, body = server.get("/a.txt")
    assert (status, body) == (200, b"some text")
    assert fields["etag"] == there.headers["ETag"]
    assert fields["last-modified"] == there.headers["Last-Modified"]
    assert fields["content-type"] == "text/plain; charset=utf-8"
    assert fields["accept-ranges"] == "bytes"
    head = server.get("/a.txt", method="HEAD")
    assert (head[0], head[1]["content-length"], head[2]) == (200, "9", b"")
    for field, value, expected in [
        ("If-None-Match", fields["etag"], 304),
        ("If-None-Match", '"other"', 200),
        ("If-Modified-Since", fields["last-modified"], 304),
        ("If-Match", '"other"', 412),
        ("If-Unmodified-Since", "Tue, 14 Nov 2000 22:13:20 GMT", 412),
    ]:
        assert server.get("/a.txt", f"{field}: {value}")[0] == expected, (field, value)
    assert server.get("/none.txt")[0] == 404
    assert server.get("/a.txt", "Content-Length: 0", method="POST")[0] == 405


@pytest.mark.parametrize("size", [0, 1, 5_000, 300_000, 9_000_000])
def test_objects_of_each_size_have_ranges(each_store, serve_objects, size):
    content = os.urandom(size)
    each_store.put("data.bin", content)
    # The last size does not fit into the cache: each response is a request for its ranges.
    server = serve_objects(each_store, server='cache = { size = "32MiB" }')
    for _ in range(2):
        status, fields, body = server.get("/data.bin")
        assert (status, fields["content-length"], body == content) == (200, str(size), True)
    head = server.get("/data.bin", method="HEAD")
    assert (head[0], head[1]["content-length"]) == (200, str(size))
    if size < 10:
        return
    for first, last in [(0, 0), (3, size // 2), (size - 5, size - 1), (size // 3, size + 9)]:
        status, fields, body = server.get("/data.bin", f"Range: bytes={first}-{last}")
        assert (status, body) == (206, content[first : last + 1])
        assert fields["content-range"] == f"bytes {first}-{min(last, size - 1)}/{size}"
    status, fields, body = server.get("/data.bin", f"Range: bytes=0-9,{size - 10}-")
    assert status == 206 and fields["content-type"].startswith("multipart/byteranges; boundary=")
    assert content[:10] in body and content[-10:] in body
    assert len(body) == int(fields["content-length"])
    assert server.get("/data.bin", f"Range: bytes={size}-")[0] == 416
    if_range = server.get("/data.bin", "Range: bytes=0-9", 'If-Range: "other"')
    assert (if_range[0], if_range[2] == content) == (200, True)


def test_a_large_object_that_changes_is_never_a_mix(each_store, serve_objects):
    first, second = os.urandom(9_000_000), os.urandom(9_000_000)
    each_store.put("data.bin", first)
    server = serve_objects(each_store, server='cache = { size = "32MiB" }')
    assert server.get("/data.bin")[2] == first
    each_store.put("data.bin", second)
    # Its head is still cached, but the store has another version.
    status, _, body = server.get("/data.bin", "Range: bytes=8000000-8000009")
    assert (status, body) == (206, second[8_000_000:8_000_010])
    assert server.get("/data.bin")[2] == second


NAMES = [
    "with space.txt", "plus+and&.txt", "percent%20.txt", "100%.txt", "ä ö/ü.txt", "\U0001f600.txt", "a'b\"c.txt", "semi;colon=,.txt",
    "tilde~[x]{y}.txt", "hash#mark?.txt", "back\\slash.txt", "star*|<>.txt",
]


def test_each_key_has_one_path(each_store, serve_objects):
    for name in NAMES:
        each_store.put(f"site/{name}", f"this is {name}")
    each_store.put("outside.txt", "not for clients")
    server = serve_objects(each_store, prefix="/site", route="listing = true")
    for name in NAMES:
        status, _, body = server.get("/" + quote(name))
        assert (status, body.decode()) == (200, f"this is {name}")
    listed = json.loads(server.get("/", "Accept: application/json")[2])
    names = {entry["name"].rstrip("/") for entry in listed["entries"]}
    assert names == {name.partition("/")[0] for name in NAMES}
    for path in ["/../outside.txt", "/%2e%2e/outside.txt", "/x/../../outside.txt", "/..%2foutside.txt", "//outside.txt"]:
        assert b"not for clients" not in server.get(path)[2], path


def test_hidden_objects_are_not_served(store, serve_objects):
    for key in [".secret", "a/.git/config", "a/b.txt"]:
        store.put(key, "x")
    server = serve_objects(store, route="listing = true")
    assert [server.get(path)[0] for path in ["/.secret", "/a/.git/config", "/a/b.txt"]] == [404, 404, 200]
    assert b".git" not in server.get("/a/")[2] and b"b.txt" in server.get("/a/")[2]


def test_a_directory_is_a_common_prefix(each_store, serve_objects):
    for key in ["index.html", "docs/index.html", "docs/deep/page.html", "empty/deep/page.html"]:
        each_store.put(key, f"page {key}")
    server = serve_objects(each_store)
    assert server.get("/")[2] == b"page index.html"
    assert server.get("/docs/")[2] == b"page docs/index.html"
    for path in ["/docs", "/docs/deep", "/empty"]:
        status, fields, _ = server.get(path)
        assert (status, fields["location"]) == (301, path + "/"), path
    assert [server.get(path)[0] for path in ["/empty/", "/none/", "/none", "/doc"]] == [403, 404, 404, 404]


def test_listings_have_pages_as_html_and_json(each_store, serve_objects):
    for number in range(2100):
        each_store.put(f"many/{number:04}.txt", "x" * (number % 7))
    each_store.put("many/sub/x.txt", "x")
    server = serve_objects(each_store, route="listing = true")
    status, fields, body = server.get("/many/", "Accept: application/json")
    page = json.loads(body)
    assert (status, fields["content-type"]) == (200, "application/json")
    assert len(page["entries"]) == 2000 and page["entries"][0]["name"].rstrip("/") == "sub"
    second = json.loads(server.get("/many/?page=2", "Accept: application/json")[2])
    assert second["entries"][-1]["name"] == "2099.txt" and len(second["entries"]) == 101
    largest = json.loads(server.get("/many/?sort=size&order=desc&filter=00", "Accept: application/json")[2])
    assert {entry["size"] for entry in largest["entries"] if "size" in entry} <= set(range(7))
    html = server.get("/many/")
    assert html[1]["content-type"] == "text/html; charset=utf-8" and b'href="./0000.txt"' in html[2]
    assert server.get("/many/", f"If-None-Match: {html[1]['etag']}")[0] == 304
    assert server.get("/many/?page=3")[0] == 404


def test_content_codings_are_those_of_files(each_store, serve_objects):
    each_store.put("made.txt", LINES)
    each_store.put("beside.txt", LINES)
    each_store.put("beside.txt.gz", gzip.compress(LINES))
    each_store.put("stored.bin", gzip.compress(LINES), Content_Encoding="gzip", Content_Type="text/css")
    each_store.put("typed", "{}", Content_Type="application/json")
    server = serve_objects(each_store)
    status, fields, body = server.get("/made.txt", "Accept-Encoding: gzip")
    assert (status, fields["content-encoding"], gzip.decompress(body)) == (200, "gzip", LINES)
    assert fields["vary"] == "Accept-Encoding" and fields["etag"].endswith('-gzip"')
    status, fields, body = server.get("/beside.txt", "Accept-Encoding: gzip")
    assert (fields["content-encoding"], body) == ("gzip", gzip.compress(LINES)) or gzip.decompress(body) == LINES
    there = each_store.request("GET", "beside.txt.gz")
    assert fields["etag"] == there.headers["ETag"], "the validator is that of the sibling"
    assert server.get("/made.txt", "Accept-Encoding: gzip", "Range: bytes=0-9")[2] == server.get("/made.txt", "Accept-Encoding: gzip")[2][:10]
    fields = server.get("/stored.bin")[1]
    assert fields["content-encoding"] == "gzip"
    assert server.get("/typed")[1]["content-type"] == "application/json"


def test_try_lists_and_error_pages_work_with_objects(store, serve_objects):
    store.put("index.html", "the application")
    store.put("style.css", "body {}")
    store.put("errors/404.html", "a page of our own")
    route = 'try = ["{path}", "/index.html"]\n[[site.route]]\npath = "/strict/*"\ntry = ["{path}", "=404"]\nerror_pages = { 404 = "/errors/404.html" }'
    server = serve_objects(store, route=route)
    assert server.get("/style.css")[2] == b"body {}"
    for path in ["/users/7", "/users/", "/deep/er/path"]:
        assert server.get(path)[::2] == (200, b"the application"), path
    assert server.get("/strict/none")[::2] == (404, b"a page of our own")


def test_credentials_are_not_shown(store, serve_objects, tmp_path):
    store.put("a.txt", "x")
    server = serve_objects(store)
    assert server.get("/a.txt")[0] == 200
    store.kill()
    wait_until(lambda: server.get("/b.txt")[0] == 503, "the store is down")
    admin = ["curl", "-s", "--unix-socket", str(tmp_path / "admin.sock")]
    shown = [subprocess.run([*admin, f"http://x/{name}"], capture_output=True, text=True, check=True).stdout
             for name in ["config", "status.json", "metrics"]]
    config = str(tmp_path / "dunlin-0.toml")
    for command in (["check", "--config", config], ["check", "--config", config, "--explain", "http://x/a.txt"]):
        done = subprocess.run([DUNLIN, *command], capture_output=True, text=True, check=False)
        shown += [done.stdout, done.stderr]
    assert f"s3://{BUCKET}" in shown[1]
    server.logged(f"s3://{BUCKET}")
    for text in [*shown, server.log]:
        assert "topsecretvalue" not in text
    # The running configuration names the key, and not its secret.
    for text in [*shown[1:], server.log]:
        assert "AKIDEXAMPLE" not in text


PROBLEMS = [
    ('[[site]]\nroot = "ftp://b/x"\n', "the schemes of object stores are s3, gs, az and https"),
    ('[store.s3]\naccess_key = "x"\n[[site]]\nroot = "s3://b"\n', "`access_key` needs `secret_key`"),
    ('[store.az]\nregion = "x"\n[[site]]\nroot = "az://b"\n', "only s3 has a region"),
    ('[[site]]\nroot = "s3://b"\n[[site.route]]\npath = "/*"\nrecords = "variable"\n', "has no record files"),
    ('[[site]]\nroot = "s3://b"\n[[site.route]]\npath = "/*"\netag = "sha256"\n', "the entity tags of s3://b are those of the store"),
]


@pytest.mark.parametrize("text,reason", PROBLEMS)
def test_wrong_settings_are_reported_with_their_place(tmp_path, text, reason):
    file = tmp_path / "dunlin.toml"
    file.write_text('[[listen]]\naddress = "127.0.0.1:0"\n' + text)
    done = subprocess.run([DUNLIN, "check", "--config", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and reason in done.stdout + done.stderr
    assert f"{file}:" in done.stdout + done.stderr
