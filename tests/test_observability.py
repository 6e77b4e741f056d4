"""Observability: metrics, status, live requests, phases, traces, the error log."""

import json
import re
import shutil
import signal
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from support.files import write
from support.http import read_response
from support.http2 import Client, DATA, frame, request
from support.server import DUNLIN
from support.tls import certificate
from support.waiting import wait_until

STATUS = '[[site.route]]\npath = "/status/*"\nstatus = true\n'


def samples(text, parser=prometheus):
    found = {}
    for family in parser(text):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def total(found, name, **labels):
    """The sum over all samples of that name that have these labels."""
    wanted = labels.items()
    return sum(value for (n, have), value in found.items() if n == name and wanted <= dict(have).items())


PHASE = "dunlin_request_phase_seconds"


def metrics(server):
    return samples(server.get("/status/metrics")[2].decode())


def test_metrics_add_up_and_real_parsers_read_them(serve, site):
    write(site / "a.txt", "x" * 100)
    write(site / "big", "x" * 500_000)
    server = serve(more=STATUS)
    for _ in range(7):
        server.get("/a.txt")
    server.get("/big")
    server.get("/none")
    server.exchange(b"BREW /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    server.exchange(b"nonsense\r\n\r\n")
    name = "http_server_request_duration_seconds_count"

    def counted():
        found = metrics(server)
        return found if total(found, name, http_response_status_code="400") else None

    found = wait_until(counted, "the last request to be counted")
    files = {"http_route": "", "dunlin_site": "default"}
    assert total(found, name, http_response_status_code="200", **files) == 8
    assert total(found, name, http_response_status_code="404", **files) == 1
    assert total(found, name, http_request_method="_OTHER", http_response_status_code="501") == 1
    assert total(found, "http_server_response_body_size_bytes_sum", http_response_status_code="200", **files) == 500_700
    # Buckets add up to the count.
    bound = "http_server_request_duration_seconds_bucket"
    assert total(found, bound, le="+Inf", **files) == total(found, name, **files)
    assert total(found, bound, le="10.0", **files) == total(found, name, **files)
    sizes = "http_server_response_body_size_bytes_bucket"
    assert total(found, sizes, le="1000.0", http_response_status_code="200", **files) == 7
    assert total(found, sizes, le="1000000.0", http_response_status_code="200", **files) == 8
    assert total(found, name, url_scheme="http") == total(found, name)
    for phase in ("head", "handler", "send"):
        assert total(found, PHASE + "_count", phase=phase, **files) == total(found, name, **files)
    wait_until(lambda: total(metrics(server), "dunlin_cache_requests_total", result="hit") >= 6, "hits")
    assert found["process_open_fds", ()] > 5 and found["process_resident_memory_bytes", ()] > 1e6
    with server.connect(), server.connect():
        wait_until(lambda: total(metrics(server), "dunlin_connections", state="idle") >= 2, "two connections")
    # The other format, on request.
    status, fields, body = server.get("/status/metrics", "Accept: application/openmetrics-text;version=1.0.0")
    assert status == 200 and fields["content-type"].startswith("application/openmetrics-text")
    assert total(samples(body.decode(), openmetrics), name, http_response_status_code="200", **files) == 8


def test_the_status_is_json_and_a_page_and_nothing_else(serve, site):
    write(site / "a.txt", "x")
    server = serve(more=STATUS)
    server.get("/a.txt")

    def counted():
        report = json.loads(server.get("/status/status.json")[2])
        return report if any(route["route"] == "" for route in report["routes"]) else None

    report = wait_until(counted, "the request to be counted")
    assert report["server"]["pid"] == server.pid
    assert sum(count for _, count in report["requests"]["latency"]) == report["requests"]["total"]
    # Clients are counted from the first look on.
    report = json.loads(server.get("/status/status.json")[2])
    wait_until(lambda: json.loads(server.get("/status/status.json")[2])["clients"], "a client")
    status, fields, page = server.get("/status/")
    assert status == 200 and b"<title>Dunlin: status</title>" in page
    assert "default-src 'none'" in fields["content-security-policy"]
    assert not re.search(rb"(src|href)=\"(https?:)?//", page)
    assert server.get("/status/other")[0] == 404
    assert server.get("/status/status.json", method="POST")[0] == 405
    assert server.get("/status/status.json", method="HEAD")[2] == b""


def test_events_arrive_each_second_and_end_with_the_server(serve, site):
    server = serve(server='stop_timeout = "60s"', more=STATUS)
    with server.connect() as connection:
        connection.sendall(b"GET /status/events HTTP/1.1\r\nHost: x\r\n\r\n")
        seen = b""
        while seen.count(b"data: {") < 3:
            seen += connection.recv(1 << 16)
        assert b"text/event-stream" in seen
        assert server.stop() == 0, "a stream of events does not delay the end until stop_timeout"


class Watch:
    """A running `dunlin watch`."""

    def __init__(self, server, *arguments):
        self.process = subprocess.Popen(
            [DUNLIN, "watch", "--admin", f"{server.url}/status/", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def lines(self):
        out, error = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, error
        return out.splitlines()


def watched(server, count):
    """Waits for a number of subscribers: each has a request in progress."""
    def waiting():
        report = json.loads(server.get("/status/status.json")[2])
        return dict(report["connections"]["open"])["handler"] >= count

    wait_until(waiting, f"{count} watchers")


def test_requests_are_watched_as_they_happen(serve, site):
    write(site / "a.txt", "x" * 1500)
    server = serve(more=STATUS)
    plain = Watch(server, "-n", "2", "path~.txt")
    failed = Watch(server, "-n", "1", "--json", "--level", "heads", "status>=400 && path~none && ms>=0")
    errors = Watch(server, "-n", "1", "--level", "errors", "--color", "always")
    watched(server, 3)
    server.get("/a.txt")
    server.get("/a.txt?x=1&token=secret")
    server.get("/none?q", "Cookie: id=secret", "Authorization: Basic secret", "X-A: b")
    lines = plain.lines()
    assert len(lines) == 2
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} 127\.0\.0\.1 +200 +[\d.]+ .s +1\.5 KB GET http://x/a\.txt  HTTP/1\.1 cache=\w+", lines[0]), lines[0]
    assert "/a.txt?x=1&token=REDACTED" in lines[1]
    event = json.loads(failed.lines()[0])
    assert event["status"] == 404 and event["target"] == "/none?q" and event["phases"]["head_us"] >= 0
    fields = {name.lower(): value for name, value in event["fields"]}
    assert fields["cookie"] == fields["authorization"] == "REDACTED" and fields["x-a"] == "b"
    assert "\x1b[33m404\x1b[0m" in errors.lines()[0]


def test_requests_are_reported_at_their_start_with_begins(serve, site, tmp_path):
    go = tmp_path / "go"
    script = write(tmp_path / "cgi" / "wait", f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.02; done\necho Content-Type: text/plain\necho\necho done\n")
    script.chmod(0o755)
    server = serve(more=STATUS + f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{script.parent}" }}\n')
    both = Watch(server, "-n", "2", "--json", "--begins", "--level", "heads", "path~wait")
    shown = Watch(server, "-n", "2", "--begins", "path~wait")
    ends = Watch(server, "-n", "2", "--json", "path~wait")
    watched(server, 3)
    url = f"{server.url}/cgi/wait"
    held = [
        subprocess.Popen(["curl", "-s", url, "-H", "X-A: b", "-H", "Cookie: secret"], stdout=subprocess.PIPE),
        subprocess.Popen(["curl", "-s", "--http2-prior-knowledge", url + "?token=secret"], stdout=subprocess.PIPE),
    ]
    begun = [json.loads(both.process.stdout.readline()) for _ in held]
    assert [event["begins"] for event in begun] == [True, True] and not go.exists()
    assert {event["protocol"] for event in begun} == {"HTTP/1.1", "HTTP/2.0"}
    assert all(event["route"] == "/cgi/*" and event["site"] == "default" for event in begun)
    assert "secret" not in json.dumps(begun) and ["X-A", "b"] in begun[0]["fields"] + begun[1]["fields"]
    go.touch()
    for client in held:
        assert client.communicate(timeout=20)[0] == b"done\n"
    finished = [json.loads(line) for line in both.lines()]
    assert len(finished) == 2 and all("begins" not in event and event["status"] == 200 for event in finished)
    assert {event["connection"] for event in finished} == {event["connection"] for event in begun}
    lines = shown.lines()
    assert len(lines) == 4 and all(re.search(r"127\.0\.0\.1 +\.\.\.  +GET ", line) for line in lines[:2]), lines
    assert [json.loads(line)["status"] for line in ends.lines()] == [200, 200], "only requested events are sent"


@pytest.mark.parametrize("protocol", ["--http1.1", "--http2-prior-knowledge"])
def test_secrets_in_fields_are_not_watched(serve, site, protocol):
    write(site / "a.txt", "x")
    server = serve(server='redact_query = ["k"]', more=STATUS)
    reported = [Watch(server, "-n", "1", "--level", "heads", *more, "path~.txt") for more in (["--json"], [])]
    watched(server, 2)
    fields = [
        "Referer: http://u:hunter@h/?k=hunter&a=b", "X-Original-URL: /b?k=hunter", "Origin: http://h",
        "Cookie: id=hunter", "Authorization: Basic hunter", "Proxy-Authorization: Basic hunter", "X-A: b",
    ]
    command = ["curl", "-s", protocol, f"{server.url}/a.txt?k=hunter", *(part for field in fields for part in ("-H", field))]
    assert subprocess.run(command, capture_output=True).stdout == b"x"
    lines = [watch.lines() for watch in reported]
    assert "hunter" not in str(lines), lines
    shown = {name.lower(): value for name, value in json.loads(lines[0][0])["fields"]}
    for name in ("cookie", "authorization", "proxy-authorization"):
        assert shown[name] == "REDACTED", shown
    assert shown["referer"] == "http://REDACTED@h/?k=REDACTED&a=b" and shown["x-original-url"] == "/b?k=REDACTED"
    assert (shown["origin"], shown["x-a"]) == ("http://h", "b")
    assert any(re.fullmatch(r"(?i) +referer: http://REDACTED@h/\?k=REDACTED&a=b", line) for line in lines[1]), lines[1]


def broken_off(server, url, protocol):
    """Sends a request, and disconnects after the first bytes of the response."""
    client = subprocess.Popen(["curl", "-sN", protocol, f"{server.url}{url}"], stdout=subprocess.PIPE)
    assert client.stdout.read(1)
    client.kill()
    client.communicate()


def test_aborted_responses_are_errors(serve, site, tmp_path):
    write(site / "a.txt", "x" * 20_000)
    write(site / "big", "x" * 10_000_000)
    for name, rest in {"endless": "while echo more; do sleep 0.02; done", "cut": "head -c 300000 /dev/zero; kill -9 $$"}.items():
        script = write(tmp_path / "cgi" / name, f"#!/bin/sh\necho Content-Type: text/plain\necho\n{rest}\n")
        script.chmod(0o755)
    server = serve(
        more=STATUS
        + '[[site.route]]\npath = "/big"\nthrottle = { bandwidth = "100KB/s" }\n'
        + f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{tmp_path}/cgi" }}\n'
    )
    reported = Watch(server, "-n", "7", "--json", "--level", "errors")
    shown = Watch(server, "-n", "7", "--level", "errors")
    watched(server, 2)
    for protocol in ("--http1.1", "--http2-prior-knowledge"):
        # A complete response is no error.
        for path in ("/a.txt", "/big?head"):
            done = subprocess.run(["curl", "-s", protocol, *(["-I"] if "head" in path else []), server.url + path], capture_output=True)
            assert done.returncode == 0
        for path in ("/big", "/cgi/endless"):
            broken_off(server, path, protocol)
        assert subprocess.run(["curl", "-s", protocol, f"{server.url}/cgi/cut"], capture_output=True).returncode != 0
    assert server.get("/none")[0] == 404
    events = [json.loads(line) for line in reported.lines()]
    seen = sorted((event["protocol"], event["target"], event["status"], event.get("broken_off")) for event in events)
    expected = [("HTTP/1.1", "/none", 404, None)] + [
        (protocol, path, 200, True) for protocol in ("HTTP/1.1", "HTTP/2.0") for path in ("/big", "/cgi/cut", "/cgi/endless")
    ]
    assert seen == sorted(expected), seen
    assert all(event["bytes"] < 10_000_000 for event in events)
    lines = shown.lines()
    assert len(lines) == 7 and sum(line.endswith("  broken off") for line in lines) == 6, lines


def test_requests_whose_client_disconnects_are_recorded(serve, site, tmp_path):
    write(site / "big", "x" * 1_000_000)
    log = tmp_path / "access.log"
    server = serve(
        server=f'access_log = {{ path = "{log}", format = "json" }}',
        more=STATUS
        + '[[site.route]]\npath = "/fixed"\nrespond = { status = 200, body = "x" }\n'
        + '[[site.route]]\npath = "/big"\nthrottle = { bandwidth = "10KB/s" }\n',
    )
    reported = Watch(server, "-n", "3", "--json", "--level", "errors")
    watched(server, 1)
    # The response waits for the rest of the request's body.
    with server.connect() as connection:
        connection.sendall(b"POST /fixed HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
    with Client(server) as client:
        client.send(request(1, "/fixed", "POST", ended=False) + frame(DATA, 0, 1, b"abc"))
    # The connection ends because of the error.
    with Client(server) as client:
        client.send(request(1, "/big"))
        client.read_until(lambda kind, _, of, __: (kind, of) == (DATA, 1))
        client.send(frame(DATA, 0, 0, b"x"))
        client.read_rest()
    expected = [("HTTP/1.1", "/fixed", 499), ("HTTP/2.0", "/big", 200), ("HTTP/2.0", "/fixed", 499)]
    events = [json.loads(line) for line in reported.lines()]
    assert all(event["broken_off"] for event in events), events


    def seen(events):
        return sorted((event["protocol"], event["target"], event["status"]) for event in events if "/status/" not in event["target"])

    assert seen(events) == expected
    wait_until(lambda: seen(map(json.loads, log.read_text().splitlines())) == expected, "the same in the log")


def test_a_slow_subscriber_loses_lines_and_delays_no_request(serve, site):
    write(site / "a.txt", "x")
    server = serve(more=STATUS)
    with server.connect() as watcher:
        watcher.sendall(b"GET /status/watch HTTP/1.1\r\nHost: x\r\n\r\n")
        assert watcher.recv(10).startswith(b"HTTP/1.1 2")
        batch = b"GET /a.txt?" + b"x" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        with server.connect() as connection:
            sent = 3_000
            for _ in range(sent // 100):
                connection.sendall(batch * 100)
                rest = b""
                for _ in range(100):
                    status, _, _, rest = read_response(connection, rest)
                    assert status == 200
        # Now it reads: the buffered lines, and the number of lost ones.
        seen, lost, kept = b"", 0, 0
        while kept + lost < sent:
            part = watcher.recv(1 << 16)
            assert part, "closed"
            seen += part
            # A line may be in two chunks.
            lines = re.sub(rb"\r\n[0-9A-Fa-f]+\r\n", b"", seen)
            lost = sum(map(int, re.findall(rb'\{"lost":(\d+)\}', lines)))
            kept = lines.count(b'"route":')
        assert lost > 0 and kept > 0 and kept + lost == sent


def test_the_admin_socket_has_the_same_status_without_a_route(serve, site, tmp_path):
    write(site / "a.txt", "x" * 1500)
    socket = tmp_path / "admin.sock"
    log = tmp_path / "access.log"
    server = serve(server=f'admin = "{socket}"\naccess_log = "{log}"')
    arguments = ["--admin", str(socket)]
    look = [DUNLIN, "top", "--once", "--interval", "0.3", *arguments]
    assert "requests" in subprocess.run(look, capture_output=True, text=True).stdout
    watch = subprocess.Popen([DUNLIN, "watch", "-n", "1", *arguments], stdout=subprocess.PIPE, text=True)
    stop = threading.Event()

    def load():
        while not stop.is_set():
            server.get("/a.txt")

    thread = threading.Thread(target=load)
    thread.start()
    try:
        out, _ = watch.communicate(timeout=20)
        assert re.search(r"127\.0\.0\.1 +200 .* GET http://x/a\.txt", out), out
        wait_until(lambda: re.search(r"^client +127\.0\.0\.1: [1-9]", subprocess.run(look, capture_output=True, text=True).stdout, re.M), "the client")
    finally:
        stop.set()
        thread.join()
    curl = ["curl", "-s", "--unix-socket", str(socket), "http://x/metrics"]
    found = samples(subprocess.run(curl, capture_output=True, text=True).stdout)
    assert total(found, "http_server_request_duration_seconds_count", http_response_status_code="200") > 0
    # The counters survive a reload.
    before = total(found, "http_server_request_duration_seconds_count", http_route="", dunlin_site="default")
    assert subprocess.run([DUNLIN, "reload", *arguments], capture_output=True).returncode == 0
    found = samples(subprocess.run(curl, capture_output=True, text=True).stdout)
    after = total(found, "http_server_request_duration_seconds_count", http_route="", dunlin_site="default")
    assert after >= before > 0


def test_a_wrong_filter_is_explained(serve):
    server = serve(more=STATUS)
    done = subprocess.run([DUNLIN, "watch", "--admin", server.url, "staus>1"], capture_output=True, text=True)
    assert done.returncode == 2 and '"staus" is not one of status' in done.stderr and "  ^" in done.stderr
    assert server.get(f"/status/watch?filter={quote('ms>')}")[0] == 400
    assert server.get("/status/watch?level=all")[0] == 400
    done = subprocess.run([DUNLIN, "top", "--once", "--admin", server.url], capture_output=True, text=True)
    assert done.returncode == 1 and "no status route at /; add [[site.route]]" in done.stderr


@pytest.fixture
def terminal():
    """Runs a command in tmux, and reads its screen."""
    names = []

    def run(*command, width=120, height=40):
        name = f"dunlin-test-{time.monotonic_ns()}"
        names.append(name)
        tmux = ["tmux", "-L", name, "-f", "/dev/null"]
        start = ["new-session", "-d", "-x", str(width), "-y", str(height), *command]
        subprocess.run([*tmux, *start], check=True)

        def screen(*options):
            return subprocess.run([*tmux, "capture-pane", "-p", *options], capture_output=True, text=True).stdout

        def keys(*keys):
            subprocess.run([*tmux, "send-keys", *keys], check=True)

        return screen, keys

    yield run
    for name in names:
        subprocess.run(["tmux", "-L", name, "kill-server"], capture_output=True)


@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")
def test_top_shows_the_current_load(serve, site, terminal):
    write(site / "a.txt", "x" * 1000)
    server = serve(more=STATUS)
    screen, keys = terminal(DUNLIN, "top", "--interval", "0.3", "--admin", f"{server.url}/status/")
    stop = threading.Event()

    def load():
        with server.connect() as connection:
            while not stop.is_set():
                connection.sendall(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n")
                assert read_response(connection)[0] == 200

    thread = threading.Thread(target=load)
    thread.start()
    try:
        # Large rates are without decimals: `12.3`, `1,234`.
        wait_until(lambda: re.search(r"127\.0\.0\.1 +[1-9]\d*(\.\d|(,\d{3})+) ", screen()), "the client's rate")
        text = screen()
        assert re.search(r"Requests/s [1-9]\d*", text) and f"process {server.pid}" in text
        assert re.search(r"default /status/\*", text) and "order: requests" in text
        keys("s")
        wait_until(lambda: "order: latency" in screen(), "another order")
        keys("?")
        wait_until(lambda: "close this help" in screen(), "the help")
        keys("?")
        wait_until(lambda: "close this help" not in screen(), "no help")
        keys("p")
        wait_until(lambda: "paused" in screen(), "the pause")
        keys("q")
        wait_until(lambda: "Requests/s" not in screen(), "the end")
        done = subprocess.run(
            [DUNLIN, "top", "--once", "--interval", "0.5", "--admin", f"{server.url}/status/"],
            capture_output=True, text=True,
        )
        assert re.search(r"^requests +[1-9][\d.]*/s, ", done.stdout, re.M), done.stdout + done.stderr
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")
def test_top_has_a_piece_of_everything_on_a_small_terminal(serve, site, tmp_path, terminal):
    write(site / "a.txt", "x" * 1000)
    script = write(tmp_path / "cgi" / "hi", "#!/bin/sh\necho Content-Type: text/plain\necho\necho hi\n")
    script.chmod(0o755)
    file, key = certificate(tmp_path, "own")
    admin = tmp_path / "admin.sock"
    server = serve(
        text=f'[server]\nthreads = 1\nadmin = "{admin}"\n[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n'
        f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{file}", key = "{key}" }}\n'
        f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{script.parent}" }}\n'
        + "".join(f'[[site.route]]\npath = "/{name}"\nlimit = {{ requests = "1/h" }}\n' for name in "bcdef")
    )
    screen, keys = terminal(DUNLIN, "top", "--interval", "0.3", "--admin", str(admin), width=80, height=24)

    def shown():
        assert server.get("/a.txt")[0] == server.get("/cgi/hi")[0] == 200
        text = screen()
        return text if re.search(r"127\.0\.0\.1 +[1-9]\d*(\.\d|(,\d{3})+) ", text) and "p99" in text else None

    text = wait_until(shown, "the client's rate")
    assert len(text.splitlines()) == 24 and max(map(len, text.splitlines())) == 80, text
    assert re.search(r"┌Requests/s \d+─*┐┌Bytes/s [\d.]+ .?B─*┐┌p50·p99 [\d.]+ .?s · [\d.]+ .?s─*┐┌CPU \d+ %─*┐", text), text
    assert re.search(r"│open +\d+ of [1-9]\d{0,2}(,\d{3})*│", text) and re.search(r"memory +[\d.]+ .?B│", text), text
    assert re.search(r"hits now +[\d.]+ %│", text) and re.search(r"of bytes +[\d.]+ %│", text), text
    assert re.search(r"┌Scripts─+┐\n│/", text), text
    assert re.search(r"┌Routes[^┐]*┐\n│ +req/s.*\n│default ", text), text
    assert re.search(r"┌Clients─+┐\n│ +req/s.*\n│127\.0\.0\.1 ", text), text
    # Lists without room are counted, and marked if a line of them needs attention.
    assert re.search(r"  Tab: \d+ limits?, 1 certificate", text) and "! Tab" not in text, text
    assert [server.get("/b")[0] for _ in range(2)] == [404, 429]
    wait_until(lambda: "! Tab: " in screen(), "the hint")
    keys("q")
    wait_until(lambda: "Requests/s" not in screen(), "the end")


@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")
def test_watch_shows_requests_on_a_terminal_until_it_is_interrupted(serve, site, tmp_path, terminal):
    write(site / "a.txt", "x" * 1000)
    server = serve(more=STATUS)
    # A shell that remains prints the exit status of the command.
    shell = (
        'trap : INT; "$0" watch --level phases --admin "$1/status/" "path!~status"; echo "ended with $?"; '
        'while [ ! -e "$2" ]; do sleep 0.02; done'
    )
    over = tmp_path / "over"
    screen, keys = terminal("bash", "-c", shell, DUNLIN, server.url, str(over), width=100, height=24)
    watched(server, 1)
    with server.connect() as connection:
        for path in ("/a.txt", "/none"):
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            read_response(connection)
    wait_until(lambda: "x/none" in screen(), "both requests")
    colored, plain = screen("-e"), screen()
    assert re.search(r"\x1b\[32m200\x1b\[(0|39)m", colored) and re.search(r"\x1b\[33m404\x1b\[(0|39)m", colored), colored
    assert re.search(r"127\.0\.0\.1 +200 +[\d.]+ .s +1\.0 KB GET http://x/a\.txt", plain), plain
    # In the order of time, which is not that of the alphabet.
    first, second = (re.findall(r"(\w+) [\d.]+ .s", line) for line in plain.splitlines() if line.startswith("    "))
    assert first[:2] == ["idle", "head"] and second == ["head", "route", "handler", "send"], plain
    keys("C-c")
    wait_until(lambda: "ended with 130" in screen(), "the end")
    assert server.get("/a.txt")[0] == 200
    over.touch()


def test_phases_are_in_the_log_and_in_server_timing(serve, site, tmp_path):
    write(site / "a.txt", "x")
    log = tmp_path / "access.log"
    server = serve("server_timing = true", server=f'access_log = {{ path = "{log}", format = "json" }}')
    for _ in range(2):
        status, fields, body = server.get("/a.txt")
        assert status == 200 and body == b"x"
        names = [name for name, _, _ in (part.partition(";dur=") for part in fields["server-timing"].split(", "))]
        assert names == ["idle", "head", "route", "handler"]
    assert server.get("/none")[1]["server-timing"].startswith("idle;dur=")
    assert server.get("/a.txt", "Range: bytes=0-0")[1]["server-timing"]
    with server.connect() as connection:
        connection.sendall(b"GET /a.txt HT")
        time.sleep(0.2)  # The value is a duration.
        connection.sendall(b"TP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while connection.recv(1 << 16):
            pass
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 5, "five lines")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(list(entry["phases"]) == ["idle_us", "head_us", "route_us", "handler_us", "send_us"] for entry in entries)
    last = entries[-1]
    assert 190_000 < last["phases"]["head_us"] <= last["duration_us"]
    assert sum(last["phases"].values()) - last["phases"]["idle_us"] <= last["duration_us"] + 3


def test_every_request_has_its_phases_even_from_the_cache(serve, site, tmp_path):
    write(site / "a.txt", "x")
    log = tmp_path / "access.log"
    script = write(tmp_path / "cgi" / "slow", "#!/bin/sh\nsleep 0.2\nprintf 'Content-Type: text/plain\\n\\nslow'\n")
    script.chmod(0o755)
    more = STATUS + f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{tmp_path}/cgi" }}\n'
    server = serve(more=more, server=f'access_log = {{ path = "{log}", format = "json" }}')
    requests = [b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n"] * 3
    requests += [b"GET /cgi/slow HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"]
    server.exchange(b"".join(requests))
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 5, "five lines")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    every = ["head_us", "route_us", "handler_us", "send_us"]
    assert [list(entry["phases"]) for entry in entries] == [["idle_us", *every], *[every] * 4]
    assert [entry["cache"] for entry in entries] == ["miss", "hit", "hit", "-", "hit"]
    assert entries[3]["phases"]["handler_us"] > 190_000 and entries[3]["phases"]["route_us"] < 100_000
    # A request after a slow one on the same connection waits.
    behind = entries[4]["phases"]
    assert behind["route_us"] > 190_000 and behind["handler_us"] < 100_000

    def counted():
        found = metrics(server)
        return found if total(found, PHASE + "_count", http_route="", phase="send") == 4 else None

    found = wait_until(counted, "the requests to be counted")
    slow = {"http_route": "/cgi/*", "phase": "handler"}
    assert total(found, PHASE + "_count", **slow) == 1 and 0.19 < total(found, PHASE + "_sum", **slow) < 5
    assert total(found, PHASE + "_count", http_route="", phase="idle") == 1
    assert total(found, PHASE + "_count", http_route="", phase="route") == 4
    assert total(found, PHASE + "_sum", http_route="", phase="route") > 0.19


def test_pools_of_the_same_scripts_are_one_series(serve, site, tmp_path):
    script = write(tmp_path / "cgi" / "a", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nx'\n")
    script.chmod(0o755)
    kind = f'script = {{ kind = "cgi", directory = "{tmp_path}/cgi", processes = 3 }}\n'
    server = serve(more=STATUS + "".join(f'[[site.route]]\npath = "/{name}/*"\n{kind}' for name in "xy"))
    assert server.get("/x/a")[2] == server.get("/y/a")[2] == b"x"
    text = server.get("/status/metrics")[2].decode()
    names = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(names) == len(set(names)), "a series is there once"
    assert total(metrics(server), "dunlin_scripts_processes_limit") == 6


def test_the_log_contains_no_secrets(serve, site, tmp_path):
    write(site / "a.txt", "x")
    log = tmp_path / "access.log"
    server = serve(server=f'access_log = "{log}"')
    server.get("/a.txt?a=1&Password=hunter2&t%6Fken=hunter2", "Referer: http://me:hunter2@x/?sig=hunter2")
    server.exchange(b"GET http://me:hunter2@x/a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 2, "two lines")
    text = log.read_text()
    assert "hunter2" not in text and "/a.txt?a=1&Password=REDACTED&t%6Fken=REDACTED" in text
    other = tmp_path / "other.log"
    server = serve(server=f'access_log = "{other}"\nredact_query = ["mine"]')
    server.get("/a.txt?mine=1&token=2")
    wait_until(lambda: other.exists() and "?mine=REDACTED&token=2" in other.read_text(), "the line")


class Collector:
    """A receiver of OTLP over HTTP, which reads it by OpenTelemetry's own definitions."""

    def __init__(self, pair=None):
        self.spans, self.services, self.status = [], set(), 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                # JSON has identifiers in hexadecimal digits, where protobuf's own form has base64.
                message = json.loads(body)
                for resource in message["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        ids = [{key: span.pop(key, "") for key in ("traceId", "spanId", "parentSpanId")} for span in scope["spans"]]
                        scope["ids"] = ids
                all_ids = [scope.pop("ids") for resource in message["resourceSpans"] for scope in resource["scopeSpans"]]
                request = json_format.ParseDict(message, ExportTraceServiceRequest())
                if collector.status == 200:
                    for resource in request.resource_spans:
                        collector.services |= {a.value.string_value for a in resource.resource.attributes if a.key == "service.name"}
                        for scope, ids in zip(resource.scope_spans, all_ids):
                            collector.spans += list(zip(ids, scope.spans))
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if pair:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*pair)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        scheme = "https" if pair else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}/v1/traces"


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.server.shutdown()


def attributes(span):
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


def test_traces_reach_a_collector_and_join_those_of_clients_and_scripts(serve, site, tmp_path, collector):
    write(site / "a.txt", "x" * 10)
    scripts = tmp_path / "cgi"
    script = write(scripts / "parent", '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n%s" "$HTTP_TRACEPARENT"\n')
    script.chmod(0o755)
    more = f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{scripts}" }}\n' + STATUS
    server = serve(server=f'traces = {{ endpoint = "{collector.url}", sample = 0, service = "shop" }}', more=more)
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    server.get("/a.txt")
    server.get("/a.txt", f"traceparent: 00-{trace}-{parent}-00")
    traced = f"GET /a.txt?token=hunter2 HTTP/1.1\r\nHost: localhost:{server.port}\r\ntraceparent: 00-{trace}-{parent}-01\r\n"
    server.exchange(f"{traced}Connection: close\r\n\r\n".encode())
    own = server.get("/cgi/parent", f"traceparent: 00-{trace}-{parent}-01")[2].decode()
    assert re.fullmatch(rf"00-{trace}-[0-9a-f]{{16}}-01", own) and parent not in own
    wait_until(lambda: len(collector.spans) == 2, "two spans")
    assert collector.services == {"shop"}
    (ids, file), (script_ids, script) = collector.spans
    assert ids["traceId"] == trace and ids["parentSpanId"] == parent
    assert script_ids["spanId"] in own
    have = attributes(file)
    assert have["http.request.method"] == "GET" and have["http.response.status_code"] == 200
    assert have["url.scheme"] == "http" and have["server.address"] == "localhost" and int(have["server.port"]) == server.port
    assert {f"dunlin.phase.{phase}_us" for phase in ("head", "route", "handler", "send")} <= have.keys()
    assert have["url.path"] == "/a.txt" and have["url.query"] == "token=REDACTED"
    assert file.kind == 2 and 0 < file.end_time_unix_nano - file.start_time_unix_nano < 10e9
    assert attributes(script)["http.route"] == "/cgi/*" and attributes(script)["dunlin.phase.handler_us"] > 0
    wait_until(lambda: total(metrics(server), "dunlin_spans_total", result="sent") == 2, "the count")


def test_traces_reach_a_collector_by_https_that_is_trusted(serve, site, tmp_path):
    write(site / "a", "x")
    authority = certificate(tmp_path, "authority")
    collector = Collector(certificate(tmp_path, "collector", issuer=authority))
    try:
        server = serve(server=f'traces = {{ endpoint = "{collector.url}", authority = "{authority[0]}" }}')
        for _ in range(3):
            server.get("/a")
        wait_until(lambda: len(collector.spans) == 3, "three spans")
        stranger = certificate(tmp_path, "stranger")
        server = serve(server=f'traces = {{ endpoint = "{collector.url}", authority = "{stranger[0]}" }}', more=STATUS)
        server.get("/a")
        assert "certificate" in server.logged("traces are lost").lower()
        assert len(collector.spans) == 3
        with pytest.raises(AssertionError, match="traces: .*none.pem"):
            serve(server=f'traces = {{ endpoint = "{collector.url}", authority = "none.pem" }}')
    finally:
        collector.server.shutdown()


def test_a_collector_that_fails_costs_spans_only(serve, site, collector):
    write(site / "a.txt", "x")
    collector.status = 503
    server = serve(server=f'stop_timeout = "60s"\ntraces = {{ endpoint = "{collector.url}" }}', more=STATUS)
    for _ in range(20):
        assert server.get("/a.txt")[0] == 200
    server.logged("traces are lost: the collector responds with 503")
    wait_until(lambda: total(metrics(server), "dunlin_spans_total", result="lost") >= 20, "the loss")
    assert server.stop() == 0, "lost spans do not delay the end until stop_timeout"


def test_the_error_log_is_a_file_that_can_be_rotated(serve, site, tmp_path):
    log = tmp_path / "error.log"
    server = serve(server=f'error_log = {{ path = "{log}", format = "json", level = "debug" }}')
    server.exchange(b"nonsense\r\n\r\n")
    wait_until(lambda: "request rejected" in log.read_text(), "the message")
    assert all(json.loads(line)["level"] for line in log.read_text().splitlines())
    log.rename(tmp_path / "error.log.1")
    server.process.send_signal(signal.SIGUSR1)
    wait_until(log.exists, "the new file")

    # A message that is written while the file is opened is in the old one.
    def is_in_the_new_file():
        server.exchange(b"nonsense\r\n\r\n")
        return "request rejected" in log.read_text()

    wait_until(is_in_the_new_file, "the message in the new file")
    assert server.log == "" and server.stop() == 0


def test_repeated_messages_are_summed_up(serve, site, tmp_path):
    scripts = tmp_path / "cgi"
    script = write(scripts / "broken", "#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    more = f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{scripts}" }}\n'
    server = serve(more=more)
    for _ in range(30):
        assert server.get("/cgi/broken")[0] == 502
    assert server.stop() == 0
    reported = [line for line in server.log.splitlines() if "the response is invalid" in line]
    assert len(reported) == 2, server.log
    assert "repeated: the response is invalid" in reported[1] and "times=29" in reported[1]


@pytest.mark.skipif(not shutil.which("unshare"), reason="there is no unshare here")
def test_the_error_log_reaches_the_journal(site, tmp_path):
    """In a mount namespace, where the journal's socket is ours."""
    config = tmp_path / "dunlin.toml"
    config.write_text(
        '[server]\nthreads = 1\nerror_log = { path = "journald" }\n[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[site]]\nroot = "{site}"\n'
    )
    inside = tmp_path / "inside.py"
    inside.write_text(f"""
import os, signal, socket, subprocess
os.makedirs("/run/systemd/journal")
journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
journal.bind("/run/systemd/journal/socket")
server = subprocess.Popen(["{DUNLIN}", "serve", "--config", "{config}"], stdout=subprocess.PIPE)
server.stdout.readline()
server.send_signal(signal.SIGTERM)
journal.settimeout(15)
seen = b""
while b"stopping" not in seen:
    seen = journal.recv(1 << 16)
assert b"SYSLOG_IDENTIFIER" in seen and b"dunlin" in seen and b"PRIORITY" in seen, seen
assert server.wait(15) == 0
print("told")
""")
    command = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none /run && exec python3 {inside}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "Operation not permitted" in done.stderr and "unshare" in done.stderr:
        pytest.skip("a mount namespace needs root")
    assert done.stdout == "told\n", done.stdout + done.stderr


def test_limits_report_their_counters(serve, site, tmp_path):
    write(site / "big", "x" * 3_000_000)
    write(site / "a", "x")
    go = tmp_path / "go"
    script = write(tmp_path / "cgi" / "wait", f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.02; done\necho Content-Type: text/plain\necho\necho done\n")
    script.chmod(0o755)
    cgi = f'script = {{ kind = "cgi", directory = "{script.parent}" }}'
    server = serve(
        server="connections_per_address = 10",
        more=STATUS
        + f'[[site.route]]\npath = "/one/*"\n{cgi}\nthrottle = {{ max_concurrent = 1, queue = 1 }}\n'
        + f'[[site.route]]\npath = "/dry/*"\n{cgi}\nthrottle = {{ max_concurrent = 1, queue = 1, dry_run = true }}\n'
        + '[[site.route]]\npath = "/big"\nthrottle = { bandwidth = "400KB/s", minimum = "300KB/s" }\n'
        + '[[site.route]]\npath = "/a"\nlimit = { requests = "3/h" }\n',
    )
    responses = {server.get("/a")[0] for _ in range(5)}
    assert responses == {200, 429}

    def report():
        reported = json.loads(server.get("/status/status.json")[2])
        return reported, {limits["route"]: limits for limits in reported["limits"]}

    def fetch(path):
        connection = server.connect()
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return connection

    held = [fetch("/one/wait") for _ in range(2)]
    wait_until(lambda: report()[1]["/one/*"]["concurrency"]["waiting"] == 1, "one that waits")
    assert server.get("/one/wait")[0] == 503
    held += [fetch("/dry/wait") for _ in range(3)] + [fetch("/big")]
    held[-1].recv(100)
    assert server.get("/big")[0] == 503
    wait_until(lambda: report()[1]["/dry/*"]["concurrency"]["running"] == 3, "all to run")
    reported, routes = report()
    throttle = routes["/one/*"]["concurrency"]
    assert (throttle["running"], throttle["waiting"], throttle["rejected"], throttle["dry_run"]) == (1, 1, 1, False)
    dry = routes["/dry/*"]["concurrency"]
    assert (dry["running"], dry["waiting"], dry["queued"], dry["rejected"], dry["dry_run"]) == (3, 0, 1, 1, True)
    bandwidth = routes["/big"]["bandwidth"]
    assert (bandwidth["sending"], bandwidth["rejected"]) == (1, 1) and 0 < bandwidth["sent"] < 3_000_000
    [rate] = routes["/a"]["rates"]
    assert (rate["passed"], rate["rejected"]) == (3, 2) and "3" in rate["rule"]
    assert routes.keys() == {"/one/*", "/dry/*", "/big", "/a"}
    # The same for Prometheus.
    found = metrics(server)
    done = subprocess.run(
        [DUNLIN, "top", "--once", "--interval", "0.1", "--admin", f"{server.url}/status/"], capture_output=True, text=True
    )
    assert re.search(r"^limit +default /one/\* 1 concurrent.*: 1 running, 1 waiting, \d+ served, 1 rejected$", done.stdout, re.M), done
    one = {"http_route": "/one/*", "dunlin_site": "default"}
    assert total(found, "dunlin_throttle_running", **one) == total(found, "dunlin_throttle_waiting", **one) == 1
    name = "dunlin_throttle_requests_total"
    assert total(found, name, result="rejected", dry_run="false", **one) == 1
    assert total(found, name, result="rejected", dry_run="true", http_route="/dry/*") == 1
    assert total(found, "dunlin_bandwidth_sending", http_route="/big") == 1
    assert total(found, "dunlin_bandwidth_rejected_total", http_route="/big") == 1
    assert total(found, "dunlin_bandwidth_sent_bytes_total", http_route="/big") > 0
    name = "dunlin_limit_requests_total"
    assert (total(found, name, result="passed"), total(found, name, result="rejected")) == (3, 2)
    samples(server.get("/status/metrics", "Accept: application/openmetrics-text")[2].decode(), openmetrics)
    # Connections beyond their address's.
    more = [server.connect() for _ in range(8)]
    for connection in more + held:
        connection.close()
    go.touch()

    def after():
        try:
            reported, routes = report()
        except (ConnectionError, IndexError):
            return None
        at_rest = routes["/one/*"]["concurrency"]["running"] == 0
        return at_rest and reported["connections"]["rejected"] >= 1 and reported

    wait_until(after, "the end of all")
    assert total(metrics(server), "dunlin_connections_closed_total", limit="address") >= 1
