"""Processes that have less than the server: another user and group, and limits that hold before they begin."""

import grp
import json
import os
import pwd
import subprocess

import pytest

from support.fastcgi import PHP_CGI
from support.files import write
from support.processes import is_alive, none_left, workers
from support.scripts import script
from support.server import DUNLIN, ROOT
from support.users import only_root

pytestmark = pytest.mark.usefixtures("orderly_stop")

NOBODY = pwd.getpwnam("nobody")
SHOW = """#!/usr/bin/python3
import json, os, resource, sys
print("Content-Type: application/json\\n")
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({"uid": status["Uid"].split(), "gid": status["Gid"].split(), "groups": status["Groups"].split(),
    "nice": os.nice(0), "memory": resource.getrlimit(resource.RLIMIT_AS), "cpu": resource.getrlimit(resource.RLIMIT_CPU),
    "args": sys.argv[1:], "env": dict(os.environ), "fds": sorted(os.listdir("/proc/self/fd")),
    "group": os.getpgrp() == os.getpid(), "parent": os.getppid()}))
"""


@only_root
@pytest.mark.parametrize("kind", ["cgi", "warm"])
def test_a_process_belongs_to_the_user_of_its_route(cgi, reachable, kind):
    cpu = 'cpu = "7s",' if kind == "cgi" else ""
    server = cgi(
        {"show.py": SHOW},
        f'user = "nobody", nice = 3, memory = "1GiB", {cpu} env = {{ LD_BIND_NOW = "1" }}',
    )
    for _ in range(2):
        status, _, body = server.get("/cgi-bin/show.py?a+b")
        assert status == 200, server.log
        reported = json.loads(body)
        assert reported["uid"] == [str(NOBODY.pw_uid)] * 4 and reported["gid"] == [str(NOBODY.pw_gid)] * 4
        assert "0" not in reported["groups"]
        assert reported["nice"] == os.nice(0) + 3
        assert reported["memory"] == [1 << 30] * 2 and (reported["cpu"] == [7] * 2) == (kind == "cgi")
        assert reported["args"] == ["a", "b"] and reported["fds"] == ["0", "1", "2", "3"]
        assert reported["group"] and reported["parent"] == server.pid
        assert reported["env"]["LD_BIND_NOW"] == "1"
        assert not [name for name in reported["env"] if name.startswith("DUNLIN")]
    server.stop()
    none_left(server)


@only_root
def test_a_group_alone_can_be_set(cgi, reachable):
    group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, NOBODY.pw_gid))
    server = cgi({"show.py": SHOW}, f'group = "{group.gr_name}"')
    reported = json.loads(server.get("/cgi-bin/show.py")[2])
    assert reported["uid"] == ["0"] * 4 and reported["gid"] == [str(group.gr_gid)] * 4 and reported["groups"] == []
    # Forbidden actions fail.
    server = cgi({"write.sh": "printf 'Content-Type: text/plain\\n\\n'; id -u; touch /root/x 2>&1; setpriv --reuid 0 id 2>&1"}, 'user = "nobody"')
    body = server.get("/cgi-bin/write.sh")[2].decode()
    assert body.startswith(f"{NOBODY.pw_uid}\n") and "Permission denied" in body
    assert not os.path.exists("/root/x")


@only_root
def test_one_that_belongs_to_another_is_ended_as_any(cgi, reachable):
    pid = reachable / "pid"
    pid.touch()
    pid.chmod(0o666)
    server = cgi(
        {"hangs": f"echo $$ > {pid}; trap '' TERM; sleep 60 & wait; sleep 60"},
        'user = "nobody", timeout = "300ms"',
    )
    assert server.get("/cgi-bin/hangs")[0] == 504
    none_left(server)
    assert not is_alive(int(pid.read_text()))


def test_a_limit_applies_before_the_program_starts(cgi):
    # A constructor of a library of its own would already run beyond one that is set afterwards.
    server = cgi({"show.py": SHOW, "limit.sh": "printf 'Content-Type: text/plain\\n\\n'; ulimit -v; ulimit -t"}, 'memory = "512MiB", cpu = "3s"')
    for _ in range(5):
        assert server.get("/cgi-bin/limit.sh")[2] == b"524288\n3\n"
    assert json.loads(server.get("/cgi-bin/show.py")[2])["memory"] == [512 << 20] * 2


def test_programs_that_cannot_run_are_reported(cgi):
    server = cgi({"none": "#!/nowhere/at/all\n"}, 'cpu = "3s"')
    assert server.get("/cgi-bin/none")[0] == 502
    server.logged("it was not run")
    for words in (["launch-script"], ["launch-script", "user=x,", "a", "/bin/true"], ["launch-script", "x", "a", "b"]):
        done = subprocess.run([DUNLIN, *words], capture_output=True, text=True)
        assert done.returncode == 126 and "it was not run" in done.stderr


WSGI = """
import os
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getuid()).encode()]
"""


@only_root
@pytest.mark.parametrize("kind", ["wsgi", "fastcgi", "cgiplus", "rte"])
def test_workers_belong_to_the_user_of_their_route(serve, site, reachable, kind):
    folder = reachable / "scripts"
    folder.mkdir()
    if kind == "wsgi":
        (folder / "app.py").write_text(WSGI)
        path, own = "/a", 'application = "app:application"'
    elif kind == "fastcgi":
        assert PHP_CGI, "php-cgi is missing"
        (folder / "a.php").write_text("<?php echo posix_getuid();")
        path, own = "/a.php", 'command = ["php-cgi"]'
    elif kind == "rte":
        (folder / "a.py").write_text("import os\nprint('Content-Type: text/plain\\n')\nprint(os.getuid())\n")
        path, own = "/a.py", ""
    else:
        script(folder, "a.py", "#!/usr/bin/python3\n"
               f"import os, sys\nsys.path.insert(0, {str(ROOT / 'scripting' / 'cgiplus')!r})\nimport cgiplus\n"
               "for request in cgiplus.requests():\n"
               "    request.write(b'Content-Type: text/plain\\n\\n%d' % os.getuid())\n")
        path, own = "/a.py", ""
    server = serve(
        more=f'[[site.route]]\npath = "/*"\nscript = {{ kind = "{kind}", directory = "{folder}", '
        f'user = "nobody", processes = 1, {own} }}'
    )
    for _ in range(2):
        status, _, body = server.get(path)
        assert (status, body.strip()) == (200, str(NOBODY.pw_uid).encode()), server.log
    assert len(workers(server)) == 1
    if kind == "wsgi":
        # They can read the files of the host.
        with open(f"/proc/{next(iter(workers(server)))}/maps") as maps:
            assert "dunlin_wsgi.abi3.so" in maps.read()


def test_the_explanation_names_the_user_of_processes(tmp_path):
    (tmp_path / "dunlin.toml").write_text(
        '[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n[[site.route]]\npath = "/x/*"\n'
        'early_hints = ["</a.css>; rel=preload"]\ninternal = true\n'
        'script = { kind = "cgi", directory = ".", user = "nobody", sendfile_root = "." }\n'
    )
    done = subprocess.run([DUNLIN, "check", "--explain", "/x/y"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"as user {NOBODY.pw_uid} and group {NOBODY.pw_gid}" in done.stdout
    for part in (f"X-Sendfile beneath {tmp_path}", "early_hints from /x/*", "internal from /x/*", "404 to clients"):
        assert part in done.stdout, done.stdout


@only_root
def test_a_program_that_is_not_in_the_path_is_not_called_forbidden(serve, reachable):
    closed = reachable / "closed"
    closed.mkdir(mode=0o700)
    text = (
        f'[server]\nthreads = 1\nuser = "nobody"\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{reachable}"\n'
        '[[site.route]]\npath = "/*"\nscript = { kind = "fastcgi", command = ["no-such-php-cgi"], root = "." }\n'
    )
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{closed}:{path}"
    try:
        server = serve(text=text)
    finally:
        os.environ["PATH"] = path
    write(reachable / "x.php", "")
    server.get("/x.php")
    log = server.logged("a worker could not be started")
    assert "there is no program of that name in PATH" in log and "Permission denied" not in log
