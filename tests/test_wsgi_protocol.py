"""The application server of WSGI alone: its handling of frames, with its library in C and without."""

import re
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest

from support.server import ROOT

APP = '''
import os, sys, time

def application(environ, start_response):
    return globals()[environ["PATH_INFO"]](environ, start_response)

PLAIN = [("X-A", "b")]

class Text(str):
    """Takes itself for every other text."""
    def __eq__(self, other):
        return True
    def __hash__(self):
        return hash("b")

class Closing(list):
    def close(self):
        raise RuntimeError("closed")

class Piece(bytes):
    pass

def given(result, status="200 OK", headers=PLAIN):
    def application(environ, start_response):
        start_response(status, headers)
        return result
    return application

plain = given([b"body"])
in_a_tuple = given((b"body",))
empty = given([])
empty_piece = given([b""])
pieces = given([b"a", b"", b"c"])
piece = given([Piece(b"body")])
array = given([bytearray(b"body")])
text = given(["body"])
nothing = given(None)
number = given([5])
closing = given(Closing([b"body"]))
large = given([b"l" * 65537])
just_not_large = given([b"l" * 65536])
no_header = given([b"body"], headers=[])
tuple_of_headers = given([b"body"], headers=(("X-A", "b"),))
header_of_lists = given([b"body"], headers=[["X-A", "b"]])
header_of_three = given([b"body"], headers=[("X-A", "b", "c")])
number_in_header = given([b"body"], headers=[("X-A", 5)])
bytes_in_status = given([b"body"], status=b"200 OK")
own_text = given([b"body"], headers=[("X-A", Text("other"))])
own_status = given([b"body"], status=Text("404 Other"))
latin = given([b"body"], headers=[("X-A", "\\xe9")])
beyond_latin = given([b"body"], headers=[("X-A", "\\u20ac")])
surrogate = given([b"body"], headers=[("X-A", "\\udc80")])
line_break = given([b"body"], headers=[("X-A", "b\\nX-C: d")])
line_break_in_status = given([b"body"], status="200 OK\\nX-C: d")
large_head = given([b"body"], headers=[("X-A", "b" * 5000)])

def changed(environ, start_response):
    headers = [("X-A", "b")]
    start_response("200 OK", headers)
    headers[0] = ("X-A", "changed")
    return [b"body"]

def by_name(environ, start_response):
    start_response(headers=PLAIN, status="200 OK")
    return [b"body"]

def without_exc_info(environ, start_response):
    start_response("200 OK", PLAIN, None)
    return [b"body"]

def too_few(environ, start_response):
    start_response("200 OK")

def too_many(environ, start_response):
    start_response("200 OK", PLAIN, None, None)

def twice(environ, start_response):
    start_response("200 OK", PLAIN)
    try:
        start_response("404 Not Found", PLAIN)
    except AssertionError:
        return [b"refused"]

def replaced(environ, start_response):
    start_response("200 OK", PLAIN)
    try:
        raise ValueError
    except ValueError:
        start_response("404 Not Found", PLAIN, sys.exc_info())
    return [b"body"]

def raises(environ, start_response):
    raise RuntimeError("on purpose")

def raises_with_lines(environ, start_response):
    raise RuntimeError("on\\r\\nX-A: b\\r\\n\\r\\npurpose\\udc80")

def begins_and_raises(environ, start_response):
    start_response("200 OK", PLAIN)
    raise RuntimeError("on purpose")

def writes(environ, start_response):
    write = start_response("200 OK", PLAIN)
    write(b"a")
    write(data=b"b")
    return [b"c"]

def writes_and_raises(environ, start_response):
    start_response("200 OK", PLAIN)(b"a")
    raise RuntimeError("on purpose")

def writes_text(environ, start_response):
    start_response("200 OK", PLAIN)("a")

def late(environ, start_response):
    yield b""
    start_response("200 OK", PLAIN)
    yield b"body"

def makes_another(environ, start_response):
    if type(start_response).__module__ == "dunlin_wsgi":
        try:
            type(start_response)()
        except TypeError:
            pass
    return plain(environ, start_response)

def keeps(environ, start_response):
    global kept
    write = start_response("200 OK", PLAIN)
    kept = start_response, write
    return [b"body"]

def uses_kept(environ, start_response):
    start_response("200 OK", PLAIN)
    try:
        kept[0]("404 Not Found", PLAIN)
    except AssertionError:
        kept[1](b"too late")
        return [b"refused"]

def environment(environ, start_response):
    reported = repr(sorted(item for item in environ.items() if isinstance(item[1], str))).encode()
    body = environ["wsgi.input"].read()
    environ["wsgi.input"].close()
    environ["ADDED"] = "1"
    environ["QUERY_STRING"] = "changed"
    del environ["PATH_INFO"]
    start_response("200 OK", PLAIN)
    return [reported + body]

def reads(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", PLAIN)
    return [body]

def waits(environ, start_response):
    while not os.path.exists(environ["QUERY_STRING"]):
        time.sleep(0.002)
    return plain(environ, start_response)

def leaves(environ, start_response):
    sys.exit(3)
'''

REQUEST, REQUEST_WITH_BODY, BODY, BODY_END = 1, 2, 3, 4
PART, END, WHOLE, LOADED = 1, 2, 3, 5
HEAD = b"Status: 200 OK\r\nX-A: b\r\n\r\n"
FAILED = "500"

# The responses of the applications: head and body, or a failure.
RESPONSES = {
    "plain": HEAD + b"body",
    "in_a_tuple": HEAD + b"body",
    "empty": HEAD,
    "empty_piece": HEAD,
    "pieces": HEAD + b"ac",
    "piece": HEAD + b"body",
    "array": HEAD + b"body",
    "text": FAILED,
    "nothing": FAILED,
    "number": FAILED,
    "large": HEAD + b"l" * 65537,
    "just_not_large": HEAD + b"l" * 65536,
    "no_header": b"Status: 200 OK\r\n\r\nbody",
    "tuple_of_headers": HEAD + b"body",
    "header_of_lists": FAILED,
    "header_of_three": FAILED,
    "number_in_header": b"Status: 200 OK\r\nX-A: 5\r\n\r\nbody",
    "bytes_in_status": b"Status: b'200 OK'\r\nX-A: b\r\n\r\nbody",
    "latin": b"Status: 200 OK\r\nX-A: \xe9\r\n\r\nbody",
    "beyond_latin": FAILED,
    "surrogate": FAILED,
    "line_break": FAILED,
    "line_break_in_status": FAILED,
    "large_head": b"Status: 200 OK\r\nX-A: " + b"b" * 5000 + b"\r\n\r\nbody",
    "changed": HEAD + b"body",
    "by_name": HEAD + b"body",
    "without_exc_info": HEAD + b"body",
    "too_few": FAILED,
    "too_many": FAILED,
    "twice": HEAD + b"refused",
    "replaced": b"Status: 404 Not Found\r\nX-A: b\r\n\r\nbody",
    "raises": FAILED,
    "raises_with_lines": FAILED,
    "begins_and_raises": FAILED,
    "writes": HEAD + b"abc",
    "late": HEAD + b"body",
    "makes_another": HEAD + b"body",
}


def variables(path, query="", common=(("REQUEST_METHOD", "GET"),)):
    names = "PATH_INFO\0QUERY_STRING\0" + "".join(f"\0{name}\0{value}" for name, value in common)
    return struct.pack("<I", len(names)) + f"{names}{path}\0{query}".encode("latin-1")


def frame(number, kind=REQUEST, payload=b""):
    return struct.pack("<IIB", len(payload), number, kind) + payload


def request(number, path, query="", **more):
    return frame(number, REQUEST, variables(path, query, **more))


class Host:
    """A host with one connection to it."""

    def __init__(self, folder, library):
        self.errors = folder / "errors"
        path = str(folder / "socket")
        shutil.copy(ROOT / "scripting/wsgi/host.py", folder / "wsgi-host.py")
        shutil.copy(ROOT / "scripting/python/dunlin_loading.py", folder)
        if library:
            shutil.copy(library, folder / "dunlin_wsgi.abi3.so")
        (folder / "app").mkdir()
        (folder / "app/app.py").write_text(APP)
        with socket.socket(socket.AF_UNIX) as listener, self.errors.open("wb") as errors:
            listener.bind(path)
            listener.listen()
            self.process = subprocess.Popen(
                [sys.executable, str(folder / "wsgi-host.py"), "app:application", "1"],
                stdin=listener,
                stderr=errors,
                cwd=folder / "app",
            )
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(15)
        self.connection.connect(path)
        self.stream = self.connection.makefile("rb")

    def send(self, data):
        self.connection.sendall(data)

    def receive(self):
        """The next frame: its number, kind and payload."""
        header = self.stream.read(9)
        assert len(header) == 9, self.errors.read_text()
        length, number, kind = struct.unpack("<IIB", header)
        payload = self.stream.read(length)
        return self.receive() if kind == LOADED else (number, kind, payload)

    def response(self, number):
        """A complete response, and its failure, or None."""
        parts = []
        while True:
            found, kind, payload = self.receive()
            assert found == number, self.errors.read_text()
            if kind == END:
                return b"".join(parts), payload or None
            parts.append(payload)
            if kind == WHOLE:
                return b"".join(parts), None

    def fetch(self, path, query="", **more):
        self.send(request(7, path, query, **more))
        return self.response(7)

    def stop(self):
        self.connection.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(15) is not None


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "fast.so"
    source = ROOT / "scripting/wsgi/fast.c"
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", path, source], check=True
    )
    return path


@pytest.fixture(params=["fast", "pure"])
def host(request, tmp_path, library):
    host = Host(tmp_path, library if request.param == "fast" else None)
    yield host
    host.stop()


def test_every_response_is_what_the_application_returns(host):
    # Each twice, and each after a plain one: no state passes from one to another.
    for path, wanted in RESPONSES.items():
        for _ in range(2):
            found = host.fetch(path)
            if wanted is FAILED:
                # The exception, in one line.
                head = rb"Status: 500 Internal Server Error\r\nDunlin-Failed: (\w+(: [^\r\n]+)?)\r\n\r\n"
                reason = re.fullmatch(head, found[0])
                assert reason and found[1] is None, (path, found, host.errors.read_text())
                assert path != "raises" or reason[1] == b"RuntimeError: on purpose", reason[1]
                assert path != "raises_with_lines" or reason[1] == b"RuntimeError: on X-A: b purpose?", reason[1]
            else:
                assert found == (wanted, None), (path, host.errors.read_text())
            assert host.fetch("plain") == (HEAD + b"body", None), path
    assert "line break" in host.errors.read_text()
    assert "RuntimeError: on purpose" in host.errors.read_text()


def test_string_subclasses_of_an_application_are_used_by_their_text(host):
    assert host.fetch("own_text")[0] == b"Status: 200 OK\r\nX-A: other\r\n\r\nbody"
    assert host.fetch("own_status")[0] == b"Status: 404 Other\r\nX-A: b\r\n\r\nbody"
    assert host.fetch("plain")[0] == HEAD + b"body"


def test_a_failure_after_the_start_aborts_the_response(host):
    assert host.fetch("writes_and_raises") == (HEAD + b"a", b"the application failed")
    assert host.fetch("writes_text") == (b"", b"the application failed")
    assert host.fetch("closing") == (HEAD + b"body", b"the application failed")
    assert "RuntimeError: closed" in host.errors.read_text()
    assert host.fetch("plain") == (HEAD + b"body", None)


def test_start_response_of_an_earlier_request_does_not_affect_a_later_one(host):
    assert host.fetch("keeps") == (HEAD + b"body", None)
    host.send(request(8, "uses_kept"))
    # Its output belongs to the request that it was created for, which the server knows to be complete.
    assert host.receive() == (7, PART, HEAD + b"too late")
    assert host.response(8) == (HEAD + b"refused", None)


def test_each_request_has_its_own_environment(host):
    def environment_of(path, query, *common):
        return repr(
            sorted([("PATH_INFO", path), ("QUERY_STRING", query), ("wsgi.url_scheme", "http"), *common])
        )

    for query in ("", "a=1", "\xe9", "x" * 5000, "a=1", ""):
        for common in ((("A", "1"),), (("A", "2"), ("B", "")), (("A", "x" * 5000),)):
            for _ in range(2):
                response, _ = host.fetch("environment", query, common=common)
                assert response.decode() == HEAD.decode() + environment_of("environment", query, *common)
    # Missing values are empty, and unrequested ones are omitted.
    whole = variables("environment", "a=1", common=(("A", "1"),))
    host.send(frame(7, REQUEST, whole[: -len("\0a=1")]))
    assert host.response(7)[0].decode().endswith(environment_of("environment", "", ("A", "1")))
    host.send(frame(7, REQUEST, whole + b"\0more\0"))
    assert host.response(7)[0].decode().endswith(environment_of("environment", "a=1", ("A", "1")))


def test_frames_are_read_at_every_split(host):
    paths = ("plain", "pieces", "plain", "writes", "plain", "raises", "reads", "environment")
    data, wanted = b"", []
    for number in range(400):
        path = paths[number % len(paths)]
        if path == "reads":
            body = b"%d" % number * (number % 7)
            data += frame(number, REQUEST_WITH_BODY, variables(path))
            data += frame(number, BODY, body) + frame(number, BODY_END)
        else:
            data += request(number, path, str(number))
        wanted.append(number)
    size = 1
    while data:
        host.send(data[:size])
        data = data[size:]
        size = size * 5 % 1009 + 1
    for number in wanted:
        path = paths[number % len(paths)]
        response, reason = host.response(number)
        assert reason is None
        if path == "reads":
            assert response == HEAD + b"%d" % number * (number % 7)
        elif path == "environment":
            assert b"('QUERY_STRING', '%d')" % number in response
        elif path != "raises":
            assert response == RESPONSES[path]


def test_requests_that_arrive_during_a_body_are_handled_after_it(host):
    host.send(frame(1, REQUEST_WITH_BODY, variables("reads")) + request(2, "plain") + frame(1, BODY, b"a"))
    host.send(request(3, "raises") + frame(1, BODY, b"b") + request(4, "plain") + frame(1, BODY_END))
    assert host.response(1) == (HEAD + b"ab", None)
    assert host.response(2) == (HEAD + b"body", None)
    assert host.response(3)[0].startswith(b"Status: 500")
    assert host.response(4) == (HEAD + b"body", None)


def test_ready_responses_are_sent_while_the_application_works_on_another(host, tmp_path):
    for _ in range(3):
        gates = [tmp_path / "one", tmp_path / "two"]
        host.send(
            request(1, "plain") + request(2, "plain") + request(3, "waits", str(gates[0]))
            + request(4, "plain") + request(5, "waits", str(gates[1])) + request(6, "plain")
        )
        for numbers, gate in zip(((1, 2), (3, 4), (5, 6)), (*gates, None)):
            for number in numbers:
                assert host.response(number) == (HEAD + b"body", None)
            if gate:
                gate.touch()
        for gate in gates:
            gate.unlink()


def test_an_application_that_exits_ends_its_process(host):
    host.send(request(1, "plain") + request(2, "leaves") + request(3, "plain"))
    assert host.process.wait(15) == 3


def test_no_memory_is_lost(host):
    def resident():
        status = open(f"/proc/{host.process.pid}/status").read()
        return int(status.split("VmRSS:")[1].split()[0])

    def fetch(times):
        rare = ("raises", "writes", "pieces", "twice", "line_break", "number_in_header", "too_few")
        for _ in range(times):
            numbers = range(60)
            host.send(b"".join(request(n, rare[n] if n < len(rare) else "plain", str(n)) for n in numbers))
            for number in numbers:
                host.response(number)

    fetch(100)
    before = resident()
    fetch(200)
    # Each of these 12,000 requests has a kilobyte or more while it is worked on.
    assert resident() < before + 1500


def test_a_library_that_cannot_be_loaded_is_done_without(tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    host = Host(tmp_path, broken)
    assert host.fetch("plain") == (HEAD + b"body", None)
    assert "dunlin_wsgi" not in open(f"/proc/{host.process.pid}/maps").read()
    host.stop()
    assert host.errors.read_bytes() == b""


def test_the_library_is_used_where_it_can_be(tmp_path, library):
    host = Host(tmp_path, library)
    assert host.fetch("plain") == (HEAD + b"body", None)
    assert "dunlin_wsgi" in open(f"/proc/{host.process.pid}/maps").read()
    host.stop()
