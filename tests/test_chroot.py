"""A directory that becomes all the files there are (`chroot`), and limits of the server's process."""

import json
import os
import re
import resource
import shutil
import signal
import ssl
import stat
import subprocess

import pytest

from support.admin import fetch, pid_of, run
from support.confinement import outside_of
from support.files import write
from support.processes import end
from support.server import DUNLIN
from support.tls import certificate
from support.users import only_root
from support.waiting import wait_until

SCRIPT = """#!/bin/sh
echo "Content-Type: text/plain"
echo
echo "user=$(id -u) groups=$(id -G) pwd=$(pwd) root=$DOCUMENT_ROOT"
echo here: /*
cat "$OUTSIDE" 2>/dev/null && echo "read $OUTSIDE"
cat "/proc/1/root$OUTSIDE" 2>/dev/null && echo "read $OUTSIDE"
cat ../../../../../../../../../../../../"$OUTSIDE" 2>/dev/null && echo "read $OUTSIDE"
echo done
"""


def put_in(jail, *programs):
    """Copies programs and their libraries to the same paths beneath `jail`."""
    for program in programs:
        path = program if "/" in program else shutil.which(program)
        shown = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        for file in [path, *re.findall(r"(/\S+) \(0x", shown)]:
            there = jail / file.lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, there)
    for folder in ("dev", "tmp", "var/tmp"):
        (jail / folder).mkdir(parents=True, exist_ok=True)
    os.chmod(jail / "tmp", 0o1777)
    os.chmod(jail / "var" / "tmp", 0o1777)
    null = jail / "dev" / "null"
    if null.exists():
        return
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chmod(null, 0o666)
    except PermissionError:
        null.touch()


@pytest.fixture
def jail(place):
    directory = place / "jail"
    put_in(directory, "/bin/sh", "id", "cat")
    script = write(directory / "cgi" / "probe", SCRIPT)
    script.chmod(0o755)
    write(directory / "site" / "a", "x" * 1000)
    (directory / "run").mkdir()
    os.chmod(directory / "run", 0o777)
    return directory


def configuration(jail, outside, server="", route="", more=""):
    return f"""
[server]
threads = 1
chroot = "{jail}"
user = "daemon"
admin = "{jail}/run/admin.sock"
access_log = "{jail}/run/access.log"
error_log = {{ path = "{jail}/run/error.log" }}
{server}
[[listen]]
address = "127.0.0.1:0"
[[site]]
root = "site"
[[site.route]]
path = "/cgi/*"
script = {{ kind = "cgi", directory = "{jail}/cgi", env = {{ OUTSIDE = "{outside}/secret" }} }}
[[site.route]]
path = "/*"
symlinks = "follow"
{route}
{more}
"""


def config_in(jail, text):
    file = jail / "dunlin.toml"
    file.write_text(text)
    return file


@only_root
def test_nothing_outside_can_be_reached(begin, place, jail):
    outside = outside_of(place)
    (jail / "site" / "out").symlink_to(outside / "secret")
    (jail / "site" / "up").symlink_to("../../../../../../../../" + str(outside / "secret"))
    (jail / "site" / "in").symlink_to("/site/a")
    file = config_in(jail, configuration(jail, outside))
    server = begin(file)
    assert server.get("/a")[2] == b"x" * 1000
    assert server.get("/in")[2] == b"x" * 1000, "what links call by a whole path is meant as inside"
    assert server.get("/out")[0] == 404 and server.get("/up")[0] == 404
    status, _, body = server.get("/cgi/probe")
    output = body.decode()
    daemon = re.search(r"daemon:x:(\d+)", open("/etc/passwd").read())[1]
    assert status == 200 and output.endswith("done\n"), output
    assert f"user={daemon} " in output and "pwd=/cgi root=/site" in output, output
    assert "secret" not in output and "/etc" not in output, output
    assert os.readlink(f"/proc/{server.pid}/root") == str(jail) and os.readlink(f"/proc/{server.pid}/cwd") == str(jail)
    config = json.loads(fetch(jail / "run" / "admin.sock", "/config")[2])
    assert f"chroot {jail}" in config["confinement"] and config["file"] == str(file)
    assert server.stop() == 0


@only_root
def test_a_server_inside_changes_like_any_other(begin, place, jail):
    outside = outside_of(place)
    pair = certificate(jail, "own")
    shutil.chown(pair[1], "daemon")
    admin = jail / "run" / "admin.sock"

    def text(field):
        whole = configuration(jail, outside, route=f'set_fields = {{ X-Field = "{field}" }}').replace(
            'address = "127.0.0.1:0"', 'address = "127.0.0.1:0"\ntls = true', 1
        )
        tls = f'tls = {{ certificate = "{pair[0]}", key = "{pair[1]}" }}\n'
        return whole.replace('root = "site"\n', 'root = "site"\n' + tls)

    file = config_in(jail, text("one"))
    server = begin(file)

    def shown():
        context = ssl._create_unverified_context()
        with context.wrap_socket(server.connect()) as connection:
            connection.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            head = b""
            while part := connection.recv(1 << 16):
                head += part
            return re.search(rb"X-Field: (\w+)", head)[1], connection.getpeercert(True)

    field, first = shown()
    assert field == b"one"
    file.write_text(text("two"))
    assert "X-Field" in run("check", "-c", str(file), "--diff")[1]
    code, out, error = run("reload", "--config", str(file))
    assert code == 0, error
    assert shown()[0] == b"two"
    certificate(jail, "own")
    shutil.chown(pair[1], "daemon")
    wait_until(lambda: shown()[1] != first, "the new certificate")
    for log in ("access.log", "error.log"):
        os.rename(jail / "run" / log, jail / "run" / f"{log}.1")
    assert run("reload", "--admin", str(admin))[0] == 0
    server.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: shown() and (jail / "run" / "access.log").exists(), "the new access log")
    assert "GET /a" in wait_until((jail / "run" / "access.log").read_text, "a line")
    assert (jail / "run" / "error.log").exists()
    # The program is outside.
    code, out, error = run("upgrade", "--admin", str(admin))
    assert code == 1 and "this process keeps serving" in error and "outside the chroot" in error, error
    assert shown()[0] == b"two"
    assert server.stop() == 0 and not admin.exists()


@only_root
def test_a_program_that_is_inside_can_be_upgraded(begin, place, jail):
    put_in(jail, DUNLIN)
    file = config_in(jail, configuration(jail, outside_of(place)))
    own = jail / DUNLIN.lstrip("/")
    process = subprocess.Popen([own, "serve", "--config", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    admin = jail / "run" / "admin.sock"
    second = None
    try:
        assert process.stdout.readline().startswith(b"http://"), process.stderr.read()
        file.write_text(file.read_text() + 'cache_control = "no-store"\n')
        code, out, error = run("upgrade", "--admin", str(admin))
        assert code == 0, error
        # The old process may have accepted connections right after its response.
        second = wait_until(lambda: (pid := pid_of(admin)) != process.pid and pid, "the new process")
        assert process.wait(20) == 0
        assert os.readlink(f"/proc/{second}/root") == str(jail)
        assert open(f"/proc/{second}/status").read().count("Uid:\t0") == 0
        assert run("check", "-c", str(file), "--diff")[1] == "nothing would change\n"
        assert run("reload", "--admin", str(admin))[0] == 0
    finally:
        process.kill()
        if second:
            end(second)


def test_paths_outside_are_errors_with_their_location(place, jail):
    outside = outside_of(place)
    file = config_in(jail, configuration(jail, outside))
    code, out, error = run("check", "--config", str(file))
    assert code == 0 and f"chroot {jail}\n" in out, error
    text = configuration(jail, outside, more=f'[[site]]\nhost = "b"\nroot = "{outside}"\n')
    file.write_text(text)
    line = 1 + text[: text.index(f'root = "{outside}"')].count("\n")
    code, out, error = run("check", "--config", str(file))
    assert code == 1 and f":{line}:8: {outside} is outside of chroot {jail}" in error, error
    file.write_text(configuration(jail, outside).replace('user = "daemon"\n', ""))
    code, out, error = run("check", "--config", str(file))
    assert code == 1 and ":4:10: root can leave a chroot" in error, error
    file.write_text(configuration(jail, outside).replace(f'chroot = "{jail}"', f'chroot = "{jail}/none"'))
    assert "is outside of chroot" in run("check", "--config", str(file))[2]


@only_root
def test_only_root_can_go_inside(place, jail):
    file = config_in(jail, configuration(jail, outside_of(place)))
    os.chmod(file, 0o644)
    command = ["setpriv", "--reuid=daemon", "--clear-groups", DUNLIN, "serve", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "only root can do that" in done.stderr, done.stderr


def limits_of(pid):
    text = open(f"/proc/{pid}/limits").read()
    return {name: tuple(re.search(rf"Max {name} +(\S+) +(\S+)", text).groups()) for name in LIMITS}


LIMITS = ("open files", "core file size", "processes", "address space")


def test_resource_limits_apply_to_the_server_and_its_scripts(serve, site, tmp_path):
    script = write(tmp_path / "cgi" / "limits", "#!/bin/sh\necho Content-Type: text/plain\necho\ncat /proc/self/limits\n")
    script.chmod(0o755)
    route = f'script = {{ kind = "cgi", directory = "{script.parent}" }}'
    limits = 'limits = { open_files = 500, core = 0, processes = 20000, memory = "3GiB" }'
    server = serve(route, server=limits)
    wanted = {
        "open files": ("500", "500"),
        "core file size": ("0", "0"),
        "processes": ("20000", "20000"),
        "address space": (str(3 << 30), str(3 << 30)),
    }
    assert limits_of(server.pid) == wanted
    body = server.get("/limits")[2].decode()
    assert re.search(r"Max core file size +0 +0", body) and re.search(r"Max processes +20000 +20000", body)
    assert server.stop() == 0


def test_limits_that_cannot_be_had_stop_the_start(serve):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def fewer():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)

    if hard <= 300:
        pytest.skip("there are too few descriptors as it is")
    with pytest.raises(AssertionError) as failed:
        serve(server="limits = { open_files = 300 }", preexec=fewer)
    assert "limits: open_files = 300: " in str(failed.value) or "Permission denied" in str(failed.value)
    with pytest.raises(AssertionError, match=r"limits.open_files is less than 32"):
        serve(server="limits = { open_files = 3 }")
