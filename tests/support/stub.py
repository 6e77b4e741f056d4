"""Servers of the tests' own, which stand in for others."""

import contextlib
import socket
import threading


class StubServer:
    """Accepts connections on a listening socket, and runs `serve` on a thread for each one. A connection is closed when its thread ends."""

    # Those of the present test.
    started = []

    def __init__(self, listener):
        self.listener = listener
        self.started.append(self)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(ConnectionError):
            self.serve(connection)

    @classmethod
    def end_all(cls):
        """Accepts no more connections."""
        while cls.started:
            with contextlib.suppress(OSError), cls.started.pop().listener as listener:
                # A thread that waits in accept() keeps the socket alive otherwise.
                listener.shutdown(socket.SHUT_RDWR)

    def serve(self, connection):
        """Reads requests from the connection and writes responses."""
        raise NotImplementedError
