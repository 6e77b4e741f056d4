"""The text of `dunlin load`: its width, its colours, and what it says about failures."""

import os
import pty
import re
import socket
import subprocess
import threading

import pytest

from support.server import DUNLIN

COLUMNS = 80
ESCAPE = "\x1b["


def run(*arguments, code=None):
    done = subprocess.run([DUNLIN, "load", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def words(text):
    """The text without its line breaks."""
    return " ".join(text.split())


def check_width(done):
    for line in (done.stdout + done.stderr).splitlines():
        assert len(line) <= COLUMNS, (len(line), line)
    assert ESCAPE not in done.stdout + done.stderr, "the output is no terminal"


def on_terminal(*arguments, environment=None):
    """What a run prints on a terminal as its standard output."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [DUNLIN, "load", *map(str, arguments)], stdout=theirs, stderr=subprocess.DEVNULL,
        env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **(environment or {})},
    ):
        os.close(theirs)
        printed = b""
        try:
            while part := os.read(ours, 1 << 16):
                printed += part
        except OSError:  # Linux reports the end of a terminal so.
            pass
    os.close(ours)
    return printed.decode()


@pytest.fixture
def url(serve, site):
    (site / "a.txt").write_text("hello")
    (site / "big.bin").write_bytes(bytes(1 << 20))
    return serve().url


@pytest.mark.parametrize(
    "arguments",
    [
        ("a.txt", "-c", 4, "-d", "300ms", "--histogram"),
        ("a.txt", "-n", 200, "--no-keepalive", "-t", 2),
        ("a.txt", "-n", 200, "--pipeline", 8, "-H", "X-Name: value", "--verify", "--warmup", "100ms", "-c", 3),
        ("a.txt", "--rate", "poisson:300", "-d", "2.2s"),
        ("a.txt", "-n", 20, "--http2", "--streams", 4),
        ("none", "-n", 20),
        ("none", "-n", 20, "--http2"),
        ("big.bin", "--modem", 512, "--find-users", "--most", 4, "-c", 2, "-d", "2s"),
        ("a.txt", "--find-rate", "--p99", "1s", "--most", 2000, "-d", "300ms"),
    ],
)
def test_the_text_has_at_most_80_columns(url, arguments):
    path, *options = arguments
    check_width(run(f"{url}/{path}", *options))


def test_percentiles_have_their_usual_names(url):
    shown = run(f"{url}/a.txt", "-n", 3000, "-c", 2, "--histogram").stdout
    assert re.search(r"^ms +mean +p50 +p90 +p99 +p99.9 +max$", shown, re.M), shown
    rows = re.findall(r"^ +[\d.]+ to +[\d.]+ .* ([\d,]+) +[\d.]+ %$", shown, re.M)
    assert sum(int(count.replace(",", "")) for count in rows) == 3000, shown
    assert re.search(r"p99.9 +[\d.]+ ms", shown) and "█" in shown
    assert "█" not in run(f"{url}/a.txt", "-n", 20).stdout


def test_the_verdict_has_a_color_on_a_terminal(url):
    arguments = (f"{url}/none", "-n", 10)
    assert f"{ESCAPE}31mWRONG-ANSWERS{ESCAPE}0m" in on_terminal(*arguments)
    assert ESCAPE not in on_terminal(*arguments, environment={"NO_COLOR": "1"})
    assert ESCAPE in on_terminal(*arguments, environment={"NO_COLOR": ""}), "an empty value is no choice"


def test_a_wrong_url_is_explained(url):
    done = run(f"{url}/none", "-n", 10, code=1)
    shown = words(done.stdout)
    assert f"first: {url}/none: status 404" in shown and shown.count("first:") == 1
    assert "nothing at this URL" in shown and "--expect-status 404" in shown
    assert re.search(r"^requests +– ", done.stdout, re.M) and "0.000" not in done.stdout
    http2 = words(run(f"{url}/none", "-n", 10, "--http2", code=1).stdout)
    assert f"first: {url}/none: status 404" in http2


def test_a_port_with_tls_is_explained(site):
    (site / "a.txt").write_text("hello")
    command = [DUNLIN, "serve", str(site), "--tls-self-signed", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            base = server.stdout.readline().strip().rstrip("/")
            secure = words(run(f"{base}/a.txt", "-n", 5, "-c", 1, code=1).stdout)
            assert "first: the certificate is rejected: no known authority has issued it" in secure and "--insecure" in secure
            plain = words(run(base.replace("https:", "http:") + "/a.txt", "-n", 5, "-c", 1, code=1).stdout)
            assert "the port uses TLS; use https://" in plain
            assert run(f"{base}/a.txt", "-n", 5, "-c", 1, "--insecure").returncode == 0
        finally:
            server.terminate()


def test_a_port_without_tls_is_explained(url):
    shown = words(run(url.replace("http:", "https:") + "/a.txt", "-n", 2, "-c", 1, code=1).stdout)
    assert "the port does not use TLS; use http://" in shown


def test_a_server_that_responds_with_a_tls_alert_is_explained():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def alert():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(b"\x15\x03\x03\x00\x02\x02\x0a")

        threading.Thread(target=alert, daemon=True).start()
        shown = words(run(f"http://127.0.0.1:{listener.getsockname()[1]}/", "-n", 2, "-c", 1, code=1).stdout)
        listener.shutdown(socket.SHUT_RDWR)
    assert "a TLS record, not HTTP" in shown and "use https://" in shown


def test_without_a_url_the_usage_is_printed():
    assert "Usage: dunlin load [OPTIONS] URL..." in run(code=2).stderr
