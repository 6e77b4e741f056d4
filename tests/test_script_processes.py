"""Behaviour of every kind of script: signals, responses without content, idle connections."""

import signal
import socket
import struct
import threading

import pytest

from support.fastcgi import end_request, record
from support.http import read_all, read_response
from support.http2 import Client, END_STREAM, HEADERS, request
from support.kinds import KINDS, Programs, STARTED
from support.scripts import script
from support.users import only_root
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path / "programs")


def signals(body):
    lines = dict(line.split(":\t") for line in body.decode().splitlines())
    # The C library keeps 32 and 33 for itself; a program cannot change them.
    return int(lines["SigBlk"], 16), int(lines["SigIgn"], 16) & ~(3 << 31)


def assert_signals_are_unchanged(server, path, kind):
    for _ in range(3):
        status, _, body = server.get(f"{path}?mask")
        assert status == 200, server.log
        blocked, ignored = signals(body)
        assert blocked == 0, kind
        # Python and the hosts ignore some signals themselves. A child process must be able to wait for its own.
        assert not ignored & 1 << signal.SIGCHLD - 1, kind


@pytest.mark.parametrize("kind", STARTED)
def test_a_process_starts_with_no_signal_blocked(serve, programs, kind):
    server = serve(more=programs.route(kind))
    assert_signals_are_unchanged(server, programs.path(kind), kind)


@pytest.mark.parametrize("settings", ['memory = "1GiB"', 'user = "nobody"', 'nice = 1, cpu = "9s"'])
@pytest.mark.parametrize("kind", STARTED)
@only_root
def test_a_process_with_limits_starts_with_no_signal_blocked(serve, reachable, programs, kind, settings):
    if kind in ("warm", "cgiplus", "rte") and "cpu" in settings:
        settings = "nice = 1"
    server = serve(more=programs.route(kind, settings))
    assert_signals_are_unchanged(server, programs.path(kind), kind)


PERL_SIGNALS = r"""#!/usr/bin/perl
print "Content-Type: text/plain\n\n";
open my $file, '<', '/proc/self/status' or die $!;
print grep { /^Sig(Blk|Ign)/ } <$file>;
"""
PERL_CHILDREN = r"""#!/usr/bin/perl
my $n = 0;
$SIG{CHLD} = sub { $n++ };
fork or exit;
for (1 .. 500) { last if $n; select undef, undef, undef, .01 }
print "Content-Type: text/plain\n\n$n";
"""


@pytest.mark.parametrize("settings", ["", 'memory = "1GiB"', 'user = "nobody"', "nice = 1"])
@pytest.mark.parametrize("kind", ["cgi", "warm"])
@only_root
def test_a_program_has_an_empty_mask_and_default_actions(serve, reachable, programs, kind, settings):
    # Perl changes neither before it begins with the script.
    script(programs.directory / kind, "signals.pl", PERL_SIGNALS)
    script(programs.directory / kind, "children.pl", PERL_CHILDREN)
    server = serve(more=programs.route(kind, settings))
    for _ in range(3):
        blocked, ignored = signals(server.get(f"/{kind}/signals.pl")[2])
        # Perl ignores SIGFPE itself.
        assert (blocked, ignored & ~(1 << signal.SIGFPE - 1)) == (0, 0), server.log
        assert server.get(f"/{kind}/children.pl")[2] == b"1"


@pytest.mark.parametrize("kind", KINDS)
def test_responses_without_content_have_none(serve, programs, kind):
    server = serve(more=programs.route(kind))
    path = programs.path(kind)
    for status in (204, 205, 304):
        for method in ("GET", "HEAD", "POST"):
            with server.connect() as connection:
                request = f"{method} {path}?status={status} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
                connection.sendall(
                    f"{request}\r\nGET {path}?hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
                )
                found, fields, body, rest = read_response(connection)
                assert (found, body) == (status, b""), (kind, method)
                assert "transfer-encoding" not in fields
                assert fields.get("content-length") == ("0" if status == 205 else None), (kind, method)
                # The next response follows directly.
                rest += read_all(connection)
                assert rest.startswith(b"HTTP/1.1 200 ") and rest.removesuffix(b"\r\n0\r\n\r\n").endswith(b"hello"), rest


def test_a_205_over_http2_ends_with_its_head(serve, programs):
    server = serve(more=programs.route("cgi") + programs.route("wsgi"))
    for kind in ("cgi", "wsgi"):
        with Client(server) as client:
            client.send(request(1, f"{programs.path(kind)}?status=205"))
            while True:
                found, flags, stream, _ = client.read()
                if stream == 1:
                    break
            assert found == HEADERS and flags & END_STREAM, kind


def test_a_streamed_205_has_no_content(serve, programs):
    path = programs.directory / "cgi/streamed.sh"
    path.write_text(
        "#!/bin/sh\nprintf 'Status: 205 Reset\\nContent-Length: 400000\\nContent-Type: text/plain\\n\\n'\n"
        "head -c 200000 /dev/zero; sleep 0.1; head -c 200000 /dev/zero\n"
    )
    path.chmod(0o755)
    server = serve(more=programs.route("cgi"))
    status, fields, body = server.get("/cgi/streamed.sh")
    assert (status, fields["content-length"], body) == (205, "0", b"")


class Talkative:
    """A FastCGI server that sends something more after its response, and counts connections."""

    def __init__(self, path, extra):
        self.extra, self.accepted, self.requests = extra, 0, 0
        self.sent = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(16)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            self.accepted += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def head(self, stream):
        try:
            head = stream.read(8)
        except OSError:
            return b""
        return head if len(head) == 8 else b""

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            while head := self.head(stream):
                _, kind, _, size, padding = struct.unpack(">BBHHBx", head)
                stream.read(size + padding)
                if kind != 5 or size:
                    continue
                self.requests += 1
                text = b"Content-Type: text/plain\r\n\r\nresponse %d" % self.requests
                connection.sendall(record(6, text) + record(6) + end_request())
                self.go.wait(15)
                self.go.clear()
                if self.extra is None:
                    connection.shutdown(socket.SHUT_WR)
                else:
                    connection.sendall(self.extra)
                self.sent.set()

    go = threading.Event()


@pytest.mark.parametrize(
    "extra",
    [
        record(6, b"Content-Type: text/plain\r\n\r\nevil") + record(6) + end_request(),
        record(7, b"a late message"),
        record(6, b"Content-Type: text/plain\r\n\r\nevil")[:3],
        None,
    ],
    ids=["response", "stderr", "fragment", "half-closed"],
)
def test_an_idle_connection_is_not_used_after_something_arrived_on_it(serve, tmp_path, extra):
    worker = Talkative(tmp_path / "w.sock", extra)
    worker.go = threading.Event()
    server = serve(
        route=f'script = {{ kind = "fastcgi", connect = ["unix:{tmp_path}/w.sock"], keep_alive = true, '
        f'first_byte_timeout = "5s" }}'
    )
    assert server.get("/")[2] == b"response 1"
    worker.go.set()
    assert worker.sent.wait(15)
    for method in ("GET", "POST"):
        worker.sent.clear()
        number = worker.requests + 1
        status, _, body = server.get("/", method=method)
        assert (status, body) == (200, b"response %d" % number), server.log
        assert worker.accepted == number
        worker.go.set()
        assert worker.sent.wait(15)


def test_a_silent_idle_connection_is_used_again(serve, tmp_path):
    worker = Talkative(tmp_path / "w.sock", b"")
    worker.go = threading.Event()
    server = serve(
        route=f'script = {{ kind = "fastcgi", connect = ["unix:{tmp_path}/w.sock"], keep_alive = true }}'
    )
    for number in range(1, 6):
        worker.go.set()
        assert server.get("/")[2] == b"response %d" % number
    assert worker.accepted == 1


def test_a_worker_of_the_server_gets_a_new_connection_after_it_sent_more(serve, tmp_path):
    go, sent = tmp_path / "go", tmp_path / "sent"
    program = tmp_path / "worker.py"
    program.write_text(f'''#!/usr/bin/python3
import os, socket, struct, sys, time
def record(kind, data=b""):
    return struct.pack(">BBHHBx", 1, kind, 1, len(data), 0) + data
listener, number, accepted = socket.socket(fileno=0), 0, 0
while True:
    connection, _ = listener.accept()
    accepted += 1
    stream = connection.makefile("rb")
    def read_head():
        try:
            return stream.read(8)
        except OSError:
            return b""
    while len(head := read_head()) == 8:
        _, kind, _, size, padding = struct.unpack(">BBHHBx", head)
        stream.read(size + padding)
        if kind != 5 or size:
            continue
        number += 1
        text = b"Content-Type: text/plain\\n\\n%d %d" % (number, accepted)
        whole = record(6, text) + record(6) + record(3, bytes(8))
        connection.sendall(whole)
        if number == 1:
            while not os.path.exists({str(go)!r}):
                time.sleep(0.002)
            connection.sendall(whole)
            open({str(sent)!r}, "w").close()
''')
    program.chmod(0o755)
    server = serve(route=f'script = {{ kind = "fastcgi", command = ["{program}"], processes = 1 }}')
    assert server.get("/")[2] == b"1 1"
    go.touch()
    wait_until(sent.exists, "the worker has sent more")
    assert server.get("/")[2] == b"2 2", server.log
    assert server.get("/")[2] == b"3 2", server.log


STRAY = '''
import os, socket, threading, time
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    go, done = os.environ["GO"], os.environ["DONE"]
    if environ["PATH_INFO"].endswith("stray"):
        def write():
            while not os.path.exists(go):
                time.sleep(0.002)
            for name in os.listdir("/proc/self/fd"):
                try:
                    socket.socket(fileno=os.dup(int(name))).send(DATA)
                except OSError:
                    pass
            open(done, "w").close()
        threading.Thread(target=write, daemon=True).start()
    environ["wsgi.input"].read()
    return [b"right"]
'''


@pytest.mark.parametrize("data", [b"hello", b"\0" * 13, b"\3\0\0\0\1\0\0\0\3abc"], ids=["part", "frame", "response"])
def test_an_application_that_writes_to_its_connection_while_idle_harms_no_request(serve, tmp_path, data):
    (tmp_path / "app.py").write_text(STRAY.replace("DATA", repr(data)))
    go, done = tmp_path / "go", tmp_path / "done"
    server = serve(
        route=f'script = {{ kind = "wsgi", application = "app:application", directory = "{tmp_path}", '
        f'processes = 1, env = {{ GO = "{go}", DONE = "{done}" }} }}'
    )
    assert server.get("/stray")[2] == b"right"
    go.touch()
    wait_until(done.exists, "the application has written")
    for _ in range(4):
        status, _, body = server.get("/", "Content-Length: 0", method="POST")
        assert (status, body) == (200, b"right"), server.log
