"""Serves a WSGI application (PEP 3333) to the web server that has started this process.

Usage: host.py MODULE:APPLICATION THREADS, with a listening Unix socket as standard input. Requests and
responses cross the socket in frames: length of the payload and number of the request (four bytes
each, little-endian), kind (one byte), payload. One read returns many requests, and one write sends
the responses to all of them.

A request's payload has the variables in two parts. The first part, after its length (four bytes), is
often equal to that of an earlier request: the names of the variables in the second part, an empty
one, and the names and values of all others. The second part has only values. The parsed first part,
and the head of a response, are cached for later requests.

A library in C handles most requests if it can be loaded (fast.c).
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
# response, and cancellation.
REQUEST, REQUEST_WITH_BODY, BODY, BODY_END, ROOM, CANCEL = 1, 2, 3, 4, 5, 6
# To the server: a part of the response, its end, both in one, and room for the body.
PART, END, WHOLE, BODY_ROOM = 1, 2, 3, 4
# For no request: the files of the application, which report that it is ready.
LOADED = 5

# Bytes that may be in flight to the other side, and the number that is acknowledged at a time.
WINDOW = 256 * 1024
STEP = 64 * 1024
# Seconds after which ready responses are sent while other requests are in progress.
FLUSH_AFTER = 0.005
# Seconds without a connection after which the process checks whether the server still runs.
PARENT_CHECK = 2
# Maximum number of cached first parts and response heads, and maximum size of each.
MAX_CACHED = 256
MAX_CACHED_SIZE = 4096


class Cancelled(Exception):
    """No client waits for the response."""


class Connection:
    """A connection of one of the server's workers."""

    def __init__(self, sock):
        self.sock = sock
        self.rest = b""
        self.requests = {}
        self.out = []
        self.lock = threading.Lock()
        self.changed = threading.Condition()
        # The first part of the last request, and its parsed form.
        self.common = b"\xff" * 4, None, None

    def flush(self):
        """Writes all ready responses at once."""
        with self.lock:
            out = self.out
            try:
                while out:
                    parts = out[:]
                    # Other threads may be adding to it.
                    del out[: len(parts)]
                    self.sock.sendall(b"".join(parts) if len(parts) > 1 else parts[0])
            except OSError:
                # The server, or its worker, has ended: the input ends, too.
                out.clear()

    def send(self, ident, kind, payload=b""):
        self.out.append(HEADER.pack(len(payload), ident, kind) + payload)

    def feed(self, data, begin):
        """Reads the available frames; new requests go to `begin`."""
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
            # It is complete, or has not written yet, and then checks again.
            return
        with self.changed:
            if kind == BODY:
                request.parts.append(payload)
            elif kind == BODY_END:
                request.ended = True
            elif kind == ROOM:
                request.room += int.from_bytes(payload, "little")
            elif kind == CANCEL:
                request.cancelled = True
            self.changed.notify_all()

    def close(self):
        with self.changed:
            for request in self.requests.values():
                request.cancelled = True
            self.changed.notify_all()
        self.sock.close()


class Request(io.RawIOBase):
    """The state of a request besides its head; also its body, as a raw stream."""

    def __init__(self, connection, ident):
        self.connection = connection
        self.ident = ident
        self.parts = collections.deque()
        self.ended = False
        self.cancelled = False
        self.room = WINDOW
        self.consumed = 0

    def readable(self):
        return True

    def wait(self, ready):
        """Waits until `ready()`, and reads frames meanwhile."""
        connection = self.connection
        connection.flush()
        if THREADS > 1:
            with connection.changed:
                while not ready():
                    connection.changed.wait()
        else:
            while not ready():
                read_input()

    def readinto(self, buffer):
        if not self.parts:
            self.wait(lambda: self.parts or self.ended or self.cancelled)
            if not self.parts:
                if self.cancelled and not self.ended:
                    raise OSError("the client disconnected")
                return 0
        part = self.parts[0]
        count = min(len(part), len(buffer))
        buffer[:count] = part[:count]
        if count == len(part):
            self.parts.popleft()
        else:
            self.parts[0] = part[count:]
        self.consumed += count
        if self.consumed >= STEP:
            self.connection.send(self.ident, BODY_ROOM, self.consumed.to_bytes(4, "little"))
            self.connection.flush()
            self.consumed = 0
        return count

    def reserve(self, count):
        if self.room < count:
            self.wait(lambda: self.room >= count or self.cancelled)
        if self.cancelled:
            raise Cancelled
        self.room -= count


class FileWrapper:
    """wsgi.file_wrapper: a file in pieces."""

    def __init__(self, file, size=STEP):
        self.file, self.size = file, size
        if hasattr(file, "close"):
            self.close = file.close

    def __iter__(self):
        return iter(lambda: self.file.read(self.size), b"")


def common_part(data, at):
    """The first part of a request at `at`, with its length, and its parsed form."""
    part = data[at : at + 4 + int.from_bytes(data[at : at + 4], "little")]
    return part, *(parsed.get(part) or parse_common(part))


def parse_common(part):
    """The common state of requests with this first part: the environment, with room for their own values,
    and the names of these."""
    own, _, common = part[4:].decode("latin-1").partition("\0\0")
    names = own.split("\0")
    parts = iter(common.split("\0"))
    environ = dict.fromkeys(names, "")
    environ.update(zip(parts, parts))
    environ.update(BASE)
    environ["wsgi.url_scheme"] = environ.get("REQUEST_SCHEME", "http")
    if len(part) <= MAX_CACHED_SIZE:
        if len(parsed) >= MAX_CACHED:
            parsed.clear()
        parsed[part] = environ, names
    return environ, names


def head_of(status, headers):
    """The bytes of a head. Many responses have equal heads, mostly that of the previous response."""
    global latest
    last_status, last_headers, head = latest
    if headers == last_headers and status == last_status:
        return head
    try:
        key = (status, *headers)
        cached = heads.get(key)
    except TypeError:
        # The head has a value that cannot be a key.
        return encode(status, headers)
    if cached is None:
        head = encode(status, headers)
        # Only strings, which are equal only if their text is.
        if len(head) > MAX_CACHED_SIZE or any(
            type(text) is not str for text in itertools.chain((status,), *headers)
        ):
            return head
        if len(heads) >= MAX_CACHED:
            heads.clear()
        cached = heads[key] = status, list(key[1:]), head
    latest = cached
    return cached[2]


def summary(error):
    """The last line of the traceback, as the value of a header."""
    text = " ".join(str(traceback.format_exception_only(type(error), error)[-1]).split())
    text = "".join([char if char.isprintable() else "?" for char in text])
    return text[:300].encode("utf-8", "replace").decode("latin-1") or "1"


def encode(status, headers):
    head = "Status: %s\r\n%s\r\n" % (status, "".join(["%s: %s\r\n" % pair for pair in headers]))
    if head.count("\n") != len(headers) + 2:
        raise ValueError("a line break in the status or in a header")
    return head.encode("latin-1")


class Response:
    """The response to one request."""

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
                # The server sends no frame for it before the first part.
                self.request = self.connection.requests.setdefault(
                    self.ident, Request(self.connection, self.ident)
                )
        for at in range(0, len(data), STEP):
            part = data[at : at + STEP]
            self.request.reserve(len(part))
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
        except Cancelled:
            reason = b"the client disconnected"
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            if not self.begun:
                head = encode("500 Internal Server Error", [("Dunlin-Failed", summary(error))])
                connection.send(ident, WHOLE, head)
                return
            reason = b"the application failed"
        finally:
            if self.request is not None:
                connection.requests.pop(ident, None)
        connection.send(ident, END, reason)


def report(connection):
    """Reports the loaded files to the server."""
    global reported
    reported = len(sys.modules)
    connection.send(0, LOADED, loading.loaded_files())


def handle(job):
    connection, ident, request, data, at, end = job
    part, environ, names = connection.common
    if not data.startswith(part, at):
        # It begins with its length: no other part has it as a prefix.
        part, environ, names = connection.common = common_part(data, at)
    environ = environ.copy()
    environ.update(zip(names, data[at + len(part) : end].decode("latin-1").split("\0")))
    environ["wsgi.input"] = io.BytesIO() if request is None else io.BufferedReader(request, STEP)
    Response(connection, ident, request).run(application, environ)


def read_input():
    """Waits for input and reads it."""
    ready = poller.poll(None if connections else PARENT_CHECK)
    if not ready and os.getppid() != parent:
        # The server has ended without closing the connection.
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
    """Sends ready responses while the application works on another request for long."""
    while True:
        idle_lock.acquire()
        time.sleep(FLUSH_AFTER)
        for connection in list(connections.values()):
            if connection.out:
                connection.flush()


def serve_in_one_thread():
    sleeps, wake, popleft, modules = idle_lock.locked, idle_lock.release, jobs.popleft, sys.modules
    while True:
        read_input()
        while jobs:
            job = popleft()
            if job[1] is None:
                fast.handle_all(job)
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
    """The library that handles most requests; None if it is not available."""
    # Other implementations have no such libraries, or others.
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
    """The shared module, which is beside this file."""
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
    # The application's directory replaces that of this file.
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
    parsed, heads, reported = {}, {}, 0
    # Status, headers and bytes of the cached last head.
    latest = None, None, None
    # The buffer of reads: allocating one of this size costs more than reading.
    room = memoryview(bytearray(WINDOW))
    if THREADS == 1:
        jobs = collections.deque()
        # The thread that sends ready responses waits for this lock while it is idle.
        idle_lock = threading.Lock()
        idle_lock.acquire()
        if fast:
            fast.begin(application, parsed, parse_common, Response, io.BytesIO, idle_lock.locked, idle_lock.release)
        threading.Thread(target=flush_in_time, daemon=True).start()
        serve_in_one_thread()
    else:
        jobs = queue.SimpleQueue()
        for _ in range(THREADS):
            threading.Thread(target=work, daemon=True).start()
        while True:
            read_input()
