"""A clock that is before 1970, as on a machine without a battery for it, ends nothing."""

import json
import os
import socket
import ssl
import struct
import subprocess

import pytest

from support.admin import fetch, run
from support.files import write
from support.tls import certificate
from support.waiting import wait_until

# Shifts the wall clock by as many seconds as a file holds.
SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shift;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_SHIFT"), O_RDONLY);
    shift = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (clock == CLOCK_REALTIME && shift)
        time->tv_sec += *shift;
    return result;
}

int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
"""
DAY = 86400


class Clock:
    def __init__(self, folder):
        (folder / "clock.c").write_text(SHIM)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", folder / "clock.so", folder / "clock.c"], check=True, capture_output=True
        )
        self.file = folder / "shift"
        self.file.write_bytes(struct.pack("q", 0))
        self.variables = {"LD_PRELOAD": str(folder / "clock.so"), "CLOCK_SHIFT": str(self.file)}

    def shift(self, days):
        with open(self.file, "r+b") as file:
            file.write(struct.pack("q", days * DAY))


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


def configured(site, tmp_path, early_data):
    file, key = certificate(tmp_path, "own")
    write(site / "a.txt", "x" * 100)
    write(site / "bin/hello", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nhello'\n").chmod(0o755)
    return (
        f'[server]\nthreads = 1\nadmin = "{tmp_path}/admin.sock"\naccess_log = "{tmp_path}/access.log"\n'
        f'[[listen]]\naddress = "127.0.0.1:0"\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n[[site]]\nroot = "{site}"\n'
        f'tls = {{ certificate = "{file}", key = "{key}"{", early_data = true" if early_data else ""} }}\n'
        f'[[site.route]]\npath = "/bin/*"\nscript = {{ kind = "cgi", directory = "{site}/bin" }}\n'
        f'[[site.route]]\npath = "/status/*"\nstatus = true\n'
    )


def https(address, version):
    context = ssl._create_unverified_context()
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(address, timeout=15) as connection:
        with context.wrap_socket(connection, server_hostname="localhost") as encrypted:
            encrypted.sendall(b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            data = b""
            while part := encrypted.recv(1 << 16):
                data += part
    return int(data.split(b" ")[1])


def listeners(server):
    """Every address that the server listens on."""
    inodes = {os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{server.pid}/fd")}
    found = []
    for line in open(f"/proc/{server.pid}/net/tcp").read().splitlines()[1:]:
        parts = line.split()
        if parts[3] == "0A" and f"socket:[{parts[9]}]" in inodes:
            found.append(("127.0.0.1", int(parts[1].split(":")[1], 16)))
    return found


def everything_works(server, tmp_path):
    assert server.get("/a.txt")[0] == 200 and server.get("/bin/hello")[2].count(b"hello") == 1
    tls = next(address for address in listeners(server) if address != server.address)
    for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
        assert https(tls, version) == 200
    code, out, error = run("reload", "--admin", str(tmp_path / "admin.sock"))
    assert code == 0, error
    assert json.loads(fetch(tmp_path / "admin.sock", "/config")[2])["pid"] == server.pid
    assert fetch(tmp_path / "admin.sock", "/metrics")[0] == 200
    for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
        assert https(tls, version) == 200
    assert server.get("/a.txt")[0] == 200


@pytest.mark.parametrize("early_data", [False, True])
@pytest.mark.parametrize("days", [-20_800, -40_000])
def test_a_clock_before_1970_ends_no_connection(serve, site, tmp_path, clock, monkeypatch, early_data, days):
    for name, value in clock.variables.items():
        monkeypatch.setenv(name, value)
    server = serve(text=configured(site, tmp_path, early_data))
    for name in clock.variables:
        monkeypatch.delenv(name)
    everything_works(server, tmp_path)
    clock.shift(days)
    # Once the server has seen it.
    wait_until(lambda: "1970" in server.get("/a.txt")[1]["date"], "the date")
    everything_works(server, tmp_path)
    clock.shift(0)
    everything_works(server, tmp_path)
    assert server.stop() == 0
    assert len((tmp_path / "access.log").read_text().splitlines()) > 20


def test_a_server_that_starts_before_1970_serves(serve, site, tmp_path, clock, monkeypatch):
    text = configured(site, tmp_path, False)
    clock.shift(-20_800)
    for name, value in clock.variables.items():
        monkeypatch.setenv(name, value)
    server = serve(text=text)
    for name in clock.variables:
        monkeypatch.delenv(name)
    everything_works(server, tmp_path)
    clock.shift(0)
    everything_works(server, tmp_path)
    assert server.stop() == 0
