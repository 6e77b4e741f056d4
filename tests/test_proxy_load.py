"""The reverse proxy under load, while one of three upstreams is slow or stands still."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest

from support.server import DUNLIN
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")


class Load:
    """`dunlin load` with 16 clients, in the background."""

    def __init__(self, server, seconds):
        command = [DUNLIN, "load", f"{server.url}/file.bin", "-c", "16", "-d", f"{seconds}s", "--timeout", "20s"]
        self.process = subprocess.Popen([*command, "--quiet", "--json", "-"], stdout=subprocess.PIPE, text=True)

    def outcome(self):
        text, _ = self.process.communicate(timeout=60)
        return json.loads(text)


def requests(server):
    """The requests of each upstream so far."""
    text = server.get("/status/metrics")[2].decode()
    lines = [line for line in text.splitlines() if line.startswith("dunlin_upstream_requests_total{")]
    return [int(float(line.rsplit(" ", 1)[1])) for line in lines]


STATUS = '[[site.route]]\npath = "/status/*"\nstatus = true\n'


@pytest.mark.paced
def test_no_get_fails_while_an_upstream_stands_still(serve, site):
    (site / "file.bin").write_bytes(os.urandom(1024))
    upstreams = [serve() for _ in range(3)]
    urls = ", ".join(f'"{upstream.url}"' for upstream in upstreams)
    server = serve(route=f'proxy = {{ to = [{urls}], retry = {{ timeout = "500ms" }} }}', more=STATUS)
    load = Load(server, 6)
    wait_until(lambda: all(count > 100 for count in requests(server)), "requests for all upstreams")
    stopped = upstreams[0]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        server.logged("no response within the time limit")
        at = sum(requests(server))
        wait_until(lambda: sum(requests(server)) > at + 1000, "requests for the others")
        outcome = load.outcome()
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert outcome["errors"] == 0 and set(outcome["status"]) == {"200"}, outcome["errors_by_kind"]
    server.logged("another upstream gets the request")


@pytest.mark.paced
def test_a_slow_upstream_gets_few_requests_and_none_fails(serve, site):
    (site / "file.bin").write_bytes(os.urandom(1024))
    is_slow = threading.Event()

    def answer(*_):
        if is_slow.is_set():
            time.sleep(5)
        return response(b"x" * 1024)

    slow = Upstream(answer)
    others = [serve() for _ in range(2)]
    urls = ", ".join(f'"{url}"' for url in (slow.url, *(other.url for other in others)))
    server = serve(route=f"proxy = {{ to = [{urls}] }}", more=STATUS)
    load = Load(server, 7)
    wait_until(lambda: all(count > 50 for count in requests(server)), "requests for all upstreams")
    is_slow.set()
    before = len(slow.requests)
    outcome = load.outcome()
    assert outcome["errors"] == 0 and set(outcome["status"]) == {"200"}, outcome["errors_by_kind"]
    # All 16 clients may have waited for it at once; no client waits again while its times are known.
    assert len(slow.requests) - before <= 32
    assert outcome["requests"] > 2000
