"""Commands to a running server: the admin socket and the command line."""

import json
import socket
import subprocess

from support.http import parse, read_all
from support.server import DUNLIN


def run(*arguments, cwd=None):
    done = subprocess.run([DUNLIN, *arguments], capture_output=True, text=True, cwd=cwd, timeout=60)
    return done.returncode, done.stdout, done.stderr


def pid_of(admin):
    return json.loads(fetch(admin, "/config")[2])["pid"]


def fetch(path, target, method="GET"):
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    return parse(by_unix(path, head.encode()), method)


def by_unix(path, data):
    """Sends bytes to a Unix socket, and returns everything until the server closes."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(15)
        connection.connect(str(path))
        connection.sendall(data)
        return read_all(connection)
