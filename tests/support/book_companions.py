"""What the examples of a page need beside the server: stores, upstreams, compilers, certificates.

`COMPANIONS` has a context manager for each such page. It starts programs before the first example and stops them behind the
last one, and sets `stand_ins` of the reader: texts of the page, and what stands in place of them.
"""

import contextlib
import grp
import http.client
import os
import re
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support import objects, shared_store
from support.admin import fetch
from support.components import EXAMPLES, OPERATION, has_target
from support.files import write
from support.server import ROOT, Server
from support.tls import certificate
from support.waiting import wait_until


def need(*programs):
    for name in programs:
        objects.program(name)


def need_feature():
    if shared_store.lacks_feature():
        pytest.skip("the binary is built without the feature `fleet`")


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def metric(socket_file, name):
    found = re.search(rf"^{name} (\S+)$", fetch(socket_file, "/metrics")[2].decode(), re.M)
    return found and float(found[1])


class News(BaseHTTPRequestHandler):
    """An application whose responses are cached."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.send_header("Cache-Control", "max-age=60")
        self.end_headers()
        self.wfile.write(b"news\n")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def fleet(reader):
    """A store, an application, and two servers beside the one of the reader."""
    need_feature()
    store = shared_store.Store(reader.folder / "store")
    news = ThreadingHTTPServer(("127.0.0.1", 0), News)
    news.daemon_threads = True
    threading.Thread(target=news.serve_forever, daemon=True).start()
    reader.stand_ins |= {
        "10.0.0.5:6379": f"127.0.0.1:{store.port}",
        "10.0.0.9:8000": f"127.0.0.1:{news.server_address[1]}",
    }
    others = []

    def join():
        text = (reader.folder / "dunlin.toml").read_text().replace(f'":{reader.port}"', '"127.0.0.1:0"')
        for name in ("second", "third"):
            file = reader.folder / f"{name}.toml"
            file.write_text(text.replace("admin.sock", f"{name}.sock"))
            others.append(Server(["--config", file], reader.folder))
        for name in ("admin", "second", "third"):
            socket_file = reader.folder / "run" / "dunlin" / f"{name}.sock"
            wait_until(lambda: metric(socket_file, "dunlin_shared_servers") == 3, "the servers see each other")

    reader.has_started = join
    try:
        yield
    finally:
        for server in others:
            server.stop()
        store.stop()
        news.shutdown()
        news.server_close()


class Bucket(objects.Store):
    """A store with the bucket of the page."""

    name = "my-bucket"

    def command(self):
        return [self.name if word == objects.BUCKET else word for word in super().command()]

    def fill(self, key, content):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        connection.request("PUT", f"/{self.name}/{key}", content)
        assert connection.getresponse().status == 200
        connection.close()


@contextlib.contextmanager
def bucket(reader):
    need_feature()
    folder = reader.folder / "store"
    folder.mkdir()
    store = Bucket(folder)
    try:
        store.fill("site/index.html", b"hello")
        reader.stand_ins["https://s3.eu-central-1.amazonaws.com"] = store.endpoint
        # For the configurations without `[store.s3]`.
        reader.environment |= {
            "AWS_ENDPOINT_URL": store.endpoint, "AWS_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
        }
        yield
    finally:
        store.kill()


@contextlib.contextmanager
def nats(reader):
    """A NATS server, and three generators."""
    need_feature()
    port = objects.free_port()
    command = [objects.program("nats-server"), "-a", "127.0.0.1", "-p", str(port)]
    with open(reader.folder / "nats.log", "w") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        wait_until(lambda: accepts(port), "NATS listens")
        reader.stand_ins |= {"nats.example.com:4222": f"127.0.0.1:{port}", "192.0.2.7": f"127.0.0.1:{reader.port}"}
        reader.copies["dunlin load --join"] = 3
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def node(reader):
    """A port for the application."""
    need("node")
    port = objects.free_port()
    reader.stand_ins["3000"] = str(port)
    reader.has_started_program = lambda: wait_until(lambda: accepts(port), "the application listens")
    yield


@contextlib.contextmanager
def php(reader):
    need("php-cgi")
    yield


def need_compilers():
    need("rustup", "rustc", "cargo")
    if not has_target():
        pytest.skip("rustup target add wasm32-wasip2")


@contextlib.contextmanager
def operation(reader):
    """The sources, and a directory that keeps what they depend on."""
    need_compilers()
    reader.stand_ins |= {"scripting/component": str(EXAMPLES), "/tmp/echo": str(OPERATION)}
    yield


@contextlib.contextmanager
def shop(reader):
    """The versions of dependencies that other tests have fetched, and the directory that keeps them compiled."""
    need_compilers()
    versions = (EXAMPLES / "Cargo.lock").read_text().replace('name = "echo"', 'name = "shop"')
    write(reader.folder / "shop" / "Cargo.lock", versions)
    OPERATION.mkdir(parents=True, exist_ok=True)
    (reader.folder / "shop" / "target").symlink_to(OPERATION)
    yield


@contextlib.contextmanager
def two_certificates(reader):
    pairs = [certificate(reader.folder, name, hosts=(f"{name}.example.com",)) for name in ("a", "b")]
    (reader.folder / "trusted.pem").write_text("".join(file.read_text() for file, _ in pairs))
    with open(reader.folder / ".curlrc", "a") as settings:
        settings.write(f'cacert = "{reader.folder}/trusted.pem"\n')
    yield


@contextlib.contextmanager
def two_versions(reader):
    """A certificate, and two versions of a script."""
    script = lambda number: "".join(f"let line{line} = {line * 7 % 13};\n" for line in range(100)) + f"let version = {number};\n"
    for number, name in enumerate(("3f2a", "77c1")):
        write(reader.folder / "srv" / "www" / "assets" / f"app.{name}.js", script(number))
    with two_certificates(reader):
        yield


@contextlib.contextmanager
def releases(reader):
    """Two releases of an application."""
    folder = reader.folder / "srv" / "releases"
    for number, name in enumerate(("2026-11-20", "2026-11-23"), 1):
        (folder / name / "public").mkdir(parents=True)
        code = f'def application(environ, start_response):\n    start_response("200 OK", [])\n    return [b"version {number}\\n"]\n'
        write(folder / name / "app.py", code)
    (reader.folder / "srv" / "current").symlink_to("releases/2026-11-20")
    yield


@contextlib.contextmanager
def group(reader):
    """A group that the user of the tests is in."""
    reader.stand_ins["www-data"] = grp.getgrgid(os.getgid()).gr_name
    yield


COMPANIONS = {
    "access.md": group,
    "components.md": shop,
    "compression.md": two_versions,
    "deploying.md": releases,
    "fastcgi.md": php,
    "forms.md": operation,
    "load.md": nats,
    "object-storage.md": bucket,
    "proxy.md": node,
    "shared-state.md": fleet,
    "tls.md": two_certificates,
}
