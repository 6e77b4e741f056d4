"""An SSH server on the loopback interface, with keys of the test."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from support.files import write
from support.server import DUNLIN
from support.waiting import wait_until

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
HOSTS = {"one": "127.0.0.2", "two": "127.0.0.3", "three": "127.0.0.4"}


class SshServer:
    """Hosts `one`, `two` and `three`, on which `dunlin` is `program`, or is missing. `hosts` has other names and addresses, and `machines`
    the machines of those that are not this one."""

    def __init__(self, folder, program=DUNLIN, hosts=HOSTS, machines=()):
        self.folder, self.hosts, self.machines = folder, hosts, dict(machines)
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        if program:
            (bin_folder / "dunlin").symlink_to(program)
        with socket.socket() as probe:
            probe.bind((HOSTS["one"], 0))
            self.port = probe.getsockname()[1]
        self.processes = self.start(bin_folder)
        known = "".join(f"[{address}]:{self.port} {(folder / 'host.pub').read_text()}" for address in hosts.values())
        write(folder / "known", known)
        hosts = "".join(f"Host {name}\n  HostName {address}\n" for name, address in hosts.items())
        # The first value of a keyword holds.
        config = write(
            folder / "config",
            f"{hosts}Host *\n  Port {self.port}\n  User {getpass.getuser()}\n  IdentityFile {folder}/key\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n  LogLevel ERROR\n",
        )
        self.command = f"ssh -F {config}"
        wait_until(self.is_ready, "sshd is ready")

    def start(self, bin_folder):
        folder = self.folder
        write(folder / "authorized", (folder / "key.pub").read_text())
        config = write(
            folder / "sshd",
            f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nPidFile none\nStrictModes no\n"
            f"UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"SetEnv PATH={bin_folder}:/usr/bin:/bin\n",
        )
        self.log = open(folder / "sshd.log", "wb")
        by_machine = {}
        for name, address in self.hosts.items():
            by_machine.setdefault(self.machines.get(name), []).append(f"-oListenAddress={address}:{self.port}")
        commands = [(machine, [SSHD, "-D", "-e", "-f", config, *listen]) for machine, listen in by_machine.items()]
        commands = [machine.command(*command) if machine else command for machine, command in commands]
        return [subprocess.Popen(command, stderr=self.log, stdout=self.log) for command in commands]

    def is_ready(self):
        log = (self.folder / "sshd.log").read_text()
        assert all(process.poll() is None for process in self.processes), log
        return all(f"listening on {address} port {self.port}" in log for address in self.hosts.values())

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(15)
        self.log.close()


def require():
    """Skips the test where there is no SSH server that the test can start."""
    if not SSHD or not shutil.which("ssh"):
        pytest.skip("openssh-server is not installed")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    shell = pwd.getpwuid(os.getuid()).pw_shell
    if not os.access(shell, os.X_OK) or shell.endswith(("nologin", "false")):
        pytest.skip(f"the user has no login shell: {shell}")
