"""Scripts that several tests use."""

import hashlib
import json
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


def application_and_cgi_outputs(start, folder, encoding="utf-8"):
    """Sends equal requests to an application, which `start` starts, and to a CGI program, which print what they get."""
    directory = folder / "cgi-bin"
    script(directory, "print", PRINT)
    server = start(
        'processes = 1, env = { APP = "blue" }',
        more=f'[[site.route]]\npath = "/cgi/*"\n'
        f'script = {{ kind = "cgi", directory = "{directory}", env = {{ APP = "blue" }} }}',
    )
    fields = ("Content-Type: text/x", "X-Two: 1", "X-Two: 2", "Cookie: a=b", "Proxy: http://evil/")
    outputs = []
    for prefix, charset in (("/app", encoding), ("/cgi/print", "utf-8")):
        status, _, body = post(server, f"{prefix}/env/%C3%A4%20b?x=%41&y", b"a=1&b=2", *fields)
        assert status == 200, server.log
        outputs.append(json.loads(body.decode(charset)))
        assert outputs[-1]["body"] == "a=1&b=2"
    return outputs


def assert_same_variables(application, cgi):
    """Compares the variables of the two, except those of the program and of one request."""
    for name in ("PATH", "LC_CTYPE", "SCRIPT_FILENAME"):
        cgi.pop(name, None)
    for name in ("SCRIPT_NAME", "REQUEST_URI", "DOCUMENT_URI", "REMOTE_PORT", *IDENTITY):
        assert application.pop(name) != cgi.pop(name)
    # Applications get bytes as ISO 8859-1 (PEP 3333).
    for name in ("PATH_INFO", "PATH_TRANSLATED"):
        cgi[name] = cgi[name].encode().decode("latin-1")
    assert application == cgi


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
