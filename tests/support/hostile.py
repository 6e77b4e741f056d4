"""Peers that say what a test wants, byte by byte."""

import contextlib
import socket
import threading


class Hostile:
    """A TCP server. `respond(connection, head)` handles each request; `head` has the bytes up to an empty line."""

    def __init__(self, respond):
        self.respond = respond
        self.heads = []
        self.ends = False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def _accept(self):
        while not self.ends:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        buffer = b""
        with connection, contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in buffer:
                    received = connection.recv(65536)
                    if not received:
                        return
                    buffer += received
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                self.heads.append(head.decode("latin-1"))
                self.respond(connection, self.heads[-1])

    def close(self):
        self.ends = True
        # The accept of the thread ends.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@contextlib.contextmanager
def hostile(respond):
    server = Hostile(respond)
    try:
        yield server
    finally:
        server.close()


def send(connection, status, body=b"", *fields):
    """Sends an HTTP response."""
    lines = "".join(f"{field}\r\n" for field in (f"Content-Length: {len(body)}", *fields))
    connection.sendall(f"HTTP/1.1 {status} x\r\n{lines}\r\n".encode("latin-1") + body)


def pour(connection, piece, limit=1 << 30):
    """Sends a piece again and again until the peer closes the connection. Returns what was sent."""
    piece *= max(1, 65536 // len(piece))
    sent = 0
    with contextlib.suppress(OSError):
        while sent < limit:
            connection.sendall(piece)
            sent += len(piece)
    return sent
