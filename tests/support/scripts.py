"""Scripts that several tests use."""

import hashlib
import os

from support.http import dechunk, post, read_all

HELLO = "printf 'Content-Type: text/plain\\n\\nhello'\n"


PRINT = """#!/usr/bin/python3
import json, os, sys
print("Content-Type: application/json\\n")
print(json.dumps({"env": dict(os.environ), "args": sys.argv[1:], "cwd": os.getcwd(),
    "group": os.getpgrp() == os.getpid(), "fds": sorted(os.listdir("/proc/self/fd")),
    "body": sys.stdin.read()}))
"""


# Variables that identify a request, which differ between requests.
IDENTITY = ("HTTP_X_REQUEST_ID", "HTTP_TRACEPARENT", "TRACEPARENT")


def script(directory, name, text):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def assert_an_upload_arrives(server, path, megabytes, chunked):
    """Sends a body of random bytes to a script that responds with its SHA-256."""
    body = os.urandom(1 << 20) * megabytes
    digest = hashlib.sha256(body).hexdigest().encode()
    assert post(server, path, body, chunked=chunked)[2] == digest


def assert_events_arrive_as_they_are_sent(server, path, folder):
    """Requests a script that sends event 0, event 1 once the file `gate0` exists in the folder, and so on."""
    with server.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        seen = b""
        for number in range(3):
            while f"data: {number}\n\n".encode() not in seen:
                part = connection.recv(4096)
                assert part, seen
                seen += part
            (folder / f"gate{number}").touch()
        seen += read_all(connection)
    body = seen.partition(b"\r\n\r\n")[2]
    assert dechunk(body) == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]
