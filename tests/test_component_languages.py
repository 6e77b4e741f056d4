"""Components of compilers of other languages, and the same components in another server."""

import os
import re
import shutil
import subprocess
import threading

import pytest

from support import component_languages as languages
from support.component_server import component_server
from support.components import built, has_target
from support.http import parse, post
from support.server import Server

pytestmark = [
    pytest.mark.skipif(not has_target(), reason="rustup target add wasm32-wasip2"),
    pytest.mark.usefixtures("orderly_stop"),
]

needs_c = pytest.mark.skipif(not languages.has_c(), reason=languages.HOW_C)
needs_python = pytest.mark.skipif(not languages.componentize_py(), reason=languages.HOW_PYTHON)
needs_javascript = pytest.mark.skipif(not languages.has_javascript(), reason=languages.HOW_JAVASCRIPT)
WASMTIME = os.environ.get("WASMTIME") or shutil.which("wasmtime")
needs_wasmtime = pytest.mark.skipif(
    not WASMTIME, reason="no wasmtime in PATH or in WASMTIME: cargo install wasmtime-cli (15 minutes)"
)


@needs_c
def test_a_cgi_program_in_c_gives_the_same_response_as_process_and_as_component(serve, tmp_path):
    source = languages.LANGUAGES / "cgi.c"
    (tmp_path / "cgi-bin").mkdir()
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", tmp_path / "cgi-bin" / "program", source], check=True)
    component = languages.c_component(source, tmp_path / "program.wasm")
    server = component_server(
        serve, component, path="/component/*", settings='time = "60s", cpu = "60s"',
        more=f'[[site.route]]\npath = "/process/*"\nscript = {{ kind = "cgi", directory = "{tmp_path}/cgi-bin" }}\n',
    )  # fmt: skip
    for query, body in [("", b""), ("a=b%20c", b"body"), ("status", bytes(range(256)) * 1000)]:
        responses = []
        for path in ("/process/program/x", "/component/x"):
            status, fields, content = post(server, f"{path}?{query}", body, "Content-Type: text/x", "X-From: here")
            responses.append((status, fields["content-type"], fields["x-made"], content))
        assert responses[0] == responses[1] and responses[0][0] == (418 if query == "status" else 200)
        assert f"{len(body)} read".encode() in responses[0][3]


@needs_python
def test_a_handler_in_python_responds(serve):
    server = component_server(serve, languages.python_component(), settings='memory = "128MB", reuse = 2')
    for _ in range(3):
        status, fields, body = server.get("/app/x?y=z")
        assert (status, fields["content-type"], body) == (200, "text/plain", b"hello from Python: /app/x?y=z\n"), server.log


@needs_javascript
def test_a_handler_in_javascript_responds(serve):
    server = component_server(serve, languages.javascript_component(), settings='memory = "128MB"')
    for _ in range(3):
        status, fields, body = server.get("/app/x?y=z")
        assert (status, fields["content-type"], body) == (200, "text/plain", b"hello from JavaScript: /app/x\n"), server.log


class WasmtimeServe:
    """The component server that Wasmtime has."""

    def __init__(self, component):
        command = [WASMTIME, "serve", "-Scli", "--addr", "127.0.0.1:0", component]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        for line in self.process.stderr:
            if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise AssertionError("no address printed")
        self.address = ("127.0.0.1", int(found[1]))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    connect, exchange, get = Server.connect, Server.exchange, Server.get


@pytest.fixture
def other():
    """Starts Wasmtime's server with a component."""
    running = []

    def start(component):
        running.append(WasmtimeServe(component))
        return running[-1]

    yield start
    for server in running:
        server.process.kill()
        server.process.wait()


REQUESTS = [
    ("GET", "/app/hello", b""),
    ("HEAD", "/app/hello", b""),
    ("POST", "/app/echo", b"a body " * 10_000),
    ("POST", "/app/echo", b""),
    ("GET", "/app/large?3000000", b""),
]
# What only the handler of WASI 0.2 has.
FURTHER = {"web": [("GET", "/app/status?404", b""), ("GET", "/app/unknown", b"")], "service": []}
# Fields that servers choose themselves.
OWN = {"date", "server", "transfer-encoding", "content-length", "connection", "x-request-id", "keep-alive"}


def response(server, method, path, body):
    length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n{length}\r\n"
    status, fields, content = parse(server.exchange(head.encode() + body, 60), method)
    return status, {name: value for name, value in fields.items() if name not in OWN}, content


@needs_wasmtime
@pytest.mark.parametrize("kind", ["web", "service"])
def test_a_component_gives_the_same_responses_as_in_the_server_of_wasmtime(serve, other, kind):
    component = built(kind)
    server, oracle = component_server(serve, component), other(component)
    for method, path, body in REQUESTS + FURTHER[kind]:
        assert response(server, method, path, body) == response(oracle, method, path, body), (method, path)
