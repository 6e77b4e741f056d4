"""Files in object storage: objects on disk outlive the process and the memory of the cache."""

import os
import shutil
import signal

import pytest
from support.admin import by_unix, run
from support.http import parse
from support.objects import BUCKET, counting_store, serve_objects, store  # noqa: F401
from support.upstream import Upstream, response
from support.waiting import wait_until
from test_object_root_cache import all_at_once, notify
from test_object_root_failures import down_and_up


class Place:
    """Servers with a directory for objects."""

    def __init__(self, serve_objects, tmp_path):
        self.serve_objects, self.directory, self.admin = serve_objects, tmp_path / "cache", tmp_path / "admin.sock"

    def start(self, store, table="", keys="", **more):
        cache = f'cache = {{ directory = "{self.directory}"{keys} }}'
        return self.serve_objects(store, table=table, server=cache, **more)

    def restart(self, server, store, **more):
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        files = len(self.files())
        server = self.start(store, **more)
        self.is_read(files)
        return server

    def files(self):
        return sorted(self.directory.glob("??/*.response"))

    def written(self, count):
        wait_until(lambda: len(self.files()) == count, f"{count} files")

    def metric(self, name):
        raw = by_unix(self.admin, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        lines = parse(raw)[2].decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"dunlin_response_cache_disk_{name}"))

    def is_read(self, count):
        wait_until(lambda: self.metric("urls") == count, f"{count} objects are known")


@pytest.fixture
def place(serve_objects, tmp_path):
    return Place(serve_objects, tmp_path)


def test_objects_are_sent_after_a_restart_while_the_store_is_down(store, place):
    content = os.urandom(300_000)
    store.put("docs/a.bin", content, Content_Type="application/x-test")
    store.put("index.html", "<p>start")
    server = place.start(store)
    before = [server.get(path) for path in ["/docs/a.bin", "/"]]
    place.written(2)
    store.kill()
    server = place.restart(server, store)
    after = [server.get(path) for path in ["/docs/a.bin", "/"]]
    for (status, fields, body), (then_status, then, then_body) in zip(after, before, strict=True):
        assert (status, body) == (then_status, then_body) == (200, body)
        assert [fields.get(name) for name in ["etag", "last-modified", "content-type"]] == [
            then[name] for name in ["etag", "last-modified", "content-type"]
        ]
    etag = before[0][1]["etag"]
    assert server.get("/docs/a.bin", f"If-None-Match: {etag}")[0] == 304
    status, fields, body = server.get("/docs/a.bin", "Range: bytes=7-99")
    assert (status, body, fields["content-range"]) == (206, content[7:100], "bytes 7-99/300000")
    status, fields, _ = server.get("/docs/other.bin")
    assert status == 503 and "retry-after" in fields
    store.start()
    store.put("index.html", "<p>newer")
    wait_until(lambda: server.get("/")[2] == b"<p>newer", "changes are seen again")
    assert down_and_up(server)[:2] == (1, 1), down_and_up(server)[2]


def test_a_restarted_server_has_the_store_confirm_objects(counting_store, place):
    for name in ["same", "changed", "gone"]:
        counting_store.objects[name] = name.encode() * 1000
    server = place.start(counting_store, table='revalidate = "1h"')
    assert [server.get(f"/{name}")[0] for name in ["same", "changed", "gone"]] == [200] * 3
    place.written(3)
    counting_store.objects["changed"] = b"newer"
    del counting_store.objects["gone"]
    counting_store.fields.clear()
    server = place.restart(server, counting_store, table='revalidate = "1h"')
    assert server.get("/same")[2] == b"same" * 1000
    assert server.get("/changed")[2] == b"newer"
    assert server.get("/gone")[0] == 404
    conditions = [fields.get("If-None-Match") for fields in counting_store.fields]
    assert len(conditions) >= 3 and None not in conditions[:3]
    # A confirmed object is held in memory and used without further requests.
    count = len(counting_store.requests)
    assert server.get("/same")[2] == b"same" * 1000 and len(counting_store.requests) == count
    place.written(2)
    # What replaced an object on disk is what a third process finds.
    server = place.restart(server, counting_store)
    assert server.get("/changed")[2] == b"newer" and server.get("/gone")[0] == 404


def test_many_requests_for_an_object_on_disk_read_it_once(counting_store, place):
    content = os.urandom(500_000)
    counting_store.objects["a.bin"] = content
    server = place.start(counting_store)
    assert server.get("/a.bin")[2] == content
    place.written(1)
    server = place.restart(server, counting_store)
    counting_store.head_delay = 2.0
    before = len(counting_store.gets("a.bin"))
    assert all_at_once(server, "/a.bin", 200) == {content}
    assert len(counting_store.gets("a.bin")) == before + 1
    assert place.metric("reads_total") == 1


SMALL = ', size = "1MiB"'


def overfull(place, store, server):
    """Requests more objects than the memory has room for, so that they are on disk. Returns their names."""
    names = [f"{number}.bin" for number in range(60)]
    for count, name in enumerate(names, 1):
        store.objects[name] = name.encode() * 5000
        assert server.get(f"/{name}")[2] == store.objects[name]
        place.written(count)
    return names


def test_objects_that_leave_the_memory_are_not_requested_again(counting_store, place):
    server = place.start(counting_store, table='revalidate = "1h"', keys=SMALL)
    names = overfull(place, counting_store, server)
    assert len(counting_store.requests) == len(names)
    for name in names * 2:
        assert server.get(f"/{name}")[2] == counting_store.objects[name]
    assert len(counting_store.requests) == len(names)
    assert place.metric("reads_total") > 20, "the memory had room for all"


def test_a_notification_concerns_objects_on_disk(counting_store, place):
    server = place.start(counting_store, table='revalidate = "1h"', keys=SMALL)
    names = overfull(place, counting_store, server)
    for name in names[:20]:
        counting_store.objects[name] = b"newer " + name.encode()
    del counting_store.objects[names[0]]
    notify(place.admin, *names[:20])
    assert server.get(f"/{names[0]}")[0] == 404
    for name in names[1:]:
        assert server.get(f"/{name}")[2] == counting_store.objects[name]
    place.written(59)


def test_a_damaged_file_is_requested_from_the_store(counting_store, place):
    counting_store.objects["a.txt"] = b"text" * 1000
    server = place.start(counting_store)
    assert server.get("/a.txt")[0] == 200
    place.written(1)
    [file] = place.files()
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    server = place.restart(server, counting_store)
    counting_store.fields.clear()
    assert server.get("/a.txt")[2] == b"text" * 1000
    assert counting_store.fields[0].get("If-None-Match") is None
    assert place.metric("removals_total") == 1


def test_purges_concern_responses_and_no_objects(counting_store, place):
    counting_store.objects["docs/a.txt"] = b"text"
    upstream = Upstream(lambda *_: response(b"hello", "200 OK", "Cache-Control: max-age=600"))
    route = f'[[site.route]]\npath = "/p/*"\nproxy = "{upstream.url}"\ncache = {{ responses = true }}\n'
    server = place.start(counting_store, more=route)
    assert server.get("/docs/a.txt")[2] == b"text" and server.get("/p/docs/a.txt")[2] == b"hello"
    place.written(2)
    for pattern in ["/docs/a.txt", "/a.txt", "/*"]:
        code, out, error = run("purge", pattern, "--admin", str(place.admin))
        assert (code, out) == (0, "1 URL purged\n" if pattern == "/*" else "0 URLs purged\n"), error
    assert len(place.files()) == 1 and place.metric("urls") == 1


def test_a_directory_that_cannot_be_written_is_logged_once(counting_store, place):
    for number in range(5):
        counting_store.objects[f"{number}.txt"] = b"text"
    server = place.start(counting_store)
    wait_until((place.directory / "lock").exists, "the directory is used")
    shutil.rmtree(place.directory)
    place.directory.write_text("a file")
    assert [server.get(f"/{number}.txt")[2] for number in range(5)] == [b"text"] * 5
    server.logged("content is cached in memory only until")
    assert server.log.count("in memory only until") == 1


def test_objects_of_a_bucket_that_is_not_configured_any_more_are_removed(counting_store, place, tmp_path):
    counting_store.objects["a.txt"] = b"text"
    server = place.start(counting_store)
    assert server.get("/a.txt")[0] == 200
    place.written(1)
    config = tmp_path / "dunlin-0.toml"
    config.write_text(config.read_text().replace(f"s3://{BUCKET}", "s3://another"))
    code, _, error = run("reload", "--admin", str(place.admin))
    assert code == 0, error
    place.written(0)
