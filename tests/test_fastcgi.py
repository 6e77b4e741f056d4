"""Persistent workers: FastCGI with PHP, Perl, C and stubs, their pool and its failures."""

import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.fastcgi import end_request, PHP_CGI, record
from support.http import dechunk, parse, read_all, read_response
from support.processes import children, is_alive, workers
from support.scripts import assert_events_arrive_as_they_are_sent, IDENTITY, PRINT, script
from support.stub import StubServer
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

PHP_FPM = next(iter(sorted(Path("/usr/sbin").glob("php-fpm*"))), None)


def php(directory, name, text):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<?php\n{text}\n")
    return path


@pytest.fixture
def fastcgi(serve, site):
    """Starts a server with PHP's workers beneath the site's root."""
    assert PHP_CGI, "php-cgi is missing"

    def start(scripts=(), settings="", route="", **more):
        for name, text in dict(scripts).items():
            php(site, name, text)
        settings = settings or "processes = 2"
        return serve(
            route=f'{route}\nscript = {{ kind = "fastcgi", command = ["php-cgi"], '
            f'root = "{site}", {settings} }}',
            **more,
        )

    return start


HELLO = 'header("Content-Type: text/plain"); echo "hello";'
PID = 'header("Content-Type: text/plain"); echo getmypid();'
ENV = 'header("Content-Type: application/json"); echo json_encode($_SERVER);'


def test_a_php_script_responds_and_its_worker_persists(fastcgi):
    server = fastcgi({"hello.php": HELLO, "pid.php": PID})
    status, fields, body = server.get("/hello.php")
    assert (status, body, fields["content-type"]) == (200, b"hello", "text/plain;charset=UTF-8")
    pids = {server.get("/pid.php")[2] for _ in range(10)}
    assert len(pids) == 1
    assert [str(pid).encode() for pid in workers(server)] == list(pids)


def test_php_gets_the_variables_of_a_cgi_program(fastcgi, site, tmp_path):
    directory = tmp_path / "cgi-bin"
    script(directory, "env.php", PRINT)
    (directory / "env.php").chmod(0o755)
    server = fastcgi(
        {"cgi-bin/env.php": ENV},
        'processes = 1, env = { APP = "blue" }',
        server="access_log = 'off'",
    )
    other = fastcgi(
        (),
        "processes = 1",
        more=f'[[site.route]]\npath = "/cgi-bin/*"\n'
        f'script = {{ kind = "cgi", directory = "{directory}", env = {{ APP = "blue" }} }}',
    )
    reported = []
    for one in (server, other):
        body = "a=1&b=2"
        data = (
            "POST //cgi-bin/env.php/extra/%C3%A4%20b?x=%41&y HTTP/1.1\r\nHost: Example.org:81\r\n"
            "Connection: close\r\nContent-Type: text/x; y=z\r\nX-Two: 1\r\nX-Two: 2\r\n"
            "Cookie: a=b\r\nCookie: c=d\r\nProxy: http://evil/\r\nX_Two: evil\r\n"
            f"Authorization: Basic eDp5\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        status, fields, response = parse(one.exchange(data.encode()))
        assert status == 200, one.log
        reported.append(json.loads(response))
    seen, wanted = reported[0], reported[1]["env"]
    # PHP's own variables, and those that its worker was started with.
    for name in ("FCGI_ROLE", "PHP_SELF", "REQUEST_TIME", "REQUEST_TIME_FLOAT", "PATH", "argv", "argc"):
        seen.pop(name, None)
        wanted.pop(name, None)
    for name in ("PHP_FCGI_CHILDREN", "PHP_FCGI_MAX_REQUESTS"):
        assert seen.pop(name) == "0"
    wanted.pop("LC_CTYPE", None)
    for name in ("SERVER_PORT", "REMOTE_PORT", *IDENTITY):
        assert seen.pop(name) != wanted.pop(name)
    assert wanted.pop("SCRIPT_FILENAME") == str(directory / "env.php")
    assert seen.pop("SCRIPT_FILENAME") == str(site / "cgi-bin/env.php")
    assert seen == wanted


def test_paths_name_scripts_files_directories_and_a_front_controller(fastcgi, site):
    (site / "style.css").write_text("a{}")
    (site / "plain").mkdir()
    (site / "plain/index.html").write_text("plain")
    (site / "image.jpg").write_text("<?php echo 'evil';")
    show = 'echo $_SERVER["SCRIPT_NAME"], " ", $_SERVER["PATH_INFO"] ?? "-";'
    server = fastcgi({"index.php": show, "sub/index.php": show, "sub/a.PHP": show})
    for path, response in {
        "/": b"/index.php -",
        "/sub/": b"/sub/index.php -",
        "/sub/index.php/x/y": b"/sub/index.php /x/y",
        "/sub/a.PHP": b"/sub/a.PHP -",
        "/plain/": b"plain",
        "/style.css": b"a{}",
    }.items():
        for _ in range(2):
            assert server.get(path)[::2] == (200, response), path
    status, fields, _ = server.get("/sub?a=b")
    assert (status, fields["location"]) == (301, "/sub/?a=b")
    for path in ("/image.jpg/x.php", "/none.php", "/none/", "/.hidden.php", "/style.css/x"):
        assert server.get(path)[0] == 404, path
    assert server.get("/style.css", method="POST")[0] == 405
    front = fastcgi((), "processes = 1", 'try = ["{path}", "/index.php"]')
    assert front.get("/2024/05/post?x")[::2] == (200, b"/index.php -")
    assert front.get("/style.css")[::2] == (200, b"a{}")
    (site / "style.css").unlink()
    wait_until(lambda: front.get("/style.css")[2] == b"/index.php -", "the file is seen to be gone")
    ended = fastcgi((), "processes = 1", 'try = ["{path}", "=410"]')
    assert ended.get("/nothing")[0] == 410


@pytest.mark.parametrize("length, megabytes", [("Content-Length", 200), ("chunked", 20)])
def test_a_large_upload_arrives_complete(fastcgi, length, megabytes):
    server = fastcgi(
        {
            "sum.php": '$h = hash_init("sha256"); $in = fopen("php://input", "r");'
            "hash_update_stream($h, $in); echo hash_final($h);"
        },
        "processes = 1",
        'body_size = "300MB"',
    )
    part = os.urandom(1 << 20)
    digest = hashlib.sha256(part * megabytes).hexdigest().encode()
    head = "Transfer-Encoding: chunked" if length == "chunked" else f"Content-Length: {megabytes << 20}"
    with server.connect(60) as connection:
        connection.sendall(f"PUT /sum.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n\r\n".encode())
        for _ in range(megabytes):
            connection.sendall(b"%x\r\n" % len(part) + part + b"\r\n" if length == "chunked" else part)
        if length == "chunked":
            connection.sendall(b"0\r\n\r\n")
        status, fields, body = parse(read_all(connection))
    assert (status, body) == (200, digest), server.log


def test_a_large_response_arrives_complete(fastcgi):
    server = fastcgi(
        {"large.php": "for ($i = 0; $i < 2000; $i++) echo str_repeat(chr(65 + $i % 26), 10000);"},
    )
    body = server.get("/large.php")[2]
    assert body == b"".join(bytes([65 + i % 26]) * 10000 for i in range(2000))


def test_events_arrive_as_they_are_sent(fastcgi, tmp_path):
    server = fastcgi(
        {
            "events.php": 'header("Content-Type: text/event-stream");'
            'for ($i = 0; $i < 3; $i++) { echo "data: $i\\n\\n"; @ob_flush(); flush();'
            'while (!file_exists($_GET["gate"] . $i)) { usleep(2000); clearstatcache(); } }',
        },
    )
    assert_events_arrive_as_they_are_sent(server, f"/events.php?gate={tmp_path}/gate", tmp_path)


def test_workers_grow_with_demand_and_retire_when_idle(fastcgi, tmp_path):
    gate = tmp_path / "gate"
    server = fastcgi(
        {
            "wait.php": f'while (!file_exists("{gate}")) {{ usleep(2000); clearstatcache(); }} echo getmypid();'
        },
        'processes = 3, min_processes = 1, retire_idle = "300ms"',
    )
    responses = []
    threads = [
        threading.Thread(target=lambda: responses.append(server.get("/wait.php"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(workers(server)) == 3, "three workers")
    gate.touch()
    for thread in threads:
        thread.join()
    assert [status for status, _, _ in responses] == [200] * 6
    assert len({body for _, _, body in responses}) == 3
    wait_until(lambda: len(workers(server)) == 1, "two have retired")


def test_requests_beyond_the_queue_are_rejected_and_the_log_names_the_busiest_script(fastcgi, tmp_path):
    gate = tmp_path / "gate"
    server = fastcgi(
        {
            "wait.php": f'while (!file_exists("{gate}")) {{ usleep(2000); clearstatcache(); }} echo "done";'
        },
        'processes = 1, queue = 1, queue_timeout = "20s"',
    )
    responses = []
    threads = [
        threading.Thread(target=lambda: responses.append(server.get("/wait.php")[0])) for _ in range(4)
    ]
    threads[0].start()
    wait_until(lambda: workers(server), "a worker")
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: responses.count(503) == 2, "two are rejected")
    gate.touch()
    for thread in threads:
        thread.join()
    assert sorted(responses) == [200, 200, 503, 503]
    wait_until(lambda: "all processes are busy" in server.log, "the warning")
    line = next(line for line in server.log.splitlines() if "all processes are busy" in line)
    assert "wait.php" in line and "longest_ms" in line and "waiting=1" in line


@pytest.mark.parametrize(
    "setting", ["requests = 3", 'max_age = "200ms"', 'max_resident = "1MB"'], ids=str.split
)
def test_workers_are_replaced_and_no_request_is_lost(fastcgi, setting):
    server = fastcgi({"pid.php": PID}, f"processes = 2, {setting}")
    pids = set()

    def replaced():
        status, _, body = server.get("/pid.php")
        assert status == 200, server.log
        pids.add(body)
        return len(pids) >= 4

    wait_until(replaced, "both workers are replaced")
    assert "ERROR" not in server.log


def test_killed_workers_are_replaced_and_every_response_is_correct_or_visibly_failed(fastcgi):
    server = fastcgi(
        {"big.php": 'for ($i = 0; $i < 40; $i++) { echo str_repeat("x", 10000); usleep(500); }'},
        'processes = 3, backoff = "5ms"',
    )
    right, failed, wrong = [], [], []
    stop = threading.Event()

    def fetch():
        while not stop.is_set():
            try:
                data = server.exchange(b"GET /big.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            except OSError:
                failed.append("reset")
                continue
            if not data.startswith(b"HTTP/1.1 200"):
                (failed if data[9:12] in (b"502", b"503") else wrong).append(data[:200])
                continue
            body = data.partition(b"\r\n\r\n")[2]
            if data.endswith(b"\r\n0\r\n\r\n"):
                (right if b"".join(dechunk(body)) == b"x" * 400_000 else wrong).append(data[:200])
            else:
                failed.append("cut")

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        found = wait_until(lambda: workers(server), "a worker")
        os.kill(next(iter(found)), signal.SIGKILL)
        time.sleep(0.05)
    before = len(right)
    wait_until(lambda: len(right) > before + 3, "correct responses again")
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert failed and right


def test_a_worker_that_hangs_is_ended_with_504_and_replaced(fastcgi):
    server = fastcgi(
        {"hang.php": "while (true) {}", "pid.php": PID},
        'processes = 1, first_byte_timeout = "300ms"',
    )
    first = server.get("/pid.php")[2]
    assert server.get("/hang.php")[0] == 504
    status, _, second = server.get("/pid.php")
    assert status == 200 and second != first
    wait_until(lambda: "first_byte_timeout" in server.log, "the warning")
    server.logged("hang.php")
    assert not is_alive(int(first))


def test_a_client_that_disconnects_frees_its_worker(fastcgi, tmp_path):
    server = fastcgi(
        {
            "endless.php": 'while (true) { echo "x"; @ob_flush(); flush(); usleep(1000); }',
            "pid.php": PID,
        },
        "processes = 1",
    )
    pid = server.get("/pid.php")[2]
    with server.connect() as connection:
        connection.sendall(b"GET /endless.php HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(100)
    assert server.get("/pid.php")[::2] == (200, pid)


def test_a_worker_that_continues_without_its_client_is_ended_by_the_timeout(fastcgi):
    server = fastcgi(
        {"endless.php": "ignore_user_abort(true); echo 'x'; flush(); while (true) {}", "pid.php": PID},
        # Longer than a client that closes its side counts as one that waits.
        'processes = 1, timeout = "5s"',
    )
    pid = server.get("/pid.php")[2]
    with server.connect() as connection:
        connection.sendall(b"GET /endless.php HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: children(server)[int(pid)] == "R", "the worker runs the script")
    status, _, body = server.get("/pid.php")
    assert status == 200 and body != pid
    server.logged("still works on an abandoned request")


def test_the_stderr_of_a_worker_is_logged_and_bounded(fastcgi):
    server = fastcgi(
        {
            "log.php": 'error_log("one line"); echo "fine";',
            "flood.php": 'for ($i = 0; $i < 20000; $i++) fwrite(fopen("php://stderr", "w"), "flood flood\\n"); echo "done";',
        },
        "processes = 1",
    )
    assert server.get("/log.php")[2] == b"fine"
    wait_until(lambda: "one line" in server.log, "the line is logged")
    line = next(line for line in server.log.splitlines() if "one line" in line)
    assert "log.php" in line
    assert server.get("/flood.php")[2] == b"done"
    server.stop()
    assert server.log.count("flood flood") < 7000
    server.logged("more bytes were left out")


def test_the_servers_end_is_its_workers_end(fastcgi, tmp_path):
    os.environ["TMPDIR"] = str(tmp_path)
    try:
        server = fastcgi({"pid.php": PID}, "processes = 2, min_processes = 2")
    finally:
        del os.environ["TMPDIR"]
    server.get("/pid.php")
    pids = wait_until(lambda: len(workers(server)) == 2 and list(workers(server)), "two workers")
    sockets = list(tmp_path.glob("dunlin-*/*"))
    assert len(sockets) == 2 and (sockets[0].parent.stat().st_mode & 0o777) == 0o700
    assert server.stop() == 0
    assert not any(is_alive(pid) for pid in pids)
    assert not list(tmp_path.glob("dunlin-*/"))


def test_a_command_that_cannot_be_started_gives_502_at_once(serve, site):
    server = serve(
        route=f'script = {{ kind = "fastcgi", command = ["no-such-program"], root = "{site}" }}'
    )
    php(site, "a.php", HELLO)
    assert server.get("/a.php")[0] == 502
    wait_until(lambda: "no-such-program" in server.log, "the reason")


def test_a_worker_that_dies_at_its_start_is_replaced_ever_more_slowly(serve, tmp_path):
    count = tmp_path / "count"
    die = script(tmp_path, "die", f"echo >> {count}\necho dying >&2\nexit 3\n")
    server = serve(
        route=f'script = {{ kind = "fastcgi", command = ["{die}"], processes = 1, '
        f'queue_timeout = "1500ms", backoff = "100ms" }}'
    )
    assert server.get("/")[0] in (502, 503)
    wait_until(lambda: "with exit status 3" in server.log and "stderr: dying" in server.log, "the log line")
    # At 0, 100, 300, 700 and 1500 ms; not again and again.
    assert 2 <= len(count.read_text()) <= 6


PERL = """#!/usr/bin/perl
use FCGI;
my $count = 0;
my %env;
my $request = FCGI::Request(\\*STDIN, \\*STDOUT, \\*STDERR, \\%env);
while ($request->Accept() >= 0) {
    $count++;
    my $body = do { local $/; <STDIN> };
    print STDERR "perl says $count\\n" if $env{QUERY_STRING} eq 'log';
    print "Content-Type: text/plain\\n\\n$count $env{SCRIPT_NAME} $env{PATH_INFO} $body";
}
"""


def test_perls_library_serves_all_of_a_route(serve, tmp_path):
    program = script(tmp_path, "app.pl", PERL)
    server = serve(
        more=f'[[site.route]]\npath = "/app/*"\nscript = {{ kind = "fastcgi", '
        f'command = ["{program}"], processes = 1 }}'
    )
    data = b"POST /app/a/b?log HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"
    assert parse(server.exchange(data))[::2] == (200, b"1 /app /a/b body"), server.log
    assert server.get("/app/")[2] == b"2 /app / "
    wait_until(lambda: "perl says 1" in server.log, "its STDERR is logged")


C = r"""
#include <fcgi_stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    int count = 0;
    while (FCGI_Accept() >= 0) {
        const char *query = getenv("QUERY_STRING");
        if (!strcmp(query, "exit")) exit(7);
        if (!strcmp(query, "head")) {
            printf("X: ");
            for (int i = 0; i < 100000; i++) putchar('a');
        }
        if (!strcmp(query, "status")) { printf("Status: 418 Teapot\r\n"); FCGI_SetExitStatus(5); }
        printf("Content-Type: text/plain\r\n\r\n%d", ++count);
    }
}
"""


@pytest.fixture(scope="session")
def program_in_c(tmp_path_factory):
    directory = tmp_path_factory.mktemp("c")
    (directory / "app.c").write_text(C)
    subprocess.run(["gcc", "-o", "app", "app.c", "-lfcgi"], cwd=directory, check=True)
    return directory / "app"


def test_the_library_for_c_serves_and_its_failures_are_reported(serve, program_in_c):
    server = serve(
        route=f'script = {{ kind = "fastcgi", command = ["{program_in_c}"], processes = 1, backoff = "5ms" }}'
    )
    assert [server.get("/")[2] for _ in range(3)] == [b"1", b"2", b"3"]
    assert server.get("/?status")[::2] == (418, b"4")
    assert server.get("/?head")[0] == 502
    wait_until(lambda: "its header has more than" in server.log, "the reason")
    assert server.get("/?exit")[0] == 502
    wait_until(lambda: server.get("/")[::2] == (200, b"1"), "its successor responds")


@pytest.fixture
def fpm(tmp_path, site):
    """Starts php-fpm: `fpm(children)` returns the path of its socket."""
    assert PHP_FPM, "php-fpm is missing"
    running = []

    def start(count=2):
        number = len(running)
        path = tmp_path / f"fpm{number}.sock"
        (tmp_path / f"fpm{number}.conf").write_text(
            f"[global]\nerror_log = {tmp_path}/fpm{number}.log\ndaemonize = no\n[www]\n"
            f"listen = {path}\npm = static\npm.max_children = {count}\nuser = nobody\n"
            "listen.mode = 0666\n"
        )
        for directory in [site, *site.parents][:-2]:
            directory.chmod(directory.stat().st_mode | 0o005)
        process = subprocess.Popen([PHP_FPM, "-R", "-y", str(tmp_path / f"fpm{number}.conf")])
        running.append(process)
        wait_until(path.exists, "php-fpm listens")
        return path, process

    yield start
    for process in running:
        if process.poll() is None:
            process.terminate()
            process.wait(10)


def remote(serve, addresses, settings="", kind="fastcgi", root=""):
    connect = json.dumps([str(address) for address in addresses])
    return serve(route=f'script = {{ kind = "{kind}", connect = {connect}, {root} {settings} }}')


@pytest.mark.parametrize("keep_alive", ["false", "true"])
def test_a_pool_elsewhere_is_used(serve, site, fpm, keep_alive):
    path, _ = fpm(2)
    php(site, "hello.php", HELLO)
    php(site, "sum.php", 'echo md5(file_get_contents("php://input"));')
    settings = f"processes = 2, keep_alive = {keep_alive}"
    server = remote(serve, [f"unix:{path}"], settings, root=f'root = "{site}",')
    for _ in range(20):
        assert server.get("/hello.php")[::2] == (200, b"hello"), server.log
    body = os.urandom(500_000)
    head = f"POST /sum.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    status, fields, response = parse(server.exchange(head.encode() + body))
    assert (status, response) == (200, hashlib.md5(body).hexdigest().encode())


def test_an_unreachable_worker_is_skipped_and_used_again(serve, site, fpm, tmp_path):
    path, process = fpm(2)
    php(site, "hello.php", HELLO)
    gone = tmp_path / "later.sock"
    server = remote(
        serve, [f"unix:{gone}", f"unix:{path}"], 'cool_down = "200ms"', root=f'root = "{site}",'
    )
    for _ in range(10):
        assert server.get("/hello.php")[0] == 200
    assert server.log.count("could not be reached") == 1
    process.terminate()
    process.wait(10)
    wait_until(lambda: server.get("/hello.php")[0] == 502, "none can be reached")
    second, _ = fpm(1)
    gone.symlink_to(second)
    wait_until(lambda: server.get("/hello.php")[0] == 200, "one can be reached again")


class StubWorker(StubServer):
    """A FastCGI worker that reads one request and sends given bytes, in given pieces."""

    def __init__(self, path, responses, pause=0.0):
        self.responses, self.pause, self.requests = responses, pause, []
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(64)
        super().__init__(listener)

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            seen = []
            while True:
                head = stream.read(8)
                if len(head) < 8:
                    self.requests.append((seen, "closed"))
                    return
                _, kind, _, size, padding = struct.unpack(">BBHHBx", head)
                data = stream.read(size)
                stream.read(padding)
                seen.append((kind, data))
                if kind == 5 and not data:
                    break
            self.requests.append((seen, "whole"))
            response = self.responses(len(self.requests))
            for piece in response:
                connection.sendall(piece)
                if self.pause:
                    time.sleep(self.pause)
            connection.settimeout(5)
            try:
                rest = stream.read(8)
            except OSError:
                rest = b""
            seen.append(("rest", rest))


def single_bytes(data):
    return [data[at : at + 1] for at in range(len(data))]


PLAIN = b"Content-Type: text/plain\r\n\r\n"


def test_split_padded_and_interleaved_records_are_read(serve, tmp_path):
    parts = (
        record(6, PLAIN[:5], 7)
        + record(7, b"some err", 1)
        + record(6, PLAIN[5:] + b"he")
        + record(6, b"another", request=2)
        + record(11, b"\x63" + bytes(7), request=0)
        + record(7, b"or\n")
        + record(6, b"llo", 255)
        + record(6)
        + record(7)
        + end_request(0)
    )
    StubWorker(tmp_path / "a.sock", lambda _: single_bytes(parts))
    server = remote(serve, [f"unix:{tmp_path}/a.sock"])
    assert server.get("/")[::2] == (200, b"hello")
    wait_until(lambda: "stderr: some error" in server.log, "its stderr is logged")


@pytest.mark.parametrize(
    "response, status, reported",
    [
        (end_request(0), 502, "it wrote nothing"),
        (end_request(3), 502, "exit status is 3"),
        (b"HTTP/1.1 200 OK\r\n\r\n", 502, "does not speak FastCGI 1"),
        (b"", 502, "closed the connection"),
        (record(6, PLAIN + b"cut"), 502, "closed the connection"),
        (record(6, b"garbage") + end_request(), 502, "its header has no end"),
        (end_request(0, 2), 503, "overloaded"),
        (end_request(0, 3), 502, "not a responder"),
    ],
)
def test_an_invalid_response_is_logged(serve, tmp_path, response, status, reported):
    class Closing(StubWorker):
        def serve(self, connection):
            super().serve(connection) if response.endswith(end_request()) else self.close(connection)

        def close(self, connection):
            with connection:
                connection.recv(1 << 16)
                connection.sendall(response)

    Closing(tmp_path / "a.sock", lambda _: [response])
    server = remote(serve, [f"unix:{tmp_path}/a.sock"])
    assert server.get("/")[0] == status
    wait_until(lambda: reported in server.log, reported)


def test_only_repeatable_requests_go_to_another_worker(serve, tmp_path):
    """The first worker reads the request and closes; the second one responds."""

    class Lost(StubWorker):
        def serve(self, connection):
            with connection:
                self.requests.append(connection.recv(1 << 16))

    lost = Lost(tmp_path / "lost.sock", None)
    StubWorker(tmp_path / "good.sock", lambda _: [record(6, PLAIN + b"good") + end_request()])
    server = remote(serve, [f"unix:{tmp_path}/lost.sock", f"unix:{tmp_path}/good.sock"])
    for _ in range(5):
        assert server.get("/")[::2] == (200, b"good")
    assert lost.requests
    before = len(lost.requests)
    statuses = []
    for _ in range(5):
        data = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
        statuses.append(parse(server.exchange(data))[0])
    assert statuses.count(502) == len(lost.requests) - before > 0
    overloaded = StubWorker(tmp_path / "full.sock", lambda _: [end_request(0, 2)])
    server = remote(serve, [f"unix:{tmp_path}/full.sock", f"unix:{tmp_path}/good.sock"])
    for _ in range(5):
        assert parse(server.exchange(data))[0] == 200
    assert overloaded.requests


def test_the_worker_is_notified_when_its_client_disconnects(serve, tmp_path):
    gate = threading.Event()

    def responses(_):
        yield record(6, PLAIN + b"begin")
        gate.wait(10)

    worker = StubWorker(tmp_path / "a.sock", responses)
    server = remote(serve, [f"unix:{tmp_path}/a.sock"])
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        seen = b""
        while b"begin" not in seen:
            part = connection.recv(1 << 16)
            assert part, seen
            seen += part
    gate.set()
    abort = struct.pack(">BBHHBx", 1, 2, 1, 0, 0)
    wait_until(lambda: ("rest", abort) in worker.requests[0][0], "FCGI_ABORT_REQUEST")


def test_long_values_and_long_lists_of_variables_arrive(serve, tmp_path):
    worker = StubWorker(tmp_path / "a.sock", lambda _: [record(6, PLAIN) + end_request()])
    server = remote(serve, [f"unix:{tmp_path}/a.sock"])
    assert server.get("/", "X-Long: " + "v" * 20_000)[0] == 200
    data = b"".join(data for kind, data in worker.requests[0][0] if kind == 4)
    variables = {}
    while data:
        lengths = []
        for _ in range(2):
            size = 1 if data[0] < 128 else 4
            lengths.append(int.from_bytes(data[:size], "big") & 0x7FFFFFFF)
            data = data[size:]
        name, value, data = (
            data[: lengths[0]],
            data[lengths[0] : sum(lengths)],
            data[sum(lengths) :],
        )
        variables[name] = value
    assert variables[b"HTTP_X_LONG"] == b"v" * 20_000
    assert variables[b"REQUEST_METHOD"] == b"GET"
    assert b"SCRIPT_FILENAME" not in variables
    assert (variables[b"SCRIPT_NAME"], variables[b"PATH_INFO"]) == (b"", b"/")


def scgi_head(stream):
    size = b""
    while not size.endswith(b":"):
        size += stream.read(1)
    parts = stream.read(int(size[:-1])).split(b"\0")
    assert stream.read(1) == b","
    return list(zip(parts[:-1:2], parts[1::2]))


def uwsgi_head(stream):
    modifier, size, second = struct.unpack("<BHB", stream.read(4))
    assert (modifier, second) == (0, 0)
    data, found = stream.read(size), []
    while data:
        pair = []
        for _ in range(2):
            length = struct.unpack("<H", data[:2])[0]
            pair.append(data[2 : 2 + length])
            data = data[2 + length :]
        found.append(tuple(pair))
    return found


@pytest.mark.parametrize("kind, read", [("scgi", scgi_head), ("uwsgi", uwsgi_head)])
def test_other_protocols_carry_request_and_response(serve, tmp_path, kind, read):
    seen = []

    class Worker(StubWorker):
        def serve(self, connection):
            with connection, connection.makefile("rb") as stream:
                variables = read(stream)
                body = stream.read(int(dict(variables).get(b"CONTENT_LENGTH") or 0))
                seen.append((variables, body))
                digest = hashlib.md5(body).hexdigest().encode()
                connection.sendall(b"Status: 201 Made\n" + PLAIN + digest)

    Worker(tmp_path / "a.sock", None)
    server = remote(serve, [f"unix:{tmp_path}/a.sock"], kind=kind)
    body = os.urandom(700_000)
    head = f"POST /a/b?c HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    status, fields, response = parse(server.exchange(head.encode() + body))
    assert (status, response) == (201, hashlib.md5(body).hexdigest().encode())
    variables = dict(seen[0][0])
    assert variables[b"REQUEST_METHOD"] == b"POST" and variables[b"QUERY_STRING"] == b"c"
    assert (variables[b"SCRIPT_NAME"], variables[b"PATH_INFO"]) == (b"", b"/a/b")
    if kind == "scgi":
        assert seen[0][0][0] == (b"CONTENT_LENGTH", b"700000") and variables[b"SCGI"] == b"1"
    assert server.get("/")[0] == 201


def test_keep_alive_of_the_client_and_phases(fastcgi):
    server = fastcgi({"hello.php": HELLO}, "processes = 1", "server_timing = true")
    with server.connect() as connection:
        rest = b""
        for _ in range(5):
            connection.sendall(b"GET /hello.php HTTP/1.1\r\nHost: x\r\n\r\n")
            status, fields, body, rest = read_response(connection, rest)
            assert (status, body) == (200, b"hello")
            assert "wait;dur=" in fields["server-timing"] and "script;dur=" in fields["server-timing"]
