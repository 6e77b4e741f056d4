"""A store of shared state: `redis-server`, alone, behind a sentinel, or as a cluster."""

import shutil
import signal
import subprocess
import tempfile

import pytest

from support.acme import free_port
from support.server import DUNLIN
from support.waiting import wait_until

PROGRAM = shutil.which("valkey-server") or shutil.which("redis-server")
CLIENT = shutil.which("valkey-cli") or shutil.which("redis-cli")


def lacks_feature():
    """Whether the binary is built without the feature `fleet`."""
    text = '[shared]\nurl = "redis://127.0.0.1:1"\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "/"\n'
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([DUNLIN, "check", "--config", file.name], capture_output=True, text=True)
        return "this build lacks the feature" in done.stdout + done.stderr


class Store:
    """A process of the store."""

    def __init__(self, folder, *options, port=None, tls=False, mode=()):
        if PROGRAM is None or CLIENT is None:
            pytest.skip("redis-server is not installed")
        self.folder, self.options, self.tls, self.mode = folder, options, tls, mode
        self.port = port or free_port()
        folder.mkdir(exist_ok=True)
        self.process = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def start(self):
        ports = ("--port", "0", "--tls-port", str(self.port)) if self.tls else ("--port", str(self.port))
        file = self.folder / "store.conf"
        file.touch()
        self.process = subprocess.Popen(
            [PROGRAM, file, *ports, "--bind", "127.0.0.1", "--dir", self.folder, "--save", "", *self.options, *self.mode],
            stdout=(self.folder / "store.log").open("ab"),
            stderr=subprocess.STDOUT,
        )
        if not self.tls:
            wait_until(lambda: self.command("ping") in ("PONG", "NOAUTH Authentication required."), "the store responds")

    def command(self, *words):
        done = subprocess.run([CLIENT, "-p", str(self.port), *words], capture_output=True, text=True, timeout=15)
        return done.stdout.strip()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def store(tmp_path):
    """A store that tests can stop and start again."""
    made = Store(tmp_path / "store")
    yield made
    made.stop()
