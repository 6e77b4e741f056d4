"""Starts real servers for the tests and stops them again."""

import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DUNLIN = os.environ.get("DUNLIN", str(ROOT / "target" / "checked" / "dunlin"))


def wait_until(condition, what, seconds=15.0):
    """Waits for a condition, and fails when it does not come to hold."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.005)


class Server:
    """A running server; `log` holds its error log so far."""

    def __init__(self, arguments, cwd, preexec=None):
        self.process = subprocess.Popen(
            [DUNLIN, "serve", *arguments],
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
        """The error log, once it holds `text`: it comes on a way of its own."""
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

    def get(self, path, *fields, method="GET"):
        """One request on a connection of its own: status, fields (lower case), body."""
        head = "".join(f"{field}\r\n" for field in fields)
        data = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n"
        return parse(self.exchange(data.encode("latin-1")), method)

    def stop(self, how=signal.SIGTERM, seconds=20):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(seconds)
        self._reader.join()
        self.process.stdout.close()
        return code


def read_all(connection):
    parts = []
    while True:
        part = connection.recv(1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


def parse(data, method="GET"):
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ")[1])
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        name = name.lower()
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    if method != "HEAD" and status not in (204, 304) and "content-length" in fields:
        assert len(body) == int(fields["content-length"]), "the body is not as long as stated"
    return status, fields, body


def read_response(connection, buffer=b""):
    """Reads one response with Content-Length: status, fields, body, and what came behind it."""
    while b"\r\n\r\n" not in buffer:
        part = connection.recv(1 << 16)
        assert part, f"closed within a head: {buffer!r}"
        buffer += part
    head, _, rest = buffer.partition(b"\r\n\r\n")
    found = re.search(rb"(?i)content-length: (\d+)", head)
    length = int(found[1]) if found else 0
    while len(rest) < length:
        part = connection.recv(1 << 16)
        assert part, "closed within a body"
        rest += part
    status, fields, _ = parse(head + b"\r\n\r\n", "HEAD")
    return status, fields, rest[:length], rest[length:]


@pytest.fixture
def site(tmp_path):
    """An empty directory to be served."""
    directory = tmp_path / "site"
    directory.mkdir()
    return directory


@pytest.fixture
def serve(tmp_path, site):
    """Starts a server: `serve(route="...", server="...")` with TOML for those tables."""
    running = []

    def start(route="", server="", more="", text=None, arguments=(), preexec=None):
        if text is None:
            routes = f'[[site.route]]\npath = "/*"\n{route}\n' if route else ""
            text = (
                f'[server]\nthreads = 1\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\n'
                f'[[site]]\nroot = "{site}"\n{routes}{more}\n'
            )
        file = tmp_path / f"dunlin-{len(running)}.toml"
        file.write_text(text)
        server = Server(["--config", str(file), *arguments], tmp_path, preexec)
        running.append(server)
        if settled and settled[-1].exists():
            until_strong(settled[-1])
        settled.clear()
        return server

    yield start
    for server in running:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        server.process.stdout.close()
        assert "panicked" not in server.log, server.log


settled = []


def settle(path):
    """Makes the time of modification an old one. `serve` waits until the tags of such files are strong."""
    past = time.time() - 60
    os.utime(path, (past, past))
    settled.append(path)


def until_strong(path):
    """Waits until the file's last change is old enough for its tag to be strong."""
    wait_until(lambda: time.time() > path.stat().st_ctime + 0.05, f"{path} to be old enough")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    settle(path)
    return path
