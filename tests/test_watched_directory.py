"""`dunlin serve DIR` can be watched, and `top` and `watch` name what a server lacks."""

import os
import re
import signal
import subprocess

import pytest

from support.files import write
from support.server import DUNLIN
from support.waiting import wait_until


@pytest.fixture
def serve_directory(tmp_path):
    """Starts `dunlin serve DIR` with its runtime directory: the process, and the lines that it has printed."""
    running = []

    def start(runtime, *more):
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
        command = [DUNLIN, "serve", str(tmp_path), "--listen", "127.0.0.1:0", *more]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        running.append(process)
        return process, process.stdout.readline()

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_a_server_of_a_directory_prints_where_it_can_be_watched(serve_directory, tmp_path):
    write(tmp_path / "a.txt", "x")
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    process, url = serve_directory(runtime)
    figures, requests = process.stdout.readline(), process.stdout.readline()
    socket = re.search(r"^figures:  dunlin top --admin (\S+)$", figures, re.M)[1]
    assert requests == f"requests: dunlin watch --admin {socket}\n" and socket.startswith(f"{runtime}/")
    assert os.stat(socket).st_mode & 0o777 == 0o600
    done = subprocess.run([DUNLIN, "top", "--once", "--interval", "0.1", "--admin", socket], capture_output=True, text=True)
    assert done.returncode == 0 and "requests" in done.stdout, done
    # Another server of the same directory leaves it to the first.
    other, _ = serve_directory(runtime, "--access-log", "off")
    other.send_signal(signal.SIGTERM)
    assert "dunlin top" not in other.communicate(timeout=20)[0]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 0 and not os.path.exists(socket)


def test_a_server_of_a_directory_starts_without_a_place_for_the_socket(serve_directory, tmp_path):
    process, url = serve_directory(tmp_path, )
    assert url.startswith("http://127.0.0.1:")
    long = tmp_path / ("x" * 100)
    long.mkdir()
    process, url = serve_directory(long)
    assert url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("command", [["top", "--once"], ["watch", "-n", "1"]])
def test_a_server_without_a_status_route_is_named(serve, site, command):
    write(site / "index.html", "page")
    server = serve()
    for prefix in ("/status/", "/status", ""):
        done = subprocess.run([DUNLIN, *command, "--admin", f"{server.url}{prefix}"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1, done
        assert f"no status route at {prefix.rstrip('/')}/; add [[site.route]] path = \"/status/*\", status = true" in done.stderr


def test_a_page_in_place_of_the_status_is_not_taken_for_one(serve, site):
    write(site / "index.html", "page")
    server = serve('try = ["{path}", "/index.html"]')
    for command in (["top", "--once"], ["watch", "-n", "1"]):
        done = subprocess.run([DUNLIN, *command, "--admin", f"{server.url}/status/"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and "no status route at /status/" in done.stderr, done


def test_the_settings_of_a_site_have_a_name_in_top(serve, site, tmp_path):
    write(site / "a.txt", "x")
    admin = tmp_path / "admin.sock"
    server = serve(
        text=f'[server]\nthreads = 1\nadmin = "{admin}"\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nhost = "x"\nroot = "{site}"\n'
    )

    def shown():
        server.get("/a.txt")
        return subprocess.run([DUNLIN, "top", "--once", "--interval", "0.1", "--admin", admin], capture_output=True, text=True).stdout

    assert wait_until(lambda: re.search(r"^route        x \(site\): ", shown(), re.M), "the route")
