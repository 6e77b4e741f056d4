"""A server process."""

import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

from support.http import parse, read_all
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
DUNLIN = os.environ.get("DUNLIN", str(ROOT / "target" / "checked" / "dunlin"))


class Server:
    """A running server; `log` holds its error log so far."""

    def __init__(self, arguments, cwd, preexec=None, program=DUNLIN):
        self.process = subprocess.Popen(
            [program, "serve", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=preexec,
        )
        self._log = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        line = self.process.stdout.readline().decode()
        found = re.match(r"(https?)://(.+):(\d+)/", line)
        if not found:
            self.process.wait()
            self._reader.join()
            raise AssertionError(f"no address printed: {line!r}\n{self.log}")
        self.host, self.port = found[2], int(found[3])
        self.address = (self.host, self.port)
        self.url = f"{found[1]}://{self.host}:{self.port}"

    def _read_log(self):
        for line in self.process.stderr:
            self._log.append(line.decode(errors="replace"))

    @property
    def log(self):
        return "".join(self._log)

    def logged(self, text):
        """Waits until the error log, which a thread reads, contains `text`. Returns the log."""
        wait_until(lambda: text in self.log, f"{text!r} in the log")
        return self.log

    @property
    def pid(self):
        return self.process.pid

    def connect(self, timeout=15):
        return socket.create_connection(self.address, timeout=timeout)

    def exchange(self, data, timeout=15):
        """Sends bytes, and returns everything until the server closes."""
        with self.connect(timeout) as connection:
            connection.sendall(data)
            return read_all(connection)

    def get(self, path, *fields, method="GET", host="x"):
        """One request on a connection of its own: status, fields (lower case), body."""
        head = "".join(f"{field}\r\n" for field in fields)
        data = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{head}\r\n"
        return parse(self.exchange(data.encode("latin-1")), method)

    def kill(self):
        """Ends the process at once, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        # A process that it has started may hold the other end of the log.
        self._reader.join(1)
        self.process.stdout.close()

    def stop(self, how=signal.SIGTERM, seconds=20):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(seconds)
        self._reader.join()
        self.process.stdout.close()
        return code
