"""The reverse proxy before servers as they are: of Node.js, PHP, Python and Go."""

import os
import shutil
import socket
import subprocess
import sys

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


def command(kind, folder, port):
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


@pytest.fixture(params=["node", "php", "python", "go"])
def server(request, tmp_path, serve):
    """A server before one of these."""
    program = {"python": sys.executable}.get(request.param, request.param)
    if not shutil.which(program):
        pytest.skip(f"{program} is missing")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = subprocess.Popen(
        [str(part) for part in command(request.param, tmp_path, port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = serve(route=f'proxy = "http://127.0.0.1:{port}"\nbody_size = "100MB"')
    wait_until(lambda: server.get("/")[0] == 200, "the upstream")
    yield server
    process.kill()
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
