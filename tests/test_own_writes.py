"""Reading one's own writes: a file that was changed before a request was sent is never answered with its old content."""

import os
import subprocess
import sys

import pytest

from support.http import read_response

ROUNDS = int(os.environ.get("DUNLIN_OWN_WRITES", "2000"))


def by_truncation(path, content):
    path.write_bytes(content)


def by_rename(path, content):
    new = path.with_name(".new")
    new.write_bytes(content)
    os.replace(new, path)


def by_unlink(path, content):
    path.unlink()
    path.write_bytes(content)


def by_pwrite(path, content):
    file = os.open(path, os.O_WRONLY)
    os.pwrite(file, content, 0)
    os.close(file)


WAYS = [by_truncation, by_rename, by_unlink, by_pwrite]


@pytest.mark.serial
@pytest.mark.parametrize("pipelined", [False, True], ids=["one by one", "pipelined"])
def test_own_writes_are_read_on_a_busy_machine(serve, site, pipelined):
    file = site / "a.txt"
    file.write_bytes(b"%08d" % 0)
    text = f'[server]\nthreads = 3\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\n'
    server = serve(text=text)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 2))]
    connections = [server.connect() for _ in range(8)]
    get = b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n"
    buffers = [b""] * len(connections)
    try:
        for n in range(1, ROUNDS + 1):
            at = n * 5 % len(connections)
            connection, content = connections[at], b"%08d" % n
            if pipelined:
                connection.sendall(get)
            WAYS[n % 4](file, content)
            connection.sendall(get)
            if pipelined:
                _, _, _, buffers[at] = read_response(connection, buffers[at])
            status, _, body, buffers[at] = read_response(connection, buffers[at])
            assert (status, body) == (200, content), f"round {n}"
    finally:
        for process in busy:
            process.kill()
            process.wait()
        for connection in connections:
            connection.close()
