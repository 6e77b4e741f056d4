"""Load from several machines: by ssh with a real server, by NATS, and by segments that other programs start."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from support import kubernetes, ssh
from support.files import write
from support.server import DUNLIN
from support.waiting import wait_until

NATS = shutil.which("nats-server") or str(Path(os.environ.get("GOBIN", Path.home() / "go" / "bin")) / "nats-server")


def load(*arguments, code=0):
    done = subprocess.run([DUNLIN, "load", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def outcome(*arguments, code=0):
    return json.loads(load(*arguments, "--quiet", "--json", "-", code=code).stdout)


def outcome_of_all(*arguments):
    """The outcome of generators that all have results. On a busy machine they may start far apart, which the verdict then states."""
    done = subprocess.run(
        [DUNLIN, "load", *map(str, arguments), "--quiet", "--json", "-"], capture_output=True, text=True, timeout=120
    )
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert all(one["lost"] is None for one in result["generators"]["each"]), result["generators"]
    assert result["failed_requests"] == 0, result["first_errors"]
    known = r" started \d+ ms after the first |of the rate was held|^no level held"
    told = [reason for reason in result["reasons"] if re.search(known, reason)]
    assert done.returncode == (1 if result["verdict"] in ("INCOMPLETE", "RATE-NOT-HELD") else 0), result["reasons"]
    assert done.returncode == 0 or told, result["reasons"]
    return result


@pytest.fixture
def hosts(tmp_path):
    """Starts an SSH server with three hosts: `hosts()`, or `hosts(program=None)` for hosts without dunlin."""
    ssh.require()
    running = []

    def start(program=DUNLIN):
        folder = tmp_path / f"ssh-{len(running)}"
        folder.mkdir()
        server = ssh.SshServer(folder, program)
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def machines(tmp_path):
    """An ssh that runs what it should run on a host here, as `machines(HOST, before="commands")` has it. Returns its command."""
    for_hosts = tmp_path / "hosts"
    for_hosts.mkdir()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "dunlin").symlink_to(DUNLIN)
    program = tmp_path / "fake-ssh"
    # The arguments end with `-- HOST COMMAND`.
    write(
        program,
        f'#!/bin/bash\nhost="${{@: -2:1}}"\nexport PATH={bin_folder}:$PATH\necho $$ >{for_hosts}/$host.pid\n'
        f'[ -e {for_hosts}/$host ] && . {for_hosts}/$host\nexec sh -c "${{@: -1}}"\n',
    )
    program.chmod(0o755)

    def host(name, before):
        write(for_hosts / name, before)

    host.command = str(program)
    host.pid = lambda name: int((for_hosts / f"{name}.pid").read_text())
    return host


@pytest.fixture
def target(serve, site):
    write(site / "a.txt", "a" * 1024)
    return f"{serve().url}/a.txt"


def starts(result):
    return [one["start_ms"] for one in result["generators"]["each"]]


@pytest.mark.paced
def test_three_hosts_send_what_one_sends(hosts, target):
    server = hosts()
    load_of = (target, "-c", 6, "--rate", 600, "-d", "2s")
    one = outcome(*load_of)
    three = outcome_of_all(*load_of, "--from", "one,two,three", "--ssh", server.command)
    assert one["rate"]["due"] == three["rate"]["due"] == 1200
    for result in (one, three):
        unfinished = result["unfinished"]
        assert result["requests"] + unfinished["in_flight"] + unfinished["waiting"] == 1200
    assert three["requests"] == sum(second["requests"] for second in three["series"])
    generators = three["generators"]
    assert [one["name"] for one in generators["each"]] == ["one", "two", "three"]
    assert [one["segment"] for one in generators["each"]] == [{"index": n, "of": 3} for n in range(3)]
    assert all(0 < one["requests"] <= 400 for one in generators["each"])
    assert three["plan"]["connections"] == 6 and "segment" not in three["plan"]
    assert generators["skew_ms"] == pytest.approx(max(starts(three)) - min(starts(three)))
    assert generators["uncertainty_ms"] > 0


def test_text_names_generators_and_their_skew(hosts, target):
    server = hosts()
    command = [DUNLIN, "load", target, "-c", "3", "-n", "300", "--from", "one,three", "--ssh", server.command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    # On a busy machine one may start after the other has ended.
    assert done.returncode == 0 or re.search(r"^INCOMPLETE\n .*started \d+ ms after", done.stdout, re.M), done
    words = " ".join(done.stdout.split())
    assert re.search(r" generators 2 started within [\d.]+ ms; their clocks are known to ±[\d.]+ ms", words), done.stdout
    assert re.search(r"^  one +[\d.,k ]+/s", done.stdout, re.M) and re.search(r"^  three +", done.stdout, re.M)


def test_hosts_without_dunlin_receive_it_and_keep_nothing(hosts, target, tmp_path):
    server = hosts(program=None)
    before = set(Path("/tmp").glob("tmp.*/dunlin"))
    result = outcome_of_all(target, "-c", 4, "-n", 400, "--from", "one,two", "--ssh", server.command)
    assert result["requests"] == 400
    wait_until(lambda: set(Path("/tmp").glob("tmp.*/dunlin")) <= before, "the copies are removed")


def test_hosts_that_cannot_be_used_are_named_and_nothing_is_sent(hosts, target, serve, tmp_path):
    server = hosts()
    config = write(tmp_path / "closed", "Host four\n  HostName 127.0.0.2\n  Port 1\n")
    done = load(target, "--from", "four", "--ssh", f"ssh -F {config}", code=1)
    assert "dunlin: four: the connection has ended: ssh: connect to host 127.0.0.2 port 1: Connection refused" in done.stderr
    other = write(tmp_path / "wrong-key", (server.folder / "config").read_text().replace("IdentityFile", "#"))
    done = load(target, "--from", "one", "--ssh", f"ssh -F {other}", code=1)
    assert "one: the connection has ended: " in done.stderr and "Permission denied" in done.stderr
    done = load(target, "--from", "one", "--ssh", "/nonexistent/ssh", code=1)
    assert "/nonexistent/ssh: No such file" in done.stderr


def test_another_version_is_one_clear_error(machines, target):
    hello = '{"hello":{"protocol":99,"version":"9.9.9","name":"x","more":1}}'
    machines("new", f"echo '{hello}'; exec cat >/dev/null")
    done = load(target, "--from", "old,new", "--ssh", machines.command, "--quiet", code=1)
    assert done.stderr.count("\n") == 1
    assert re.search(r"^dunlin: new: its dunlin has version 9\.9\.9 \(protocol 99\), this one \S+ \(protocol \d+\); install", done.stderr)


def test_what_a_login_shell_prints_is_skipped(machines, target):
    machines("noisy", "echo Welcome to noisy; echo")
    assert outcome(target, "-c", 2, "-n", 20, "--from", "noisy", "--ssh", machines.command)["requests"] == 20


def test_a_delay_to_one_host_does_not_delay_its_start(machines, target, tmp_path):
    """300 ms each way: an order that is sent at the same time as to the other arrives 300 ms later."""
    write(tmp_path / "delay.py", DELAY)
    machines("far", f"exec {sys.executable} {tmp_path}/delay.py sh -c \"${{@: -1}}\"")
    result = outcome_of_all(target, "-c", 2, "--rate", 100, "-d", "1s", "--from", "near,far", "--ssh", machines.command)
    near, far = result["generators"]["each"]
    assert far["uncertainty_ms"] >= 300 > near["uncertainty_ms"]
    assert abs(far["start_ms"]) < 300
    unfinished = result["unfinished"]
    assert result["rate"]["due"] == 100 == result["requests"] + unfinished["in_flight"] + unfinished["waiting"]


DELAY = """
import os, subprocess, sys, threading, time
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def copy(source, target, close):
    parts, ready = [], threading.Condition()
    def write():
        while True:
            with ready:
                ready.wait_for(lambda: parts)
                at, data = parts.pop(0)
            time.sleep(max(0, at - time.monotonic()))
            if not data:
                return close()
            os.write(target, data)
    threading.Thread(target=write, daemon=True).start()
    while True:
        data = os.read(source, 65536)
        with ready:
            parts.append((time.monotonic() + 0.3, data))
            ready.notify()
        if not data:
            return

threading.Thread(target=copy, args=(0, child.stdin.fileno(), child.stdin.close), daemon=True).start()
done = threading.Event()
threading.Thread(target=copy, args=(child.stdout.fileno(), 1, done.set), daemon=True).start()
child.wait()
done.wait()
"""


@contextlib.contextmanager
def running(*arguments):
    """A load that runs, once its generators have started."""
    process = subprocess.Popen(
        [DUNLIN, "load", *map(str, arguments), "--json", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        # A line per second shows progress.
        wait_until(lambda: re.search(r"^ +[\d.]+ s +[1-9][\d,.]* requests/s", process.stderr.readline()), "it runs")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_generator_that_dies_makes_the_result_incomplete(machines, target):
    with running(target, "-c", 4, "--rate", 200, "-d", "4s", "--from", "one,two", "--ssh", machines.command) as process:
        os.kill(machines.pid("two"), signal.SIGKILL)
        result = json.loads(process.communicate(timeout=60)[0])
        assert process.returncode == 1
    assert result["verdict"] == "INCOMPLETE" and result["rate"]["due"] == 400
    assert result["requests"] + result["unfinished"]["in_flight"] + result["unfinished"]["waiting"] == 400
    assert re.match(r"two: the connection has ended .*; its results, at least \d+ responses, are missing", result["reasons"][0])
    assert [one["lost"] is None for one in result["generators"]["each"]] == [True, False]


def test_a_generator_that_hangs_is_given_up(machines, target):
    with running(target, "-c", 4, "--rate", 200, "-d", "5s", "--from", "one,two", "--ssh", machines.command) as process:
        pid = machines.pid("one")
        os.kill(pid, signal.SIGSTOP)
        try:
            result = json.loads(process.communicate(timeout=60)[0])
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert result["verdict"] == "INCOMPLETE"
    assert result["reasons"][0].startswith("one: no message from it for 10 s")


def test_an_interrupt_ends_all_generators_and_reports(machines, target):
    with running(target, "-c", 4, "--rate", 100, "-d", "10m", "--from", "one,two", "--ssh", machines.command) as process:
        pids = [machines.pid(name) for name in ("one", "two")]
        # The terminal sends it to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        result = json.loads(process.communicate(timeout=60)[0])
    assert all(one["lost"] is None and one["requests"] > 0 for one in result["generators"]["each"])
    wait_until(lambda: not any(map(is_alive, pids)), "the generators have ended")


def test_generators_stop_by_themselves_if_the_link_breaks(machines, target):
    with running(target, "-c", 4, "-d", "10m", "--from", "one,two", "--ssh", machines.command) as process:
        pids = [machines.pid(name) for name in ("one", "two")]
        assert all(map(is_alive, pids))
        process.kill()
        wait_until(lambda: not any(map(is_alive, pids)), "the generators have ended")


def test_bodies_files_and_logs_travel_to_generators(machines, serve, site, tmp_path):
    write(site / "a.txt", "a" * 70_000)
    write(site / "b.txt", "b")
    server = serve()
    one_of_each = (f"{server.url}/a.txt", f"{server.url}/b.txt", "-c", 2, "-n", 40, f"--verify={site}")
    result = outcome_of_all(*one_of_each, "--from", "one,two", "--ssh", machines.command)
    assert result["requests"] == 40 and result["bytes"] > 20 * 70_000
    assert result["plan"]["verify"] == {"directory": str(site)}
    log = [f'1.1.1.1 - - [25/Nov/2026:10:00:0{n // 25} +0000] "GET /{"ab"[n % 2]}.txt HTTP/1.1" 200 9' for n in range(50)]
    write(tmp_path / "access.log", "\n".join(log) + "\n")
    replayed = outcome_of_all(server.url, "--replay", tmp_path / "access.log", "-c", 2, "--from", "one,two", "--ssh", machines.command)
    assert replayed["requests"] == 50 and replayed["errors"] == 0


def test_searches_run_each_level_on_all_hosts(machines, target):
    search = ("--find-rate", "--p99", "10s", "--most", 2000, "-c", 4, "-d", "300ms", "--precision", 0.5)
    result = outcome_of_all(target, *search, "--from", "one,two", "--ssh", machines.command)
    # The limit of a busy machine may be lower, which each level that did not hold states.
    levels = result["search"]["levels"]
    assert result["search"]["bounded"] and result["search"]["found"] == 2000 or [level for level in levels if level["why"]], levels
    assert all(level["achieved"] > 0 if level["held"] else level["why"] for level in levels), levels
    assert len(result["generators"]["each"]) == 2


def test_users_are_searched_for_on_all_hosts(machines, serve, site):
    write(site / "1m.bin", "x" * 1_000_000)
    server = serve(server="connections_per_address = 4")
    search = ("--modem", "64", "--find-users", "-c", 4, "-d", "4s", "--timeout", "20s")
    result = outcome(f"{server.url}/1m.bin", *search, "--from", "one,two", "--ssh", machines.command)
    assert result["search"]["of"] == "users" and result["search"]["found"] == 4, result["search"]
    assert any(not level["held"] and level["why"] for level in result["search"]["levels"])
    assert len(result["generators"]["each"]) == 2


def test_a_target_that_a_generator_cannot_reach_is_named(machines):
    done = load("http://127.0.0.1:1/", "-c", 2, "--from", "one,two", "--ssh", machines.command, code=1)
    assert re.search(r"^dunlin: (one|two): connecting to 127.0.0.1:1: Connection refused", done.stderr, re.M)
    done = load("http://192.0.2.1/", "-c", 2, "--from", "one", "--ssh", machines.command, code=1)
    assert "one: 192.0.2.1:80 is not this machine; --i-own-this-host permits it" in done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--from=-oProxyCommand=x"], "is not the name of a host"),
        (["--from", "a,b,c", "-c", 2], "3 generators need at least 3 connections"),
        (["--from", "a,b", "-n", 1], "2 generators need at least"),
        (["--segment", "3/3"], "the segments of 3 are numbered from 0 to 2"),
        (["--segment", "0/2", "--find-rate", "--p99", "1s"], "cannot be used with"),
        (["--segment", "0/2", "--from", "a"], "cannot be used with"),
        (["--generators", 2], "--generators does nothing without"),
        (["--from", "nats://h/x"], "needs the number of --generators"),
        (["--from", "nats://h/x,b", "--generators", 2], "a URL cannot be combined with other hosts"),
        (["--start-at", "noon"], "is not a time such as"),
        (["--start-at", "2020-01-01T00:00:00Z"], "has passed"),
        (["--print", "kubernetes"], "--generators"),
        (["--print", "kubernetes", "--generators", 2, "--body", "/etc/hostname"], "--body names a file of this machine"),
    ],
)
def test_options_that_contradict_each_other_are_rejected(target, arguments, message):
    done = subprocess.run([DUNLIN, "load", target, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and message in done.stderr, done.stderr


def test_segments_that_another_program_starts_merge_into_the_whole(target, tmp_path):
    begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))
    runs = [
        subprocess.Popen(
            [DUNLIN, "load", target, "-c", "6", "--rate", "300", "-d", "1s", "--start-at", begin, "--segment", f"{n}/3"]
            + ["--quiet", "--json", tmp_path / f"{n}.json"]
        )
        for n in range(3)
    ]
    codes = [run.wait(60) for run in runs]
    files = [tmp_path / f"{n}.json" for n in range(3)]
    parts = [json.loads(file.read_text()) for file in files]
    # On a busy machine the rate may not be held.
    assert codes == [int(part["verdict"] == "RATE-NOT-HELD") for part in parts]
    sent = [part["requests"] + part["unfinished"]["in_flight"] + part["unfinished"]["waiting"] for part in parts]
    assert sent == [100, 100, 100] and [part["plan"]["segment"]["index"] for part in parts] == [0, 1, 2]
    # Where the processors are busy, a segment may begin late, which the verdict then states.
    merged = json.loads(subprocess.run([DUNLIN, "load", "--merge", *files, "--json", "-"], capture_output=True).stdout)
    assert merged["requests"] == sum(part["requests"] for part in parts) and merged["plan"]["connections"] == 6
    assert merged["latency_ms"]["count"] == sum(part["latency_ms"]["count"] for part in parts)
    assert merged["generators"]["uncertainty_ms"] is None and merged["generators"]["skew_ms"] >= 0
    assert merged["requests_per_second"] == pytest.approx(merged["requests"] / merged["duration_seconds"])
    incomplete = outcome("--merge", *files[:2], code=1)
    assert incomplete["verdict"] == "INCOMPLETE" and "the results of segment 2/3 are missing" in incomplete["reasons"]


def test_the_job_for_kubernetes_is_one_and_runs_the_segments(target):
    text = load(target, "-c", 8, "-n", 90, "-H", "x: $(y)", "--print", "kubernetes", "--generators", 3, "--image", "registry/dunlin:1").stdout
    assert kubernetes.names(text) == ["batch/v1 Job dunlin-load"]
    job = yaml.safe_load(text)["spec"]
    assert job["completionMode"] == "Indexed" and job["completions"] == job["parallelism"] == 3
    (container,) = job["template"]["spec"]["containers"]
    assert container["image"] == "registry/dunlin:1" and "$$(y)" in " ".join(container["args"])
    outcomes = []
    for index in range(3):
        command = [word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in container["args"]]
        outcomes.append(json.loads(subprocess.run([DUNLIN, *command], capture_output=True, check=True).stdout))
    assert [one["requests"] for one in outcomes] == [30, 30, 30]
    joined = load(target, "--print", "kubernetes", "--generators", 2, "--from", "nats://nats:4222/run").stdout
    assert kubernetes.names(joined) == ["batch/v1 Job dunlin-load"]
    (container,) = yaml.safe_load(joined)["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["load", "--join", "nats://nats:4222/run"]


@pytest.fixture
def nats(tmp_path):
    """The URL of a NATS server with a user."""
    if not os.path.exists(NATS):
        pytest.skip("nats-server is not installed")
    if "feature `fleet`" in load("--join", "nats://127.0.0.1:1/x", code=1).stderr:
        pytest.skip("this dunlin was built without the feature `fleet`")
    log = open(tmp_path / "nats.log", "wb")
    process = subprocess.Popen([NATS, "-a", "127.0.0.1", "-p", "-1", "--user", "u", "--pass", "secret"], stderr=log)
    find = lambda: re.search(r"client connections on 127.0.0.1:(\d+)", (tmp_path / "nats.log").read_text())  # noqa: E731
    port = wait_until(find, "NATS listens")[1]
    yield f"nats://u:secret@127.0.0.1:{port}"
    process.kill()
    process.wait()
    log.close()


def test_generators_meet_at_nats(nats, target):
    generators = [
        subprocess.Popen([DUNLIN, "load", "--join", f"{nats}/run"], stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    result = outcome_of_all(target, "-c", 4, "--rate", 300, "-d", "1s", "--from", f"{nats}/run", "--generators", 2)
    assert result["rate"]["due"] == 300 and len(result["generators"]["each"]) == 2
    assert result["generators"]["each"][0]["name"] == os.uname().nodename
    assert [generator.wait(30) for generator in generators] == [0, 0]
    # A body that is longer than a message of NATS.
    generator = subprocess.Popen([DUNLIN, "load", "--join", f"{nats}/large"])
    result = outcome(target, "-c", 1, "-n", 3, "--expect-status", "405", "--data", "x" * 100_000, "-H", "a: " + "b" * 3000, "--from", f"{nats}/large", "--generators", 1)
    assert result["status"] == {"405": 3} and generator.wait(30) == 0


def test_generators_of_nats_that_are_too_many_or_cannot_connect_end(nats, target):
    joined = [subprocess.Popen([DUNLIN, "load", "--join", f"{nats}/run"], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outcome(target, "-c", 2, "-d", "2s", "--from", f"{nats}/run", "--generators", 1)
    ended = [(process.wait(30), process.stderr.read()) for process in joined]
    assert sorted(code for code, _ in ended) == [0, 1]
    assert "the run has all its generators" in "".join(text for _, text in ended)
    done = load("--join", nats.replace("secret", "wrong") + "/run", code=1)
    assert "wrong" not in done.stderr and "authorization" in done.stderr.lower()


def test_generators_of_nats_stop_if_the_coordinator_dies(nats, target):
    generator = subprocess.Popen([DUNLIN, "load", "--join", f"{nats}/run"], stderr=subprocess.PIPE, text=True)
    with running(target, "-c", 2, "-d", "10m", "--from", f"{nats}/run", "--generators", 1) as process:
        process.kill()
        assert generator.wait(60) == 1
    assert "no message from the coordinator for 10 s" in generator.stderr.read()


@pytest.mark.parametrize("url", ["nats://u:secret@127.0.0.1:4222/run", "tls://127.0.0.1/run"])
def test_comparisons_take_no_load_from_generators_of_nats(tmp_path, url):
    out = tmp_path / "out"
    arguments = ["--servers", "dunlin", "--from", url, "--address", "127.0.0.5", "--out", out]
    done = subprocess.run([DUNLIN, "compare", "wasd-files", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--from takes hosts that ssh reaches, not a URL" in done.stderr, done.stderr
    assert "secret" not in done.stderr and not out.exists()


@pytest.mark.serial
def test_comparisons_take_their_load_from_hosts(hosts, tmp_path):
    server = hosts()
    out = tmp_path / "out"
    done = subprocess.run(
        [DUNLIN, "compare", "wasd-files", "--servers", "dunlin", "--quick", "--rounds", "1", "--out", out]
        + ["--from", "one,two", "--ssh", server.command, "--address", "127.0.0.5"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    (scenario,) = json.loads((out / "results.json").read_text())["scenarios"]
    states = [(row["title"], row["cells"]["dunlin"]) for row in scenario["rows"]]
    measured = [cell for _, cell in states if cell["state"] == "measured"]
    assert measured, states
    command = measured[0]["rounds"][0]["command"]
    assert any("127.0.0.5:" in word for word in command) and "one,two" in command
    unavailable = [cell["reason"] for _, cell in states if cell["state"] != "measured"]
    assert set(unavailable) <= {"it has fewer connections than there are generators"}
