"""Versions of files: tags, dates and bodies when a file changes and its time of modification does not."""

import calendar
import email.utils
import gzip
import io
import mmap
import os
import shutil
import subprocess
import tarfile
import time

import pytest

from support.http import parse, read_response
from support.waiting import wait_until

OLD = 1_700_000_000


def seconds(date):
    return calendar.timegm(email.utils.parsedate(date))


def put(path, content, modified=OLD):
    """Writes in place and restores the time of modification."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT
    file = os.open(path, flags, 0o644)
    try:
        os.pwrite(file, content, 0)
        os.ftruncate(file, len(content))
    finally:
        os.close(file)
    os.utime(path, (modified, modified))
    return path


def strong(server, path, *fields):
    """The response once its tag is strong."""

    def look():
        response = server.get(path, *fields)
        return response if response[1]["etag"].startswith('"') else None

    return wait_until(look, "a strong tag")


def in_place(path, content):
    put(path, content)


def replaced(path, content):
    new = path.with_name(".new")
    put(new, content)
    os.replace(new, path)


def copied_with_its_times(path, content):
    source = put(path.with_name(".source"), content)
    subprocess.run(["cp", "-p", source, path], check=True)


def unpacked(path, content):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo(path.name)
        member.size, member.mtime = len(content), OLD
        tar.addfile(member, io.BytesIO(content))
    subprocess.run(["tar", "xf", "-", "-C", path.parent], input=archive.getvalue(), check=True)


def over_http2(server, path, *fields):
    command = ["curl", "-s", "-i", "--http2-prior-knowledge", f"http://127.0.0.1:{server.port}{path}"]
    command += [argument for field in fields for argument in ("-H", field)]
    output = subprocess.run(command, capture_output=True, check=True).stdout
    return parse(output)


@pytest.mark.parametrize("how", [in_place, replaced, copied_with_its_times, unpacked], ids=lambda how: how.__name__)
@pytest.mark.parametrize("options", ["", "cache = false", "sendfile = true", 'etag = "sha256"'])
@pytest.mark.parametrize("size", [40, 100_000, 400_000])
def test_new_content_with_the_old_size_and_time_has_a_new_tag(serve, site, how, options, size):
    file = put(site / "a.bin", b"0" * size)
    server = serve(options)
    tags = set()
    for version in range(1, 5):
        content = b"%d" % version * size
        how(file, content)
        assert server.get("/a.bin")[2] == content
        _, fields, body = strong(server, "/a.bin")
        assert body == content
        tag = fields["etag"]
        for old in tags:
            assert server.get("/a.bin", f"If-None-Match: {old}")[0::2] == (200, content)
            assert server.get("/a.bin", "Range: bytes=20-", f"If-Range: {old}")[0::2] == (200, content)
            assert server.get("/a.bin", f"If-Match: {old}")[0] == 412
            assert over_http2(server, "/a.bin", f"If-None-Match: {old}")[0] == 200
        assert tag not in tags
        tags.add(tag)
        assert server.get("/a.bin", f"If-None-Match: {tag}")[0] == 304
        assert server.get("/a.bin", "Range: bytes=20-29", f"If-Range: {tag}")[0] == 206


@pytest.mark.parametrize("name", ["a.txt", "a.rec", "d/a.txt"])
def test_every_kind_of_file_response_gets_a_new_tag(serve, site, name):
    """A converted file, an index file and a sibling are versions of files like any other."""
    text = lambda n: b"\x04\0abc%d" % n if name == "a.rec" else b"abc%d\n" % n * 200
    path = {"a.txt": "/a.txt", "a.rec": "/a.rec", "d/a.txt": "/d/"}[name]
    file = put(site / name, text(1))
    coding = []
    if name == "a.txt":
        coding = ["Accept-Encoding: gzip"]
        put(site / "a.txt.gz", gzip.compress(text(1), mtime=1))
    server = serve(
        more='[[site.route]]\npath = "/a.rec"\nrecords = { format = "variable" }\n'
        '[[site.route]]\npath = "/d/*"\nindex = ["a.txt"]\n'
    )
    _, fields, first = strong(server, path, *coding)
    tag = fields["etag"]
    put(file, text(2))
    if coding:
        put(site / "a.txt.gz", gzip.compress(text(2), mtime=1))
    status, fields, second = server.get(path, f"If-None-Match: {tag}", *coding)
    assert status == 200 and first != second and fields["etag"] != tag


def test_a_young_change_of_metadata_makes_no_strong_tag(serve, site):
    """A file whose time of modification is set back is as young as before."""
    server = serve()
    weak = 0
    for n in range(200):
        put(site / "a", b"%03d" % n)
        _, fields, body = server.get("/a")
        assert body == b"%03d" % n
        weak += fields["etag"].startswith("W/")
    assert weak > 0, "none was young"


@pytest.mark.parametrize("options", ["", "cache = false"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_a_body_never_mixes_versions_when_the_time_is_set_back(serve, site, options, version):
    size = 24_000_000
    server = serve(options)
    put(site / "big", b"a" * size)
    command = ["curl", "-s", "--limit-rate", "4M", "-o", site.parent / "out", f"{server.url}/big"]
    command += ["--http2-prior-knowledge"] if version == "HTTP/2" else []
    client = subprocess.Popen(command)
    out = site.parent / "out"
    wait_until(lambda: out.exists() and out.stat().st_size > 0, "the first bytes")
    put(site / "big", b"b" * size)
    assert client.wait(60) != 0, "the response is cut"
    assert set(out.read_bytes()) == {ord("a")}


@pytest.mark.parametrize("options", ["", "cache = false", "sendfile = true"])
@pytest.mark.parametrize("how", ["removed", "replaced", "one of two names removed"])
def test_a_file_that_loses_a_name_is_sent_to_its_end(serve, site, options, how):
    size = 24_000_000
    server = serve(options)
    file = put(site / "big", b"a" * size)
    other = site.parent / "other"
    if how == "one of two names removed":
        os.link(file, other)
    with server.connect() as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        part = connection.recv(1000)
        if how == "replaced":
            os.replace(put(site / ".new", b"b" * size), file)
        elif how == "removed":
            file.unlink()
        else:
            other.unlink()
        status, _, body, _ = read_response(connection, part)
    assert status == 200 and body == b"a" * size


@pytest.mark.parametrize("case", ["two names", "no notification"])
def test_a_change_without_notification_and_new_time_takes_effect_after_revalidation(serve, site, case):
    file = put(site / "a", b"one")
    settings = 'revalidate = "200ms"'
    if case == "two names":
        os.link(file, site.parent / "outside")
    else:
        settings += "\nnotify = false"
    server = serve(server=f"[server.cache]\n{settings}")
    assert server.get("/a")[2] == b"one"
    put(site.parent / "outside" if case == "two names" else file, b"two")
    wait_until(lambda: server.get("/a")[2] == b"two", "the change", 5)


GZIP = "Accept-Encoding: gzip"


@pytest.mark.parametrize("notify", ["true", "false"])
@pytest.mark.parametrize("kind", ["plain", "symlink", "second name", "removed", "new", "in place, same time"])
def test_siblings_are_revalidated_like_originals(serve, site, tmp_path, notify, kind):
    put(site / "a.css", b"original " * 100)
    sibling, target = site / "a.css.gz", tmp_path / "target.gz"
    old, new = gzip.compress(b"old", mtime=1), gzip.compress(b"new", mtime=1)
    if kind == "symlink":
        put(site / "hidden" / "t.gz", old)
        target = site / "hidden" / "t.gz"
        sibling.symlink_to("hidden/t.gz")
    elif kind == "second name":
        put(target, old)
        os.link(target, sibling)
    elif kind != "new":
        put(sibling, old)
    server = serve("compress = false", server=f'[server.cache]\nnotify = {notify}\nrevalidate = "300ms"')

    def get():
        status, fields, body = server.get("/a.css", GZIP)
        assert status == 200
        return gzip.decompress(body) if "content-encoding" in fields else body

    first = b"original " * 100 if kind == "new" else b"old"
    for _ in range(3):
        assert get() == first
    if kind == "removed":
        sibling.unlink()
    elif kind in ("symlink", "second name"):
        put(target, new)
    else:
        put(sibling, new, OLD if "same" in kind else OLD + 10)
    last = b"original " * 100 if kind == "removed" else b"new"
    wait_until(lambda: get() == last, "the change", 5)
    server.stop()


def test_a_sibling_has_the_later_date(serve, site):
    put(site / "a.css", b"original " * 100, OLD)
    put(site / "a.css.gz", gzip.compress(b"one", mtime=1), OLD + 100)
    server = serve("compress = false")
    _, fields, _ = server.get("/a.css", GZIP)
    date = fields["last-modified"]
    assert seconds(date) == OLD + 100
    assert seconds(server.get("/a.css")[1]["last-modified"]) == OLD
    put(site / "a.css.gz", gzip.compress(b"two", mtime=1), OLD + 200)
    assert server.get("/a.css", GZIP, f"If-Modified-Since: {date}")[0] == 200
    assert server.get("/a.css", GZIP, "Range: bytes=5-9", f"If-Range: {date}")[0] == 200


@pytest.mark.parametrize("options", ["", "cache = false"])
@pytest.mark.parametrize("ahead", [30, 100_000_000, 2**32])
def test_no_date_is_later_than_the_response(serve, site, options, ahead):
    put(site / "a", b"content", int(time.time()) + ahead)
    server = serve(options)
    _, fields, _ = server.get("/a")
    date = fields["last-modified"]
    assert seconds(date) <= seconds(fields["date"])
    assert server.get("/a", f"If-Modified-Since: {date}")[0] == 304
    # The tag does not wait for that date.
    tag = strong(server, "/a")[1]["etag"]
    assert server.get("/a", "Range: bytes=0-1", f"If-Range: {tag}")[0] == 206


def test_the_date_of_a_file_written_just_now_is_not_later_than_the_response(serve, site):
    server = serve()
    first = int(time.time())
    with server.connect() as connection:
        n = 0
        while time.time() < first + 3:
            n += 1
            (site / "a").write_text(str(n))
            connection.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            _, fields, body, _ = read_response(connection)
            assert body == b"%d" % n
            assert seconds(fields["last-modified"]) <= seconds(fields["date"])


@pytest.mark.parametrize("size", [100, 8_192, 300_000])
def test_a_mapping_is_served_right_without_a_cache_and_with_tags_from_the_content(serve, site, size):
    file = put(site / "a", b"0" * size)
    server = serve('cache = false\netag = "sha256"')
    tags = {}
    with open(file, "r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapping:
        for version in (b"1", b"2", b"3"):
            mapping[:] = version * size
            _, fields, body = server.get("/a")
            assert body == version * size
            tags.setdefault(fields["etag"], set()).add(bytes(body))
    assert len(tags) == 3 and all(len(contents) == 1 for contents in tags.values())


def test_a_tag_outlives_a_restart(serve, site):
    put(site / "a", b"content")
    first, second = serve(), serve()
    assert strong(first, "/a")[1]["etag"] == strong(second, "/a")[1]["etag"]
    shutil.copy(site / "a", site / "b")
    assert strong(first, "/b")[1]["etag"] != strong(first, "/a")[1]["etag"]
