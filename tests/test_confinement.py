"""Dropped privileges, verified by trying to use them."""

import json
import os
import pwd
import re
import signal
import subprocess
import time

import pytest

from support.admin import fetch, pid_of, run
from support.confinement import configuration, outside_of, without_scripts
from support.processes import end
from support.server import DUNLIN, Server
from support.users import only_root, ordinary
from support.waiting import wait_until


@only_root
def test_the_server_becomes_another_user_in_every_thread(serve, place):
    outside = outside_of(place)
    (place / "log").mkdir()
    text = configuration(place, 'user = "nobody"', outside)
    server = serve(text=text)
    nobody = pwd.getpwnam("nobody")
    for task in os.listdir(f"/proc/{server.pid}/task"):
        status = open(f"/proc/{server.pid}/task/{task}/status").read()
        ids = {line.split(":")[0]: line.split()[1:] for line in status.splitlines() if ":" in line}
        assert ids["Uid"] == [str(nobody.pw_uid)] * 4 and ids["Gid"] == [str(nobody.pw_gid)] * 4
        assert ids["Groups"] in ([], [str(nobody.pw_gid)])
        assert int(ids["CapEff"][0], 16) == 0
    assert server.get("/a")[0] == 200
    output = server.get("/cgi/probe")[2].decode()
    assert f"user={nobody.pw_uid} group={nobody.pw_gid}" in output and "read /etc/shadow" not in output
    log = place / "log" / "access.log"
    wait_until(lambda: "GET /a" in log.read_text(), "the log, which root opened")
    assert "user nobody" in json.loads(fetch(place / "admin.sock", "/config")[2])["confinement"]
    assert server.stop() == 0


@pytest.mark.parametrize("user", [None, pytest.param("nobody", marks=only_root)])
def test_files_outside_the_configuration_are_inaccessible(serve, place, user):
    outside = outside_of(place)
    link = place / "site" / "link"
    link.mkdir(parents=True)
    (link / "secret").symlink_to(outside / "secret")
    free = serve(text=configuration(place, "", outside))
    assert free.get("/link/secret")[2] == b"secret"
    output = free.get("/cgi/probe")[2].decode()
    assert f"read {outside}/secret" in output and f"wrote {outside}" in output and "done" in output
    assert free.stop() == 0
    who = f'user = "{user}"\n' if user else ""
    server = serve(text=configuration(place, who + "seccomp = true\n[server.landlock]\n", outside))
    assert server.get("/a")[0] == 200
    assert server.get("/link/secret")[0] in (403, 404), "by a symlink that the server would follow"
    output = server.get("/cgi/probe")[2].decode()
    assert "done" in output and "NoNewPrivs:\t1" in output, output
    for forbidden in ("read", "wrote", "mounted", "ptrace 0"):
        assert forbidden not in output, output
    assert "ptrace -1 1" in output, output
    wait_until(lambda: "GET /a" in (place / "log" / "access.log").read_text(), "the log")
    assert server.stop() == 0


def test_a_configuration_with_a_relative_path_is_accessible(place, monkeypatch):
    file = place / "d1.toml"
    file.write_text(configuration(place, "[server.landlock]\n", outside_of(place)))
    monkeypatch.chdir(place)
    code, out, error = run("check", "-c", file.name)
    assert code == 0 and re.search(r"^landlock: reads .*, \.$", out, re.M), out + error
    server = Server(["-c", file.name], place)
    try:
        file.write_text(file.read_text() + '[[site.route]]\npath = "/new"\nrespond = { status = 204 }\n')
        code, out, error = run("reload", "-c", file.name)
        assert code == 0, error
        assert server.get("/new")[0] == 204
        assert server.stop() == 0
    finally:
        server.process.kill()


def test_privileges_that_cannot_be_dropped_prevent_the_start(serve, place):
    outside = outside_of(place)
    with pytest.raises(AssertionError, match="there is no user"):
        serve(text=configuration(place, 'user = "no-such-user"', outside))
    file = place / "check.toml"
    file.write_text(configuration(place, f'[server.landlock]\nread = ["{outside}"]\n', outside))
    code, out, error = run("check", "--config", str(file))
    assert code == 0 and "no new privileges" in out and re.search(f"landlock: reads .*{outside}", out), error
    file.write_text(configuration(place, "no_new_privs = false\nseccomp = true\n", outside))
    assert "no_new_privs is needed" in run("check", "--config", str(file))[2]
    if os.geteuid() == 0:
        file.write_text(configuration(place, 'user = "daemon"', outside))
        os.chmod(file, 0o644)
        os.chmod(place, 0o777)
        os.chmod(place / "log", 0o777)
        command = ["setpriv", "--reuid=nobody", "--clear-groups", DUNLIN, "serve", "--config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and "only root can switch users" in done.stderr, done.stderr
        # A check by that user reports it beforehand, and root's does not.
        command[command.index("serve")] = "check"
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and "this user cannot start it: it switches to user daemon\n" in done.stdout, done
        assert "cannot start" not in run("check", "--config", str(file))[1]


def with_script_user(place, server, user, outside):
    text = configuration(place, server, outside)
    return text.replace('kind = "cgi",', f'kind = "cgi", {user},', 1)


def as_user_nobody(*arguments):
    """Runs the program as an ordinary user."""
    command = [DUNLIN, *map(str, arguments)]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=nobody", "--clear-groups", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("owner", ['user = "daemon"', 'group = "daemon"'])
def test_a_script_user_that_cannot_be_had_stops_the_start(serve, place, owner):
    outside = outside_of(place)
    key = owner.split()[0]
    text = with_script_user(place, 'user = "nobody"', owner, outside)
    file = place / "check.toml"
    file.write_text(text)
    os.chmod(file, 0o644)
    line = 1 + text[: text.index(owner)].count("\n")
    message = f'script: `{key}` takes a server that stays root, and [server] has user = "nobody"'
    code, out, error = run("check", "--config", str(file))
    assert code == 1 and re.search(rf":{line}:\d+: {re.escape(message)}", error), error
    with pytest.raises(AssertionError, match="takes a server that stays root"):
        serve(text=text)
    # A check does not know the user who will start the server.
    file.write_text(with_script_user(place, "", owner, outside))
    why = "need a server that root has started"
    checked = as_user_nobody("check", "--config", file)
    assert checked.returncode == 0 and "this user cannot start it: scripts default /cgi/* (cgi): " in checked.stdout
    os.chmod(place, 0o777)
    os.chmod(place / "log", 0o777)
    started = as_user_nobody("serve", "--config", file)
    assert started.returncode == 1 and why in started.stderr, started.stderr


@pytest.mark.parametrize("who", ["", pytest.param('user = "nobody"', marks=only_root)])
def test_a_reload_to_an_unavailable_script_user_is_rejected(begin, place, who):
    outside = outside_of(place)
    file = place / "dunlin.toml"
    file.write_text(configuration(place, who, outside))
    for folder in (place, place / "log"):
        os.chmod(folder, 0o777)
    server = begin(file, None if who else ordinary)
    # Neither can one that has changed its user, if its file no longer has that setting.
    for server_user, why in [('user = "nobody"', "stays root"), ("", "a server that root has started")]:
        file.write_text(with_script_user(place, server_user, 'user = "daemon"', outside))
        code, out, error = run("reload", "--admin", str(place / "admin.sock"))
        assert code == 1 and "not reloaded, the running configuration stays in use" in error and why in error, error
        assert server.get("/cgi/probe")[0] == 200
    assert server.stop() == 0


def test_check_lists_the_users_of_scripts(place):
    file = place / "check.toml"
    file.write_text(configuration(place, "", outside_of(place)))
    assert "\nscripts default /cgi/* (cgi): the server's user\n" in run("check", "--config", str(file))[1]
    for owner, message in [
        ('user = "daemon"', "user daemon"),
        ('group = "daemon"', "the server's user, group daemon"),
        ('user = "daemon", group = "nogroup"', "user daemon, group nogroup"),
    ]:
        file.write_text(with_script_user(place, "", owner, outside_of(place)))
        code, out, error = run("check", "--config", str(file))
        assert code == 0 and f"\nscripts default /cgi/* (cgi): {message}\n" in out, (out, error)
        assert ("cannot start" in out) == (os.geteuid() != 0)


# What an exploited handler would try: see break_out.rs of the server.
TRIES = {
    "shadow", "read", "create", "write", "overwrite", "execute", "ptrace", "memory", "mount", "unshare", "netlink",
    "packet", "raw",
}  # fmt: skip
# The subset that an ordinary user may do without any confinement.
ORDINARY = TRIES - {"shadow", "mount", "packet", "raw"}
CONFINED = "seccomp = true\nlimits = { open_files = 500, core = 0 }\n[server.landlock]\n"


@pytest.fixture
def break_out(place):
    """Makes a server try to break out. Returns an error number, or 0, for each try by thread."""
    outside = outside_of(place)
    victims = []

    def attempt(user=None):
        victims.append(subprocess.Popen(["sleep", "60"], preexec_fn=user))
        query = f"outside={outside}&root={place}/site&victim={victims[-1].pid}"
        status, _, body = fetch(place / "admin.sock", f"/debug/break?{query}", "POST")
        assert status == 200, body
        message = json.loads(body)
        assert set(message) == {"loop", "blocking"} and all(set(tries) == TRIES for tries in message.values())
        return message

    yield attempt
    for victim in victims:
        victim.kill()
        victim.wait()
    subprocess.run(["umount", outside], capture_output=True)


def debugged(who=None):
    def prepare():
        os.environ["DUNLIN_DEBUG_BREAK"] = "1"
        if who:
            who()

    return prepare


def may(*command):
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize("how", [pytest.param("root", marks=only_root), "ordinary"])
def test_an_exploited_handler_can_do_anything_without_confinement(begin, place, break_out, how):
    user = None if how == "root" else ordinary
    server = begin(without_scripts(place, ""), debugged(user))
    for thread, tries in break_out(user).items():
        succeeded = {name for name, error in tries.items() if error == 0}
        missing = (TRIES if how == "root" else ORDINARY) - succeeded
        if how == "root" and not may("unshare", "-m", "true"):
            missing -= {"mount", "packet", "raw"}
        assert not missing, (thread, tries)
    assert server.get("/a")[0] == 200 and server.stop() == 0


@pytest.mark.parametrize("how", [pytest.param("root", marks=only_root), "ordinary"])
def test_a_confined_server_serves_within_its_confinement(begin, place, break_out, how):
    who, user = ('user = "nobody"\n', None) if how == "root" else ("", ordinary)
    server = begin(without_scripts(place, who + CONFINED), debugged(user))
    assert server.get("/a")[2] == b"x" * 1000
    for task in os.listdir(f"/proc/{server.pid}/task"):
        status = dict(line.split(":\t", 1) for line in open(f"/proc/{server.pid}/task/{task}/status") if ":\t" in line)
        assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
        assert int(status["CapEff"], 16) == 0
        if os.geteuid() == 0:
            assert status["Uid"].split() == [str(pwd.getpwnam("nobody").pw_uid)] * 4
    limits = open(f"/proc/{server.pid}/limits").read()
    assert re.search(r"Max open files +500 +500 ", limits) and re.search(r"Max core file size +0 +0 ", limits)
    for thread, tries in break_out(ordinary).items():
        # EPERM and EACCES.
        assert not {name: error for name, error in tries.items() if error not in (1, 13)}, thread
    assert server.get("/a")[2] == b"x" * 1000
    wait_until(lambda: "GET /a" in (place / "log" / "access.log").read_text(), "the log")
    assert server.stop() == 0


def test_debug_commands_exist_only_with_their_feature(begin, place):
    server = begin(without_scripts(place, ""))
    assert fetch(place / "admin.sock", "/debug/break?outside=/&root=/&victim=1", "POST")[0] in (404, 405)
    assert server.get("/debug/break", method="POST")[0] in (404, 405)
    assert server.stop() == 0


def test_check_prints_the_list_of_system_calls_and_its_reason(place):
    file = without_scripts(place, "seccomp = true\n")
    assert "seccomp: only the system calls that the server needs are allowed, as it starts no programs\n" in run(
        "check", "--config", str(file)
    )[1]
    file.write_text(file.read_text() + '[[site.route]]\npath = "/c/*"\nscript = { kind = "cgi", directory = "." }\n')
    out = run("check", "--config", str(file))[1]
    assert "seccomp: system calls that web sites do not use are rejected; scripts inherit the list" in out
    file.write_text(file.read_text().replace('"cgi", directory = "."', '"scgi", connect = ["127.0.0.1:9"]'))
    assert "as it starts no programs\n" in run("check", "--config", str(file))[1]


@pytest.mark.parametrize("how", [pytest.param("root", marks=only_root), "ordinary"])
def test_a_confined_server_changes_but_for_its_first_scripts(begin, place, break_out, how):
    who, user = ('user = "nobody"\n', None) if how == "root" else ("", ordinary)
    file = without_scripts(place, who + CONFINED)
    plain = file.read_text()
    admin = place / "admin.sock"
    server = begin(file, debugged(user))
    second = None
    scripts = '[[site.route]]\npath = "/cgi/*"\nscript = { kind = "cgi", directory = "cgi" }\n'
    why = "the configuration starts scripts, and seccomp does not allow the system calls that they need; restart the server"
    try:
        for count in range(2):
            file.write_text(plain + scripts)
            assert f"rejected  {why}\n" in run("check", "-c", str(file), "--diff", "--admin", str(admin))[1]
            code, out, error = run("reload", "--admin", str(admin))
            assert code == 1 and f"not reloaded, the running configuration stays in use: {why}" in error, error
            # Not even if the file disables the filter.
            file.write_text(plain.replace("seccomp = true\n", "") + scripts)
            assert why in run("reload", "--admin", str(admin))[2]
            code, out, error = run("upgrade", "--admin", str(admin))
            assert code == 1 and f"this process keeps serving: {why}" in error, error
            file.write_text(plain + 'cache_control = "no-store"\n')
            assert run("reload", "--admin", str(admin))[0] == 0
            assert server.get("/link/none")[0] == 404 and server.get("/a")[0] == 200
            if count == 0:
                # A new process is as confined.
                code, out, error = run("upgrade", "--admin", str(admin))
                assert code == 0, error
                second = wait_until(lambda: (pid := pid_of(admin)) != server.pid and pid, "the new process")
                assert server.process.wait(20) == 0
        for tries in break_out(ordinary).values():
            assert not {name: error for name, error in tries.items() if error not in (1, 13)}
    finally:
        if second:
            end(second)


@only_root
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_sockets_of_root_are_removed_after_a_change_of_user(begin, place, how):
    owned = place / "owned"
    owned.mkdir()
    os.chown(owned, pwd.getpwnam("nobody").pw_uid, -1)
    (place / "site").mkdir()
    file = place / "dunlin.toml"
    file.write_text(
        f'[server]\nthreads = 1\nuser = "nobody"\nadmin = "{place}/admin.sock"\n[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[listen]]\naddress = "unix:{place}/site.sock"\n[[listen]]\naddress = "unix:{owned}/own.sock"\n[[site]]\nroot = "{place}/site"\n'
    )
    server = begin(file)
    sockets = [place / "admin.sock", place / "site.sock"]
    assert all(socket.exists() for socket in sockets) and (owned / "own.sock").exists()
    if how == signal.SIGTERM:
        # A service manager sends it to all processes.
        for pid in remover_of(server.pid):
            os.kill(pid, signal.SIGTERM)
        assert server.stop() == 0
        assert not any(socket.exists() for socket in [*sockets, owned / "own.sock"])
        assert "cannot be removed" not in server.log
    else:
        server.kill()
        wait_until(lambda: not any(socket.exists() for socket in sockets), "the sockets to be removed")


@only_root
def test_the_sockets_of_root_stay_during_an_upgrade_and_are_removed_after_it(begin, place):
    (place / "site").mkdir()
    admin = place / "admin.sock"
    file = place / "dunlin.toml"
    file.write_text(
        f'[server]\nthreads = 1\nuser = "nobody"\nadmin = "{admin}"\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{place}/site"\n'
    )
    server = begin(file)
    code, _, error = run("upgrade", "--admin", str(admin))
    assert code == 0, error
    second = wait_until(lambda: (pid := pid_of(admin)) != server.pid and pid, "the new process")
    try:
        assert server.process.wait(20) == 0
        for _ in range(3):
            assert pid_of(admin) == second
            time.sleep(0.3)
    finally:
        end(second)
    wait_until(lambda: not admin.exists(), "the socket to be removed")


@only_root
def test_no_process_stays_for_sockets_that_the_user_can_remove(begin, place):
    os.chown(place, pwd.getpwnam("nobody").pw_uid, -1)
    (place / "site").mkdir()
    file = place / "dunlin.toml"
    file.write_text(
        f'[server]\nthreads = 1\nuser = "nobody"\nadmin = "{place}/admin.sock"\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{place}/site"\n'
    )
    server = begin(file)
    assert remover_of(server.pid) == []
    assert server.stop() == 0 and not (place / "admin.sock").exists()


def remover_of(pid):
    """The processes that remove the sockets of a server."""
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    return [int(child) for child in children if b"remove-sockets" in open(f"/proc/{child}/cmdline", "rb").read()]
