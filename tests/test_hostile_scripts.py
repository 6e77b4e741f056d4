"""Applications and script servers that misbehave: what they send takes a bounded amount of memory."""

import socket
import threading

import pytest
from support.files import write
from support.hostile import pour
from support.processes import rss
from support.stub import StubServer
from support.waiting import wait_until

MB = 1 << 20


def record(kind, content):
    """A FastCGI record of the only request of a connection."""
    return bytes([1, kind, 0, 1]) + len(content).to_bytes(2, "big") + b"\0\0" + content


class FastCgi(StubServer):
    """A FastCGI server that answers every request with the same bytes again and again."""

    def __init__(self, begin, piece):
        self.begin, self.piece, self.sent = begin, piece, 0
        super().__init__(socket.create_server(("127.0.0.1", 0)))
        self.port = self.listener.getsockname()[1]

    def serve(self, connection):
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(self.begin)
                self.sent = max(self.sent, pour(connection, self.piece, 256 * MB))
            except OSError:
                pass


@pytest.mark.parametrize(
    "begin, piece",
    [
        (b"", record(7, b"x")),
        (b"", record(7, b"x" * 60000)),
        (b"", record(6, b"X")),
        (b"", record(6, b"X-Field: a\r\n")),
        (b"", record(6, b"Status: 103\r\nLink: </a>\r\n\r\n")),
        (b"", record(6, b"")),
        (record(6, b"Content-Type: a/b\r\n\r\n"), record(6, b"x")),
        (record(6, b"Content-Type: a/b\r\n\r\n"), record(6, b"x" * 60000)),
    ],
    ids=["errors byte by byte", "errors", "head byte by byte", "fields", "hints", "empty", "body byte by byte", "body"],
)
def test_output_of_a_fastcgi_server_without_an_end_is_bounded(serve, tmp_path, begin, piece):
    peer = FastCgi(begin, piece)
    write(tmp_path / "www" / "a.txt", b"a")
    server = serve(
        text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{tmp_path / "www"}"\n'
        f'[[site.route]]\npath = "/app/*"\nscript = {{ kind = "fastcgi", connect = "127.0.0.1:{peer.port}", root = "{tmp_path}" }}\n'
    )
    server.get("/a.txt")
    before = rss(server)
    with server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /app/ HTTP/1.1\r\nHost: x\r\n\r\n")
        # The client reads nothing, until the server has ended the request or takes no more.
        seen = -1

        def is_quiet():
            nonlocal seen
            before, seen = seen, peer.sent
            threading.Event().wait(0.5)
            return before == seen

        wait_until(is_quiet, "nothing more is taken", 30)
        assert rss(server) - before < 12 * MB
    assert server.get("/a.txt")[2] == b"a"
    peer.listener.close()


def test_a_response_that_an_application_writes_byte_by_byte_takes_no_more_memory(serve, tmp_path):
    write(
        tmp_path / "app.py",
        b"def application(environ, start_response):\n"
        b"    start_response('200 OK', [('Content-Type', 'text/plain')])\n"
        b"    return (b'x' for _ in range(3000000))\n",
    )
    server = serve(
        text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{tmp_path}"\n'
        f'[[site.route]]\npath = "/*"\nscript = {{ kind = "wsgi", application = "app:application", directory = "{tmp_path}" }}\n'
    )
    clients = []
    for _ in range(6):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        clients.append(client)
    for client in clients:
        assert client.recv(1) == b"H"
    before = rss(server)
    sizes = [before]

    def is_quiet():
        sizes.append(rss(server))
        threading.Event().wait(1)
        return abs(sizes[-1] - sizes[-2]) < 65536 and len(sizes) > 4

    wait_until(is_quiet, "the application waits for the clients", 60)
    for client in clients:
        client.close()
    assert sizes[-1] - before < 8 * MB
