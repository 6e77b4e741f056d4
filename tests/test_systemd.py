"""The service manager: its sockets, notifications and watchdog. The tests take its role."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from support.admin import fetch, pid_of, run
from support.files import write
from support.http import parse, read_all
from support.processes import end
from support.server import DUNLIN, ROOT
from support.systemd import Manager
from support.tls import certificate, context
from support.waiting import wait_until


@pytest.fixture
def manager(tmp_path):
    manager = Manager(tmp_path / "notify.sock")
    processes = []
    begin = manager.start
    manager.start = lambda *a, **k: processes.append(begin(*a, **k)) or processes[-1]
    yield manager
    manager.socket.close()
    for process in processes:
        if process.poll() is None:
            process.kill()
        _, error = process.communicate()
        assert "panicked" not in error, error


def configuration(tmp_path, site, *listen, server=""):
    listens = "".join(f'[[listen]]\naddress = "{address}"\n' for address in listen)
    file = tmp_path / "dunlin.toml"
    text = f'[server]\nthreads = 2\nadmin = "{tmp_path}/admin.sock"\n{server}\n{listens}[[site]]\nroot = "{site}"\n'
    file.write_text(text)
    return file


def get(connection):
    with connection:
        connection.settimeout(15)
        connection.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return parse(read_all(connection))


def test_the_manager_is_notified_of_start_reload_and_stop(manager, tmp_path, site):
    write(site / "a", "x")
    process = manager.start(configuration(tmp_path, site, "127.0.0.1:0"))
    assert manager.next() == {"READY": "1"}
    assert fetch(tmp_path / "admin.sock", "/config")[0] == 200, "it serves when it reports that it is ready"
    for reload in (lambda: process.send_signal(signal.SIGHUP), lambda: run("reload", "--admin", f"{tmp_path}/admin.sock")):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        reload()
        message = manager.next()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert message.keys() == {"RELOADING", "MONOTONIC_USEC"} and message["RELOADING"] == "1"
        assert before <= int(message["MONOTONIC_USEC"]) <= after
        assert manager.next() == {"READY": "1"}
    # Also after an error in the new configuration: the running configuration stays in use.
    (tmp_path / "dunlin.toml").write_text("[")
    process.send_signal(signal.SIGHUP)
    assert [manager.next().keys() >= {"RELOADING"}, manager.next()] == [True, {"READY": "1"}]
    process.terminate()
    assert manager.next() == {"STOPPING": "1"}
    assert process.wait(20) == 0


def test_a_server_that_cannot_start_is_not_ready(manager, tmp_path, site):
    process = manager.start(configuration(tmp_path, tmp_path / "none", "127.0.0.1:0"))
    assert process.wait(20) == 1
    manager.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.socket.recv(100)


def test_sockets_are_used_by_the_listener_with_their_address(manager, tmp_path, site):
    write(site / "a", "x")
    tcp = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = tcp.getsockname()[1]
    path = tmp_path / "site.sock"
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(path))
    unix.listen()
    stranger = socket.create_server(("127.0.0.1", 0))
    # A connection before the start of the server waits.
    early = socket.create_connection(("127.0.0.1", port))
    file = configuration(tmp_path, site, f"127.0.0.1:{port}", f"unix:{path}")
    process = manager.start(file, tcp, unix, stranger, names=["web", "local", "other"])
    tcp.close()
    unix.close()
    assert manager.next() == {"READY": "1"}
    assert get(early)[0] == 200
    for _ in range(20):
        assert get(socket.create_connection(("127.0.0.1", port)))[0] == 200
    local = socket.socket(socket.AF_UNIX)
    local.connect(str(path))
    assert get(local)[2] == b"x"
    process.terminate()
    _, error = process.communicate(timeout=20)
    assert process.returncode == 0
    assert f"127.0.0.1:{stranger.getsockname()[1]} is closed: no [[listen]] names it" in error
    stranger.close()


def test_the_manager_keeps_the_file_of_its_socket(manager, tmp_path, site):
    write(site / "a", "x")
    path, admin = tmp_path / "site.sock", tmp_path / "admin.sock"
    held = socket.socket(socket.AF_UNIX)
    held.bind(str(path))
    held.listen()
    file = configuration(tmp_path, site, f"unix:{path}")

    def served():
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            return get(connection)[2]

    for stop in ("in the first process", "after an upgrade"):
        process = manager.start(file, held)
        assert manager.next() == {"READY": "1"} and served() == b"x"
        pid = process.pid
        if stop == "after an upgrade":
            code, out, error = run("upgrade", "--admin", str(admin))
            assert code == 0, error
            pid = int(re.search(r"process (\d+)", out)[1])
            assert manager.next() == {"MAINPID": str(pid), "READY": "1"}
            assert process.wait(20) == 0 and served() == b"x"
        os.kill(pid, signal.SIGTERM)
        assert manager.next() == {"STOPPING": "1"}
        wait_until(lambda: not admin.exists(), "the end")
        assert path.exists(), f"a new connection makes the manager start a server: {stop}"
        if stop == "in the first process":
            assert process.wait(20) == 0
        else:
            wait_until(lambda: not os.path.exists(f"/proc/{pid}/fd/0"), "its end")
    held.close()


def test_sockets_for_another_process_are_left_alone(manager, tmp_path, site):
    tcp = socket.create_server(("127.0.0.1", 0))
    file = configuration(tmp_path, site, f"127.0.0.1:{tcp.getsockname()[1]}")
    process = manager.start(file, tcp, pid=1)
    assert process.wait(20) == 1 and "another program uses it" in process.stderr.read()
    tcp.close()


def test_scripts_do_not_get_the_socket_of_the_manager(manager, tmp_path, site):
    script = write(tmp_path / "cgi" / "env", "#!/bin/sh\necho Content-Type: text/plain\necho\nenv\nls -l /proc/self/fd\n")
    script.chmod(0o755)
    tcp = socket.create_server(("127.0.0.1", 0))
    port = tcp.getsockname()[1]
    file = configuration(tmp_path, site, f"127.0.0.1:{port}")
    file.write_text(file.read_text() + f'[[site.route]]\npath = "/*"\nscript = {{ kind = "cgi", directory = "{script.parent}" }}\n')
    manager.start(file, tcp, environment={"WATCHDOG_USEC": "10000000"})
    tcp.close()
    assert manager.next() == {"READY": "1"}
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /env HTTP/1.0\r\n\r\n")
        output = read_all(connection).decode()
    assert "200 OK" in output and "REQUEST_METHOD=GET" in output
    for word in ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG", "socket:"):
        assert word not in output, output


@pytest.mark.paced
@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_watchdog_is_notified_while_every_worker_responds(tmp_path, site, kind):
    manager = Manager(tmp_path / "n.sock" if kind == "path" else f"@dunlin-test-{os.getpid()}")
    environment = {"WATCHDOG_USEC": "400000"}
    process = manager.start(configuration(tmp_path, site, "127.0.0.1:0"), environment=environment)
    try:
        times = []
        while len(times) < 6:
            if manager.next() == {"WATCHDOG": "1"}:
                times.append(time.monotonic())
        assert {"READY": "1"} in manager.messages
        gaps = [b - a for a, b in zip(times, times[1:])]
        assert max(gaps) < 0.4 and sum(gaps) > 0.5, gaps
        # A stopped process sends no notification.
        process.send_signal(signal.SIGSTOP)
        manager.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            for _ in range(5):
                manager.next()
        manager.socket.settimeout(15)
        process.send_signal(signal.SIGCONT)
        assert manager.next() == {"WATCHDOG": "1"}
    finally:
        process.kill()
        process.communicate()
        manager.socket.close()


def test_the_watchdog_of_another_process_is_left_alone(manager, tmp_path, site):
    environment = {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}
    process = manager.start(configuration(tmp_path, site, "127.0.0.1:0"), environment=environment)
    assert manager.next() == {"READY": "1"}
    process.send_signal(signal.SIGHUP)
    assert manager.next().keys() >= {"RELOADING"} and manager.next() == {"READY": "1"}


def test_the_manager_follows_an_upgrade(manager, tmp_path, site):
    write(site / "a", "x")
    tcp = socket.create_server(("127.0.0.1", 0))
    port = tcp.getsockname()[1]
    admin = tmp_path / "admin.sock"
    environment = {"WATCHDOG_USEC": "2000000"}
    process = manager.start(configuration(tmp_path, site, f"127.0.0.1:{port}"), tcp, environment=environment)
    tcp.close()
    assert manager.next_but_alive() == {"READY": "1"}
    second = None
    try:
        code, out, error = run("upgrade", "--admin", str(admin))
        assert code == 0, error
        second = int(re.search(r"process (\d+)", out)[1])
        assert manager.next_but_alive() == {"MAINPID": str(second), "READY": "1"}
        assert process.wait(20) == 0
        assert get(socket.create_connection(("127.0.0.1", port)))[0] == 200
        manager.messages.clear()
        wait_until(lambda: manager.next() == {"WATCHDOG": "1"}, "the new process's sign of life")
        assert pid_of(admin) == second
        os.kill(second, signal.SIGTERM)
        assert manager.next_but_alive() == {"STOPPING": "1"}
        wait_until(lambda: not os.path.exists(f"/proc/{second}/fd/0"), "its end")
    finally:
        if second and os.path.exists(f"/proc/{second}/fd"):
            end(second, signal.SIGKILL)


UNITS = ROOT / "packaging" / "systemd"
CONFIGURATION = ROOT / "examples" / "https.toml"


def settings(unit, key):
    return re.findall(rf"^{key}=(.*)$", (UNITS / unit).read_text(), re.M)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_the_units_are_understood_by_systemd(tmp_path):
    program = tmp_path / "dunlin"
    program.symlink_to(DUNLIN)
    units = [tmp_path / name for name in ("dunlin.socket", "dunlin.service")]
    for unit in units:
        unit.write_text((UNITS / unit.name).read_text().replace("/usr/bin/dunlin", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    messages = [line for line in done.stderr.splitlines() if "dunlin" in line]
    assert done.returncode == 0 and not messages, done.stderr


def test_the_units_match_the_configuration():
    text = CONFIGURATION.read_text()
    paths = dict(re.findall(r'^(admin|access_log) = "(.*)"$', text, re.M))
    assert paths["admin"] == f"/run/{settings('dunlin.service', 'RuntimeDirectory')[0]}/admin.sock"
    assert paths["access_log"] == f"/var/log/{settings('dunlin.service', 'LogsDirectory')[0]}/access.log"
    # The default directory of ACME.
    state = f"/var/lib/{settings('dunlin.service', 'StateDirectory')[0]}"
    assert "acme" in text and "state" not in text
    assert f"Default: `{state}`" in (ROOT / "docs" / "src" / "configuration.md").read_text()
    for key in ("ExecStart", "ExecReload"):
        assert settings("dunlin.service", key)[0].endswith(" --config /etc/dunlin/dunlin.toml")


def pair_of_sockets():
    """Sockets for IPv4 and IPv6 of one port, as systemd opens them by `BindIPv6Only=ipv6-only`."""
    while True:
        four = socket.create_server(("0.0.0.0", 0))
        port = four.getsockname()[1]
        six = socket.socket(socket.AF_INET6)
        six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            six.bind(("::", port))
        except OSError:
            four.close()
            six.close()
            continue
        six.listen()
        return port, [four, six]


def test_the_sockets_serve_the_configuration(manager, tmp_path, site):
    write(site / "a", "x")
    assert settings("dunlin.socket", "BindIPv6Only") == ["ipv6-only"]
    wanted = [f"{host}:{port}" for port in (80, 443) for host in ("0.0.0.0", "[::]")]
    assert settings("dunlin.socket", "ListenStream") == wanted
    pairs = {port: pair_of_sockets() for port in (80, 443)}
    certified, key = certificate(tmp_path, "own")
    text = CONFIGURATION.read_text()
    changes = {
        "/run/dunlin": str(tmp_path), "/var/log/dunlin": str(tmp_path), "/srv/www": str(site),
        "redirect_https = true\n": "",
        '":80"': f'":{pairs[80][0]}"', '":443"': f'":{pairs[443][0]}"', 'host = "example.com"\n': "",
        '{ acme = { contact = "admin@example.com" } }': f'{{ certificate = "{certified}", key = "{key}" }}',
    }
    for there, here in changes.items():
        assert text.count(there) == 1, there
        text = text.replace(there, here)
    file = tmp_path / "dunlin.toml"
    file.write_text(text)
    sockets = [one for _, pair in pairs.values() for one in pair]
    process = manager.start(file, *sockets)
    for one in sockets:
        one.close()
    assert manager.next() == {"READY": "1"}
    for port, (chosen, _) in pairs.items():
        for host in ("127.0.0.1", "::1"):
            connection = socket.create_connection((host, chosen))
            if port == 443:
                connection = context(certified).wrap_socket(connection, server_hostname="localhost")
            assert get(connection)[2] == b"x"
    code, _, error = run("reload", "--config", str(file))
    assert code == 0, error
    process.terminate()
    _, error = process.communicate(timeout=20)
    assert process.returncode == 0 and "handed over" not in error, error
