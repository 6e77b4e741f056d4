"""Several machines, as network namespaces with delay and loss between them."""

import json
import re
import subprocess
from datetime import datetime

import pytest

from support import ssh
from support.files import write
from support.network import network  # noqa: F401
from support.server import DUNLIN
from support.shared_store import CLIENT, PROGRAM, lacks_feature
from support.waiting import wait_until

# One way, in milliseconds: what a packet needs to another region of the same continent.
DELAY = 20


@pytest.fixture
def server_on(serve, tmp_path):
    """Starts a server on a machine: `server_on(machine, text)`."""

    def start(machine, text):
        program = write(tmp_path / f"dunlin-{machine.name}", f'#!/bin/sh\nexec {" ".join(machine.command(DUNLIN))} "$@"\n')
        program.chmod(0o755)
        return serve(text=text, program=program)

    return start


@pytest.fixture
def far(network, server_on, site, tmp_path):
    """Two machines with a wire of 20 ms, ssh to both, and a load from both to the first one."""
    ssh.require()
    home, away = network.machine(), network.machine()
    wire = network.wire(home, away, DELAY)
    write(site / "a.txt", "a" * 100)
    log = tmp_path / "access.log"
    server = server_on(
        home,
        f'[server]\nthreads = 1\naccess_log = {{ path = "{log}", format = "json" }}\n[[listen]]\naddress = "{wire.addresses[0]}:0"\n[[site]]\nroot = "{site}"\n',
    )
    folder = tmp_path / "ssh"
    folder.mkdir()
    hosts = ssh.SshServer(folder, hosts={"near": "127.0.0.2", "far": wire.addresses[1]}, machines={"near": home, "far": away})
    command = [DUNLIN, "load", f"{server.url}/a.txt", "--i-own-this-host", "--from", "near,far", "--ssh", hosts.command, "--json", "-"]
    yield home, wire, server, log, command
    hosts.stop()


def schedule(log, address, interval=20):
    """When the first request was due whose following ones came each `interval` ms, in ms, as the earliest of them shows."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    times = sorted(datetime.fromisoformat(record["time"]).timestamp() * 1000 for record in records if record["remote"] == address)
    return min(time - number * interval for number, time in enumerate(times))


@pytest.mark.paced
def test_a_generator_behind_a_delay_starts_at_the_same_instant(far):
    home, wire, server, log, command = far
    done = home.run(*command, "--quiet", "-c", 40, "--rate", 100, "-d", "2s")
    result = json.loads(done.stdout)
    near, distant = result["generators"]["each"]
    assert near["lost"] is None and distant["lost"] is None, result["reasons"]
    assert abs(near["requests"] - 100) <= 2 and abs(distant["requests"] - 100) <= 2
    # What is unknown about a clock is half of a round trip.
    assert DELAY <= distant["uncertainty_ms"] < 2 * DELAY and near["uncertainty_ms"] < DELAY / 2
    # Both ways take equally long, so that the estimated offset is nearly the true one.
    skew = distant["start_ms"] - near["start_ms"]
    assert abs(skew) < DELAY / 2 and result["generators"]["skew_ms"] == pytest.approx(abs(skew))
    # The server knows better: requests come each 20 ms from either, and those from afar a delay later.
    near_ms, far_ms = (schedule(log, address) for address in wire.addresses)
    # The second half of the load begins half of the interval later.
    assert abs(far_ms - near_ms - 10 - DELAY - skew) < DELAY / 2, (far_ms - near_ms, skew)


def test_a_generator_whose_link_dies_makes_the_result_incomplete(far):
    home, wire, _, _, command = far
    process = home.start(*command, "-c", 2, "--rate", 100, "-d", "4s", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: re.search(r"^ +[\d.]+ s +[1-9][\d,.]* requests/s", process.stderr.readline()), "it runs")
    wire.cut()
    result = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 1 and result["verdict"] == "INCOMPLETE"
    assert re.match(r"far: no message from it for 10 s.*; its results, at least \d+ responses, are missing", result["reasons"][0])
    assert [one["lost"] is None for one in result["generators"]["each"]] == [True, False]


@pytest.mark.paced
@pytest.mark.skipif(lacks_feature(), reason="the binary is built without the feature `fleet`")
@pytest.mark.parametrize("rates", [(150, 150), (20, 400)], ids=["even", "far"])
def test_a_limit_is_shared_with_a_server_far_from_the_store(network, server_on, site, tmp_path, rates):
    if not PROGRAM or not CLIENT:
        pytest.skip("redis-server is not installed")
    write(site / "a.txt", "a")
    home, away = network.machine(), network.machine()
    wire = network.wire(home, away, DELAY, loss=0.005)
    (tmp_path / "store").mkdir()
    home.start(PROGRAM, "--port", 6379, "--bind", wire.addresses[0], "--protected-mode", "no", "--save", "", "--dir", tmp_path / "store", stdout=subprocess.DEVNULL)
    redis = lambda *words: home.run(CLIENT, "-h", wire.addresses[0], *words).stdout.strip()  # noqa: E731
    wait_until(lambda: redis("ping") == "PONG", "the store responds")
    limit = 'limit = { requests = "100/s", burst = 100, shared = true }'
    servers = [
        server_on(
            machine,
            f'[server]\nthreads = 1\n[shared]\nurl = "redis://{wire.addresses[0]}"\n[[listen]]\naddress = "127.0.0.1:0"\n'
            f'[[site]]\nroot = "{site}"\n[[site.route]]\npath = "/*"\n{limit}\n',
        )
        for machine in (home, away)
    ]
    wait_until(lambda: redis("zcard", "dunlin:servers") == "2", "the store sees both servers")
    for server in servers:
        server.logged("is reachable")
    seconds = 8
    loads = [
        machine.start(
            DUNLIN, "load", f"{server.url}/a.txt", "-c", 4, "--rate", rate, "-d", f"{seconds}s", "--quiet", "--json", "-",
            stdout=subprocess.PIPE, text=True,
        )
        for machine, server, rate in zip((home, away), servers, rates)
    ]
    statuses = [json.loads(process.communicate(timeout=60)[0])["status"] for process in loads]
    assert all(set(counts) <= {"200", "429"} for counts in statuses), statuses
    allowed = sum(counts.get("200", 0) for counts in statuses)
    expected = 100 * seconds + 100
    assert 0.95 <= allowed / expected <= 1.05, f"{allowed} of {expected}: {statuses}"
