"""Upgrades whose new process does not become ready: they end, are reported, and delay nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from support.admin import fetch, pid_of, run
from support.files import write
from support.processes import end, is_alive, workers
from support.server import DUNLIN
from support.systemd import Manager
from support.waiting import wait_until

SLEEPS = "#!/bin/sh\nexec sleep 300\n"
# Speaks for a new process: the socket is its standard input.
SPEAKS = f"#!{sys.executable}\nimport array, os, socket, sys, time\ns = socket.socket(fileno=0)\ndef take():\n    return s.recvmsg(4096, 4096)[0]\n"


class Upgradable:
    """A server whose program can be replaced."""

    def __init__(self, serve, tmp_path, site, keys=""):
        self.program, self.admin = tmp_path / "program" / "dunlin", tmp_path / "admin.sock"
        self.program.parent.mkdir()
        shutil.copy(DUNLIN, self.program)
        write(site / "a", "x")
        self.server = serve(server=f'admin = "{self.admin}"\n{keys}', program=self.program)
        self.pid = self.server.pid

    def replace(self, content):
        """Replaces the program, like an installation."""
        new = self.program.with_suffix(".new")
        new.write_bytes(content if isinstance(content, bytes) else content.encode())
        new.chmod(0o755)
        new.rename(self.program)

    def upgrade(self):
        return run("upgrade", "--admin", str(self.admin))

    def children(self):
        return list(workers(self.server))

    def started(self, name):
        """The number of the new process, once it is the program of that name."""

        def found():
            for pid in self.children():
                try:
                    if open(f"/proc/{pid}/comm").read().strip() == name:
                        return pid
                except FileNotFoundError:
                    pass

        return wait_until(found, f"a new process {name}")

    def goes_on(self):
        assert pid_of(self.admin) == self.pid and self.server.get("/a")[0] == 200
        wait_until(lambda: not self.children(), "the end of the new process")


@pytest.fixture
def upgradable(serve, tmp_path, site):
    return lambda keys="": Upgradable(serve, tmp_path, site, keys)


def test_a_new_process_that_does_not_become_ready_is_ended_after_the_limit(upgradable):
    here = upgradable('upgrade_timeout = "1s"')
    here.replace(SLEEPS)
    os.kill(here.pid, signal.SIGUSR2)
    here.started("sleep")
    here.server.logged("upgrade_timeout")
    here.goes_on()
    # By a command, too, and any number of times.
    code, _, error = here.upgrade()
    assert code == 1 and "this process keeps serving: the new process did not serve within 1 s (upgrade_timeout)" in error
    here.goes_on()


def test_the_server_accepts_signals_and_commands_while_a_new_process_starts(upgradable, tmp_path):
    here = upgradable(f'upgrade_timeout = "300s"\naccess_log = "{tmp_path}/access.log"')
    here.replace(SLEEPS)
    os.kill(here.pid, signal.SIGUSR2)
    successor = here.started("sleep")
    os.kill(here.pid, signal.SIGHUP)
    here.server.logged("reloaded")
    code, out, _ = run("reload", "--admin", str(here.admin))
    assert code == 0 and out.startswith("reloaded")
    assert json.loads(fetch(here.admin, "/config")[2])["pid"] == here.pid
    assert fetch(here.admin, "/")[0] == 200 and here.server.get("/a")[0] == 200
    (tmp_path / "access.log").rename(tmp_path / "old.log")
    os.kill(here.pid, signal.SIGUSR1)
    wait_until((tmp_path / "access.log").exists, "the new log")
    os.kill(here.pid, signal.SIGUSR2)
    here.server.logged("another upgrade is under way")
    code, _, error = here.upgrade()
    assert code == 1 and "another upgrade is under way" in error
    assert is_alive(successor)
    assert here.server.stop() == 0
    wait_until(lambda: not is_alive(successor), "the end of both")


def test_the_watchdog_is_served_while_a_new_process_starts(upgradable, tmp_path, monkeypatch):
    manager = Manager(tmp_path / "notify.sock")
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    here = upgradable()
    monkeypatch.delenv("NOTIFY_SOCKET")
    here.replace(SLEEPS)
    os.kill(here.pid, signal.SIGUSR2)
    here.started("sleep")
    manager.messages.clear()
    while manager.messages.count({"WATCHDOG": "1"}) < 5:
        manager.next()
    assert here.server.stop() == 0
    manager.socket.close()


FAILURES = {
    "ends": ("#!/bin/sh\nexit 0\n", "the new process ended (exit status: 0)"),
    "prints a reason and ends": (
        "#!/bin/sh\necho first >&2; printf 'cannot \\033 start: no license\\n' >&2; exit 3\n",
        "the new process ended (exit status: 3); it wrote: first | cannot   start: no license",
    ),
    "is killed": ("#!/bin/sh\nkill -9 $$\n", "the new process ended (signal: 9 (SIGKILL))"),
    "is no program": ("", "Exec format error"),
    "is a part of a program": (None, None),
    "closes its socket": ("#!/bin/sh\nexec 0<&-\nexec sleep 300\n", "the new process closed its connection to this one and was killed"),
    "dies while it receives": (SPEAKS + "take()\nsys.exit('out of cheese')\n", "the new process ended (exit status: 1); it wrote: out of cheese"),
    "sends an unknown message": (SPEAKS + "s.send(b'?')\ntime.sleep(300)\n", "the new process sent an unknown message"),
    "reports why it does not serve": (SPEAKS + "s.send(b'Fno disk')\ntime.sleep(300)\n", "this process keeps serving: no disk"),
    "reports that it serves and dies": (SPEAKS + "s.send(b'R')\n", "ended (exit status: 0)"),
    "writes without end": ("#!/bin/sh\necho begin >&2\nexec yes no end >&2\n", "did not serve within 1 s (upgrade_timeout) and was killed; it wrote: "),
}


@pytest.mark.parametrize("how", FAILURES)
def test_a_failed_upgrade_is_reported_with_the_reason_of_the_new_process(upgradable, how):
    here = upgradable('upgrade_timeout = "1s"' if how == "writes without end" else "")
    content, reason = FAILURES[how]
    whole = here.program.read_bytes()
    here.replace(whole[:100_000] if content is None else content)
    code, _, error = here.upgrade()
    assert code == 1 and "not upgraded, this process keeps serving: " in error
    assert not re.search("[Bb]roken pipe|reset by peer", error), error
    if reason:
        assert reason in error
        here.server.logged(reason)
    here.goes_on()


def test_a_missing_program_is_named(upgradable):
    here = upgradable()
    here.program.unlink()
    code, _, error = here.upgrade()
    assert code == 1 and f"{here.program}: No such file" in error
    here.goes_on()


def test_of_concurrent_upgrades_one_runs_and_the_others_are_rejected(upgradable, tmp_path):
    here = upgradable()
    shutil.copy(here.program, tmp_path / "real")
    here.replace(f'#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.05; done\nexec {tmp_path}/real "$@"\n')
    results = []
    commands = [threading.Thread(target=lambda: results.append(here.upgrade())) for _ in range(4)]
    for command in commands:
        command.start()
    wait_until(lambda: len(results) == 3, "the rejections")
    assert all(code == 1 and "another upgrade is under way" in error for code, _, error in results)
    assert pid_of(here.admin) == here.pid and here.server.get("/a")[0] == 200
    (tmp_path / "go").touch()
    for command in commands:
        command.join()
    code, out, error = results[3]
    assert code == 0, error
    second = int(re.search(r"process (\d+)", out)[1])
    try:
        assert here.server.process.wait(20) == 0
        assert pid_of(here.admin) == second and here.server.get("/a")[0] == 200
        # It writes where the first process did.
        assert run("reload", "--admin", str(here.admin))[0] == 0
        here.server.logged("reloaded")
    finally:
        end(second)


def test_a_reload_while_the_new_process_starts_is_not_lost(upgradable, tmp_path):
    here = upgradable()
    shutil.copy(here.program, tmp_path / "real")
    file = tmp_path / "dunlin-0.toml"
    # The new process reads the configuration before the reload, and serves after it.
    here.replace(
        f"#!{sys.executable}\nimport os, sys, time\nold = {str(tmp_path)!r} + '/dunlin-old.toml'\n"
        f"at = sys.argv.index('--config') + 1\nnew = open(sys.argv[at]).read()\nopen({str(tmp_path)!r} + '/read', 'w')\n"
        f"while not os.path.exists({str(tmp_path)!r} + '/go'): time.sleep(0.02)\nos.execv({str(tmp_path)!r} + '/real', sys.argv)\n"
    )
    os.kill(here.pid, signal.SIGUSR2)
    wait_until((tmp_path / "read").exists, "the new process")
    file.write_text(file.read_text() + '[[site.route]]\npath = "/*"\nset_fields = { X-New = "1" }\n')
    assert run("reload", "--admin", str(here.admin))[0] == 0
    (tmp_path / "go").touch()
    second = wait_until(lambda: (pid := pid_of(here.admin)) != here.pid and pid, "the new process")
    try:
        # It receives the command to read the configuration again.
        wait_until(lambda: here.server.log.count("reloaded") == 2, "the reload of the new process")
        assert here.server.get("/a")[1]["x-new"] == "1"
        assert here.server.process.wait(20) == 0
    finally:
        end(second)


def test_a_process_whose_parent_has_ended_does_not_serve(tmp_path, site):
    """The server may end while its new process is started; that must not become a server of its own."""
    import socket

    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    done = subprocess.run(
        [DUNLIN, "serve", str(site), "--listen", "127.0.0.1:0"], stdin=other, capture_output=True, text=True, timeout=30,
        env={**os.environ, "DUNLIN_HANDOVER": "1"},
    )
    ours.close()
    other.close()
    assert done.returncode == 1 and "is not the parent of this process" in done.stderr
