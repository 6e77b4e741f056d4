"""Commands to a running server: Unix sockets, the admin socket, reload, upgrade."""

import base64
import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest

from support.admin import by_unix, fetch, pid_of, run
from support.files import write
from support.http import read_all, read_response
from support.processes import end, is_alive
from support.server import DUNLIN
from support.tls import certificate
from support.waiting import wait_until

CGI = '#!/bin/sh\necho "Content-Type: text/plain"\necho\nenv | sort\n'


@pytest.fixture
def admin(tmp_path):
    return tmp_path / "admin.sock"


def listen_unix(path, more=""):
    return f'[[listen]]\naddress = "unix:{path}"\n{more}\n'


def test_a_unix_socket_serves_like_any_other(serve, site, tmp_path):
    write(site / "a", "x" * 1000)
    write(site / "huge", b"z" * 3_000_000)
    script = write(tmp_path / "cgi" / "env", CGI)
    script.chmod(0o755)
    path, log = tmp_path / "site.sock", tmp_path / "log"
    text = f'script = {{ kind = "cgi", directory = "{script.parent}" }}'
    server = serve(
        server=f'access_log = {{ path = "{log}", format = "json" }}',
        more=f'[[site.route]]\npath = "/cgi/*"\n{text}\n' + listen_unix(path, 'mode = "0606"'),
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o606
    assert fetch(path, "/a")[2] == b"x" * 1000
    assert fetch(path, "/huge")[2] == b"z" * 3_000_000
    curl = ["curl", "-sS", "--unix-socket", str(path), "http://site.example:81/cgi/env"]
    plain = subprocess.run(curl, capture_output=True, check=True).stdout
    prior = subprocess.run([*curl, "--http2-prior-knowledge"], capture_output=True, check=True).stdout
    for response in (plain, prior):
        variables = dict(line.split("=", 1) for line in response.decode().splitlines())
        assert variables["REMOTE_ADDR"] == "unix:" and "REMOTE_PORT" not in variables
        assert variables["SERVER_NAME"] == "site.example" and variables["SERVER_PORT"] == "81"
    lines = wait_until(lambda: len(log.read_text().splitlines()) == 4 and log.read_text(), "the log")
    assert {json.loads(line)["remote"] for line in lines.splitlines()} == {"unix:"}
    assert server.stop() == 0
    assert not path.exists(), "the file goes with the server"


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(serve, site, tmp_path):
    path = tmp_path / "site.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    first = serve(more=listen_unix(path))
    assert fetch(path, "/none")[0] == 404
    with pytest.raises(AssertionError, match="listening on unix:.*another program listens on it"):
        serve(more=listen_unix(path))
    assert fetch(path, "/none")[0] == 404
    file = write(tmp_path / "file.sock", "precious")
    with pytest.raises(AssertionError, match="listening on unix:"):
        serve(more=listen_unix(file))
    assert file.read_text() == "precious"
    assert first.stop() == 0


def test_the_admin_socket_has_reports_and_commands(serve, site, tmp_path, admin):
    write(site / "a", "x")
    server = serve(server=f'admin = "{admin}"\nconnections = 2')
    assert stat.S_IMODE(admin.stat().st_mode) == 0o600
    status, fields, body = fetch(admin, "/config")
    config = json.loads(body)
    assert (status, fields["content-type"]) == (200, "application/json")
    assert config["pid"] == server.pid and config["file"].endswith("dunlin-0.toml")
    assert "connections = 2" in config["text"] and time.time() - config["loaded"] < 60
    assert [listen["admin"] for listen in config["listeners"]] == [False, True]
    assert fetch(admin, "/a")[0] == 404, "sites are elsewhere"
    assert server.get("/config")[0] == 404, "and it is not on the sites"
    assert fetch(admin, "/reload")[0] == 405
    assert fetch(admin, "/reopen", "POST")[0] == 200
    # A client with all connections cannot lock out the administrator.
    held = [server.connect() for _ in range(3)]
    for connection in held:
        # Idle connections would be closed.
        connection.sendall(b"GET /a HTTP/1.1\r\n")
    assert run("reload", "--admin", str(admin))[0] == 0
    for connection in held:
        connection.close()
    assert run("reload", "--admin", str(tmp_path / "none"))[2].count("no server runs there") == 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Site:
    """A server whose configuration is rewritten."""

    def __init__(self, serve, tmp_path, admin, text):
        self.file = tmp_path / "dunlin-0.toml"
        self.head = f'[server]\nthreads = 2\nadmin = "{admin}"\n'
        self.admin = admin
        self.server = serve(text=self.head + text)

    def reload(self, text, fine=True):
        """Makes the server reload `text`. Returns its output."""
        self.file.write_text(self.head + text)
        code, out, error = run("reload", "--admin", str(self.admin))
        assert (code == 0) == fine, (out, error, self.server.log)
        return out if fine else error


def site_text(site, route="", listen='address = "127.0.0.1:0"'):
    return f'[[listen]]\n{listen}\n[[site]]\nroot = "{site}"\n[[site.route]]\npath = "/*"\n{route}\n'


@pytest.mark.parametrize("how", ["removed", "replaced by another", "replaced by a file"])
def test_a_reload_makes_a_removed_socket_again(serve, site, tmp_path, admin, how):
    write(site / "a", "x")
    path = tmp_path / "s.sock"
    here = Site(serve, tmp_path, admin, site_text(site) + listen_unix(path))
    get = lambda: by_unix(path, b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert get().endswith(b"x")
    inode = path.stat().st_ino
    path.unlink()
    if how == "removed":
        output = here.reload(site_text(site) + listen_unix(path))
        assert "s.sock" in output and "removed listener" not in output
        assert get().endswith(b"x")
        # Without a reason it is left as it is.
        inode = path.stat().st_ino
        assert "s.sock" not in here.reload(site_text(site) + listen_unix(path)) and path.stat().st_ino == inode
        assert here.server.stop() == 0 and not path.exists()
    elif how == "replaced by another":
        with socket.socket(socket.AF_UNIX) as other:
            # The file system may give the same number to the new file.
            for attempt in range(50):
                other_path = tmp_path / f"{attempt}.sock"
                with socket.socket(socket.AF_UNIX) as taken:
                    taken.bind(str(other_path))
                if other_path.stat().st_ino != inode:
                    break
            other.bind(str(tmp_path / "other.sock"))
            other.listen()
            os.rename(tmp_path / "other.sock", path)
            if path.stat().st_ino == inode:
                pytest.skip("the new file has the number of the old one")
            assert "another program listens" in here.reload(site_text(site) + listen_unix(path), fine=False)
        assert here.server.stop() == 0 and path.exists(), "the socket of another is not removed"
    else:
        path.write_text("a file")
        error = here.reload(site_text(site) + listen_unix(path), fine=False)
        assert "a file that is not a socket is there" in error and "another program" not in error
        assert here.server.stop() == 0 and path.read_text() == "a file"


def test_a_dangling_symlink_in_place_of_a_socket_is_named(tmp_path, site):
    path = tmp_path / "s.sock"
    path.symlink_to("none")
    file = tmp_path / "d.toml"
    file.write_text(listen_unix(path) + f'[[site]]\nroot = "{site}"\n')
    done = subprocess.run([DUNLIN, "serve", "-c", file], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "a symlink is there" in done.stderr and "another program listens on it" not in done.stderr


def test_a_reload_applies_to_open_connections(serve, site, tmp_path, admin):
    page = write(site / "a", "one")
    other = tmp_path / "other"
    write(other / "a", "two")
    log = tmp_path / "log"
    here = Site(serve, tmp_path, admin, site_text(site, 'cache_control = "no-cache"'))
    get = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
    with here.server.connect() as connection:

        def response():
            connection.sendall(get)
            status, fields, body, _ = read_response(connection)
            return status, fields.get("cache-control"), body

        for _ in range(3):
            assert response() == (200, "no-cache", b"one")
        assert "1 of 1 sites unchanged" in here.reload(site_text(site, 'cache_control = "no-cache"'))
        assert response() == (200, "no-cache", b"one")
        here.reload(site_text(site, 'cache_control = "no-store"'))
        assert response() == (200, "no-store", b"one")
        here.reload(site_text(other))
        assert response() == (200, None, b"two")
        here.head += f'access_log = "{log}"\n'
        here.reload(site_text(site))
        assert response() == (200, None, b"one")
        wait_until(lambda: log.exists() and '"GET /a' in log.read_text(), "the line in the new log")
        # After any error, the running configuration stays in use.
        for text, reason in [
            (site_text(site, "listin = true"), "did you mean"),
            (site_text(tmp_path / "none"), f"there is no directory {tmp_path / 'none'}"),
            (site_text(site, listen='address = "192.0.2.1:80"'), "does not have that address"),
            (site_text(site, listen='address = "127.0.0.1:0"\ntls = true'), "no site has a certificate"),
            ("[", "dunlin-0.toml:"),
        ]:
            output = here.reload(text, fine=False)
            assert reason in output and "the running configuration stays in use" in output, output
            assert response() == (200, None, b"one")
        # By signal, and to the log.
        here.file.write_text(here.head + site_text(site, 'cache_control = "max-age=1"'))
        here.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: response()[1] == "max-age=1", "the reload")
        here.file.write_text("[")
        here.server.process.send_signal(signal.SIGHUP)
        here.server.logged("not reloaded")
        assert response()[1] == "max-age=1"
        page.write_text("three")
        wait_until(lambda: response()[2] == b"three", "changes on disk are followed as before")
    here.head = here.head.replace("threads = 2", "threads = 1")
    assert "needs a restart: server.threads" in here.reload(site_text(site))
    assert here.server.stop() == 0


def test_listeners_are_added_kept_and_closed(serve, site, tmp_path, admin):
    write(site / "a", "x")
    here = Site(serve, tmp_path, admin, site_text(site))
    port, path = free_port(), tmp_path / "site.sock"
    output = here.reload(site_text(site) + f'[[listen]]\naddress = "127.0.0.1:{port}"\n' + listen_unix(path))
    assert f"added listeners 127.0.0.1:{port}, unix:{path}" in output
    kept = socket.create_connection(("127.0.0.1", port), timeout=15)
    for n in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
            connection.sendall(b"GET /a HTTP/1.0\r\n\r\n")
            assert b"200 OK" in read_all(connection)
    assert fetch(path, "/a")[0] == 200 and here.server.get("/a")[0] == 200
    output = here.reload(site_text(site))
    assert f"removed listeners 127.0.0.1:{port}, unix:{path}" in output
    assert not path.exists()

    def is_closed():
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return True

    wait_until(is_closed, "the listener to close")
    kept.sendall(b"GET /a HTTP/1.0\r\n\r\n")
    assert b"200 OK" in read_all(kept), "open connections are kept"
    kept.close()
    assert here.server.get("/a")[0] == 200


def test_unchanged_workers_are_kept(serve, site, tmp_path, admin):
    app = tmp_path / "app"
    write(
        app / "app.py",
        "import os, time\n"
        "def application(environ, start):\n"
        "    if environ['PATH_INFO'] == '/slow': time.sleep(1.5)\n"
        "    start('200 OK', [('Content-Type', 'text/plain')])\n"
        "    return [str(os.getpid()).encode()]\n",
    )

    def routes(processes, other=""):
        script = f'{{ kind = "wsgi", directory = "{app}", application = "app:application", processes = {processes} }}'
        return site_text(site, other) + f'[[site.route]]\npath = "/app/*"\nscript = {script}\n'

    here = Site(serve, tmp_path, admin, routes(1))
    first = here.server.get("/app/")[2]
    # The site is another, its file has other lines, and the script's table is the same.
    here.reload("# a line more\n" + routes(1, "listing = true"))
    assert here.server.get("/app/")[2] == first
    slow = []
    thread = threading.Thread(target=lambda: slow.append(here.server.get("/app/slow")))
    thread.start()
    wait_until(lambda: len(os.listdir(f"/proc/{here.server.pid}/task")) > 1, "threads")
    time.sleep(0.3)
    here.reload(routes(2))
    second = here.server.get("/app/")[2]
    assert second != first
    thread.join()
    assert (slow[0][0], slow[0][2]) == (200, first), "what is under way is finished by its worker"
    wait_until(lambda: not os.path.exists(f"/proc/{int(first)}"), "the old worker to end")
    assert here.server.get("/app/")[0] == 200


def test_check_diff_lists_what_a_reload_would_change(serve, site, tmp_path, admin):
    app = tmp_path / "app"
    write(app / "app.py", "def application(environ, start):\n    start('200 OK', [])\n    return [b'x']\n")
    other = tmp_path / "other.sock"

    def text(processes, more="", listen="", route="cache_control = 'no-cache'"):
        script = f'{{ kind = "wsgi", directory = "{app}", application = "app:application", processes = {processes} }}'
        workers = f'[[site.route]]\npath = "/app/*"\nscript = {script}\n'
        second = f'[[site]]\nhost = "b.example"\nroot = "{site}"\n'
        return site_text(site, route) + workers + more + second + listen

    here = Site(serve, tmp_path, admin, text(1, listen=listen_unix(other)))

    def diff(*arguments):
        code, out, error = run("check", "-c", str(here.file), "--diff", *arguments)
        assert code == 0, error
        return out.splitlines()

    assert diff() == ["nothing would change"]
    here.file.write_text(
        here.head.replace("threads = 2", "threads = 1\nstop_timeout = '3s'\ncache = { size = '1MiB' }")
        + text(2, '[[site.route]]\npath = "/new/*"\nlisting = true\n', route="cache_control = 'no-store'")
        + listen_unix(tmp_path / "third.sock") + f'[[site]]\nhost = "c.example"\nroot = "{site}"\n'
    )
    reported = diff()
    assert reported == [
        f"listener  unix:{tmp_path}/third.sock is opened",
        f"listener  unix:{other} is closed; its connections stay open",
        'setting   server.cache: unset -> { size = "1MiB" }',
        'setting   server.stop_timeout: unset -> "3s"',
        "setting   server.threads: 2 -> 1; needs a restart",
        "site      default is reloaded: its cached files are evicted",
        'setting   default /*: cache_control: "no-cache" -> "no-store"',
        "setting   default /app/*: script.processes: 1 -> 2",
        "route     default /new/* is added",
        "site      b.example is reloaded: its cached files are evicted",
        "site      c.example is added, with 0 routes",
        "scripts   default /app/* (wsgi) restart; running requests are completed",
    ]
    # The reload then makes the same changes, and no difference is left.
    output = run("reload", "--admin", str(admin))[1]
    assert "0 of 3 sites unchanged" in output and "third.sock" in output and "restart: server.threads" in output
    late = "setting   server.threads: differs from the value used since the start; needs a restart"
    assert diff() == [late]
    old = tmp_path / "old.toml"
    old.write_text(here.head + site_text(site))
    reported = diff(str(old))
    assert "scripts   default /app/* (wsgi) are added" in reported and "site      b.example is added, with 0 routes" in reported
    # Errors are reported instead.
    here.file.write_text("[")
    code, out, error = run("check", "-c", str(here.file), "--diff", "--admin", str(admin))
    assert code == 1 and not out and "dunlin-0.toml:1:" in error
    code, out, error = run("check", "-c", str(old), "--diff", "--admin", str(tmp_path / "none"))
    assert code == 1 and "not reached" in error


def test_a_diff_includes_the_command_line(serve, site, tmp_path, admin):
    text = f'[server]\nadmin = "{admin}"\nthreads = 1\n' + site_text(site)
    server = serve(text=text, arguments=["--listen", "127.0.0.1:0", "--threads", "1"])
    file = tmp_path / "dunlin-0.toml"
    file.write_text(text.replace("threads = 1", "threads = 3").replace("127.0.0.1:0", "127.0.0.1:8099"))
    code, out, error = run("check", "-c", str(file), "--diff")
    assert out == "setting   server.threads: 1 -> 3; the command line overrides it\n", (out, error)
    assert server.stop() == 0


def test_limits_go_on_where_they_did_not_change(serve, site, tmp_path, admin):
    write(site / "a", "x")
    go = tmp_path / "go"
    script = write(tmp_path / "cgi" / "wait", f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.02; done\necho Content-Type: text/plain\necho\necho done\n")
    script.chmod(0o755)
    users = tmp_path / "users"
    subprocess.run([DUNLIN, "passwd", str(users), "ann"], input="secret\n", text=True, check=True, capture_output=True)

    def text(field, limit="3/h", queue=5, attempts=2):
        return (
            site_text(site, f'set_fields = {{ X-Field = "{field}" }}')
            + f'[[site.route]]\npath = "/a"\nlimit = {{ requests = "{limit}" }}\n'
            + f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{script.parent}" }}\n'
            + f"throttle = {{ max_concurrent = 1, queue = {queue} }}\n"
            + f'[[site.route]]\npath = "/auth"\nauth = {{ basic = "{users}", attempts = {attempts} }}\n'
        )

    here = Site(serve, tmp_path, admin, text("one"))

    def status(path="/a", *fields):
        return here.server.get(path, *fields)[0]

    def begin():
        connection = here.server.connect()
        connection.sendall(b"GET /cgi/wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return connection

    def throttle():
        routes = json.loads(fetch(admin, "/status.json")[2])["limits"]
        return next(route["concurrency"] for route in routes if route["route"] == "/cgi/*")

    wrong = "Authorization: Basic " + base64.b64encode(b"ann:wrong").decode()
    assert [status() for _ in range(4)] == [200, 200, 200, 429]
    assert [status("/auth", wrong) for _ in range(3)] == [401, 401, 429]
    held = [begin(), begin()]
    wait_until(lambda: throttle()["waiting"] == 1, "one that waits")
    assert "0 of 1 sites unchanged" in here.reload(text("two"))
    assert status() == 429 and status("/auth", wrong) == 429
    held.append(begin())
    found = wait_until(lambda: (now := throttle())["waiting"] == 2 and now, "two that wait")
    assert found["running"] == 1, "a request of the old configuration counts under the new one"
    go.touch()
    for connection in held:
        assert b"200 OK" in read_all(connection)
        connection.close()
    assert throttle()["served"] == 3
    # A changed limit starts again; the other one is kept.
    here.reload(text("two", limit="4/h"))
    assert [status() for _ in range(5)] == [200, 200, 200, 200, 429]
    assert throttle()["served"] == 3
    here.reload(text("two", limit="4/h", queue=6))
    assert status() == 429 and throttle()["served"] == 0


def test_another_process_takes_over_or_the_old_one_continues(serve, site, tmp_path, admin):
    write(site / "a", "x")
    write(site / "huge", b"z" * 20_000_000)
    path, number = tmp_path / "site.sock", tmp_path / "pid"
    text = site_text(site) + listen_unix(path)
    here = Site(serve, tmp_path, admin, text)
    first = here.server.pid
    here.file.write_text(here.head + f'pid_file = "{number}"\n' + "[")
    code, _, error = run("upgrade", "--admin", str(admin))
    assert code == 1 and "this process keeps serving" in error and "dunlin-0.toml:" in error
    assert pid_of(admin) == first and here.server.get("/a")[0] == 200
    here.file.write_text(here.head + f'pid_file = "{number}"\n' + text)
    with here.server.connect() as connection, here.server.connect() as idle:
        connection.sendall(b"GET /huge HTTP/1.1\r\nHost: x\r\n\r\n")
        begun = connection.recv(1000)
        idle.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_response(idle)[1].get("connection") is None
        code, output, error = run("upgrade", "--admin", str(admin))
        assert code == 0 and "replaced by process" in output, error
        second = wait_until(lambda: (pid := pid_of(admin)) != first and pid, "the new process")
        try:
            assert second != first and number.read_text() == f"{second}\n"
            for _ in range(20):
                assert here.server.get("/a")[0] == 200 and fetch(path, "/a")[0] == 200
            idle.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_response(idle)[1]["connection"] == "close", "the end is announced"
            data = begun
            while len(data) - data.index(b"\r\n\r\n") - 4 < 20_000_000:
                data += connection.recv(1 << 20)
            connection.close()
            assert here.server.process.wait(20) == 0
            assert here.server.get("/a")[0] == 200 and path.exists()
            os.kill(second, signal.SIGUSR2)
            third = wait_until(lambda: (pid := pid_of(admin)) != second and pid, "the third process")
            wait_until(lambda: not is_alive(second), "the second to end", 20)
            second = third
            assert here.server.get("/a")[0] == 200
        finally:
            end(second)
    assert not path.exists() and not admin.exists() and not number.exists()


LOADS = {
    "http1": ("-c", "20"),
    "http2": ("-c", "8", "--http2", "--streams", "8"),
    "https2": ("-c", "8", "--http2", "--streams", "8", "--insecure"),
}


@pytest.mark.parametrize("kind", LOADS)
def test_no_request_fails_while_all_changes(serve, site, tmp_path, admin, kind):
    """Seconds of load with reloads that change routes and listeners, and two upgrades."""
    write(site / "a", "x" * 1000)
    seconds = float(os.environ.get("DUNLIN_CHANGE_SECONDS", "6"))

    pair = certificate(tmp_path, "own")

    def text(route="", more=""):
        if kind != "https2":
            return site_text(site, route) + more
        tls = f'[site.tls]\ncertificate = "{pair[0]}"\nkey = "{pair[1]}"\n[[site.route]]'
        whole = site_text(site, route, 'address = "127.0.0.1:0"\ntls = true') + more
        return whole.replace("[[site.route]]", tls, 1)

    here = Site(serve, tmp_path, admin, text())
    outcome = tmp_path / "load.json"
    load = subprocess.Popen(
        [DUNLIN, "load", f"{here.server.url}/a", *LOADS[kind], "-d", f"{seconds}s", "--verify"]
        + ["--json", str(outcome)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    began, upgrades, reloads, last = time.monotonic(), 0, 0, here.server.pid
    try:
        while load.poll() is None:
            passed = time.monotonic() - began
            if upgrades < 2 and passed > seconds * (upgrades + 1) / 4:
                code, out, error = run("upgrade", "--admin", str(admin))
                assert code == 0, (out, error)
                last = wait_until(lambda: (pid := pid_of(admin)) != last and pid, "the new process")
                upgrades += 1
            elif passed < seconds - 1:
                extra = f'[[listen]]\naddress = "127.0.0.1:{free_port()}"\n' if reloads % 2 else ""
                here.reload(text(f'set_fields = {{ X-Generation = "{reloads}" }}', extra))
                reloads += 1
            time.sleep(min(1, seconds / 20))
        reported = json.loads(outcome.read_text())
        counts = {key: reported[key] for key in ("requests", "errors", "errors_by_kind", "status", "connections")}
        print(json.dumps({"reloads": reloads, "upgrades": upgrades, **counts}))
        assert upgrades == 2 and reloads > 5
        assert reported["requests"] > 1000 and reported["errors"] == 0, counts
        assert set(reported["status"]) == {"200"}, counts
        # The second upgrade may end some connections only after the load has ended.
        assert reported["connections"]["closed_by_server"] > 8, "each upgrade ends the connections of the old process"
    finally:
        load.kill()
        if last != here.server.pid:
            end(last)
