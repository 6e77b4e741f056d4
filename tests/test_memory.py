"""The memory of the real server while clients take responses slowly, throttled, or not at all: by each way that streams, over
HTTP/1.1 and HTTP/2."""

import selectors
import socket
import ssl
import struct
import subprocess
import sys
import time

import pytest

from support import http2
from support.component_server import component_server, resident
from support.components import built, has_target
from support.files import write
from support.objects import serve_objects, store  # noqa: F401
from support.scripts import script
from support.tls import certificate
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

CONNECTIONS = 16
# Streams on each of a few connections.
STREAMS, FEW = 100, 4
# What a connection may take above an idle one, in bytes.
BOUND = 1 << 20
# Bytes that slow clients take, of all connections together: more than may be held.
TAKEN = 48 << 20
# The longest time for that, in seconds: a busy machine takes less.
PATIENCE = 6
THROTTLE = 'throttle = { per_connection = "2MB/s" }'

FASTCGI = """
import os, socket, struct, sys, threading
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(64)

def record(kind, data):
    return struct.pack(">BBHHBx", 1, kind, 1, len(data), 0) + data

def serve(connection):
    connection.recv(1 << 16)
    part = record(6, b"x" * 32_000)
    try:
        connection.sendall(record(6, b"Content-Type: text/plain\\n\\n"))
        while True:
            connection.sendall(part)
    except OSError:
        connection.close()

while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""

BYTEWISE = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)

def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.recv(1 << 16)
    try:
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        while True:
            connection.sendall(b"1\\r\\nx\\r\\n")
    except OSError:
        connection.close()

while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""

WSGI = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    part = b"x" * 50_000
    while True:
        yield part
"""

ASGI = """
async def application(scope, receive, send):
    assert scope["type"] == "websocket"
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        await send({"type": "websocket.send", "bytes": b"x" * 50_000})
"""


class Way:
    """One way that streams: how its server is started, and how it is requested."""

    path = "/big.bin"
    tls = pair = None
    websocket = False
    # Bytes of a connection besides those of its response, such as the memory of an instance.
    own = 0
    # Bytes of one of many requests on a connection, besides the bodies that share its bound.
    of_request = 48 << 10

    def __init__(self, tmp_path, site, serve):
        self.folder, self.site, self.serve = tmp_path, site, serve
        self.helpers = []
        self.prepare()

    def prepare(self):
        with open(self.site / "big.bin", "wb") as file:
            file.truncate(1 << 31)

    def start(self, route):
        return self.serve(route=route)

    def helper(self, *command):
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE)
        self.helpers.append(process)
        return process

    def encrypted(self, route, more=""):
        pair = self.pair = self.pair or certificate(self.folder, "own")
        self.tls = pair[0]
        return self.serve(
            text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n'
            f'[[site]]\nroot = "{self.site}"\ntls = {{ certificate = "{pair[0]}", key = "{pair[1]}" }}\n'
            f'[[site.route]]\npath = "/*"\n{route}\n{more}'
        )

    def end(self):
        for process in self.helpers:
            process.kill()
            process.wait()
            process.stdout.close()


class File(Way):
    pass


class EncryptedFile(Way):
    def start(self, route):
        return self.encrypted(route)


class Proxy(Way):
    scheme = "http"

    def prepare(self):
        super().prepare()
        self.upstream = self.serve()

    def url(self):
        return f"{self.scheme}://{self.upstream.host}:{self.upstream.port}"

    def start(self, route):
        return self.serve(more=f'[[site.route]]\npath = "/*"\n{route}\nproxy = "{self.url()}"')


class ProxyOfHttp2(Proxy):
    scheme = "h2c"


class EncryptedProxy(Proxy):
    scheme = "https"
    # A record of TLS of each upstream connection.
    of_request = 72 << 10

    def prepare(self):
        Way.prepare(self)
        self.upstream = self.encrypted("")

    def start(self, route):
        keys = f'to = "{self.url()}", authority = "{self.pair[0]}", server_name = "localhost"'
        return self.encrypted(f"{route}\nproxy = {{ {keys} }}")


class BytewiseProxy(Proxy):
    def prepare(self):
        upstream = self.helper(sys.executable, "-c", BYTEWISE)
        self.port = int(upstream.stdout.readline())

    def url(self):
        return f"http://127.0.0.1:{self.port}"


class CachedResponse(Proxy):
    def prepare(self):
        with open(self.site / "big.bin", "wb") as file:
            file.truncate(8 << 20)
        self.upstream = self.serve(route='set_fields = { "Cache-Control" = "max-age=1000" }')

    def start(self, route):
        server = self.serve(
            server='cache = { size = "300MB" }',
            more=f'[[site.route]]\npath = "/*"\n{route}\nproxy = "{self.url()}"\ncache = {{ responses = true, response_size = "100MB" }}',
        )
        assert len(server.get(self.path)[2]) == 8 << 20
        assert "hit" in server.get(self.path, method="HEAD")[1]["cache-status"]
        return server


class Cgi(Way):
    path = "/cgi-bin/big"

    def prepare(self):
        script(self.folder / "cgi-bin", "big", "printf 'Content-Type: text/plain\\n\\n'; exec cat /dev/zero")

    def start(self, route):
        kind = f'script = {{ kind = "cgi", directory = "{self.folder}/cgi-bin" }}'
        return self.serve(more=f'[[site.route]]\npath = "/cgi-bin/*"\n{route}\n{kind}')


class Fastcgi(Way):
    path = "/app"

    def prepare(self):
        self.socket = self.folder / "fastcgi.sock"
        self.helper(sys.executable, "-c", FASTCGI, self.socket)
        wait_until(self.socket.exists, "the worker listens")

    def start(self, route):
        kind = f'script = {{ kind = "fastcgi", connect = "unix:{self.socket}", processes = 64 }}'
        return self.serve(more=f'[[site.route]]\npath = "/app"\n{route}\n{kind}')


class Wsgi(Way):
    path = "/app"

    def prepare(self):
        (self.folder / "wsgi_app.py").write_text(WSGI)

    def start(self, route):
        kind = f'kind = "wsgi", application = "wsgi_app:application", directory = "{self.folder}"'
        kind = f"script = {{ {kind}, processes = 2, threads = 16 }}"
        return self.serve(more=f'[[site.route]]\npath = "/app"\n{route}\n{kind}')


class Component(Way):
    path = "/app/huge"
    own = 3 << 20

    def prepare(self):
        if not has_target():
            pytest.skip("rustup target add wasm32-wasip2")
        self.file = built("hostile")

    def start(self, route):
        return component_server(self.serve, self.file, settings='cpu = "60s", time = "5m"', route=route)


class Object(Way):
    # Each reads parts of the object from its store.
    of_request = 224 << 10

    def __init__(self, tmp_path, site, serve, store, serve_objects):  # noqa: F811
        self.store, self.serve_objects = store, serve_objects
        super().__init__(tmp_path, site, serve)

    def prepare(self):
        self.store.put("big.bin", bytes(30 << 20))

    def start(self, route):
        return self.serve_objects(self.store, route=route, server='cache = { size = "32MiB" }')


class Websocket(Way):
    path = "/app"
    websocket = True
    # The application sends so much before anything is acknowledged, which is half of the bound; the connection's output is the other
    # half. What the allocator keeps of messages of 50 KB comes on top.
    of_request = 448 << 10
    own = 128 << 10

    def prepare(self):
        (self.folder / "asgi_app.py").write_text(ASGI)

    def start(self, route):
        kind = f'kind = "asgi", application = "asgi_app:application", directory = "{self.folder}"'
        return self.serve(more=f'[[site.route]]\npath = "/app"\n{route}\nscript = {{ {kind}, processes = 1 }}')


WAYS = [
    File, EncryptedFile, Proxy, ProxyOfHttp2, EncryptedProxy, BytewiseProxy, CachedResponse, Cgi, Fastcgi, Wsgi,
    Component, Object, Websocket,
]


def connect(server, way, protocol, streams=1):
    """A connection with small buffers on which the response is requested, by HTTP/2 on each of `streams`."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    plain.settimeout(15)
    plain.connect(server.address)
    connection = plain
    if way.tls:
        made = ssl.create_default_context(cafile=str(way.tls))
        made.set_alpn_protocols(["h2" if protocol == "HTTP/2" else "http/1.1"])
        connection = made.wrap_socket(plain, server_hostname="localhost")
    if protocol == "HTTP/2":
        settings = struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, (1 << 31) - 1)
        method, fields = "GET", [("user-agent", "test")]
        if way.websocket:
            method, fields = "CONNECT", [("sec-websocket-version", "13")]
        section = http2.section(way.path, method, *fields, authority="localhost")
        if way.websocket:
            section = b"\0\x09:protocol\x09websocket" + section
        connection.sendall(
            http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, settings)
            + http2.window_update(0, (1 << 31) - 1 - 65_535)
        )
        flags = http2.END_HEADERS | (0 if way.websocket else http2.END_STREAM)
        for number in range(streams):
            connection.sendall(http2.frame(http2.HEADERS, flags, 2 * number + 1, section))
    else:
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        upgrade += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        fields = upgrade if way.websocket else ""
        connection.sendall(f"GET {way.path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())
    connection.setblocking(False)
    return connection


def take(connections, until, pause):
    """Reads from all connections until they have got that many bytes together, or the time is over. Returns their number."""
    end, taken = time.monotonic() + PATIENCE, 0
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while taken < until and time.monotonic() < end and selector.get_map():
            for key, _ in selector.select(0.2):
                try:
                    part = key.fileobj.recv(16 << 10)
                except (ssl.SSLWantReadError, BlockingIOError):
                    continue
                if not part:
                    selector.unregister(key.fileobj)
                taken += len(part)
            time.sleep(pause)
    return taken


def peak(server):
    with open(f"/proc/{server.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) << 10


def grows(server, way, protocol, count, until, pause, streams=1):
    """Has that many clients take the response, or as many as there are streams. Returns the bytes that they took, and by how much the
    memory grew at most."""
    with open(f"/proc/{server.pid}/clear_refs", "w") as file:
        file.write("5")
    before = resident(server)
    connections = [connect(server, way, protocol, streams) for _ in range(count)]
    taken = take(connections, until, pause)
    if not until:
        time.sleep(0.5)
    growth = peak(server) - before
    for connection in connections:
        connection.close()
    return taken, growth


@pytest.fixture
def way(request, tmp_path, site, serve):
    more = []
    if request.param is Object:
        more = [request.getfixturevalue("store"), request.getfixturevalue("serve_objects")]
    made = request.param(tmp_path, site, serve, *more)
    yield made
    made.end()


@pytest.mark.parametrize("way", WAYS, indirect=True, ids=lambda way: way.__name__)
def test_a_connection_takes_at_most_a_megabyte_whatever_its_client_takes(way):
    own = way.own * CONNECTIONS
    for route, kinds in [
        ("", [("reads nothing", 0, 0), ("reads slowly", TAKEN, 0.004)]),
        (THROTTLE, [("is throttled", TAKEN, 0)]),
    ]:
        server = way.start(route)
        # What the first requests allocate stays.
        for protocol in ["HTTP/1.1", "HTTP/2"]:
            assert grows(server, way, protocol, 2, 100_000, 0)[0] > 0
        for protocol in ["HTTP/1.1", "HTTP/2"]:
            for kind, until, pause in kinds:
                taken, growth = grows(server, way, protocol, CONNECTIONS, until, pause)
                what = f"{protocol}, a client that {kind}: {taken >> 10} KB taken, {growth >> 10} KB more memory"
                print(what)
                assert growth < CONNECTIONS * BOUND + own, what
        # The next has the same socket for its administrator.
        server.kill()


@pytest.mark.parametrize("way", WAYS, indirect=True, ids=lambda way: way.__name__)
def test_the_bodies_of_all_streams_of_a_connection_are_bounded(way):
    bound = FEW * (BOUND + STREAMS * (way.own + way.of_request))
    for route, kinds in [
        ("", [("reads nothing", 0, 0), ("reads slowly", TAKEN // 4, 0.004)]),
        (THROTTLE, [("is throttled", TAKEN // 4, 0)]),
    ]:
        server = way.start(route)
        assert grows(server, way, "HTTP/2", 2, 100_000, 0)[0] > 0
        for kind, until, pause in kinds:
            taken, growth = grows(server, way, "HTTP/2", FEW, until, pause, STREAMS)
            what = f"a client that {kind}: {taken >> 10} KB taken, {growth >> 10} KB more memory"
            print(what)
            assert growth < bound, what
        server.kill()


def test_new_requests_get_503_while_the_memory_is_exhausted(serve, tmp_path, site):
    write(site / "small.txt", "small")
    big = Proxy(tmp_path, site, serve)
    server = serve(
        server='memory = "2MiB"',
        more=f'[[site.route]]\npath = "/proxied/*"\nproxy = "{big.url()}"\n'
        f'[[site.route]]\npath = "/big.bin"\nproxy = "{big.url()}"\n[[site.route]]\npath = "/status/*"\nstatus = true',
    )
    assert server.get("/small.txt")[0] == 200
    connections = [connect(server, big, "HTTP/2") for _ in range(60)]
    wait_until(lambda: server.get("/proxied/x")[0] == 503, "requests are rejected")
    assert server.get("/proxied/x")[1]["retry-after"] == "1"
    assert server.get("/small.txt")[2] == b"small", "a cached file needs no memory"
    metrics = server.get("/status/metrics")[2].decode()
    figures = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith("dunlin_memory"))
    assert float(figures["dunlin_memory_held_bytes"]) > 2 << 20 == float(figures["dunlin_memory_limit_bytes"])
    assert float(figures["dunlin_memory_rejections_total"]) > 0
    for connection in connections:
        connection.close()
    wait_until(lambda: server.get("/proxied/x")[0] == 404, "requests are admitted again")
    server.logged("memory is available again")
    assert server.log.count("hold more than `memory`") == 1


@pytest.mark.parametrize("way", [File, Proxy, Fastcgi, Cgi], indirect=True, ids=lambda way: way.__name__)
def test_a_request_beside_many_responses_that_are_not_read_gets_its_own(way):
    server = way.start("")
    head = http2.section(way.path, "GET", authority="localhost")
    stalled, last, begun = set(range(1, 51, 2)), 51, set()

    def request(stream):
        client.send(http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, stream, head))

    def read_until_begun(streams):
        def note(kind, _, stream, payload):
            if kind == http2.DATA and payload:
                begun.add(stream)
            return begun >= streams

        client.read_until(note)

    # The windows of streams are closed after the first bytes.
    with http2.Client(server, [(http2.INITIAL_WINDOW_SIZE, 10)]) as client:
        for stream in stalled:
            request(stream)
        read_until_begun(stalled)
        request(last)
        read_until_begun({last})
