"""Scripts that several tests use."""

from support.http import dechunk, read_all

HELLO = "printf 'Content-Type: text/plain\\n\\nhello'\n"


PRINT = """#!/usr/bin/python3
import json, os, sys
print("Content-Type: application/json\\n")
print(json.dumps({"env": dict(os.environ), "args": sys.argv[1:], "cwd": os.getcwd(),
    "group": os.getpgrp() == os.getpid(), "fds": sorted(os.listdir("/proc/self/fd")),
    "body": sys.stdin.read()}))
"""


# By what a request is known, which is another for each.
IDENTITY = ("HTTP_X_REQUEST_ID", "HTTP_TRACEPARENT", "TRACEPARENT")


def script(directory, name, text):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def assert_events_arrive_as_they_are_sent(server, path, folder):
    """Of a script that sends event 0, 1 and 2, each once `gate0` and so on stands in the folder."""
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
