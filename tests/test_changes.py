"""Files that change while they are served."""

import contextlib
import hashlib
import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.files import until_strong, write
from support.http import read_response
from support.waiting import wait_until


@pytest.fixture(params=["cached", "1 MB, full", "off"])
def cached(request, serve, site):
    """Starts a server with room for all files, with a cache of 1 MB full of files that are used more often, or without a cache."""

    def start():
        table = '[server.cache]\nrevalidate = "1h"\n'
        if request.param == "cached":
            return serve(server=table)
        if request.param == "off":
            return serve("cache = false", server=table)
        for n in range(100):
            write(site / "other" / str(n), os.urandom(12_000))
        server = serve(server=table + 'size = "1MB"\n')
        # They are requested often enough that no test displaces them.
        paths = [f"/other/{n}" for n in range(80)] * 50
        data = "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths)
        data += "HEAD /other/0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert server.exchange(data.encode()).count(b"HTTP/1.1 200 OK\r\n") == len(paths) + 1
        return server

    return start


def replace(path, content):
    new = path.with_name(".new")
    new.write_bytes(content)
    os.replace(new, path)


@pytest.mark.parametrize("size", [100, 20_000, 100_000])
@pytest.mark.parametrize("option", ["sendfile = true", "sendfile = false", "server_timing = true"])
def test_without_a_cache_only_valid_fields_are_kept(serve, site, size, option):
    file = site / "a.txt"
    secret = write(site.parent / "secret", "secret")
    server = serve(f"cache = false\n{option}")

    def change(content, how, n):
        how(content)
        # Old enough that no later change could have the same time.
        os.utime(file, (1_000_000_000 + n, 1_000_000_000 + n))
        until_strong(file)

    def in_place(content):
        with open(file, "r+b") as opened:
            opened.write(content)
            opened.truncate()

    ways = [file.write_bytes, in_place, lambda content: replace(file, content)]
    tags = set()
    for n in range(9):
        content = b"%d" % n * (size + n % 2)
        change(content, ways[n % 3], n)
        for _ in range(3):
            status, fields, body = server.get("/a.txt")
            assert (status, body) == (200, content), n
            tag = fields["etag"]
            assert not tag.startswith("W/") and fields["last-modified"].endswith(f"01:46:4{n} GMT")
        tags.add(tag)
        url = f"http://127.0.0.1:{server.port}/a.txt"
        over_http2 = subprocess.run(["curl", "-s", "--http2-prior-knowledge", url], capture_output=True, check=True)
        assert over_http2.stdout == content
        with server.connect() as connection:
            connection.sendall(b"HEAD /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            head = connection.makefile("rb").read()
        assert b"Content-Length: %d\r\n" % len(content) in head and head.endswith(b"\r\n\r\n")
        assert server.get("/a.txt", "Range: bytes=1-2")[0::2] == (206, content[1:3])
        assert server.get("/a.txt", f"If-None-Match: {tag}")[0::2] == (304, b"")
    assert len(tags) == 9
    file.unlink()
    assert server.get("/a.txt")[0] == 404
    os.mkfifo(file)
    assert server.get("/a.txt")[0] == 403
    file.unlink()
    file.mkdir()
    assert server.get("/a.txt")[0] == 301
    file.rmdir()
    file.symlink_to(secret)
    assert server.get("/a.txt")[0] == 403
    file.unlink()
    change(b"back", file.write_bytes, 0)
    assert server.get("/a.txt")[2] == b"back"


@pytest.mark.parametrize("size", [100, 60_000, 600_000])
def test_every_change_takes_effect_with_the_next_request(cached, site, size):
    """No time between the change and the request."""
    file = write(site / "a.txt", b"0" * size)
    write(site / "dir" / "b.txt", b"0" * size)
    server = cached()
    with server.connect() as connection:

        def get(path="/a.txt"):
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            status, _, body, _ = read_response(connection)
            return status, body

        def written(content):
            file.write_bytes(content)

        def in_place(content):
            with open(file, "r+b") as opened:
                opened.write(content)
                opened.truncate()

        assert get() == (200, b"0" * size)
        for n in range(1, 200):
            content = b"%d" % (n % 10) * (size + n % 3)
            [written, in_place, lambda c: replace(file, c)][n % 3](content)
            assert get() == (200, content), f"change {n}"
            for _ in range(3):
                assert get() == (200, content), f"change {n}, again"
        file.unlink()
        assert get()[0] == 404
        file.write_bytes(b"back")
        assert get() == (200, b"back")
        # A directory on the path is exchanged.
        for _ in range(3):
            assert get("/dir/b.txt")[0] == 200
        write(site / "next" / "b.txt", b"other")
        (site / "dir").rename(site / "old")
        (site / "next").rename(site / "dir")
        assert get("/dir/b.txt") == (200, b"other")
        shutil.rmtree(site / "dir")
        assert get("/dir/b.txt")[0] == 404


def test_changes_behind_symlinks_and_to_the_root_itself(serve, site, tmp_path):
    write(tmp_path / "v1" / "data" / "a.txt", "one")
    write(tmp_path / "v2" / "data" / "a.txt", "two")
    current = tmp_path / "current"
    current.symlink_to("v1")
    (tmp_path / "v1" / "link.txt").symlink_to("data/a.txt")
    server = serve(
        text=f'[server]\nthreads = 2\n[server.cache]\nrevalidate = "1h"\n[[listen]]\n'
        f'address = "127.0.0.1:0"\n[[site]]\nroot = "{current}"\n'
    )
    assert server.get("/link.txt")[2] == b"one"
    (tmp_path / "v1" / "data" / "a.txt").write_bytes(b"changed")
    assert server.get("/link.txt")[2] == b"changed", "by its true name"
    assert server.get("/data/a.txt")[2] == b"changed"
    new = tmp_path / "new"
    new.symlink_to("v2")
    new.rename(current)
    wait_until(lambda: server.get("/data/a.txt")[2] == b"two", "the new root", 5)


def test_without_notification_files_are_compared_with_the_disk(serve, site):
    file = write(site / "a.txt", "one")
    server = serve(server='[server.cache]\nnotify = false\nrevalidate = "200ms"')
    assert server.get("/a.txt")[2] == b"one"
    file.write_bytes(b"two!")
    wait_until(lambda: server.get("/a.txt")[2] == b"two!", "the change", 5)


@pytest.mark.parametrize("how", ["replaced", "rewritten", "truncated"])
@pytest.mark.parametrize("size", [3_000, 120_000, 3_000_000])
def test_every_body_is_of_one_version_or_visibly_truncated(cached, site, how, size):
    """Many changes; each body has the hash of a version, or not the stated length."""
    versions = [bytes([65 + n]) * size for n in range(4)]
    known = {hashlib.md5(version).digest() for version in versions}
    file = write(site / "a.bin", versions[0])
    server = cached()
    stop = threading.Event()
    wrong = []
    counts = {"whole": 0, "cut": 0}

    def read():
        while not stop.is_set():
            try:
                data = server.exchange(b"GET /a.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            except ConnectionResetError:
                counts["cut"] += 1
                continue
            head, _, body = data.partition(b"\r\n\r\n")
            if b" 200 " not in head[:20]:
                continue
            stated = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            if len(body) != stated:
                counts["cut"] += 1
            elif hashlib.md5(body).digest() in known or (how != "replaced" and stated < size):
                # A half-written file is a version of its own, if it is not mixed.
                counts["whole"] += 1
                if len(set(body)) > 1:
                    wrong.append(f"mixed: {set(body)}")
            else:
                wrong.append(f"{stated} bytes of {set(body)}")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(120):
        content = versions[n % 4]
        if how == "replaced":
            replace(file, content)
        elif how == "rewritten":
            file.write_bytes(content)
        else:
            os.truncate(file, random.randrange(size))
            replace(file, content)
        time.sleep(0.002)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong, wrong[:3]
    assert counts["whole"] > 10, counts


def test_the_cache_has_bounds(serve, site):
    for n in range(300):
        write(site / f"f{n}", os.urandom(100_000))
    server = serve(server='[server.cache]\nsize = "2MB"\ndescriptors = 20')

    def memory():
        with open(f"/proc/{server.pid}/smaps_rollup") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))

    descriptors = lambda: len(os.listdir(f"/proc/{server.pid}/fd"))
    server.get("/f0")
    before, start = descriptors(), memory()
    for n in range(300):
        assert server.get(f"/f{n}")[2] == (site / f"f{n}").read_bytes()
    wait_until(lambda: descriptors() <= before + 25, "evicted descriptors to be closed")
    wait_until(lambda: memory() < start + 6_000, "evicted memory to be given back")


@pytest.mark.parametrize("folder", ["/var/tmp", "/nonexistent"])
def test_a_second_request_is_served_from_a_copy_without_a_name(serve, site, monkeypatch, folder):
    monkeypatch.setenv("TMPDIR", folder)
    content = os.urandom(200_000)
    write(site / "a.bin", content)
    server = serve()
    for _ in range(5):
        assert server.get("/a.bin")[2] == content

    def copies():
        links = [os.readlink(link) for link in Path(f"/proc/{server.pid}/fd").iterdir()]
        return [link for link in links if "(deleted)" in link and (link.startswith("/var/tmp/") or "memfd" in link)]

    (copy,) = copies()
    assert copy.startswith("/var/tmp/"), "also where TMPDIR is unusable"
    write(site / "a.bin", content[::-1])
    assert server.get("/a.bin")[2] == content[::-1]


def test_a_file_that_is_requested_again_and_again_is_kept_open_for_a_short_time(serve, site):
    write(site / "a.txt", b"0" * 1000)
    until_strong(site / "a.txt")
    server = serve("cache = false")

    def is_open():
        links = []
        for link in Path(f"/proc/{server.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(link))
        return str(site / "a.txt") in links

    assert server.get("/a.txt")[0] == 200 and not is_open(), "it was requested once"
    deadline = time.monotonic() + 20
    while not is_open():
        assert time.monotonic() < deadline
        assert server.get("/a.txt")[2] == b"0" * 1000
    # Fields of the request still decide.
    tag = server.get("/a.txt")[1]["etag"]
    assert server.get("/a.txt", f"If-None-Match: {tag}")[0] == 304
    assert server.get("/a.txt", "Range: bytes=0-9")[2] == b"0" * 10
    assert server.get("/a.txt", "Accept-Encoding: identity;q=0")[0] == 406
    with server.connect() as connection:
        connection.sendall(b"HEAD /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head = connection.makefile("rb").read()
    assert b"Content-Length: 1000\r\n" in head and head.endswith(b"\r\n\r\n")
    with server.connect():
        wait_until(lambda: not is_open(), "the file to be closed", 10)
