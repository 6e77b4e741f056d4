"""The load generator against real servers: counters, failures and rejected options."""

import base64
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from support.files import lines
from support.http2 import DATA, END_HEADERS, END_STREAM, frame, GOAWAY, HEADERS, PREFACE, SETTINGS
from support.server import DUNLIN
from support.waiting import wait_until


def load(*arguments, code=0, **options):
    """Runs a load that ends with `code`. Returns its JSON, if any."""
    done = subprocess.run(
        [DUNLIN, "load", *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def outcome(*arguments, code=0):
    return json.loads(load(*arguments, "--quiet", "--json", "-", code=code).stdout)


@pytest.fixture
def files(site):
    for name, size in {"1k.bin": 1024, "64k.bin": 65536, "1m.bin": 1 << 20}.items():
        (site / name).write_bytes(os.urandom(size))
    return site


def test_every_request_is_counted_once(serve, files):
    server = serve()
    o = outcome(f"{server.url}/1k.bin", "-c", 7, "-n", 1003, f"--verify={files}")
    assert o["requests"] == 1003 and o["errors"] == 0 and o["status"] == {"200": 1003}
    assert o["latency_ms"]["count"] == 1003 and o["connections"]["opened"] == 7
    assert o["latency_ms"]["min"] <= o["latency_ms"]["p50"] <= o["latency_ms"]["p99"] <= o["latency_ms"]["max"]
    assert sum(second["requests"] for second in o["series"]) == 1003
    assert len(base64.b64decode(o["latency_ms"]["histogram"])) > 20
    assert o["server"]["cpu_seconds"] >= 0 and o["server"]["memory_bytes"] > 500_000


def test_requests_per_connection_are_respected(serve, files):
    server = serve()
    once = outcome(f"{server.url}/1k.bin", "-c", 5, "-n", 200, "--no-keepalive")
    assert 200 <= once["connections"]["opened"] <= 204 and once["connection_ms"]["count"] == 200
    ten = outcome(f"{server.url}/1k.bin", "-c", 5, "-n", 200, "--requests-per-connection", 10)
    assert 20 <= ten["connections"]["opened"] <= 24
    deep = outcome(f"{server.url}/1k.bin", "-c", 2, "-n", 2000, "--pipeline", 10)
    assert deep["connections"]["depth_max"] == 10 and deep["connections"]["depth_mean"] > 8
    old = outcome(f"{server.url}/1k.bin", "-c", 2, "-n", 20, "--http1.0")
    assert old["requests"] == 20 and 20 <= old["connections"]["opened"] <= 21


def test_bodies_of_any_size_are_compared_with_their_files(serve, files):
    server = serve()
    urls = [f"{server.url}/{name}" for name in ("1k.bin", "64k.bin", "1m.bin")]
    o = outcome(*urls, "--choose", "random", "-c", 4, "-n", 300, f"--verify={files}")
    assert o["requests"] == 300 and o["errors"] == 0
    (files / "other").mkdir()
    for name in ("1k.bin", "64k.bin", "1m.bin"):
        data = bytearray((files / name).read_bytes())
        data[-1] ^= 1
        (files / "other" / name).write_bytes(data)
    wrong = outcome(*urls, "-c", 2, "-n", 30, f"--verify={files}/other", code=1)
    assert wrong["errors_by_kind"] == {"hash": 30} and wrong["verdict"] == "WRONG-ANSWERS"


@pytest.mark.paced
def test_requests_are_sent_by_the_schedule_of_a_rate(serve, files):
    server = serve()
    for rate in ("400", "poisson:400"):
        o = outcome(f"{server.url}/1k.bin", "--rate", rate, "-c", 10, "-d", "2s")
        assert 700 <= o["requests"] <= 900, (rate, o["requests"])
        assert o["lag_ms"]["count"] >= o["requests"]
    ramp = outcome(f"{server.url}/1k.bin", "--rate", "100:700", "-c", 10, "-d", "2s")
    assert 780 <= ramp["requests"] <= 820
    connections = outcome(f"{server.url}/1k.bin", "--connection-rate", "200", "-c", 50, "-d", "1s")
    assert 190 <= connections["connections"]["opened"] <= 201


@pytest.mark.paced
def test_a_stall_of_the_server_shows_in_the_99th_percentile(serve, files):
    server = serve()
    descriptors = lambda: len(os.listdir(f"/proc/{server.pid}/fd"))  # noqa: E731
    before = descriptors()
    process = subprocess.Popen(
        [DUNLIN, "load", f"{server.url}/1k.bin", "--rate", "500", "-c", "20", "-d", "4s", "--quiet", "--json", "-"],
        stdout=subprocess.PIPE, text=True,
    )
    wait_until(lambda: descriptors() >= before + 20, "the load runs")
    began = time.monotonic()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        time.sleep(1.4)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    stall = (time.monotonic() - began) * 1000
    o = json.loads(process.communicate(timeout=60)[0])
    assert o["requests"] > 1900 and o["errors"] == 0
    # 35 in a hundred requests were due within the stall.
    assert 0.85 * stall < o["latency_ms"]["p99"] < 1.2 * stall, (stall, o["latency_ms"])
    assert o["service_ms"]["p50"] < 50
    assert "stall" in [finding["kind"] for finding in o["findings"]]


@pytest.mark.paced
def test_a_modem_limits_the_rate(serve, files):
    server = serve()
    o = outcome(f"{server.url}/64k.bin", "--modem", "256", "-c", 3, "-n", 3, f"--verify={files}")
    assert o["errors"] == 0 and 1.8 < o["duration_seconds"] < 4
    # The server feels the pace too: it can send no more than two seconds' worth ahead.
    assert 2_000 < o["connections"]["receive_window"] <= 2 * 256_000 / 8


def test_the_most_users_are_searched_for(serve, files):
    server = serve(server="connections_per_address = 12")
    o = outcome(f"{server.url}/1m.bin", "--modem", "64", "--find-users", "-c", 4, "-d", "4s", "--timeout", "20s")
    search = o["search"]
    assert search["of"] == "users" and search["found"] == 12, search
    assert any(not level["held"] and level["why"] for level in search["levels"])


def test_the_search_of_users_is_bounded_by_descriptors(serve, files):
    server = serve()
    command = [DUNLIN, "load", f"{server.url}/1m.bin", "--modem", "64", "--find-users", "-c", "50", "-d", "3s", "--json", "-"]
    done = subprocess.run(["prlimit", "--nofile=200:200", *command], capture_output=True, text=True, timeout=60)
    search = json.loads(done.stdout)["search"]
    assert (search["found"], search["bounded"]) == (200 - 64, True), done.stderr


def test_an_access_log_is_sent_again(serve, files, tmp_path):
    server = serve()
    log = tmp_path / "access.log"
    line = '127.0.0.1 - - [10/Oct/2000:13:55:3{} +0000] "{} {} HTTP/1.1" 200 1 "-" "-"\n'
    log.write_text(
        line.format(6, "GET", "/1k.bin") + line.format(7, "HEAD", "/64k.bin") + "nonsense\n" + line.format(8, "GET", "/64k.bin")
    )
    o = outcome(server.url, "--replay", log, "--replay-speed", 10)
    assert o["requests"] == 3 and o["errors"] == 0 and 0.15 < o["duration_seconds"] < 1.5
    assert 66_000 < o["bytes"] < 68_000, "one of the two large ones was requested by HEAD"


def test_a_post_is_sent_in_two_writes(serve, files):
    server = serve()
    o = outcome(f"{server.url}/1k.bin", "-X", "POST", "--data", "x" * 542, "--split-body", "-n", 20, "-c", 1, "--expect-status", "405")
    assert o["requests"] == 20 and o["status"] == {"405": 20}


def test_conditions_fail_a_run(serve, files):
    server = serve()
    done = load(f"{server.url}/1k.bin", "-n", 50, "--fail-if", "p99>1ns", "--fail-if", "errors>0", code=3)
    assert "p99>1ns: it is" in done.stderr and "errors" not in done.stderr
    load(f"{server.url}/1k.bin", "-n", 50, "--fail-if", "p99>10s")


def test_wrong_responses_and_dead_servers_fail_the_run(serve, files, tmp_path):
    log = tmp_path / "access.log"
    server = serve(server=f'access_log = "{log}"')
    missing = outcome(f"{server.url}/none", "-n", 20, code=1)
    assert missing["errors_by_kind"] == {"status": 20} and missing["requests"] == 0
    wait_until(lambda: len(lines(log)) == 20, "the log has the first run")

    def kill():
        wait_until(lambda: len(lines(log)) > 20, "the load runs")
        server.stop(signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    died = outcome(f"{server.url}/1k.bin", "-c", 4, "-d", "2s", code=1)
    thread.join()
    assert died["errors"] > 0 and died["requests"] > 0 and "refused" in died["errors_by_kind"]
    assert "is the server running?" in load(f"{server.url}/", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no URL"),
        (["ftp://127.0.0.1/"], "not an http"),
        (["http://127.0.0.1:1/", "http://127.0.0.1:2/"], "another server"),
        (["http://192.0.2.1/"], "--i-own-this-host"),
        (["http://127.0.0.1/", "--pipeline", "4", "--no-keepalive"], "does nothing"),
        (["http://127.0.0.1/", "--split-body"], "does nothing"),
        (["http://127.0.0.1/", "--choose", "random"], "does nothing"),
        (["http://127.0.0.1/", "--replay-speed", "2"], "does nothing"),
        (["http://127.0.0.1/", "--find-users"], "--modem"),
        (["http://127.0.0.1/", "--most", "9"], "without a search"),
        (["http://127.0.0.1/", "--find-rate", "--p99", "1ms", "--precision", "2"], "between"),
        (["http://127.0.0.1/", "--rate", "fast"], "is not a rate"),
        (["http://127.0.0.1/", "-d", "ten"], "is not a time"),
        (["http://127.0.0.1/", "-H", "nonsense"], "Name: value"),
        (["http://127.0.0.1/", "--fail-if", "p98>1ms"], "nearest"),
        (["http://127.0.0.1/", "--rate", "1:5", "-n", "10"], "ramp"),
        (["http://127.0.0.1/", "--verify=/nonexistent"], "/nonexistent"),
    ],
)
def test_wrong_or_ineffective_options_are_rejected(arguments, message):
    assert message in load(*arguments, code=2).stderr


def test_an_interrupted_run_reports_its_results(serve, files, tmp_path):
    log = tmp_path / "access.log"
    server = serve(server=f'access_log = "{log}"')
    process = subprocess.Popen(
        [DUNLIN, "load", f"{server.url}/1k.bin", "-d", "600s", "--quiet", "--json", "-"], stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: log.exists() and log.stat().st_size, "requests are complete")
    process.send_signal(signal.SIGINT)
    o = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 0 and o["requests"] > 0 and o["duration_seconds"] < 100


def test_files_for_programs(serve, files, tmp_path):
    server = serve()
    load(f"{server.url}/1k.bin", "-n", 100, "--csv", tmp_path / "run.csv", "--json", tmp_path / "run.json")
    names, values = (tmp_path / "run.csv").read_text().splitlines()
    row = dict(zip(names.split(","), values.split(",")))
    assert row["requests"] == "100"
    assert row["verdict"] == json.loads((tmp_path / "run.json").read_text())["verdict"]
    assert (tmp_path / "run.csv.series.csv").read_text().startswith("at_seconds,")
    schema = json.loads(load("--schema").stdout)
    assert set(json.loads((tmp_path / "run.json").read_text())) <= set(schema["properties"])


def test_runs_merge_into_one(serve, files, tmp_path):
    server = serve()
    runs = [tmp_path / "a.json", tmp_path / "b.json"]
    for count, file in zip((300, 700), runs):
        load(f"{server.url}/1k.bin", "-c", 4, "-n", count, "--quiet", "--json", file)
    a, b = (json.loads(file.read_text()) for file in runs)
    merged = outcome("--merge", *runs)
    assert merged["requests"] == 1000 and merged["status"] == {"200": 1000}
    assert merged["latency_ms"]["count"] == 1000
    assert merged["latency_ms"]["max"] == max(a["latency_ms"]["max"], b["latency_ms"]["max"])
    seconds = a["duration_seconds"] + b["duration_seconds"]
    assert abs(merged["duration_seconds"] - seconds) < 0.003
    assert abs(merged["requests_per_second"] - 1000 / merged["duration_seconds"]) < 1
    other = tmp_path / "c.json"
    load(f"{server.url}/64k.bin", "-n", 10, "--quiet", "--json", other)
    assert "`urls` differs" in load("--merge", runs[0], other, code=2).stderr
    assert "cannot be used with" in load("--merge", *runs, "-c", 3, code=2).stderr


def test_a_file_that_cannot_be_written_loses_nothing(serve, files):
    server = serve()
    done = load(f"{server.url}/1k.bin", "-n", 50, "--json", "/nonexistent/run.json", code=1)
    assert "/nonexistent/run.json" in done.stderr and "requests" in done.stdout


def test_http2_counts_like_http1(serve, files, tmp_path):
    (tmp_path / "nginx").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "nginx" / "nginx.conf"
    config.write_text(
        f"user root; daemon off; pid {tmp_path}/nginx/pid; error_log stderr; events {{}} http {{ access_log off; "
        + "".join(f"{kind}_temp_path {tmp_path}/nginx/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        + f"keepalive_requests 100000; server {{ listen 127.0.0.1:{port} http2; root {files}; }} }}"
    )
    os.chmod(tmp_path, 0o755)
    nginx = subprocess.Popen(["nginx", "-e", "stderr", "-c", config], env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"}, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "nginx is ready")
        url = f"http://127.0.0.1:{port}"
        o = outcome(f"{url}/64k.bin", f"{url}/1k.bin", "--http2", "-c", 2, "--streams", 8, "-n", 400)
        assert o["requests"] == 400 and o["errors"] == 0 and o["connections"]["opened"] == 2
        assert o["connections"]["protocol"] == "h2c" and o["latency_ms"]["count"] == 400
        rate = outcome(f"{url}/1k.bin", "--http2", "--rate", 300, "-c", 2, "--streams", 4, "-d", "1s")
        assert 280 <= rate["requests"] <= 301
        wrong = outcome(f"{url}/none", "--http2", "-c", 1, "-n", 5, code=1)
        assert wrong["errors_by_kind"] == {"status": 5}
    finally:
        nginx.terminate()
        nginx.wait(20)


class Leaver:
    """A handwritten HTTP/2 server: on each connection it responds to `responses` streams and then announces that no
    other one is served, while some are in progress."""

    def __init__(self, responses, code=0):
        self.responses, self.code, self.served = responses, code, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/a"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        # A client that is done disconnects without reading the rest.
        with contextlib.suppress(OSError), client, client.makefile("rb") as read:
            if read.read(len(PREFACE)) != PREFACE:
                return
            client.sendall(frame(SETTINGS))
            waiting = []
            while len(head := read.read(9)) == 9:
                kind, stream = head[3], int.from_bytes(head[5:], "big")
                read.read(int.from_bytes(head[:3], "big"))
                if kind != HEADERS:
                    continue
                if stream < 2 * self.responses:
                    self._respond(client, stream)
                    continue
                # The shutdown is announced while two requests are in progress, one of which gets a response after it.
                waiting.append(stream)
                if len(waiting) == 2:
                    last = waiting[0] if self.responses else 0
                    client.sendall(frame(GOAWAY, 0, 0, struct.pack(">II", last, self.code)))
                    if self.responses:
                        self._respond(client, last)

    def _respond(self, client, stream):
        client.sendall(frame(HEADERS, END_HEADERS, stream, b"\x88") + frame(DATA, END_STREAM, stream, b"x"))
        self.served += 1


def test_http2_requests_that_a_closing_server_did_not_process_are_sent_again():
    server = Leaver(10)
    o = outcome(server.url, "--http2", "--streams", 2, "-c", 1, "-d", "1s")
    assert o["errors"] == 0 and o["requests"] > 50 and set(o["status"]) == {"200"}, o["errors_by_kind"]
    # The two requests in flight at the end may get responses.
    assert server.served - 2 <= o["requests"] <= server.served
    assert o["connections"]["opened"] > 3 and o["requests"] / o["connections"]["opened"] <= 11
    count = outcome(server.url, "--http2", "--streams", 2, "-c", 1, "-n", 101)
    assert (count["requests"], count["errors"], count["connections"]["opened"]) == (101, 0, 10)


def test_http2_servers_that_close_with_an_error_or_at_once_are_reported():
    for server in (Leaver(10, code=11), Leaver(0)):
        o = outcome(server.url, "--http2", "--streams", 2, "-c", 1, "-d", "1s", code=1)
        assert o["errors_by_kind"].keys() == {"closed"} and o["errors"] > 1
