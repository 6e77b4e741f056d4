"""HTTP/3 over networks that lose, delay, reorder, duplicate and swallow packets: what arrives is verified."""

import json
import os
import threading
import time

import pytest

from support.files import settle, write
from support.network import network  # noqa: F401
from support.server import DUNLIN
from support.tls import certificate

pytestmark = pytest.mark.paced


@pytest.fixture
def far(network, serve, site, tmp_path):
    """A server with HTTP/3 on one machine, and a load from another: `far(*options)` returns the outcome."""
    home, away = network.machine(), network.machine()
    wire = network.wire(home, away, 5)
    own = certificate(tmp_path, "own")
    write(site / "small.txt", b"small\n")
    write(site / "large.bin", os.urandom(500_000))
    settle(site / "large.bin")
    program = write(tmp_path / "dunlin", f'#!/bin/sh\nexec {" ".join(home.command(DUNLIN))} "$@"\n')
    program.chmod(0o755)

    def start(server=""):
        running = serve(
            program=program,
            text=f'[server]\nthreads = 2\n{server}\n[[listen]]\naddress = "{wire.addresses[0]}:0"\ntls = true\nhttp3 = true\n'
            f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{own[0]}", key = "{own[1]}" }}\n',
        )

        def load(*options, path="/large.bin"):
            url = f"https://{wire.addresses[0]}:{running.port}{path}"
            words = ["load", url, "--http3", "--insecure", "--i-own-this-host", f"--verify={site}", "--timeout", "60s", "--json", "-", *options]
            done = away.run(DUNLIN, *words)
            assert done.stdout, done.stderr
            return json.loads(done.stdout)

        return load

    start.wire = wire
    return start


def complete(result, count):
    assert result["errors"] == 0 and result["requests"] == count, (result["errors_by_kind"] if "errors_by_kind" in result else result)


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
def test_losses(far, congestion):
    load = far(f'http3 = {{ congestion = "{congestion}" }}')
    far.wire.change(loss=0.03)
    result = load("-n", "40", "-c", "4", "--streams", "4")
    complete(result, 40)
    # The generator sees what it has lost itself.
    assert result["connections"]["quic"]["packets_lost"] > 0
    assert result["connections"]["quic"]["rtt_ms"] >= 10


def test_reordering_and_duplicates(far):
    load = far()
    far.wire.change(reorder=0.2, duplicate=0.1)
    complete(load("-n", "40", "-c", "4", "--streams", "4"), 40)


def test_a_path_whose_packets_become_smaller(far):
    load = far()
    # Discovery has found 1452 bytes by then; afterwards only the least that QUIC needs passes.
    timer = threading.Timer(1.0, lambda: far.wire.change(largest=1240))
    timer.start()
    result = load("-d", "6s", "-c", "2", "--streams", "2")
    timer.join()
    assert result["errors"] == 0 and result["requests"] > 0
    # What comes last has arrived after the change.
    assert result["series"][-1]["requests"] + result["series"][-2]["requests"] > 0, result["series"]


def test_a_time_without_any_packets(far):
    load = far()

    def swallow():
        time.sleep(1)
        far.wire.change(loss=1)
        time.sleep(3)
        far.wire.change(loss=0)

    thread = threading.Thread(target=swallow)
    thread.start()
    result = load("-d", "10s", "-c", "4", "--streams", "4")
    thread.join()
    # The connections are the same as before.
    assert result["errors"] == 0 and result["connections"]["opened"] == 4
    assert result["series"][-1]["requests"] + result["series"][-2]["requests"] > 0, result["series"]


def test_handshakes_with_losses(far):
    load = far()
    far.wire.change(loss=0.1)
    result = load("-n", "60", "-c", "6", "--no-keepalive", path="/small.txt")
    complete(result, 60)
    # A connection that was opened when there were no more requests has none.
    assert 60 <= result["connections"]["opened"] <= 66
