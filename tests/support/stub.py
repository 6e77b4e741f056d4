"""Servers of the tests' own, which stand in for others."""

import threading


class StubServer:
    """Accepts connections on a listening socket, and runs `serve` on a thread for each one."""

    def __init__(self, listener):
        self.listener = listener
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        """Reads requests from the connection and writes responses."""
        raise NotImplementedError
