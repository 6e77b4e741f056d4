"""Readiness: what balancers learn while a server stops, and changes of a configuration that is followed."""

import signal
import subprocess
import time

from support.files import write
from support.server import DUNLIN
from support.waiting import wait_until

ROUTE = '[[site.route]]\npath = "/ready"\nreadiness = true\n'


def status(server, path):
    return server.get(path)[0]


def test_a_server_that_drains_serves_and_is_not_ready(serve, site):
    write(site / "a.txt", "a")
    server = serve(server='drain = "60s"', more=ROUTE)
    assert server.get("/ready")[0] == 200 and server.get("/ready")[2] == b"ready\n"
    assert server.get("/ready")[1]["cache-control"] == "no-store"
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: status(server, "/ready") == 503, "it is not ready")
    assert server.get("/ready")[2] == b"draining\n" and server.get("/a.txt")[2] == b"a"
    assert server.get("/ready", method="HEAD")[0] == 503 and server.get("/ready", method="POST")[0] == 405
    server.logged("draining for 60 s")
    # A second signal ends the draining.
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(15) == 0


def test_draining_ends_by_itself_and_survives_a_reload(serve, site, tmp_path):
    server = serve(server=f'drain = "3s"\nadmin = "{tmp_path}/admin"', more=ROUTE)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: status(server, "/ready") == 503, "it is not ready")
    command = [DUNLIN, "reload", "--admin", tmp_path / "admin"]
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    assert status(server, "/ready") == 503
    upgrade = subprocess.run([DUNLIN, "upgrade", "--admin", tmp_path / "admin"], capture_output=True, text=True, timeout=30)
    assert upgrade.returncode == 1 and "the server is stopping" in upgrade.stderr
    assert server.process.wait(15) == 0


def test_without_drain_a_server_stops_at_once(serve):
    server = serve(more=ROUTE)
    assert status(server, "/ready") == 200
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(15) == 0 and "draining" not in server.log


def test_a_followed_configuration_is_in_force_when_it_has_changed(serve, site, tmp_path):
    text = (
        f'[server]\nthreads = 1\nadmin = "{tmp_path}/admin"\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\n'
        '[[site.route]]\npath = "/x"\nrespond = { body = "RESPONSE" }\n'
    )
    server = serve(text=text.replace("RESPONSE", "one"))
    file = tmp_path / "dunlin-0.toml"
    follower = subprocess.Popen([DUNLIN, "reload", "--follow", "--config", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for response in ("two", "three"):
            wait_until(lambda: change(file, text.replace("RESPONSE", response)) or server.get("/x")[2].decode() == response, response)
        change(file, text + "nonsense = 1\n")
        line = follower.stderr.readline()
        assert "nonsense" in line and server.get("/x")[2] == b"three"
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(15) == 0
    finally:
        follower.kill()
        follower.communicate()


def change(file, text):
    """Replaces a file by one that differs from any before. Returns nothing."""
    new = file.with_suffix(".new")
    new.write_text(f"{text}# {time.monotonic()}\n")
    new.rename(file)
