"""The server reports the confinement in force, even if the file has changed since."""

import json
import os
import pwd
import re

import pytest

from support.admin import fetch, pid_of, run
from support.confinement import configuration, outside_of, without_scripts
from support.processes import end
from support.users import only_root, ordinary
from support.waiting import wait_until

ONLY = "needs a restart"


def read_confinement(place):
    return json.loads(fetch(place / "admin.sock", "/config")[2])["confinement"]


def reload(place):
    code, out, error = run("reload", "--admin", str(place / "admin.sock"))
    assert code == 0, error
    return out


def diff(place):
    code, out, error = run("check", "-c", str(place / "dunlin.toml"), "--diff", "--admin", str(place / "admin.sock"))
    assert code == 0, error
    return out


def status(pid):
    return dict(line.rstrip("\n").split(":\t", 1) for line in open(f"/proc/{pid}/status") if ":\t" in line)


CONFINED = 'user = "nobody"\nno_new_privs = true\nlimits = { core = 0 }\nseccomp = true\n[server.landlock]\n'
KEYS = ["server.user", "server.limits", "server.no_new_privs", "server.landlock", "server.seccomp"]


@only_root
def test_a_reload_does_not_report_a_confinement_that_is_not_in_force(begin, place):
    file = place / "dunlin.toml"
    plain = configuration(place, "", outside_of(place))
    confined = configuration(place, CONFINED, outside_of(place))
    file.write_text(plain)
    server = begin(file)
    before = read_confinement(place)
    assert not [line for line in before if not line.startswith("scripts ")]
    file.write_text(confined)
    assert all(f"{key}" in diff(place) for key in KEYS)
    # As long as the file differs, and not only once.
    for _ in range(3):
        out = reload(place)
        assert ONLY in out and all(key in out for key in KEYS), out
        assert read_confinement(place) == before
        assert all(f"{key}: differs from the value used" in diff(place) for key in KEYS)
    facts = status(server.pid)
    assert facts["NoNewPrivs"] == "0" and facts["Seccomp"] == "0" and facts["Uid"].split()[0] == "0"
    # Equal to the settings in force again: nothing differs.
    file.write_text(plain)
    assert ONLY not in diff(place)
    assert ONLY not in reload(place) and read_confinement(place) == before
    assert diff(place) == "nothing would change\n"
    assert server.stop() == 0


@only_root
def test_a_reload_reports_a_confinement_that_is_in_force(begin, place):
    file = place / "dunlin.toml"
    plain = configuration(place, "", outside_of(place))
    confined = configuration(place, CONFINED, outside_of(place))
    file.write_text(confined)
    server = begin(file)
    before = read_confinement(place)
    for line in ["user nobody", "no new privileges", "limits: core 0"]:
        assert line in before
    assert any(line.startswith("landlock: reads") for line in before) and any(line.startswith("seccomp:") for line in before)
    file.write_text(plain)
    for _ in range(2):
        out = reload(place)
        assert ONLY in out and all(key in out for key in KEYS), out
        assert read_confinement(place) == before
    second = None
    try:
        # A new process inherits it, and reports it.
        code, _, error = run("upgrade", "--admin", str(place / "admin.sock"))
        assert code == 0, error
        second = wait_until(lambda: (pid := pid_of(place / "admin.sock")) != server.pid and pid, "the new process")
        facts = status(second)
        assert facts["NoNewPrivs"] == "1" and facts["Seccomp"] == "2"
        assert facts["Uid"].split()[0] == str(pwd.getpwnam("nobody").pw_uid)
        assert read_confinement(place) == before
        out = reload(place)
        assert ONLY in out and all(key in out for key in KEYS), out
        assert all(f"{key}: differs from the value used" in diff(place) for key in KEYS)
        file.write_text(confined)
        assert ONLY not in reload(place) and read_confinement(place) == before
        assert diff(place) == "nothing would change\n"
    finally:
        if second:
            end(second)


@pytest.mark.parametrize("how", [pytest.param("root", marks=only_root), "ordinary"])
def test_each_reload_reports_changed_fixed_settings(begin, place, how):
    file = without_scripts(place, "")
    plain = file.read_text()
    server = begin(file, ordinary if how == "ordinary" else None)
    (place / "pids").mkdir()
    changes = {
        "server.threads": plain.replace("threads = 2", "threads = 1"),
        "server.pid_file": plain.replace("threads = 2", f'threads = 2\npid_file = "{place}/pids/pid"'),
        "server.error_log.path": plain.replace("threads = 2", f'threads = 2\nerror_log = {{ path = "{place}/log/error.log" }}'),
        "server.cache.notify": plain.replace("threads = 2", "threads = 2\ncache = { notify = false }"),
        "server.limits": plain.replace("threads = 2", "threads = 2\nlimits = { open_files = 300 }"),
    }
    for key, text in changes.items():
        file.write_text(text)
        for _ in range(2):
            assert f"{ONLY}: {key}" in reload(place)
    assert json.loads(fetch(place / "admin.sock", "/config")[2])["threads"] == 2
    assert not re.search(r"Max open files +300 ", open(f"/proc/{server.pid}/limits").read())
    file.write_text(plain)
    assert ONLY not in reload(place)
    assert server.stop() == 0
    assert not (place / "pids" / "pid").exists()


@only_root
def test_the_pid_file_may_be_in_a_folder_of_root(begin, place):
    folder = place / "run"
    folder.mkdir()
    os.chmod(folder, 0o755)
    number = folder / "pid"
    file = without_scripts(place, f'user = "nobody"\npid_file = "{number}"\n')
    server = begin(file)
    assert number.read_text() == f"{server.pid}\n"
    second = None
    try:
        code, _, error = run("upgrade", "--admin", str(place / "admin.sock"))
        assert code == 0, error
        second = wait_until(lambda: (pid := pid_of(place / "admin.sock")) != server.pid and pid, "the new process")
        assert number.read_text() == f"{second}\n"
        assert server.process.wait(20) == 0
        assert number.read_text() == f"{second}\n", "it is the new process's"
    finally:
        if second:
            end(second)
    assert number.read_text() == "", "no process is named that has ended"
    # The next start applies it.
    third = begin(file)
    assert number.read_text() == f"{third.pid}\n"
    assert third.stop() == 0


@pytest.mark.parametrize("how", [pytest.param("root", marks=only_root), "ordinary"])
def test_a_pid_file_that_cannot_be_written_stops_the_start(begin, place, how):
    folder = place / "run"
    folder.mkdir()
    os.chmod(folder, 0o555)
    number = folder / "pid"
    who = ""
    if how == "root":
        # The existing file is not its own.
        who = 'user = "nobody"\n'
        (folder / "other").write_text("precious")
        os.link(folder / "other", number)
        os.chmod(folder, 0o777)
        number.unlink()
        number.mkdir()
    file = without_scripts(place, f'{who}pid_file = "{number}"\n')
    with pytest.raises(AssertionError, match=f"pid_file {number}: .*; check that the directory is writable"):
        begin(file, ordinary if how == "ordinary" else None)


UNSHARE = """#!/usr/bin/env python3
import ctypes, functools, os, subprocess, threading
print = functools.partial(print, flush=True)
print("Content-Type: text/plain\\n")
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, *arguments):
    result = libc.syscall(*[ctypes.c_long(argument) for argument in arguments])
    print(name, result if result == 0 else -ctypes.get_errno())
USER = 0x10000000
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
print("program", subprocess.run(["true"]).returncode)
print("shell", os.system("exit 0"))
pid = os.fork()
if pid == 0:
    attempt("unshare", 272, USER)
    os._exit(0)
os.waitpid(pid, 0)
pid = os.fork()
if pid == 0:
    attempt("both", 272, USER | 0x20000)
    os._exit(0)
os.waitpid(pid, 0)
attempt("clone3", 435, 0, 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the script has this machine's numbers of calls")
@pytest.mark.parametrize("kind", ["cgi", "warm"])
@pytest.mark.parametrize("how", [pytest.param("root", marks=only_root), "ordinary"])
def test_scripts_of_a_confined_server_get_no_user_namespace(begin, place, how, kind):
    def results(server):
        body = server.get("/cgi/probe")[2].decode()
        return dict(line.split() for line in body.splitlines())

    def start(keys):
        text = configuration(place, keys, outside_of(place)).replace('kind = "cgi"', f'kind = "{kind}"')
        probe = place / "cgi" / "probe"
        probe.write_text(UNSHARE)
        file = place / "dunlin.toml"
        file.write_text(text)
        if os.geteuid() == 0:
            for path in [place, place / "log"]:
                os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
        return begin(file, ordinary if how == "ordinary" else None)

    server = start("seccomp = true")
    confined = results(server)
    assert confined == {"program": "0", "shell": "0", "unshare": "-1", "both": "-1", "clone3": "-38"}
    assert server.stop() == 0
    server = start("")
    if results(server)["unshare"] != "0":
        pytest.skip("this machine refuses user namespaces by itself")
