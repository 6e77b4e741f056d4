"""The responses on disk: restarts, upgrades, damage, bounds and purges, with real upstreams."""

import os
import signal
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.admin import fetch, pid_of, run
from support.processes import end
from support.server import DUNLIN
from support.upstream import Upstream, response
from support.users import only_root
from support.waiting import wait_until

CACHE = "cache = { responses = true }"


def fresh(body=b"hello", *fields):
    return response(body, "200 OK", "Cache-Control: max-age=600", *fields)


class Place:
    """A server with a directory for responses, and its upstream."""

    def __init__(self, serve, tmp_path):
        self.serve, self.directory, self.admin = serve, tmp_path / "responses", tmp_path / "admin.sock"
        self.upstream = Upstream(lambda *_: fresh())

    def start(self, keys="", server="", route="", **more):
        cache = f'cache = {{ directory = "{self.directory}"{keys} }}\n'
        return self.serve(
            server=f'admin = "{self.admin}"\n{cache}{server}', route=f'proxy = "{self.upstream.url}"\n{CACHE}\n{route}', **more
        )

    def files(self):
        return sorted(self.directory.glob("??/*"))

    def targets(self):
        return [request.target for request in self.upstream.requests]

    def metrics(self):
        text = fetch(self.admin, "/metrics")[2].decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("dunlin_response_cache"))
        return {name.removeprefix("dunlin_response_cache_"): float(value) for name, value in values.items()}

    def written(self, count):
        """Waits until the directory has that many complete files."""
        complete = lambda: [file for file in self.files() if file.suffix == ".response"]
        wait_until(lambda: len(complete()) == count, f"{count} files")

    def is_read(self, urls):
        """Waits until the server knows that many URLs of the directory."""
        wait_until(lambda: self.metrics()["disk_urls"] == urls, f"{urls} URLs")

    def purge(self, *arguments):
        code, out, error = run("purge", *arguments, "--admin", str(self.admin))
        assert code == 0, error
        return out


@pytest.fixture
def place(serve, tmp_path):
    return Place(serve, tmp_path)


def state(server, path, *fields):
    status, found, body = server.get(path, *fields)
    assert status == 200
    return found["cache-status"].removeprefix("dunlin; ").split("; ttl")[0], body


def test_responses_outlive_a_killed_process(place):
    place.upstream.answer = lambda _, __, request: fresh(
        request.target.encode() + b"x" * 100_000, 'ETag: "a"', "Vary: A", "Cache-Tag: t", "Age: 100"
    )
    server = place.start()
    for path in "/1", "/2":
        assert state(server, path)[0] == "fwd=uri-miss; stored"
    assert state(server, "/1", "A: 1")[0] == "fwd=vary-miss; stored"
    place.written(3)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    place.upstream.requests.clear()
    server = place.start()
    place.is_read(2)
    assert state(server, "/1") == ("hit", b"/1" + b"x" * 100_000)
    status, fields, body = server.get("/2", "Range: bytes=0-1")
    assert (status, body) == (206, b"/2") and 100 <= int(fields["age"]) < 200
    assert server.get("/1", "A: 1", 'If-None-Match: "a"')[0] == 304
    assert state(server, "/1", "A: 2")[0] == "fwd=vary-miss; stored"
    assert server.get("/3", "Cache-Control: only-if-cached")[0] == 504
    assert server.get("/1", "A: 1", "Cache-Control: only-if-cached")[0] == 200
    assert place.targets() == ["/1"]
    place.written(4)
    values = place.metrics()
    assert values["disk_reads_total"] == 3 and 300_000 < values["disk_bytes"] < 500_000
    for path in [place.directory, *place.directory.iterdir(), *place.files()]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_stale_response_on_disk_is_validated(place):
    place.upstream.answer = lambda *_: response(b"hello", "200 OK", "Cache-Control: max-age=0", 'ETag: "a"')
    server = place.start()
    server.get("/")
    place.written(1)
    server.stop()

    def not_modified(_, __, request):
        assert request.fields["if-none-match"] == '"a"'
        return response(b"", "304 Not Modified", "Cache-Control: max-age=600", length=False)

    place.upstream.answer = not_modified
    server = place.start()
    place.is_read(1)
    assert state(server, "/") == ("fwd=stale; fwd-status=304; stored", b"hello")
    assert state(server, "/") == ("hit", b"hello")
    server.stop()
    # The new lifetime is on disk, too.
    server = place.start()
    place.is_read(1)
    assert state(server, "/") == ("hit", b"hello")
    assert len(place.targets()) == 2


def test_stale_responses_on_disk_replace_errors(place):
    place.upstream.answer = lambda *_: response(b"hello", "200 OK", "Cache-Control: max-age=0, stale-if-error=600")
    server = place.start()
    server.get("/")
    server.stop()
    place.upstream.answer = lambda *_: response(b"", "503 Service Unavailable")
    server = place.start()
    place.is_read(1)
    assert state(server, "/") == ("fwd=stale; fwd-status=503; detail=stale-if-error", b"hello")


def test_a_stale_response_on_disk_is_used_while_it_is_validated(place):
    place.upstream.answer = lambda *_: response(b"old", "200 OK", "Cache-Control: max-age=0, stale-while-revalidate=600")
    server = place.start()
    server.get("/")
    server.stop()
    place.upstream.answer = lambda *_: fresh(b"new")
    server = place.start()
    place.is_read(1)
    assert state(server, "/") == ("hit", b"old")
    wait_until(lambda: state(server, "/") == ("hit", b"new"), "the new response")
    assert len(place.targets()) == 2


@pytest.mark.parametrize("how", ["truncated", "changed", "empty", "other", "old format", "removed", "pipe"])
@pytest.mark.parametrize("when", ["before the start", "after the start"])
def test_a_damaged_file_is_a_miss(place, how, when):
    place.upstream.answer = lambda *_: fresh(b"x" * 10_000)
    server = place.start()
    server.get("/")
    server.stop()
    if when == "after the start":
        server = place.start()
        place.is_read(1)
    [file] = place.files()
    content = file.read_bytes()
    file.unlink()
    if how == "pipe":
        os.mkfifo(file)
    elif how != "removed":
        damaged = {
            "truncated": content[:5000], "changed": content[:-1] + b"y", "empty": b"", "other": os.urandom(5000),
            "old format": content.replace(b"dunlinR3", b"dunlinR2"),
        }
        file.write_bytes(damaged[how])
    if when == "before the start":
        server = place.start()
    assert state(server, "/") == ("fwd=uri-miss; stored", b"x" * 10_000)
    assert len(place.targets()) == 2
    wait_until(lambda: place.files() and file not in place.files(), "the file of the new response alone")
    assert len(place.files()) == 1
    assert state(server, "/")[0] == "hit"
    assert "ERROR" not in server.log


def test_files_that_are_not_the_servers_stay(place):
    (place.directory / "ab").mkdir(parents=True)
    foreign = [place.directory / "notes.txt", place.directory / "ab" / "notes.txt", place.directory / "ab" / "0123.response"]
    for file in foreign:
        file.write_text("mine")
    (place.directory / "cd").write_text("a file in place of a directory")
    server = place.start()
    place.is_read(0)
    for number in range(20):
        assert server.get(f"/{number}")[2] == b"hello"
    server.stop()
    assert all(file.read_text() == "mine" for file in foreign)


def test_the_directory_is_bounded(place):
    place.upstream.answer = lambda _, __, request: fresh(request.target.encode() * 2000)
    server = place.start(keys=', disk = "200KB", size = "4MB"')

    def occupied():
        def size(file):
            try:
                return file.stat().st_blocks * 512
            except FileNotFoundError:
                return 0

        return sum(size(file) for file in place.files())

    for number in range(100):
        for _ in range(2):
            assert server.get(f"/{number:02}")[2] == f"/{number:02}".encode() * 2000
        # One file may be there before it makes room for itself.
        assert occupied() <= 220_000
    wait_until(lambda: 100_000 < occupied() <= 200_000, "a directory that is nearly full")
    values = place.metrics()
    assert values["disk_bytes"] <= values["disk_limit_bytes"] == 200_000
    server.stop()
    server = place.start(keys=', disk = "50KB"')
    wait_until(lambda: occupied() <= 50_000, "the smaller bound")
    assert server.get("/00")[2] == b"/00" * 2000


def test_what_is_purged_is_gone_after_a_restart(place):
    place.upstream.answer = lambda _, __, request: fresh(b"x", f"Cache-Tag: t{request.target[1]}")
    server = place.start()

    def hits():
        return "".join(path[1] for path in ("/a", "/b", "/c", "/d") if state(server, path)[0] == "hit")

    def restart():
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        return place.start()

    assert (hits(), hits()) == ("", "abcd")
    place.written(4)
    assert place.purge("/a") == "1 URL purged\n"
    assert place.purge("--tag", "tb") == "1 URL purged\n"
    assert len(place.files()) == 2, "a purge ends when the files are removed"
    assert server.get("/c", "Content-Length: 0", method="POST")[0] == 200
    place.written(1)
    server = restart()
    place.is_read(1)
    assert hits() == "d"
    place.written(4)
    server = restart()
    # While the directory is read, too.
    assert place.purge("/*") in ("0 URLs purged\n", "1 URL purged\n", "2 URLs purged\n", "3 URLs purged\n", "4 URLs purged\n")
    assert hits() == ""
    place.written(4)
    assert hits() == "abcd"


def test_a_newer_response_replaces_the_one_on_disk(place):
    server = place.start()
    server.get("/")
    place.written(1)
    place.upstream.answer = lambda *_: fresh(b"new")
    assert server.get("/", "Cache-Control: no-cache")[2] == b"new"
    server.stop()
    assert len(place.files()) == 1
    server = place.start()
    place.is_read(1)
    assert state(server, "/") == ("hit", b"new")


def test_concurrent_requests_read_a_file_once(place):
    body = b"x" * 1_000_000
    place.upstream.answer = lambda *_: fresh(body)
    server = place.start()
    server.get("/")
    server.stop()
    server = place.start()
    place.is_read(1)
    with ThreadPoolExecutor(50) as pool:
        for status, _, found in pool.map(lambda _: server.get("/"), range(200)):
            assert status == 200 and found == body
    assert len(place.targets()) == 1 and place.metrics()["disk_reads_total"] == 1


def test_responses_that_memory_does_not_admit_come_from_the_disk(place):
    place.upstream.answer = lambda _, __, request: fresh(request.target.encode() * 200_000)
    server = place.start(keys=', size = "8MB"')
    for number in range(20):
        assert server.get(f"/{number:03}")[2] == f"/{number:03}".encode() * 200_000
        # A disk that is too slow would take not all of them.
        place.written(number + 1)
    requests = len(place.targets())
    for number in range(20):
        assert state(server, f"/{number:03}") == ("hit", f"/{number:03}".encode() * 200_000)
    assert len(place.targets()) == requests


@only_root
def test_a_full_disk_is_one_line_of_the_log(place, tmp_path):
    command = f"mount -t tmpfs -o size=300k none {place.directory} && exec {DUNLIN} \"$@\""
    program = tmp_path / "in-namespace"
    program.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{command}' sh \"$@\"\n")
    program.chmod(0o755)
    place.directory.mkdir()
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("a mount namespace needs root")
    place.upstream.answer = lambda *_: fresh(b"x" * 50_000)
    server = place.start(program=str(program))
    for number in range(20):
        assert state(server, f"/{number}")[0] == "fwd=uri-miss; stored"
    log = server.logged("No space left on device")
    for number in range(20):
        assert state(server, f"/{number}") == ("hit", b"x" * 50_000)
    values = place.metrics()
    assert 0 < values["disk_urls"] < 7 and values['disk_writes_total{result="failed"}'] > 0
    assert server.log.count("No space left") == 1 and server.log.count("ERROR") == log.count("ERROR") == 1


def test_a_directory_that_cannot_be_made_prevents_the_start(place, tmp_path):
    (tmp_path / "file").write_text("")
    place.directory = tmp_path / "file" / "responses"
    with pytest.raises(AssertionError, match=r"cache: directory .*/file/responses: Not a directory"):
        place.start()


@only_root
def test_a_directory_of_another_user_is_one_line_of_the_log(place, tmp_path):
    place.directory.mkdir(mode=0o700)
    (tmp_path / "dunlin.toml").write_text(f'''
[server]
user = "nobody"
cache = {{ directory = "{place.directory}" }}
[[listen]]
address = "127.0.0.1:0"
[[site]]
root = "{tmp_path / "site"}"
[[site.route]]
path = "/*"
proxy = "{place.upstream.url}"
{CACHE}''')
    code, out, error = run("check", "--config", str(tmp_path / "dunlin.toml"))
    assert f"cache {place.directory}: user nobody cannot write there" in out + error
    server = place.serve(text=(tmp_path / "dunlin.toml").read_text())
    server.logged("content is cached in memory only until")
    assert state(server, "/")[0] == "fwd=uri-miss; stored"
    assert state(server, "/")[0] == "hit"
    assert server.log.count("ERROR") == 1


def test_a_reload_keeps_the_directory_or_leaves_it(place, tmp_path):
    server = place.start()
    file = tmp_path / "dunlin-0.toml"
    assert state(server, "/")[0] == "fwd=uri-miss; stored"
    place.written(1)

    def reload(*replaced):
        file.write_text(file.read_text().replace(*replaced))
        assert run("reload", "--admin", str(place.admin))[0] == 0

    # Another bound makes an empty memory and reads the directory again.
    reload('responses"', 'responses", disk = "1MB"')
    place.is_read(1)
    assert state(server, "/")[0] == "hit"
    # A site that changes has other responses.
    reload(CACHE, f"{CACHE}\nranges = 1")
    assert state(server, "/")[0] == "fwd=uri-miss; stored"
    place.written(1)
    reload(f'directory = "{place.directory}", disk = "1MB"', "")
    assert state(server, "/")[0] == "fwd=uri-miss; stored"
    reload("cache = {  }", f'cache = {{ directory = "{place.directory}" }}')
    place.is_read(1)
    assert state(server, "/")[0] == "hit"


def test_another_server_waits_for_the_directory(place):
    first = place.start()
    first.get("/")
    place.written(1)
    place.admin = place.admin.with_name("second.sock")
    second = place.start()
    assert state(second, "/")[0] == "fwd=uri-miss; stored"
    assert state(second, "/")[0] == "hit"
    assert place.metrics()["disk_urls"] == 0 and len(place.files()) == 1
    first.stop()
    # What it has stored meanwhile is newer than the file.
    wait_until(lambda: not place.files(), "the directory")
    second.get("/2")
    place.written(1)


def test_an_upgrade_hands_the_directory_over(place):
    server = place.start()
    old = pid_of(place.admin)
    place.upstream.answer = lambda _, __, request: fresh(request.target.encode())
    stop, failures = threading.Event(), []

    def load(name):
        count = 0
        while not stop.is_set():
            path = f"/{name}/{count}"
            for _ in range(2):
                if server.get(path)[2] != path.encode():
                    failures.append(path)
            count += 1

    threads = [threading.Thread(target=load, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(place.files()) > 50, "files")
    assert run("upgrade", "--admin", str(place.admin))[0] == 0
    new = pid_of(place.admin)
    assert new != old
    wait_until(lambda: place.metrics()["disk_urls"] > 50, "the files of the old process")
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    values = place.metrics()
    assert values['disk_removals_total{reason="damaged"}'] == 0
    wait_until(lambda: place.metrics()["disk_urls"] == len(place.files()), "an index that is complete")
    end(new)
    server = place.start()
    place.is_read(len(place.files()))
    requests = len(place.targets())
    for file in range(10):
        assert state(server, f"/0/{file}") == ("hit", f"/0/{file}".encode())
    assert len(place.targets()) == requests


@only_root
@pytest.mark.parametrize("how", ["user", "confined", "chroot"])
def test_the_directory_is_within_the_confinement(place, how, tmp_path, site):
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.geteuid() and len(folder.parts) > 2:
            folder.chmod(folder.stat().st_mode | 0o055)
    keys = {
        "user": 'user = "nobody"\n',
        "confined": 'user = "nobody"\nlandlock = {}\nseccomp = true\n',
        "chroot": f'user = "nobody"\nchroot = "{tmp_path}"\nlandlock = {{}}\nseccomp = true\n',
    }[how]
    if how == "chroot":
        (tmp_path / "tmp").mkdir(exist_ok=True)
    server = place.start(server=keys)
    place.upstream.answer = lambda *_: fresh(b"x" * 10_000)
    server.get("/")
    place.written(1)
    assert place.directory.stat().st_uid == place.files()[0].stat().st_uid != 0
    assert server.stop() == 0
    server = place.start(server=keys)
    place.is_read(1)
    assert state(server, "/") == ("hit", b"x" * 10_000)
    assert place.purge("/") == "1 URL purged\n" and not place.files()
    assert "ERROR" not in server.log
    assert server.stop() == 0


def test_the_configuration_names_its_mistakes(site, tmp_path):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[server]\ncache = {{ disk = "1GB" }}\n[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n')
    code, _, error = run("check", "--config", str(file))
    assert code == 1 and "cache: `disk` needs `directory`" in error
    file.write_text(f'[server]\ncache = {{ directory = "{site}/cache" }}\n[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n')
    code, _, error = run("check", "--config", str(file))
    assert code == 1 and f"cache: directory {site}/cache is beneath {site}, whose files clients can request" in error
