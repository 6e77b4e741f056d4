"""Serves an ASGI application to the web server that has started this process.

Usage: host.py MODULE:APPLICATION, with a listening Unix socket as standard input. Requests and
responses cross the socket in frames: length of the payload and number of the request (four bytes
each, little-endian), kind (one byte), payload. One write sends the output of all tasks of one
iteration of the event loop.

A request's payload has the variables in two parts. The first part, after its length (four bytes), is
often equal to that of an earlier request: the names of the variables in the second part, an empty
one, and the names and values of all others. The second part has only values. The parsed first part,
and the head of a response, are cached for later requests.
"""

import asyncio
import collections
import importlib.util
import os
import signal
import socket
import struct
import sys
import traceback

HEADER = struct.Struct("<IIB")
# From the server: a request without and with a body, parts of the body, its end, room for the
# response, and cancellation.
REQUEST, REQUEST_WITH_BODY, BODY, BODY_END, ROOM, CANCEL = 1, 2, 3, 4, 5, 6
# A request for a WebSocket, whose body and response consist of records.
WEBSOCKET = 7
# The server closes the WebSocket, because this process or the server ends.
GOING_AWAY = 8
# To the server: a part of the response, its end, both in one, and room for the body.
PART, END, WHOLE, BODY_ROOM = 1, 2, 3, 4
# For no request: the files of the application, which report that it is ready.
LOADED = 5

# Records of a WebSocket: kind, length of the payload, payload. A message is a TEXT or BYTES, after parts of it.
RECORD = struct.Struct("<BI")
TEXT_PART, TEXT, BYTES_PART, BYTES, CLOSE = 1, 2, 3, 4, 5
# Codes of WebSockets: the default, the end of the server, no close frame, and a failure of the application.
NORMAL, LEAVING, ABNORMAL, FAILED = 1000, 1001, 1006, 1011

# Bytes that may be in flight to the other side, and the number that is acknowledged at a time.
WINDOW = 256 * 1024
STEP = 64 * 1024
# Maximum number of cached first parts, and maximum size of each.
MAX_CACHED = 256
MAX_CACHED_SIZE = 4096
# Seconds that the application may take to shut down.
SHUTDOWN = 1.5
# Interval in seconds of the check whether the server still runs.
PARENT_CHECK = 2


# The variables that a scope needs, and their defaults.
SCOPE_VARIABLES = {
    b"PATH_INFO": b"",
    b"REQUEST_URI": b"",
    b"QUERY_STRING": b"",
    b"REMOTE_ADDR": b"",
    b"REMOTE_PORT": b"0",
}

# The buffer of reads: allocating one of this size costs more than reading.
room = memoryview(bytearray(WINDOW))


class Connection(asyncio.BufferedProtocol):
    """A connection of one of the server's workers."""

    def connection_made(self, transport):
        self.transport = transport
        self.rest = b""
        self.requests = {}
        self.out = []
        self.is_flush_scheduled = False
        # The first part of the last request, and its parsed form.
        self.common = b"\xff" * 4, None
        self.report()

    def report(self):
        """Reports the loaded files to the server."""
        global reported
        reported = len(sys.modules)
        self.send(0, LOADED, loading.loaded_files())

    def connection_lost(self, error):
        for request in self.requests.values():
            request.cancel()

    def get_buffer(self, hint):
        return room

    def buffer_updated(self, count):
        data = self.rest + room[:count]
        at, size = 0, len(data)
        while size - at >= 9:
            length, ident, kind = HEADER.unpack_from(data, at)
            start, end = at + 9, at + 9 + length
            if end > size:
                break
            at = end
            if kind == REQUEST or kind == REQUEST_WITH_BODY or kind == WEBSOCKET:
                if kind == WEBSOCKET:
                    request = WebSocket(self, ident)
                else:
                    request = Request(self, ident, kind == REQUEST)
                self.requests[ident] = request
                request.task = loop.create_task(request.run(data, start, end))
                tasks.add(request.task)
            elif request := self.requests.get(ident):
                request.process_frame(kind, data[start:end])
        self.rest = data[at:]
        # The output of the first steps of new tasks follows these frames.
        self.schedule_flush()

    def schedule_flush(self):
        if not self.is_flush_scheduled:
            self.is_flush_scheduled = True
            loop.call_soon(self.flush)

    def send(self, ident, kind, payload=b""):
        self.out.append(HEADER.pack(len(payload), ident, kind) + payload)
        self.schedule_flush()

    def flush(self):
        self.is_flush_scheduled = False
        if len(sys.modules) != reported:
            self.report()
        if self.out:
            out, self.out = self.out, []
            self.transport.write(b"".join(out))


class Request:
    """One request and its response."""

    __slots__ = (
        "connection", "ident", "task", "parts", "ended", "delivered", "cancelled", "room", "waiting",
        "head", "begun", "complete",
    )  # fmt: skip

    def __init__(self, connection, ident, ended):
        self.connection = connection
        self.ident = ident
        # None until a part of the body arrives.
        self.parts = None
        self.ended = ended
        self.cancelled = False
        self.room = WINDOW
        self.delivered = False
        self.waiting = ()
        self.head = None
        self.begun = False
        self.complete = False

    def process_frame(self, kind, payload):
        if kind == BODY:
            if self.parts is None:
                self.parts = collections.deque()
            self.parts.append(payload)
        elif kind == BODY_END:
            self.ended = True
        elif kind == ROOM:
            self.room += int.from_bytes(payload, "little")
        elif kind == CANCEL:
            self.cancelled = True
        self.wake()

    def cancel(self):
        self.cancelled = True
        self.wake()

    def wake(self):
        waiting, self.waiting = self.waiting, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def change(self):
        future = loop.create_future()
        self.waiting += (future,)
        await future

    async def receive(self):
        while True:
            if self.parts:
                body = self.parts.popleft()
                self.connection.send(self.ident, BODY_ROOM, len(body).to_bytes(4, "little"))
                self.delivered = self.ended and not self.parts
                more = not self.delivered
                return {"type": "http.request", "body": body, "more_body": more}
            if self.ended and not self.delivered:
                self.delivered = True
                return {"type": "http.request", "body": b"", "more_body": False}
            if self.cancelled or self.complete:
                return {"type": "http.disconnect"}
            await self.change()

    async def send(self, message):
        kind = message["type"]
        if kind == "http.response.start":
            if self.head is not None:
                raise RuntimeError("http.response.start was sent twice")
            self.head = head_of(message["status"], message.get("headers", ()))
            return
        if kind == "http.response.early_hint":
            if self.begun or self.complete:
                raise RuntimeError("http.response.early_hint after the start of the response")
            hint = encode(103, [(b"link", link) for link in message["links"]])
            self.room -= len(hint)
            self.connection.send(self.ident, PART, hint)
            return
        if kind != "http.response.body":
            raise RuntimeError("an unknown message: %r" % kind)
        if self.head is None:
            raise RuntimeError("http.response.body before http.response.start")
        if self.complete:
            raise RuntimeError("a body after its end")
        body, more = message.get("body", b""), message.get("more_body", False)
        if not self.begun:
            body = self.head + body
            if not more and len(body) <= STEP:
                self.finish(WHOLE, body)
                return
            self.begun = True
        for at in range(0, len(body), STEP):
            part = bytes(body[at : at + STEP])
            while self.room < len(part) and not self.cancelled:
                await self.change()
            if self.cancelled:
                return
            self.room -= len(part)
            self.connection.send(self.ident, PART, part)
        if not more:
            self.finish(END)

    def has_left(self):
        """Whether the client has disconnected."""
        return self.cancelled

    def end(self):
        """Whether the response may end where the application has."""
        return False

    def finish(self, kind, payload=b""):
        self.complete = True
        self.connection.send(self.ident, kind, payload)
        if self.waiting:
            self.wake()

    def scope(self, data, at, end):
        return scope_of(self.connection, data, at, end)

    async def run(self, data, at, end):
        try:
            scope = self.scope(data, at, end)
            await application(scope, self.receive, self.send)
            if not self.complete and not self.cancelled and not self.end():
                raise RuntimeError("the application ended before its response")
        except Exception as error:
            if not self.has_left():
                traceback.print_exc()
                sys.stderr.flush()
            if not self.complete and not self.begun:
                self.finish(WHOLE, encode(500, [(b"dunlin-failed", summary(error))]))
        finally:
            if not self.complete:
                self.finish(END, b"the client disconnected" if self.cancelled else b"the application failed")
            self.connection.requests.pop(self.ident, None)
            tasks.discard(self.task)


class WebSocket(Request):
    """A WebSocket. The server reads and writes its frames."""

    __slots__ = ("rest", "partial", "messages", "held", "is_connected", "is_open", "closed")

    def __init__(self, connection, ident):
        super().__init__(connection, ident, False)
        # A record that is not complete, and the parts of a message.
        self.rest = b""
        self.partial = []
        self.messages = collections.deque()
        # Bytes that are not acknowledged.
        self.held = 0
        self.is_connected = False
        self.is_open = False
        # Code and reason of the end.
        self.closed = None

    def scope(self, data, at, end):
        scope = scope_of(self.connection, data, at, end)
        scope["type"] = "websocket"
        scope["scheme"] = "wss" if scope["scheme"] == "https" else "ws"
        scope["asgi"]["spec_version"] = "2.4"
        del scope["method"]
        offered = [value for name, value in scope["headers"] if name == b"sec-websocket-protocol"]
        names = b",".join(offered).decode("latin-1").split(",")
        scope["subprotocols"] = [name.strip() for name in names if name.strip()]
        scope["extensions"] = {"websocket.http.response": {}}
        return scope

    def process_frame(self, kind, payload):
        if kind == GOING_AWAY:
            self.closed = self.closed or (LEAVING, "")
            self.wake()
            return
        if kind != BODY:
            super().process_frame(kind, payload)
            return
        self.held += len(payload)
        data = self.rest + payload if self.rest else payload
        at, size = 0, len(data)
        while size - at >= RECORD.size:
            kind, length = RECORD.unpack_from(data, at)
            start, end = at + RECORD.size, at + RECORD.size + length
            if end > size:
                break
            at = end
            if kind == CLOSE:
                code = int.from_bytes(data[start : start + 2], "little")
                self.closed = self.closed or (code, data[start + 2 : end].decode())
                continue
            part = data[start:end]
            if kind == TEXT_PART or kind == BYTES_PART:
                self.partial.append(part)
                continue
            if self.partial:
                part = b"".join((*self.partial, part))
                self.partial = []
            self.messages.append(part.decode() if kind == TEXT else part)
        self.rest = data[at:]
        self.acknowledge()
        self.wake()

    def acknowledge(self):
        # While messages wait, the server may send only what is in the window. A message that is incomplete, whose size
        # has a limit, may exceed it.
        if self.held and not self.messages:
            self.connection.send(self.ident, BODY_ROOM, self.held.to_bytes(4, "little"))
            self.held = 0

    def has_left(self):
        return self.cancelled or self.closed is not None

    async def receive(self):
        if not self.is_connected:
            self.is_connected = True
            return {"type": "websocket.connect"}
        while True:
            if self.messages:
                message = self.messages.popleft()
                self.acknowledge()
                if type(message) is str:
                    return {"type": "websocket.receive", "text": message}
                return {"type": "websocket.receive", "bytes": message}
            if self.closed or self.cancelled or self.complete:
                code, reason = self.closed or (ABNORMAL, "")
                return {"type": "websocket.disconnect", "code": code, "reason": reason}
            await self.change()

    async def send(self, message):
        kind = message["type"]
        if kind == "websocket.send":
            await self.send_message(message)
        elif kind == "websocket.accept":
            self.accept(message)
        elif kind == "websocket.close":
            self.close(message)
        elif kind in ("websocket.http.response.start", "websocket.http.response.body"):
            if self.is_open:
                raise RuntimeError("%s after websocket.accept" % kind)
            await super().send({**message, "type": kind[len("websocket.") :]})
            if self.complete:
                self.closed = self.closed or (ABNORMAL, "")
        else:
            raise RuntimeError("an unknown message: %r" % kind)

    def accept(self, message):
        if self.is_open or self.head or self.complete:
            raise RuntimeError("websocket.accept after a response")
        headers = [(b"dunlin-switch", b"1"), *message.get("headers", ())]
        subprotocol = message.get("subprotocol")
        if subprotocol is not None:
            headers.append((b"sec-websocket-protocol", subprotocol.encode()))
        head = encode(200, headers)
        self.room -= len(head)
        self.is_open = self.begun = True
        self.connection.send(self.ident, PART, head)

    def close(self, message):
        if self.complete:
            raise RuntimeError("websocket.close after the end")
        code, reason = message.get("code"), message.get("reason") or ""
        if code is None:
            code = NORMAL
        elif not 0 <= code < 65536:
            code = FAILED
        if not self.is_open:
            if self.head is not None:
                raise RuntimeError("websocket.close within a response")
            self.closed = ABNORMAL, ""
            self.finish(WHOLE, encode(403, [(b"content-length", b"0")]))
            return
        self.closed = self.closed or (code, reason)
        self.send_close(code, reason)
        self.finish(END)

    def send_close(self, code, reason):
        payload = code.to_bytes(2, "little") + reason.encode()
        self.connection.send(self.ident, PART, RECORD.pack(CLOSE, len(payload)) + payload)

    async def send_message(self, message):
        if not self.is_open:
            raise RuntimeError("websocket.send before websocket.accept")
        text = message.get("text")
        data, last, part = (
            (message.get("bytes") or b"", BYTES, BYTES_PART) if text is None else (text.encode(), TEXT, TEXT_PART)
        )
        size = len(data)
        for at in range(0, size or 1, STEP):
            piece = bytes(data[at : at + STEP])
            while self.room < len(piece) and not (self.cancelled or self.closed):
                await self.change()
            if self.cancelled or self.closed or self.complete:
                raise OSError("the WebSocket is closed")
            self.room -= len(piece) + RECORD.size
            kind = last if at + STEP >= size else part
            self.connection.send(self.ident, PART, RECORD.pack(kind, len(piece)) + piece)

    def end(self):
        if not self.is_open:
            if self.closed:
                self.finish(END, b"the client disconnected")
            return self.complete
        self.send_close(NORMAL, "")
        self.finish(END)
        return True


def head_of(status, headers):
    """The bytes of a head, which is often equal to the previous one."""
    global latest, last
    last_status, last_headers, head = latest
    if headers == last_headers and status == last_status:
        return head
    head = encode(status, headers)
    # A head that occurs a second time is cached, if it is immutable.
    if headers == last and is_plain(headers):
        latest = status, headers.copy(), head
    last = headers
    return head


def is_plain(headers):
    return type(headers) is list and all(
        type(pair) is tuple and type(pair[0]) is type(pair[1]) is bytes for pair in headers
    )


def summary(error):
    """The last line of the traceback, as the value of a header."""
    text = " ".join(str(traceback.format_exception_only(type(error), error)[-1]).split())
    text = "".join([char if char.isprintable() else "?" for char in text])
    return text[:300].encode("utf-8", "replace") or b"1"


def encode(status, headers):
    lines = [b"Status: %d\r\n" % status]
    for name, value in headers:
        lines.append(b"%s: %s\r\n" % (name, value))
    lines.append(b"\r\n")
    head = b"".join(lines)
    if head.count(b"\n") != len(lines):
        raise ValueError("a line break in a header")
    return head


def header_of(name):
    """The header of a variable; None if it is not of a header."""
    if name.startswith(b"HTTP_"):
        name = name[5:]
    elif name not in (b"CONTENT_TYPE", b"CONTENT_LENGTH"):
        return None
    return name.replace(b"_", b"-").lower()


def parse_common(part):
    """The parsed first part of requests: most of the scope; the headers; name and index of the headers among the
    values of the second part; the prefix of the path; the defaults of SCOPE_VARIABLES; and the index of each
    of these in the list of the second part's values followed by the defaults."""
    own, _, common = part[4:].partition(b"\0\0")
    names = own.split(b"\0")
    parts = iter(common.split(b"\0"))
    variables = dict(zip(parts, parts))
    get = variables.get
    prefix = get(b"SCRIPT_NAME", b"")
    version = get(b"SERVER_PROTOCOL", b"HTTP/1.1")[5:].decode()
    scope = {
        "type": "http",
        "http_version": "2" if version == "2.0" else version,
        "method": get(b"REQUEST_METHOD", b"GET").decode("latin-1"),
        "scheme": get(b"REQUEST_SCHEME", b"http").decode(),
        "root_path": prefix.decode("utf-8", "replace"),
        "server": (get(b"SERVER_NAME", b"").decode("latin-1"), int(get(b"SERVER_PORT", b"0"))),
    }
    pairs = [(header_of(name), value) for name, value in variables.items()]
    headers = [pair for pair in pairs if pair[0]]
    own_headers = [(header_of(name), at) for at, name in enumerate(names) if header_of(name)]
    fixed = [get(name, value) for name, value in SCOPE_VARIABLES.items()]
    indexes = [
        names.index(name) if name in names else at - len(SCOPE_VARIABLES) for at, name in enumerate(SCOPE_VARIABLES)
    ]
    entry = scope, headers, own_headers, prefix, fixed, indexes
    if len(part) <= MAX_CACHED_SIZE:
        if len(parsed) >= MAX_CACHED:
            parsed.clear()
        parsed[part] = entry
    return entry


def common_part(data, at):
    """The first part of a request at `at`, with its length, and its parsed form."""
    part = data[at : at + 4 + int.from_bytes(data[at : at + 4], "little")]
    return part, parsed.get(part) or parse_common(part)


def scope_of(connection, data, at, end):
    part, common = connection.common
    if not data.startswith(part, at):
        # It begins with its length: no other part has it as a prefix.
        part, common = connection.common = common_part(data, at)
    scope, headers, own_headers, prefix, fixed, (info, uri, query, address, port) = common
    values = data[at + len(part) : end].split(b"\0")
    values += fixed
    scope = scope.copy()
    scope["asgi"] = {"version": "3.0", "spec_version": "2.3"}
    scope["path"] = (prefix + values[info]).decode("utf-8", "replace")
    scope["raw_path"] = values[uri].partition(b"?")[0]
    scope["query_string"] = values[query]
    scope["headers"] = headers + [(name, values[at]) for name, at in own_headers]
    scope["client"] = values[address].decode(), int(values[port])
    scope["state"] = state.copy()
    scope["extensions"] = {"http.response.early_hint": {}}
    return scope


class Lifespan:
    """The application's start and end, if it supports the lifespan protocol."""

    def __init__(self):
        self.events = asyncio.Queue()
        self.messages = asyncio.Queue()

    async def run(self):
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": state,
        }
        try:
            await application(scope, self.events.get, self.messages.put)
        except Exception:
            # It does not support it, unless it has sent an event.
            pass
        await self.messages.put({"type": "lifespan.over"})

    async def send_event(self, event):
        await self.events.put({"type": event})
        message = await self.messages.get()
        if message["type"] == event + ".failed":
            print(message.get("message", event + " failed"), file=sys.stderr, flush=True)
            sys.exit(1)


def shared_module():
    """The shared module, which is beside this file."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dunlin_loading.py")
    spec = importlib.util.spec_from_file_location("dunlin_loading", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def main():
    global loop
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    waiting = loop.create_task(ended.wait())
    lifespan = Lifespan()
    lifespan_task = loop.create_task(lifespan.run())
    await lifespan.send_event("lifespan.startup")
    server = await loop.create_unix_server(Connection, sock=socket.socket(fileno=0))
    while not ended.is_set() and os.getppid() == parent:
        # The server may have ended without closing the connection.
        await asyncio.wait([waiting], timeout=PARENT_CHECK)
    server.close()
    if tasks:
        # The server has cancelled what is left.
        await asyncio.wait(tasks, timeout=SHUTDOWN / 3)
    if not lifespan_task.done():
        try:
            await asyncio.wait_for(lifespan.send_event("lifespan.shutdown"), SHUTDOWN)
        except asyncio.TimeoutError:
            print("the application did not end in time", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loading = shared_module()
    # The application's directory replaces that of this file.
    sys.path[0] = os.getcwd()
    application = loading.load(sys.argv[1])
    sys.argv[:] = [sys.argv[1]]
    state, tasks, parsed, parent, reported = {}, set(), {}, os.getppid(), 0
    # The cached last head, with its status and headers, and the last headers.
    latest, last = (None, None, None), None
    asyncio.run(main())
