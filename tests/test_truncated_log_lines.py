"""An access log on a full disk: no truncated line remains as a line of its own."""

import re
import resource
import signal

import pytest

from support.files import write
from support.waiting import wait_until

LINE = re.compile(r"GET /a\?number=\d{4} 200")


def limited(most):
    """Limits the size of files: as on a full disk, a write is short and the next one fails."""

    def prepare():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    return prepare


def lost(server):
    found = re.search(r"(\d+) lines of the access log were lost", server.log)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("most", [1, 997, 1000, 1003, 1019])
def test_a_truncated_line_is_completed_when_there_is_space(serve, site, tmp_path, most):
    log = tmp_path / "access.log"
    write(site / "a", "x")
    server = serve(server=f'access_log = {{ path = "{log}", format = "{{method}} {{target}} {{status}}" }}', preexec=limited(most))
    asked = 0

    def fetch(count):
        nonlocal asked
        for _ in range(count):
            assert server.get(f"/a?number={asked:04}")[0] == 200
            asked += 1

    fetch(60)
    wait_until(lambda: log.stat().st_size == most, "a full disk")
    fetch(3)
    server.logged("lines are being lost")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    fetch(5)
    assert server.stop() == 0
    lines = log.read_text().splitlines()
    assert log.read_text().endswith("\n")
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert len(lines) + lost(server) == asked and len(set(lines)) == len(lines)


def test_a_line_that_an_earlier_process_truncated_is_marked(serve, site, tmp_path):
    log = tmp_path / "access.log"
    log.write_text("1 GET /a 200\n2 GE")
    write(site / "a", "x")
    server = serve(server=f'access_log = {{ path = "{log}", format = "{{method}} {{target}} {{status}}" }}')
    assert server.get("/a")[0] == 200
    assert server.stop() == 0
    assert log.read_text() == "1 GET /a 200\n2 GE [cut]\nGET /a 200\n"
