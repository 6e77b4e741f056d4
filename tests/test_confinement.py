"""What the server gives up, shown by trying to use it all the same."""

import json
import os
import pwd
import re
import subprocess

import pytest
from conftest import DUNLIN, Server, wait_until, write
from test_cgi import get
from test_control import ask, run

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Tells what it can do that it should not be able to.
PROBE = """#!/bin/sh
echo "Content-Type: text/plain"
echo
echo "user=$(id -u) group=$(id -g) groups=$(id -G)"
grep NoNewPrivs /proc/self/status
for file in /etc/shadow "$PROBE_FILE"; do cat "$file" >/dev/null 2>&1 && echo "read $file"; done
echo x 2>/dev/null >"$PROBE_DIR/written" && echo "wrote $PROBE_DIR"
mount -t tmpfs none /mnt 2>/dev/null && echo "mounted"
python3 - <<END
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print("ptrace", libc.ptrace(0, 0, 0, 0), ctypes.get_errno())
END
echo done
"""


@pytest.fixture
def place(tmp_path):
    """Directories that another user can reach, which pytest's own are not."""
    import shutil
    import tempfile

    directory = tempfile.mkdtemp(prefix="dunlin-test-", dir="/srv" if os.access("/srv", os.W_OK) else None)
    os.chmod(directory, 0o755)
    yield type(tmp_path)(directory)
    shutil.rmtree(directory)
    shutil.rmtree(directory + "-outside", ignore_errors=True)


def configuration(place, server, outside):
    write(place / "site" / "a", "x" * 1000)
    script = write(place / "cgi" / "probe", PROBE)
    script.chmod(0o755)
    (place / "log").mkdir(exist_ok=True)
    env = f'env = {{ PROBE_FILE = "{outside}/secret", PROBE_DIR = "{outside}" }}'
    return f"""
[server]
threads = 2
admin = "{place}/admin.sock"
access_log = "{place}/log/access.log"
{server}
[[listen]]
address = "127.0.0.1:0"
[[site]]
root = "{place}/site"
[[site.route]]
path = "/cgi/*"
script = {{ kind = "cgi", directory = "{place}/cgi", {env} }}
[[site.route]]
path = "/link/*"
symlinks = "follow"
"""


def outside_of(place):
    # Beside the configuration's own folder, which may be used.
    directory = place.with_name(place.name + "-outside")
    write(directory / "secret", "secret")
    os.chmod(directory, 0o777)
    return directory


@root
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
    said = get(server, "/cgi/probe")[2].decode()
    assert f"user={nobody.pw_uid} group={nobody.pw_gid}" in said and "read /etc/shadow" not in said
    line = wait_until(lambda: (place / "log" / "access.log").read_text(), "the log, which root opened")
    assert "GET /a" in line
    assert "user nobody" in json.loads(ask(place / "admin.sock", "/config")[2])["confinement"]
    assert server.stop() == 0


@pytest.mark.parametrize("user", [None, pytest.param("nobody", marks=root)])
def test_files_that_nobody_named_are_out_of_reach(serve, place, user):
    outside = outside_of(place)
    link = place / "site" / "link"
    link.mkdir(parents=True)
    (link / "secret").symlink_to(outside / "secret")
    free = serve(text=configuration(place, "", outside))
    assert free.get("/link/secret")[2] == b"secret"
    said = get(free, "/cgi/probe")[2].decode()
    assert f"read {outside}/secret" in said and f"wrote {outside}" in said and "done" in said
    assert free.stop() == 0
    who = f'user = "{user}"\n' if user else ""
    server = serve(text=configuration(place, who + "seccomp = true\n[server.landlock]\n", outside))
    assert server.get("/a")[0] == 200
    assert server.get("/link/secret")[0] in (403, 404), "by a symlink that the server would follow"
    said = get(server, "/cgi/probe")[2].decode()
    assert "done" in said and "NoNewPrivs:\t1" in said, said
    for forbidden in ("read", "wrote", "mounted", "ptrace 0"):
        assert forbidden not in said, said
    assert "ptrace -1 1" in said, said
    wait_until(lambda: "GET /a" in (place / "log" / "access.log").read_text(), "the log")
    assert server.stop() == 0


def test_a_configuration_named_from_its_own_folder_is_in_reach(place, monkeypatch):
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


def test_what_cannot_be_given_up_stops_the_start(serve, place):
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
        assert done.returncode == 1 and "only root can become another user" in done.stderr, done.stderr
        # Which a check by that user says beforehand, and root's does not.
        command[command.index("serve")] = "check"
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and "only root can start it: it becomes user daemon\n" in done.stdout, done
        assert "only root" not in run("check", "--config", str(file))[1]
