"""WSGI applications (PEP 3333): environment, responses, processes."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from support.http import dechunk, parse, post, read_all, read_response, read_until_cut
from support.processes import is_alive, workers
from support.scripts import (
    application_and_cgi_outputs,
    assert_an_upload_arrives,
    assert_events_arrive_as_they_are_sent,
    assert_same_variables,
)
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

APP = '''
import hashlib, json, os, sys, time

def application(environ, start_response):
    name = environ["PATH_INFO"].strip("/").split("/")[0] or "hello"
    return globals()[name](environ, start_response)

def ok(start_response, kind="text/plain", status="200 OK"):
    return start_response(status, [("Content-Type", kind)])

def hello(environ, start_response):
    ok(start_response)
    return [b"hello"]

def pid(environ, start_response):
    ok(start_response)
    return [str(os.getpid()).encode()]

def env(environ, start_response):
    ok(start_response, "application/json")
    body = environ["wsgi.input"].read().decode()
    reported = {key: value for key, value in environ.items() if isinstance(value, str)}
    wsgi = {key: repr(value) for key, value in environ.items() if key.startswith("wsgi.")}
    return [json.dumps({"env": reported, "wsgi": wsgi, "body": body, "path": sys.path[0]}).encode()]

def total(environ, start_response):
    digest = hashlib.sha256()
    while part := environ["wsgi.input"].read(100_000):
        digest.update(part)
    ok(start_response)
    return [digest.hexdigest().encode()]

def lines(environ, start_response):
    ok(start_response)
    return [b"|".join(line.strip() for line in environ["wsgi.input"])]

def ignore(environ, start_response):
    ok(start_response)
    return [b"ignored"]

def large(environ, start_response):
    ok(start_response)
    return (bytes([65 + at % 26]) * 10_000 for at in range(300))

def one(environ, start_response):
    ok(start_response)
    return [b"o" * 3_000_000]

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.002)

def events(environ, start_response):
    ok(start_response, "text/event-stream")
    for number in range(3):
        yield b"data: %d\\n\\n" % number
        wait_for(environ["QUERY_STRING"] + str(number))

def wait(environ, start_response):
    open(environ["QUERY_STRING"] + ".began", "w").close()
    wait_for(environ["QUERY_STRING"])
    return hello(environ, start_response)

def old(environ, start_response):
    write = ok(start_response)
    write(b"one ")
    write(b"two ")
    return [b"three"]

class Closing:
    def __init__(self, path):
        self.path = path
    def __iter__(self):
        yield b"part"
    def close(self):
        open(self.path, "w").close()

def closing(environ, start_response):
    ok(start_response)
    return Closing(environ["QUERY_STRING"])

def fails(environ, start_response):
    raise RuntimeError("on purpose")

def fails_late(environ, start_response):
    ok(start_response)
    yield b"x" * 300_000
    raise RuntimeError("late on purpose")

def replaced(environ, start_response):
    ok(start_response)
    try:
        raise ValueError
    except ValueError:
        start_response("500 Replaced", [("Content-Type", "text/plain")], sys.exc_info())
    return [b"replaced"]

def split(environ, start_response):
    start_response("200 OK", [("X-A", "b\\r\\nSet-Cookie: evil=1")])
    return [b""]

SHARED = [("X-N", "")]

def shared(environ, start_response):
    SHARED[0] = ("X-N", environ["QUERY_STRING"])
    start_response("200 OK", SHARED)
    return [environ.get("HTTP_X_ONE", "-").encode()]

class Text(str):
    pass

def special(environ, start_response):
    start_response(Text("200 OK"), [("X-N", Text(environ["QUERY_STRING"]))])
    return [environ.get("HTTP_X_TWO", "-").encode()]

def nothing(environ, start_response):
    return [b"no head"]

def spin(environ, start_response):
    while True:
        pass

def endless(environ, start_response):
    ok(start_response)
    try:
        while True:
            yield b"x" * 1000
    finally:
        open(environ["QUERY_STRING"], "w").close()

def file(environ, start_response):
    ok(start_response)
    return environ["wsgi.file_wrapper"](open(__file__, "rb"), 100)
'''


# With the host's library, and where that cannot be loaded.
both = pytest.mark.parametrize("wsgi", ["fast", "pure"], indirect=True)


@pytest.fixture
def wsgi(serve, tmp_path, request):
    """Starts a server with the application: `wsgi(settings)`."""
    interpreter = sys.executable
    if getattr(request, "param", "fast") == "pure":
        interpreter = tmp_path / "python"
        interpreter.write_text(
            f'#!/bin/sh\necho > "${{1%/*}}/dunlin_wsgi.abi3.so"\nexec "{sys.executable}" "$@"\n'
        )
        interpreter.chmod(0o755)
    directory = tmp_path / "app"
    directory.mkdir()
    (directory / "app.py").write_text(APP)

    def start(settings="processes = 1", route="", application="app:application", more=""):
        return serve(
            more=f'[[site.route]]\npath = "/app/*"\n{route}\nscript = {{ kind = "wsgi", '
            f'application = "{application}", interpreter = "{interpreter}", '
            f'directory = "{directory}", {settings} }}\n{more}'
        )

    start.directory = directory
    return start


@both
def test_an_application_gets_the_variables_of_a_cgi_program(wsgi, tmp_path):
    application, cgi = application_and_cgi_outputs(wsgi, tmp_path)
    assert application["path"] == str(wsgi.directory)
    assert application["wsgi"]["wsgi.version"] == "(1, 0)"
    assert application["wsgi"]["wsgi.multithread"] == "False"
    assert application["env"].pop("wsgi.url_scheme") == "http"
    assert_same_variables(application["env"], cgi["env"])


@both
def test_concurrent_requests_get_their_own_responses(wsgi):
    server = wsgi()
    wrong = []

    def fetch(number):
        for at in range(50):
            body = b"%d-%d\nsecond" % (number, at)
            if post(server, "/app/lines", body)[2] != body.replace(b"\n", b"|"):
                wrong.append(body)

    threads = [threading.Thread(target=fetch, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(workers(server)) == 1


@both
def test_pipelined_requests_and_head(wsgi):
    server = wsgi()
    with server.connect() as connection:
        connection.sendall(b"GET /app/ HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        rest = b""
        for _ in range(20):
            status, _, body, rest = read_response(connection, rest)
            assert (status, body) == (200, b"hello")
    status, fields, body = server.get("/app/hello", method="HEAD")
    assert (status, body, fields["content-length"]) == (200, b"", "5")


@both
@pytest.mark.parametrize("threads", [1, 3])
def test_state_of_one_request_is_not_used_for_another(wsgi, threads):
    server = wsgi(f"processes = 1, threads = {threads}")
    with server.connect() as connection:
        rest = b""
        # Heads that are alike in all but a text, and requests that begin alike and have other fields.
        for number in range(24):
            path = ("shared", "shared", "special")[number % 3]
            field = ("X-One: a\r\n", "X-Two: b\r\n", "")[number // 3 % 3]
            head = f"GET /app/{path}?{number // 2} HTTP/1.1\r\nHost: x\r\n{field}\r\n"
            connection.sendall(head.encode())
            status, fields, body, rest = read_response(connection, rest)
            reported = {"shared": ("X-One", b"a"), "special": ("X-Two", b"b")}[path]
            wanted = reported[1] if field.startswith(reported[0]) else b"-"
            assert (status, fields["x-n"], body) == (200, str(number // 2), wanted), number


@pytest.mark.parametrize("threads, chunked, megabytes", [(1, False, 200), (1, True, 20), (3, False, 20), (3, True, 20)])
def test_a_large_upload_arrives_complete(wsgi, threads, chunked, megabytes):
    server = wsgi(f"processes = 1, threads = {threads}", 'body_size = "300MB"')
    assert_an_upload_arrives(server, "/app/total", megabytes, chunked)
    assert post(server, "/app/ignore", os.urandom(20_000), chunked=chunked)[2] == b"ignored"
    assert server.get("/app/")[2] == b"hello"


@both
@pytest.mark.parametrize("threads", [1, 3])
def test_a_large_response_arrives_complete_in_bounded_memory(wsgi, threads):
    server = wsgi(f"processes = 1, threads = {threads}")
    wanted = b"".join(bytes([65 + at % 26]) * 10_000 for at in range(300))
    assert server.get("/app/large")[2] == wanted
    assert server.get("/app/one")[2] == b"o" * 3_000_000
    assert server.get("/app/file")[2] == (wsgi.directory / "app.py").read_bytes()
    if threads > 1:
        with server.connect() as connection:
            connection.sendall(b"GET /app/large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            # While its client does not read, the others are served.
            for _ in range(50):
                assert server.get("/app/")[2] == b"hello"
            status, fields, body = parse(read_all(connection))
        assert body == wanted


@both
def test_events_arrive_as_they_are_sent(wsgi, tmp_path):
    server = wsgi()
    assert_events_arrive_as_they_are_sent(server, f"/app/events?{tmp_path}/gate", tmp_path)


@both
def test_optional_features_of_the_standard_work(wsgi, tmp_path):
    server = wsgi()
    assert server.get("/app/old")[2] == b"one two three"
    assert server.get(f"/app/closing?{tmp_path}/closed")[2] == b"part"
    assert (tmp_path / "closed").exists()
    assert server.get("/app/replaced")[::2] == (500, b"replaced")


@both
def test_failures_are_logged_and_visible_to_the_client(wsgi):
    server = wsgi()
    assert server.get("/app/fails")[0] == 500
    wait_until(lambda: "RuntimeError: on purpose" in server.log, "the traceback")
    assert server.get("/app/nothing")[0] == 500
    status, fields, _ = server.get("/app/split")
    assert status == 500 and "set-cookie" not in fields
    assert not read_until_cut(server, "/app/fails_late").endswith(b"0\r\n\r\n")
    wait_until(lambda: "the application failed while it wrote" in server.log, "it is logged")
    assert server.get("/app/")[2] == b"hello"


def test_an_application_that_cannot_be_loaded_is_reported(wsgi):
    server = wsgi('processes = 1, queue_timeout = "1s"', application="nothing_of_that_name:app")
    assert server.get("/app/")[0] in (502, 503)
    wait_until(lambda: "ModuleNotFoundError" in server.log, "the reason")


@both
def test_a_slow_request_delays_neither_ready_responses_nor_other_processes(wsgi, tmp_path):
    server = wsgi("processes = 2")
    for _ in range(50):
        server.get("/app/")
    gate = tmp_path / "gate"
    slow = threading.Thread(target=lambda: server.get(f"/app/wait?{gate}"))
    slow.start()
    began = tmp_path / "gate.began"
    # Requests within five milliseconds may have been sent ahead, and wait after it.
    wait_until(lambda: began.exists() and time.time() > began.stat().st_mtime + 0.1, "it is slow")
    responses = []
    threads = [
        threading.Thread(target=lambda: responses.append(server.get("/app/")[2])) for _ in range(8)
    ]
    wait_until(lambda: workers(server), "workers")
    for thread in threads:
        thread.start()
    wait_until(lambda: len(workers(server)) == 2 or len(responses) == 8, "another, or all")
    gate.touch()
    for thread in [slow, *threads]:
        thread.join()
    assert responses == [b"hello"] * 8


def test_threads_work_concurrently(wsgi, tmp_path):
    server = wsgi("processes = 1, threads = 3")
    gate = tmp_path / "gate"
    responses = []
    threads = [
        threading.Thread(target=lambda: responses.append(server.get(f"/app/wait?{gate}")[0]))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert server.get("/app/")[2] == b"hello"
    assert not responses
    gate.touch()
    for thread in threads:
        thread.join()
    assert responses == [200, 200] and len(workers(server)) == 1
    assert json.loads(server.get("/app/env")[2])["wsgi"]["wsgi.multithread"] == "True"


def test_a_host_that_hangs_is_ended_and_replaced(wsgi):
    server = wsgi('processes = 1, first_byte_timeout = "1s"')
    before = server.get("/app/pid")[2]
    assert server.get("/app/spin")[0] == 504
    status, _, after = server.get("/app/pid")
    assert status == 200 and after != before
    assert not is_alive(int(before))


@both
@pytest.mark.parametrize("threads", [1, 3])
def test_a_client_that_disconnects_ends_the_response(wsgi, tmp_path, threads):
    server = wsgi(f"processes = 1, threads = {threads}")
    with server.connect() as connection:
        connection.sendall(
            f"GET /app/endless?{tmp_path}/left HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        assert connection.recv(100)
    wait_until((tmp_path / "left").exists, "the application is notified")
    assert server.get("/app/")[2] == b"hello"


def test_killed_processes_are_replaced_and_every_response_is_correct_or_visibly_failed(wsgi):
    server = wsgi('processes = 2, backoff = "5ms"')
    wanted = b"".join(bytes([65 + at % 26]) * 10_000 for at in range(300))
    right, failed, wrong = [], [], []
    stop = threading.Event()

    def fetch():
        while not stop.is_set():
            try:
                data = server.exchange(
                    b"GET /app/large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                )
            except OSError:
                failed.append("reset")
                continue
            if not data.startswith(b"HTTP/1.1 200"):
                (failed if data[9:12] in (b"502", b"503") else wrong).append(data[:200])
            elif not data.endswith(b"\r\n0\r\n\r\n"):
                failed.append("cut")
            else:
                body = b"".join(dechunk(data.partition(b"\r\n\r\n")[2]))
                (right if body == wanted else wrong).append(len(body))

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        found = wait_until(lambda: workers(server), "a worker")
        os.kill(next(iter(found)), signal.SIGKILL)
        before = len(right) + len(failed)
        wait_until(lambda: len(right) + len(failed) > before, "another response")
    before = len(right)
    wait_until(lambda: len(right) > before + 2, "correct responses again")
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and right


def test_hosts_are_replaced_after_their_requests_and_none_is_lost(wsgi):
    server = wsgi("processes = 2, requests = 20")
    pids, bad = set(), []

    def fetch():
        for _ in range(100):
            status, _, body = server.get("/app/pid")
            pids.add(body)
            if status != 200:
                bad.append(status)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad and len(pids) >= 10, server.log
    assert "ERROR" not in server.log


@pytest.mark.parametrize(
    ("wsgi", "threads", "wanted"),
    [("fast", 1, True), ("pure", 1, False), ("fast", 3, False)],
    indirect=["wsgi"],
)
def test_the_library_is_used_where_it_can_be(wsgi, threads, wanted):
    server = wsgi(f"processes = 1, threads = {threads}")
    pid = int(server.get("/app/pid")[2])
    with open(f"/proc/{pid}/maps") as maps:
        assert ("dunlin_wsgi.abi3.so" in maps.read()) == wanted
    lines = [line for line in server.log.splitlines() if "scripts run as root" not in line]
    assert not [line for line in lines if "WARN" in line or "ERROR" in line], server.log


def test_the_loops_share_the_hosts(wsgi, serve, tmp_path):
    wsgi().stop()
    text = (tmp_path / "dunlin-0.toml").read_text().replace("threads = 1", "threads = 3", 1)
    server = serve(text=text)
    pids = {server.get("/app/pid")[2] for _ in range(40)}
    assert len(pids) == 1
    assert server.stop() == 0
    assert not is_alive(int(pids.pop()))


def test_a_host_does_not_outlive_a_server_that_was_killed(wsgi):
    server = wsgi()
    pid = int(server.get("/app/pid")[2])
    server.process.kill()
    wait_until(lambda: not is_alive(pid), "the host is gone")
