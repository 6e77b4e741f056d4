"""Reports of `dunlin load` about servers that stall, fall silent, or respond with errors."""

import json
import re
import socket
import subprocess
import threading
import time

import pytest

from support.server import DUNLIN
from support.stub import StubServer

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def load(*arguments):
    command = [DUNLIN, "load", "--quiet", "--json", "-", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done, json.loads(done.stdout)


def text(*arguments):
    command = [DUNLIN, "load", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


class Stub(StubServer):
    """A server of one thread for each connection; `respond(connection, number)` handles one request."""

    def __init__(self, respond):
        self.respond = respond
        self.closed = threading.Event()
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        super().__init__(listener)

    def serve(self, connection):
        number, unread = 0, b""
        with connection:
            while not self.closed.is_set():
                try:
                    part = connection.recv(1 << 16)
                except OSError:
                    return
                if not part:
                    return
                unread += part
                while b"\r\n\r\n" in unread:
                    _, _, unread = unread.partition(b"\r\n\r\n")
                    self.respond(connection, number)
                    number += 1

    def close(self):
        self.closed.set()
        self.listener.close()


@pytest.fixture
def stub():
    stubs = []

    def start(respond):
        stubs.append(Stub(respond))
        return stubs[-1]

    yield start
    for server in stubs:
        server.close()


def test_a_server_that_stops_responding_stalls_the_run(stub):
    def once(connection, number):
        if number == 0:
            connection.sendall(RESPONSE)

    server = stub(once)
    done, outcome = load(server.url, "-c", 4, "-d", "2s")
    assert outcome["verdict"] == "STALLED"
    assert outcome["unfinished"]["in_flight"] == 4
    assert outcome["unfinished"]["oldest_ms"] > 1000
    assert outcome["latency_ms"]["p99"] > 1000 and outcome["requests"] == 4
    assert "in flight at the end" in outcome["reasons"][0]
    shown = text(server.url, "-c", 4, "-d", "1s")
    headline, verdict = shown.splitlines()[:2]
    assert re.fullmatch(r"[\d.,]+ requests/s, p99 [\d.,]+ \S+", headline) and verdict == "STALLED" and "unfinished" in shown, shown


def test_conditions_can_name_a_stall(stub):
    server = stub(lambda connection, number: connection.sendall(RESPONSE) if number == 0 else None)
    for condition in ("verdict=STALLED", "unfinished>0", "p99>500ms"):
        done, _ = load(server.url, "-c", 4, "-d", "1s", "--fail-if", condition)
        assert done.returncode == 3, condition


@pytest.mark.paced
@pytest.mark.parametrize("model", [("-c", 10), ("-c", 10, "--rate", 500)])
def test_pauses_of_the_server_are_reported(stub, model):
    """A closed run sends nothing during a pause, so that its percentiles do not show it."""
    began = time.monotonic()

    def pausing(connection, _):
        within = (time.monotonic() - began) % 1.0
        if within < 0.25:
            time.sleep(0.25 - within)
        connection.sendall(RESPONSE)

    server = stub(pausing)
    _, outcome = load(server.url, *model, "-d", "4s")
    if "--rate" in model:
        assert outcome["latency_ms"]["p99"] > 100
        assert outcome["verdict"] != "STALLED"
    else:
        assert outcome["verdict"] == "STALLED" and "silent" in outcome["reasons"][0]
        assert outcome["silence"]["share"] > 0.1 and outcome["silence"]["longest_ms"] > 150


@pytest.mark.paced
def test_slow_responses_are_no_stall(stub):
    def slow(connection, _):
        time.sleep(0.3)
        connection.sendall(RESPONSE)

    _, outcome = load(stub(slow).url, "-c", 4, "-d", "2s")
    assert outcome["verdict"] not in ("STALLED", "WRONG-ANSWERS"), outcome["reasons"]
    assert outcome["silence"] is None


def test_a_status_failure_has_the_url_and_the_beginning_of_the_body(stub):
    body = b"no such page here"
    response = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    server = stub(lambda connection, _: connection.sendall(response))
    url = server.url + "missing"
    done, outcome = load(url, "-n", 20)
    assert done.returncode == 1 and outcome["verdict"] == "WRONG-ANSWERS"
    reason = outcome["first_errors"]["status"]
    assert url in reason and "404" in reason and "no such page here" in reason
    shown = text(url, "-n", 20)
    assert reason in " ".join(shown.split()) and "--expect-status" in shown


def test_nothing_measured_has_no_figure(stub):
    server = stub(lambda connection, _: connection.sendall(RESPONSE.replace(b"200 OK", b"500 No")))
    _, outcome = load(server.url, "-n", 20)
    assert outcome["latency_ms"] is None and outcome["service_ms"] is None
    assert outcome["client"]["cpu_us_per_request"] is None
    shown = text(server.url, "-n", 20)
    assert "–" in shown and "0.000" not in shown and "0.00 µs" not in shown


def test_a_tls_failure_names_its_reason(stub):
    plain = stub(lambda connection, _: connection.sendall(RESPONSE))
    url = plain.url.replace("http://", "https://")
    done, outcome = load(url, "-n", 2, "-c", 1, "--timeout", "1s")
    assert outcome["errors"] > 0 and outcome["first_errors"], outcome
    assert done.returncode == 1


def test_a_self_signed_certificate_is_named(tmp_path):
    (tmp_path / "index.html").write_text("hello")
    command = [DUNLIN, "serve", str(tmp_path), "--tls-self-signed", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = server.stdout.readline().strip()
        assert url.startswith("https://")
        shown = text(url, "-n", 5, "-c", 1)
        assert "TLS handshakes failed" in shown and "--insecure" in shown
        plain = text(url.replace("https://", "http://"), "-n", 5, "-c", 1)
        assert "first" in plain and "https://" in plain
    finally:
        server.terminate()
        server.wait()


@pytest.mark.serial
def test_short_runs_can_be_noisy(stub):
    began = time.monotonic()

    def uneven(connection, _):
        # 2.5 intervals of the client (100 ms): at any offset, some intervals are entirely slow and some entirely fast.
        if int((time.monotonic() - began) / 0.25) % 2:
            time.sleep(0.01)
        connection.sendall(RESPONSE)

    _, outcome = load(stub(uneven).url, "-c", 2, "-d", "1s")
    # On a busy machine the generator is also short of a processor, and the server is silent, which have precedence.
    assert outcome["verdict"] in ("NOISY", "CLIENT-BOUND", "STALLED"), outcome["verdict"]
    assert any("scatter" in reason for reason in outcome["reasons"]), outcome["reasons"]


@pytest.mark.serial
def test_the_rate_of_a_fast_server_is_found(serve, site):
    """The delay of the generator counts against the given limit, not against the response time."""
    (site / "a.txt").write_text("hello")
    server = serve()
    _, outcome = load(f"{server.url}/a.txt", "--find-rate", "--p99", "200ms", "--most", "4000", "-d", "1s", "-c", 16)
    assert outcome["search"]["found"] == 4000, outcome["search"]
