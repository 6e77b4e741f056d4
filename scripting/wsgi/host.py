"""Serves a WSGI application (PEP 3333) to the web server that has started this process.

Usage: host.py MODULE:APPLICATION THREADS, with a listening Unix socket as standard input. Requests and
answers cross the socket in frames: length of the payload and number of the request (four bytes each,
the lowest first), kind (one byte), payload. Many requests come with one read, and the answers to all
of them leave with one write.

A request's payload has the variables in two parts, of which the first, whose length stands before it
(four bytes), is likely to be that of an earlier request: the names of the variables in the second
part, an empty one, and the names and values of all others. The second part is the values alone. What
was made of a first part, and of an answer's head, is kept for the next.

What most requests are is done by a library in C where that can be loaded (fast.c).
"""

import collections
import importlib.machinery
import importlib.util
import io
import itertools
import os
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback

HEADER = struct.Struct("<IIB")
# From the server: a request without and with a body, parts of the body, its end, room for the
# answer, and that nobody waits for it any more.
REQUEST, REQUEST_WITH_BODY, BODY, BODY_END, ROOM, CANCEL = 1, 2, 3, 4, 5, 6
# To the server: a part of the answer, its end, both in one, and room for the body.
PART, END, WHOLE, BODY_ROOM = 1, 2, 3, 4
# About no request: the files that the application was loaded from, which says that it is ready.
LOADED = 5

# Bytes that may be under way to the other side, and how many are acknowledged at a time.
WINDOW = 256 * 1024
STEP = 64 * 1024
# Answers that are ready leave after this many seconds although others are still worked on.
PATIENCE = 0.005
# Without a connection, seconds after which it is seen whether there is a server yet.
ORPHANED = 2
# First parts of requests and heads of answers that are kept, and bytes of each at most.
KEPT = 256
KEPT_SIZE = 4096


class Gone(Exception):
    """Nobody waits for the answer."""


class Connection:
    """A connection of one of the server's event loops."""

    def __init__(self, sock):
        self.sock = sock
        self.rest = b""
        self.requests = {}
        self.out = []
        self.lock = threading.Lock()
        self.changed = threading.Condition()
        # What the last request began with, and what was made of that.
        self.common = b"\xff" * 4, None, None

    def flush(self):
        """Writes all answers that are ready at once."""
        with self.lock:
            out = self.out
            try:
                while out:
                    parts = out[:]
                    # Others may be adding to it.
                    del out[: len(parts)]
                    self.sock.sendall(b"".join(parts) if len(parts) > 1 else parts[0])
            except OSError:
                # The server is gone, or its loop: the end of the input tells.
                out.clear()

    def send(self, ident, kind, payload=b""):
        self.out.append(HEADER.pack(len(payload), ident, kind) + payload)

    def feed(self, data, begin):
        """Takes in what has come; new requests go to `begin`."""
        if self.rest:
            data = self.rest + data
        at, size, unpack = 0, len(data), HEADER.unpack_from
        while size - at >= 9:
            length, ident, kind = unpack(data, at)
            end = at + 9 + length
            if end > size:
                break
            if kind == REQUEST:
                if fast:
                    end = fast.requests_end(data, at)
                    begin((self, None, None, data, at, end))
                else:
                    begin((self, ident, None, data, at + 9, end))
            else:
                self.control(ident, kind, data[at + 9 : end], begin)
            at = end
        self.rest = data[at:]

    def control(self, ident, kind, payload, begin):
        if kind == REQUEST_WITH_BODY:
            request = self.requests[ident] = Request(self, ident)
            begin((self, ident, request, payload, 0, len(payload)))
            return
        request = self.requests.get(ident)
        if request is None:
            # It has been answered, or has not written yet, and is then told again.
            return
        with self.changed:
            if kind == BODY:
                request.parts.append(payload)
            elif kind == BODY_END:
                request.ended = True
            elif kind == ROOM:
                request.room += int.from_bytes(payload, "little")
            elif kind == CANCEL:
                request.gone = True
            self.changed.notify_all()

    def close(self):
        with self.changed:
            for request in self.requests.values():
                request.gone = True
            self.changed.notify_all()
        self.sock.close()


class Request(io.RawIOBase):
    """What is known of a request besides its head; also its body, as a raw stream."""

    def __init__(self, connection, ident):
        self.connection = connection
        self.ident = ident
        self.parts = collections.deque()
        self.ended = False
        self.gone = False
        self.room = WINDOW
        self.taken = 0

    def readable(self):
        return True

    def wait(self, ready):
        """Waits until `ready()`, and takes in what comes meanwhile."""
        connection = self.connection
        connection.flush()
        if THREADS > 1:
            with connection.changed:
                while not ready():
                    connection.changed.wait()
        else:
            while not ready():
                look()

    def readinto(self, buffer):
        if not self.parts:
            self.wait(lambda: self.parts or self.ended or self.gone)
            if not self.parts:
                if self.gone and not self.ended:
                    raise OSError("the client has left")
                return 0
        part = self.parts[0]
        count = min(len(part), len(buffer))
        buffer[:count] = part[:count]
        if count == len(part):
            self.parts.popleft()
        else:
            self.parts[0] = part[count:]
        self.taken += count
        if self.taken >= STEP:
            self.connection.send(self.ident, BODY_ROOM, self.taken.to_bytes(4, "little"))
            self.connection.flush()
            self.taken = 0
        return count

    def take_room(self, count):
        if self.room < count:
            self.wait(lambda: self.room >= count or self.gone)
        if self.gone:
            raise Gone
        self.room -= count


class FileWrapper:
    """wsgi.file_wrapper: a file in pieces."""

    def __init__(self, file, size=STEP):
        self.file, self.size = file, size
        if hasattr(file, "close"):
            self.close = file.close

    def __iter__(self):
        return iter(lambda: self.file.read(self.size), b"")


def common_of(data, at):
    """The first part of a request at `at`, with its length, and what was made of it."""
    part = data[at : at + 4 + int.from_bytes(data[at : at + 4], "little")]
    return part, *(learned.get(part) or learn(part))


def learn(part):
    """What requests with this first part have in common: the environment, with room for the values that
    they have of their own, and the names of these."""
    own, _, common = part[4:].decode("latin-1").partition("\0\0")
    names = own.split("\0")
    parts = iter(common.split("\0"))
    environ = dict.fromkeys(names, "")
    environ.update(zip(parts, parts))
    environ.update(BASE)
    environ["wsgi.url_scheme"] = environ.get("REQUEST_SCHEME", "http")
    if len(part) <= KEPT_SIZE:
        if len(learned) >= KEPT:
            learned.clear()
        learned[part] = environ, names
    return environ, names


def head_of(status, headers):
    """The bytes of a head, which many answers have alike, and most with the one before them."""
    global latest
    last_status, last_headers, head = latest
    if headers == last_headers and status == last_status:
        return head
    try:
        key = (status, *headers)
        kept = heads.get(key)
    except TypeError:
        # Of something that cannot be a key.
        return encode(status, headers)
    if kept is None:
        head = encode(status, headers)
        # Nothing else than texts, which are equal only when they read the same.
        if len(head) > KEPT_SIZE or any(
            type(text) is not str for text in itertools.chain((status,), *headers)
        ):
            return head
        if len(heads) >= KEPT:
            heads.clear()
        kept = heads[key] = status, list(key[1:]), head
    latest = kept
    return kept[2]


def encode(status, headers):
    head = "Status: %s\r\n%s\r\n" % (status, "".join(["%s: %s\r\n" % pair for pair in headers]))
    if head.count("\n") != len(headers) + 2:
        raise ValueError("a line break in the status or in a header")
    return head.encode("latin-1")


class Answer:
    """The answer to one request."""

    __slots__ = ("connection", "ident", "request", "head", "begun")

    def __init__(self, connection, ident, request, head=None):
        self.connection = connection
        self.ident = ident
        self.request = request
        self.head = head
        self.begun = False

    def start(self, status, headers, exc_info=None):
        if exc_info:
            try:
                if self.begun:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self.head is not None:
            raise AssertionError("start_response was called twice without exc_info")
        self.head = head_of(status, headers)
        return self.write

    def write(self, data):
        """Sends a part now."""
        if not self.begun:
            if self.head is None:
                raise AssertionError("a body before start_response")
            self.begun = True
            data = self.head + data
            if self.request is None:
                # The server has nothing to say of it before the first part.
                self.request = self.connection.requests.setdefault(
                    self.ident, Request(self.connection, self.ident)
                )
        for at in range(0, len(data), STEP):
            part = data[at : at + STEP]
            self.request.take_room(len(part))
            self.connection.send(self.ident, PART, part)
        self.connection.flush()

    def run(self, application, environ):
        connection, ident = self.connection, self.ident
        reason = b""
        try:
            result = application(environ, self.start)
            try:
                kind = type(result)
                if (kind is list or kind is tuple) and len(result) == 1 and not self.begun:
                    head, body = self.head, result[0]
                    if head is None:
                        raise AssertionError("start_response was not called")
                    if len(body) <= STEP:
                        header = HEADER.pack(len(head) + len(body), ident, WHOLE)
                        connection.out.append(b"".join((header, head, body)))
                        return
                for part in result:
                    if part:
                        self.write(part)
                if not self.begun:
                    self.write(b"")
            finally:
                if hasattr(result, "close"):
                    result.close()
        except Gone:
            reason = b"the client has left"
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            if not self.begun:
                head = encode("500 Internal Server Error", [("Dunlin-Failed", "1")])
                connection.send(ident, WHOLE, head)
                return
            reason = b"the application failed"
        finally:
            if self.request is not None:
                connection.requests.pop(ident, None)
        connection.send(ident, END, reason)


def report(connection):
    """Tells the server which files are loaded by now."""
    global reported
    reported = len(sys.modules)
    connection.send(0, LOADED, loading.loaded_files())


def handle(job):
    connection, ident, request, data, at, end = job
    part, environ, names = connection.common
    if not data.startswith(part, at):
        # Its length is at its beginning: no other begins with all of it.
        part, environ, names = connection.common = common_of(data, at)
    environ = environ.copy()
    environ.update(zip(names, data[at + len(part) : end].decode("latin-1").split("\0")))
    environ["wsgi.input"] = io.BytesIO() if request is None else io.BufferedReader(request, STEP)
    Answer(connection, ident, request).run(application, environ)


def look():
    """Waits for something to come and takes it in."""
    ready = poller.poll(None if connections else ORPHANED)
    if not ready and os.getppid() != parent:
        # The server is gone and could not say so.
        sys.exit(0)
    for descriptor, _ in ready:
        if descriptor == 0:
            try:
                sock, _ = listener.accept()
            except OSError:
                continue
            connection = connections[sock.fileno()] = Connection(sock)
            poller.register(sock.fileno(), select.EPOLLIN)
            report(connection)
            connection.flush()
            continue
        connection = connections[descriptor]
        try:
            count = connection.sock.recv_into(room)
        except OSError:
            count = 0
        if count:
            connection.feed(bytes(room[:count]), jobs.append if THREADS == 1 else jobs.put)
        else:
            poller.unregister(descriptor)
            del connections[descriptor]
            connection.close()


def flush_in_time():
    """Has answers leave that are ready while the application works on another for long."""
    while True:
        asleep.acquire()
        time.sleep(PATIENCE)
        for connection in list(connections.values()):
            if connection.out:
                connection.flush()


def serve_in_turn():
    sleeps, wake, popleft, modules = asleep.locked, asleep.release, jobs.popleft, sys.modules
    while True:
        look()
        while jobs:
            job = popleft()
            if job[1] is None:
                fast.answer_all(job)
            else:
                handle(job)
            if len(modules) != reported:
                report(job[0])
            if jobs and sleeps():
                wake()
        for connection in list(connections.values()):
            if connection.out:
                connection.flush()


def work():
    while True:
        job = jobs.get()
        handle(job)
        if len(sys.modules) != reported:
            report(job[0])
        job[0].flush()


def end(*_):
    sys.exit(0)


def load_fast():
    """The library that does what most requests are; None where it cannot be had."""
    # Others have no such libraries, or those of another kind.
    if sys.implementation.name != "cpython" or sys.version_info < (3, 9) or sys.abiflags:
        return None
    try:
        path = os.path.join(os.path.dirname(__file__), "dunlin_wsgi.abi3.so")
        loader = importlib.machinery.ExtensionFileLoader("dunlin_wsgi", path)
        return loader.create_module(
            importlib.machinery.ModuleSpec("dunlin_wsgi", loader, origin=path)
        )
    except (ImportError, OSError):
        return None


def shared_module():
    """The module that hosts share, which lies beside this file."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dunlin_loading.py")
    spec = importlib.util.spec_from_file_location("dunlin_loading", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    THREADS, parent = int(sys.argv[2]), os.getppid()
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fast = load_fast() if THREADS == 1 else None
    loading = shared_module()
    # The application's directory takes the place of this file's.
    sys.path[0] = os.getcwd()
    application = loading.load(sys.argv[1])
    sys.argv[:] = [sys.argv[1]]
    listener = socket.socket(fileno=0)
    listener.setblocking(False)
    poller = select.epoll()
    poller.register(0, select.EPOLLIN)
    connections = {}
    BASE = {
        "wsgi.version": (1, 0),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": THREADS > 1,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": FileWrapper,
        "wsgi.input": None,
    }
    learned, heads, reported = {}, {}, 0
    # The status, the headers and the bytes of the last head that is kept.
    latest = None, None, None
    # What is read goes here first: a new piece of memory of this size costs more than the reading.
    room = memoryview(bytearray(WINDOW))
    if THREADS == 1:
        jobs = collections.deque()
        # The thread that sends what is ready in time waits for this lock when there is nothing to do.
        asleep = threading.Lock()
        asleep.acquire()
        if fast:
            fast.begin(application, learned, learn, Answer, io.BytesIO, asleep.locked, asleep.release)
        threading.Thread(target=flush_in_time, daemon=True).start()
        serve_in_turn()
    else:
        jobs = queue.SimpleQueue()
        for _ in range(THREADS):
            threading.Thread(target=work, daemon=True).start()
        while True:
            look()
