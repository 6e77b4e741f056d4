"""Persistent programs (CGIplus) and interpreters that run many scripts (the run-time environment)."""

import hashlib
import os
import random
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from support.http import parse, read_all, read_response, read_until_cut
from support.processes import is_alive, workers
from support.scripts import assert_events_arrive_as_they_are_sent, IDENTITY, script
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

SCRIPTING = Path(__file__).parent.parent / "scripting/cgiplus"

# Reads requests without a library, and does what the query selects.
RAW = """#!/usr/bin/python3
import os, sys, time
out = sys.stdout.buffer
end = os.environb[b"CGIPLUSEOF"]
def send(data):
    out.write(data)
    out.flush()
count = 0
for line in open(os.environ["CGIPLUSIN"]):
    if line != "!\\n":
        if line == "\\n":
            count += 1
            head = b"Content-Type: text/plain\\n\\n"
            what, _, argument = query.partition("=")
            ACTIONS
            send(end)
        elif line.startswith("QUERY_STRING="):
            query = line[13:-1]
"""


def raw(actions):
    lines = actions.strip("\n").splitlines()
    return RAW.replace("ACTIONS", "\n            ".join(lines))


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The examples, compiled or beside their library."""
    directory = tmp_path_factory.mktemp("programs")
    for name in ["hello", "echo"]:
        source = SCRIPTING / f"examples/{name}.c"
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-I", SCRIPTING, "-o", f"{name}-c"]
        subprocess.run([*command, source, SCRIPTING / "cgiplus.c"], cwd=directory, check=True)
    for path in [*SCRIPTING.glob("examples/*.p*"), SCRIPTING / "cgiplus.py", SCRIPTING / "CGIplus.pm", SCRIPTING / "Cgiplus.php"]:
        copy = Path(shutil.copy(path, directory))
        # A wrapper of the interpreter may add variables to the environment.
        copy.write_text(copy.read_text().replace("/usr/bin/env python3", "/usr/bin/python3"))
    return directory


@pytest.fixture
def plus(serve, programs, tmp_path):
    """Starts a server with the examples and with scripts of the test's own, under both kinds."""

    def start(scripts=(), settings="", **more):
        directory = tmp_path / "scripts"
        if not directory.exists():
            shutil.copytree(programs, directory)
        for name, text in dict(scripts).items():
            script(directory, name, text)
        routes = "".join(
            f'[[site.route]]\npath = "/{kind}/*"\nbody_size = "300MB"\n'
            f'script = {{ kind = "{kind}", directory = "{directory}", {own} }}\n'
            for kind, own in [("cgiplus", settings), ("cgi", "")]
        )
        server = serve(more=routes, **more)
        server.directory = directory
        return server

    return start


ECHOES = ["echo-c", "echo.py", "echo.pl", "echo.php"]


def parse_echo(body):
    """The variables that an echo printed, and the body behind them."""
    head, _, rest = body.partition(b"\n\n")
    return dict(line.split(b"=", 1) for line in head.split(b"\n")), rest


def post(server, path, body, *fields, chunked=False):
    how = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = "".join(f"{field}\r\n" for field in [f"POST {path} HTTP/1.1", "Host: h", how, "Connection: close", *fields])
    data = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    with server.connect() as connection:
        connection.sendall(head.encode() + b"\r\n" + data)
        status, response, rest = parse(read_all(connection))
    return status, response, rest


@pytest.mark.parametrize("name", ECHOES)
@pytest.mark.parametrize("mode", ["record", "struct"])
def test_a_script_gets_the_variables_of_a_cgi_program(plus, name, mode):
    server = plus(settings='processes = 1, env = { OWN = "yes" }')
    if mode == "struct":
        assert server.get(f"/cgiplus/{name}?struct")[0] == 200
    fields = ["Cookie: a=b", "X-Own: 1", "Content-Type: text/x", "Accept: */*"]
    found = []
    for kind in ["cgi", "cgiplus"]:
        status, _, body = post(server, f"/{kind}/{name}/more/path?a=b%20c", b"the body\n", *fields)
        assert status == 200
        variables, rest = parse_echo(body)
        assert rest == b"the body\n"
        for variable in [b"SCRIPT_NAME", b"REQUEST_URI", b"DOCUMENT_URI"]:
            assert variables[variable].startswith(f"/{kind}/{name}".encode())
            variables[variable] = variables[variable].removeprefix(f"/{kind}/".encode())
        assert int(variables.pop(b"REMOTE_PORT")) > 0
        for variable in IDENTITY:
            assert variables.pop(variable.encode())
        # Of the process, not of the request.
        for variable in [b"PATH", b"LC_CTYPE", b"OWN"]:
            own = variables.pop(variable, None)
            assert variable != b"OWN" or kind == "cgi" or own == b"yes"
        found.append(variables)
    assert found[0] == found[1]
    assert found[0][b"PATH_INFO"] == b"/more/path" and found[0][b"CONTENT_LENGTH"] == b"9"


def test_one_process_handles_a_thousand_requests(plus):
    server = plus(settings="processes = 1")
    with server.connect() as connection:
        buffer = b""
        for number in range(1, 1001):
            connection.sendall(b"GET /cgiplus/hello-c HTTP/1.1\r\nHost: h\r\n\r\n")
            status, _, body, buffer = read_response(connection, buffer)
            assert (status, body) == (200, b"hello %d\n" % number)
    assert len(workers(server)) == 1
    # The same program under plain CGI.
    assert [server.get("/cgi/hello-c")[2] for _ in range(2)] == [b"hello 1\n"] * 2


@pytest.mark.parametrize("name", ECHOES)
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_arrive_complete(plus, name, chunked):
    server = plus(settings="processes = 1")
    for size in [0, 1, 65_535, 65_536, 3_000_000]:
        body = random.Random(size).randbytes(size)
        status, _, response = post(server, f"/cgiplus/{name}", body, chunked=chunked)
        assert status == 200
        assert parse_echo(response)[1] == body
    assert len(workers(server)) == 1


PLUS = {
    "total.py": """#!/usr/bin/python3
import cgiplus, hashlib
for request in cgiplus.requests():
    digest = hashlib.sha256()
    while part := request.read(100_000):
        digest.update(part)
    request.write("Content-Type: text/plain\\n\\n" + digest.hexdigest())
""",
    "total.php": """#!/usr/bin/php
<?php
require __DIR__ . '/Cgiplus.php';
foreach (Cgiplus::requests() as $request) {
    $digest = hash_init('sha256');
    while (($part = $request->read(100000)) !== '') hash_update($digest, $part);
    $request->write("Content-Type: text/plain\\n\\n" . hash_final($digest));
}
""",
    "events.py": """#!/usr/bin/python3
import cgiplus, os, time
for request in cgiplus.requests():
    request.write("Content-Type: text/event-stream\\n\\n")
    for number in range(3):
        request.write(f"data: {number}\\n\\n")
        request.flush()
        while not os.path.exists(request.variables["QUERY_STRING"] + str(number)): time.sleep(0.002)
""",
    "events.php": """#!/usr/bin/php
<?php
require __DIR__ . '/Cgiplus.php';
foreach (Cgiplus::requests() as $request) {
    $request->write("Content-Type: text/event-stream\\n\\n");
    for ($number = 0; $number < 3; $number++) {
        echo "data: $number\\n\\n";
        $request->flush();
        while (!file_exists($request->variables['QUERY_STRING'] . $number)) { usleep(2000); clearstatcache(); }
    }
}
""",
}


def assert_uploads_arrive(server, path, megabytes):
    for chunked in (False, True):
        body = os.urandom(1 << 20) * (20 if chunked else megabytes)
        digest = hashlib.sha256(body).hexdigest().encode()
        assert post(server, path, body, chunked=chunked)[::2] == (200, digest)


@pytest.mark.parametrize("language, megabytes", [("py", 200), ("php", 20)])
def test_a_large_upload_arrives_complete_and_events_arrive_at_once(plus, tmp_path, language, megabytes):
    server = plus(PLUS, settings="processes = 1")
    assert_uploads_arrive(server, f"/cgiplus/total.{language}", megabytes)
    assert_events_arrive_as_they_are_sent(server, f"/cgiplus/events.{language}?{tmp_path}/gate", tmp_path)


@pytest.mark.parametrize("name", ECHOES)
def test_struct_mode_and_callouts(plus, name):
    server = plus(settings="processes = 1")
    path = f"/cgiplus/{name}"
    pids = []
    for query in ["callout", "struct", "plain", "callout"]:
        status, _, body = server.get(f"{path}?{query}", "X-Long: " + "y" * 20_000)
        variables, _ = parse_echo(body)
        assert status == 200 and variables[b"QUERY_STRING"] == query.encode()
        assert variables.get(b"response") == (b"400 unknown callout" if query == "callout" else None)
        assert variables[b"HTTP_X_LONG"] == b"y" * 20_000
        pids.append(list(workers(server)))
    assert pids == [pids[0]] * 4


def test_struct_mode_has_the_documented_form(plus):
    text = """#!/usr/bin/python3
import os, sys
e = os.environb
def send(data):
    sys.stdout.buffer.write(data); sys.stdout.buffer.flush()
stream = open(e[b"CGIPLUSIN"], "rb")
while stream.readline() != b"\\n": pass
send(b"A: b\\n\\nfirst" + e[b"CGIPLUSESC"] + b"!CGIPLUS: struct" + e[b"CGIPLUSEOT"] + e[b"CGIPLUSEOF"])
line = stream.readline()
data = stream.read(int(line[2:]))
send(b"A: b\\n\\n" + line + data + e[b"CGIPLUSEOF"])
stream.readline()
"""
    server = plus({"raw.py": text}, "processes = 1")
    assert server.get("/cgiplus/raw.py")[2] == b"first"
    line, _, data = server.get("/cgiplus/raw.py?%0a=1")[2].partition(b"\n")
    assert line == b"!!%d" % len(data)
    entries = []
    while length := int.from_bytes(data[:2], "little"):
        entries.append(data[2 : 2 + length])
        data = data[2 + length :]
    assert data == b"\0\0"
    assert all(entry.endswith(b"\0") and entry.count(b"\0") == 1 for entry in entries)
    assert b"QUERY_STRING=%0a=1\0" in entries and b"REQUEST_METHOD=GET\0" in entries


def test_a_path_cannot_add_variables_in_record_mode(plus):
    server = plus(settings="processes = 1")
    variables, _ = parse_echo(server.get("/cgiplus/echo-c/a%0aREMOTE_USER=root%0a%0ab")[2])
    assert b"REMOTE_USER" not in variables
    assert variables[b"PATH_INFO"] == b"/a REMOTE_USER=root  b"


def test_the_end_mark_is_found_at_every_split(plus):
    text = raw(
        """
cut = int(argument)
data = head + b"x" * 100 + end
send(data[:-cut])
time.sleep(0.005)
send(data[len(data) - cut:])
continue
"""
    )
    server = plus({"cut": text}, "processes = 1")
    for cut in range(1, 48, 5):
        assert server.get(f"/cgiplus/cut?cut={cut}")[::2] == (200, b"x" * 100)
    assert len(workers(server)) == 1


MISBEHAVE = raw(
    """
if what == "garbage": send(b"no header")
elif what == "nothing": pass
elif what == "die": os._exit(3)
elif what == "cut": send(head + b"x" * 200000); os._exit(3)
elif what == "hang": time.sleep(1000)
elif what == "behind": send(head + b"one" + end + b"stray: text"); continue
elif what == "line": send(head + b"one" + end + b"\\n"); continue
elif what == "stray": send(os.environb[b"CGIPLUSEOT"])
elif what == "open": send(os.environb[b"CGIPLUSESC"] + b"?")
elif what == "unread": send(head + b"unread")
elif what == "slow":
    for part in range(200): send(head[:26] + b"\\n" * (part == 0) + b"x" * 1000); time.sleep(0.02)
elif what == "stderr": sys.stderr.write("a complaint\\n"); send(head)
else: send(head + b"%d %d" % (os.getpid(), count))
"""
)


def test_failures_are_logged_and_the_worker_is_replaced(plus):
    server = plus({"raw": MISBEHAVE}, 'processes = 1, backoff = "5ms", idle_timeout = "1s"')
    fetch = lambda query: server.get(f"/cgiplus/raw?{query}")  # noqa: E731

    def pid():
        status, _, body = fetch("")
        assert status == 200, server.log
        return int(body.split()[0])

    first = pid()
    # The worker has completed its response: it is kept.
    assert [fetch(what)[0] for what in ["garbage", "nothing"]] == [502, 502]
    assert fetch("line")[2] == b"one"
    assert fetch("stderr")[0] == 200
    wait_until(lambda: "a complaint" in server.log, "what it wrote to stderr")
    assert pid() == first
    seen = {first}
    for what, status in [("stray", 502), ("open", 502), ("die", 502), ("hang", 504)]:
        assert fetch(what)[0] == status, what
        seen.add(pid())
    assert fetch("behind")[::2] == (200, b"one")
    status, _, body = fetch("")
    assert status == 200 and b"stray" not in body
    seen.add(int(body.split()[0]))
    assert len(seen) == 6
    server.logged("exit status 3")


def test_a_truncated_response_is_visibly_truncated(plus):
    server = plus({"raw": MISBEHAVE}, 'processes = 1, backoff = "5ms"')
    data = read_until_cut(server, "/cgiplus/raw?cut")
    assert data.startswith(b"HTTP/1.1 200") and not data.endswith(b"0\r\n\r\n")
    assert server.get("/cgiplus/raw")[0] == 200


def test_a_body_that_is_not_read_does_not_reach_the_next_request(plus):
    server = plus({"raw": MISBEHAVE}, "processes = 1")
    first = server.get("/cgiplus/raw")[2].split()[0]
    for size in [10, 1_000_000]:
        status, _, body = post(server, "/cgiplus/raw?unread", b"!" * size)
        assert (status, body) == (200, b"unread")
        then = server.get("/cgiplus/raw")[2].split()[0]
        assert then != first
        first = then


def test_a_client_that_disconnects_frees_its_worker(plus):
    server = plus({"raw": MISBEHAVE}, "processes = 1")
    first = int(server.get("/cgiplus/raw")[2].split()[0])
    with server.connect() as connection:
        connection.sendall(b"GET /cgiplus/raw?hang HTTP/1.1\r\nHost: h\r\n\r\n")
        wait_until(lambda: workers(server), "it runs")
    wait_until(lambda: not is_alive(first), "the worker is ended")
    assert int(server.get("/cgiplus/raw")[2].split()[0]) != first


def test_a_changed_program_replaces_its_workers(plus):
    server = plus({"raw": raw('send(head + b"old")')}, "processes = 1")
    assert [server.get("/cgiplus/raw")[2] for _ in range(2)] == [b"old"] * 2
    new = server.directory / "new"
    new.write_text(raw('send(head + b"new")'))
    new.chmod(0o755)
    new.rename(server.directory / "raw")
    assert server.get("/cgiplus/raw")[2] == b"new"


@pytest.mark.parametrize("setting", ["requests = 10", 'max_age = "30ms"', 'max_resident = "1MB"'])
def test_workers_are_replaced_and_no_request_is_lost(plus, setting):
    server = plus({"raw": MISBEHAVE}, f"processes = 2, {setting}")
    pids = set()
    while len(pids) < 3:
        status, _, body = server.get("/cgiplus/raw")
        assert status == 200
        pid, count = body.split()
        pids.add(pid)
        assert setting != "requests = 10" or int(count) <= 10


def test_each_program_has_its_own_workers_that_retire(plus):
    server = plus({"raw": MISBEHAVE}, 'processes = 2, retire_idle = "200ms"')
    assert server.get("/cgiplus/raw")[0] == 200
    assert server.get("/cgiplus/hello-c")[2] == b"hello 1\n"
    wait_until(lambda: not workers(server), "idle workers are ended")
    assert server.get("/cgiplus/hello-c")[2] == b"hello 1\n", server.log


def test_concurrent_requests_get_their_own_responses(plus):
    server = plus(settings="processes = 3")
    failures = []

    def fetch(number):
        try:
            for at in range(50):
                query = f"q{number}-{at}".encode()
                variables, rest = parse_echo(post(server, f"/cgiplus/echo-c?{query.decode()}", query)[2])
                assert variables[b"QUERY_STRING"] == query == rest
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=fetch, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert 1 <= len(workers(server)) <= 3


def test_the_servers_end_is_its_workers_end(plus):
    server = plus({"raw": MISBEHAVE}, "processes = 1")
    pid = int(server.get("/cgiplus/raw")[2].split()[0])
    server.stop()
    assert not is_alive(pid)


PYTHON = {
    "count.py": """
import os, sys
try: count += 1
except NameError: count = 1
print("Content-Type: text/plain\\n")
print(count, os.getpid(), os.path.basename(os.getcwd()), sys.argv[0] == os.environ["SCRIPT_FILENAME"])
""",
    "echo.py": """
import os, sys
print("Content-Type: text/plain\\n", flush=True)
for name, value in os.environ.items():
    print(f"{name}={value}")
print(flush=True)
while part := sys.stdin.buffer.read(65536):
    sys.stdout.buffer.write(part)
""",
    "total.py": """
import hashlib, sys
digest = hashlib.sha256()
while part := sys.stdin.buffer.read(100_000): digest.update(part)
print("Content-Type: text/plain\\n")
print(digest.hexdigest(), end="")
""",
    "events.py": """
import os, time
print("Content-Type: text/event-stream\\n")
for number in range(3):
    print(f"data: {number}\\n", flush=True)
    while not os.path.exists(os.environ["QUERY_STRING"] + str(number)): time.sleep(0.002)
""",
    "fail.py": """
import os, sys
what = os.environ["QUERY_STRING"]
print("Content-Type: text/plain\\n")
if what == "exit": print("left"); sys.exit(3)
if what == "late": sys.stdout.write("x" * 200_000)
if what == "unread": print("unread")
else: raise ValueError("a complaint")
""",
}
PERL = {
    "count.pl": """
use Cwd;
our $count; $count++;
my $folder = (split m(/), getcwd())[-1];
my $same = $0 eq $ENV{SCRIPT_FILENAME} ? "True" : "False";
print "Content-Type: text/plain\\n\\n$count $$ $folder $same\\n";
""",
    "echo.pl": """
print "Content-Type: text/plain\\n\\n";
print "$_=$ENV{$_}\\n" for sort keys %ENV;
print "\\n";
binmode STDIN;
while (read STDIN, my $part, 65536) { print $part }
""",
    "total.pl": """
use Digest::SHA;
my $digest = Digest::SHA->new(256);
while (read STDIN, my $part, 100_000) { $digest->add($part) }
print "Content-Type: text/plain\\n\\n", $digest->hexdigest;
""",
    "events.pl": """
$| = 1;
print "Content-Type: text/event-stream\\n\\n";
for my $number (0 .. 2) {
    print "data: $number\\n\\n";
    select undef, undef, undef, 0.002 until -e $ENV{QUERY_STRING} . $number;
}
""",
    "fail.pl": """
my $what = $ENV{QUERY_STRING};
print "Content-Type: text/plain\\n\\n";
if ($what eq "exit") { print "left\\n"; exit 3 }
print "x" x 200_000 if $what eq "late";
if ($what eq "unread") { print "unread\\n" }
else { die "a complaint" }
""",
}


@pytest.fixture(params=["py", "pl"])
def rte(serve, tmp_path, request):
    """A server whose interpreter runs scripts of one language, also under plain CGI."""
    directory = tmp_path / "scripts"
    interpreter = {"py": "/usr/bin/python3", "pl": "/usr/bin/perl"}[request.param]
    for name, text in {"py": PYTHON, "pl": PERL}[request.param].items():
        script(directory, name, f"#!{interpreter}\n{text}")
    own = {"rte": f'interpreter = "{interpreter}", processes = 1, backoff = "5ms"', "cgi": ""}
    server = serve(
        more="".join(
            f'[[site.route]]\npath = "/{kind}/*"\nbody_size = "300MB"\n'
            f'script = {{ kind = "{kind}", directory = "{directory}", {settings} }}\n'
            for kind, settings in own.items()
        )
    )
    server.directory, server.language = directory, request.param
    return server


def test_uploads_and_events_pass_through_an_interpreter(rte, tmp_path):
    assert_uploads_arrive(rte, f"/rte/total.{rte.language}", 200 if rte.language == "py" else 20)
    assert_events_arrive_as_they_are_sent(rte, f"/rte/events.{rte.language}?{tmp_path}/gate", tmp_path)


def test_an_interpreter_keeps_the_state_of_its_scripts(rte):
    fetch = lambda: rte.get(f"/rte/count.{rte.language}")[2].split()  # noqa: E731
    responses = [fetch() for _ in range(200)]
    assert [int(response[0]) for response in responses] == list(range(1, 201))
    assert len({response[1] for response in responses}) == len(workers(rte)) == 1
    assert responses[0][2:] == [b"scripts", b"True"]
    # Another script in between, and one that changes.
    assert rte.get(f"/rte/echo.{rte.language}")[0] == 200
    path = rte.directory / f"count.{rte.language}"
    path.write_text(path.read_text().replace("text/plain", "text/changed"))
    status, fields, body = rte.get(f"/rte/count.{rte.language}")
    assert (status, fields["content-type"]) == (200, "text/changed")
    assert body.split()[:2] == [b"1", responses[0][1]]
    assert rte.get(f"/rte/none.{rte.language}")[0] == 404


def test_an_rte_script_gets_the_variables_of_a_cgi_program(rte):
    path = f"/echo.{rte.language}/more/path"
    fields = ["Cookie: a=b", "X-Own: 1", "Content-Type: text/x"]
    for _ in range(2):
        found = []
        for kind in ["cgi", "rte"]:
            status, _, body = post(rte, f"/{kind}{path}?a=b%20c", b"the body\n", *fields)
            assert status == 200
            variables, rest = parse_echo(body)
            assert rest == b"the body\n"
            for variable in [b"SCRIPT_NAME", b"REQUEST_URI", b"DOCUMENT_URI"]:
                variables[variable] = variables[variable].removeprefix(f"/{kind}/".encode())
            for variable in [b"REMOTE_PORT", b"PATH", b"LC_CTYPE", *(name.encode() for name in IDENTITY)]:
                variables.pop(variable, None)
            found.append(variables)
        assert found[0] == found[1]
    # The next request has none of these.
    variables, _ = parse_echo(rte.get(f"/rte/echo.{rte.language}")[2])
    assert not {b"HTTP_COOKIE", b"CONTENT_LENGTH", b"PATH_INFO"} & set(variables)


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_reach_an_interpreters_script(rte, chunked):
    for size in [0, 1, 65_536, 3_000_000]:
        body = random.Random(size).randbytes(size)
        status, _, response = post(rte, f"/rte/echo.{rte.language}", body, chunked=chunked)
        assert status == 200
        assert parse_echo(response)[1] == body


def test_failures_in_an_interpreter_are_logged(rte):
    pid = rte.get(f"/rte/count.{rte.language}")[2].split()[1]
    fail = f"/rte/fail.{rte.language}"
    assert rte.get(f"{fail}?exit")[::2] == (200, b"left\n")
    status, _, body = rte.get(f"{fail}?early")
    assert status == 500 and b"<h1>500</h1>" in body
    wait_until(lambda: "a complaint" in rte.log, "why")
    for size in [10, 1_000_000]:
        status, _, body = post(rte, f"{fail}?unread", b"!" * size)
        assert (status, body) == (200, b"unread\n")
    assert rte.get(f"/rte/count.{rte.language}")[2].split()[1] == pid
    assert not read_until_cut(rte, f"{fail}?late").endswith(b"0\r\n\r\n")
    assert rte.get(f"/rte/count.{rte.language}")[2].split()[1] != pid
