"""The reverse proxy before servers as they are: of Node.js, PHP, Python (http.server, gunicorn, uvicorn) and Go, and gRPC."""

import os
import queue
import shutil
import socket
import subprocess
import sys
from concurrent import futures

import pytest

from support.http import read_any, upload
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

NODE = """
require("http").createServer((request, response) => {
  if (request.url === "/empty") { response.writeHead(204); return response.end(); }
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    response.setHeader("X-Target", request.url);
    if (request.url === "/chunks") parts.forEach((part) => response.write(part));
    else response.write(Buffer.concat(parts));
    response.end();
  });
}).listen(+process.argv[2], "127.0.0.1");
"""

PHP = """<?php
if ($_SERVER['REQUEST_URI'] === '/empty') { http_response_code(204); exit; }
header('X-Target: ' . $_SERVER['REQUEST_URI']);
header('Content-Type: application/octet-stream');
echo file_get_contents('php://input');
"""

PYTHON = """
import sys
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/empty":
            self.send_response(204)
            return self.end_headers()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("X-Target", self.path)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_HEAD = do_GET

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

GO = """package main

import ("io"; "net/http"; "os")

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/empty" { w.WriteHeader(204); return }
		w.Header().Set("X-Target", r.RequestURI)
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	})
	http.ListenAndServe("127.0.0.1:" + os.Args[1], nil)
}
"""


WSGI = """
def application(environ, start_response):
    target = environ["RAW_URI"]
    if target == "/empty":
        start_response("204 No Content", [])
        return []
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("X-Target", target), ("Content-Length", str(len(body)))])
    return [body]
"""

ASGI = """
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    query = scope["query_string"].decode()
    target = scope["raw_path"].decode() + (f"?{query}" if query else "")
    if target == "/empty":
        await send({"type": "http.response.start", "status": 204, "headers": []})
        return await send({"type": "http.response.body"})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-target", target.encode())]})
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})
"""


def command(kind, folder, port):
    if kind == "gunicorn":
        (folder / "app.py").write_text(WSGI)
        return [sys.executable, "-m", "gunicorn", "--chdir", folder, "--bind", f"127.0.0.1:{port}", "--threads", "2", "app:application"]
    if kind == "uvicorn":
        (folder / "app.py").write_text(ASGI)
        return [sys.executable, "-m", "uvicorn", "--app-dir", folder, "--port", port, "app:application"]
    if kind == "node":
        (folder / "server.js").write_text(NODE)
        return ["node", folder / "server.js", port]
    if kind == "php":
        (folder / "router.php").write_text(PHP)
        return ["php", "-S", f"127.0.0.1:{port}", folder / "router.php"]
    if kind == "python":
        (folder / "server.py").write_text(PYTHON)
        return [sys.executable, folder / "server.py", port]
    (folder / "main.go").write_text(GO)
    program = folder / "server"
    done = subprocess.run(["go", "build", "-o", program, folder / "main.go"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [program, port]


@pytest.fixture(params=["node", "php", "python", "gunicorn", "uvicorn", "go"])
def server(request, tmp_path, serve):
    """A server before one of these."""
    program = {"python": sys.executable}.get(request.param, request.param)
    if request.param in ("gunicorn", "uvicorn"):
        pytest.importorskip(request.param)
    elif not shutil.which(program):
        pytest.skip(f"{program} is missing")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = subprocess.Popen(
        [str(part) for part in command(request.param, tmp_path, port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = serve(route=f'proxy = "http://127.0.0.1:{port}"\nbody_size = "100MB"')
    wait_until(lambda: server.get("/")[0] == 200, "the upstream")
    yield server
    process.terminate()
    process.wait()


def test_requests_of_one_connection_get_their_responses(server):
    with server.connect() as connection:
        for number, size in enumerate([0, 10, 5_000, 200_000, 3_000_000, 1]):
            body = os.urandom(size)
            connection.sendall(upload(f"/{number}?q={size}", size) + body)
            status, fields, got, rest = read_any(connection)
            assert (status, fields["x-target"], rest) == (200, f"/{number}?q={size}", b"")
            assert got == body
        connection.sendall(b"GET /empty HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_any(connection)[0] == 204
        connection.sendall(b"HEAD /head HTTP/1.1\r\nHost: x\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        assert head.startswith(b"HTTP/1.1 200 ") and head.endswith(b"\r\n\r\n")


@pytest.fixture
def rpc(serve):
    """A channel of gRPC to a server before grpcio's."""
    grpc = pytest.importorskip("grpc")

    def echo(requests, context):
        for request in requests:
            yield request.upper()
        context.set_trailing_metadata([("x-end", "1")])

    def fail(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

    handlers = {
        "Upper": grpc.unary_unary_rpc_method_handler(lambda request, _: request.upper()),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
    }
    upstream = grpc.server(futures.ThreadPoolExecutor(4))
    upstream.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Service", handlers)])
    port = upstream.add_insecure_port("127.0.0.1:0")
    upstream.start()
    server = serve(route=f'proxy = {{ to = "h2c://127.0.0.1:{port}", idle_timeout = 0 }}\nbody_size = "1GiB"')
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        yield grpc, channel
    upstream.stop(0).wait()


def test_calls_of_grpc_with_one_message(rpc):
    grpc, channel = rpc
    upper = channel.unary_unary("/test.Service/Upper")
    assert upper(b"abc", timeout=15) == b"ABC"
    assert upper(b"x" * 3_000_000, timeout=30) == b"X" * 3_000_000
    with pytest.raises(grpc.RpcError) as failure:
        channel.unary_unary("/test.Service/Fail")(b"", timeout=15)
    assert (failure.value.code(), failure.value.details()) == (grpc.StatusCode.NOT_FOUND, "no such thing")
    with pytest.raises(grpc.RpcError) as failure:
        channel.unary_unary("/test.Service/None")(b"", timeout=15)
    assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_calls_of_grpc_with_messages_in_both_directions(rpc):
    _, channel = rpc
    messages = queue.Queue()
    call = channel.stream_stream("/test.Service/Echo")(iter(messages.get, None), timeout=30)
    for number in range(20):
        text = b"message %d" % number
        messages.put(text)
        # The response arrives before the next message is sent.
        assert next(call) == text.upper()
    messages.put(None)
    assert list(call) == []
    assert ("x-end", "1") in [tuple(pair) for pair in call.trailing_metadata()]
