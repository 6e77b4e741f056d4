"""The service manager's side of sd_notify(3) and socket activation."""

import fcntl
import os
import socket
import subprocess

from support.server import DUNLIN

# The first descriptor that a service manager passes.
FIRST = 3


class Manager:
    """A service manager: a datagram socket that receives notifications, and listening sockets that it passes."""

    def __init__(self, path):
        self.address = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + self.address[1:] if self.address.startswith("@") else self.address)
        self.socket.settimeout(15)
        self.messages = []

    def next(self):
        """The next message, as its assignments."""
        message = dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())
        self.messages.append(message)
        return message

    def next_but_alive(self):
        while True:
            message = self.next()
            if message != {"WATCHDOG": "1"}:
                return message

    def start(self, file, *sockets, names=None, environment=None, pid=None):
        """A server that inherits `sockets` from descriptor 3 on."""
        environment = {**os.environ, "NOTIFY_SOCKET": self.address, **(environment or {})}
        # Free numbers beyond those that the server is to find them at.
        high = [fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, FIRST + 100) for s in sockets]
        number = f"LISTEN_PID={pid or '$$'} LISTEN_FDS={len(sockets)} " if sockets else ""
        names = f"LISTEN_FDNAMES={':'.join(names)} " if names else ""
        redirect = " ".join(f"{FIRST + n}<&{fd} {fd}<&-" for n, fd in enumerate(high))
        command = f'exec env {number}{names}"$0" serve --config "$1" {redirect}'
        process = subprocess.Popen(
            ["bash", "-c", command, DUNLIN, str(file)],
            env=environment, pass_fds=high, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for fd in high:
            os.close(fd)
        return process
