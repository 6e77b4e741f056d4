"""Changed directories, symlinks and mounts on the paths of files and scripts."""

import os
import subprocess

import pytest

from support.files import write
from support.http import read_response
from support.server import DUNLIN
from support.waiting import wait_until

HOUR = '[server.cache]\nrevalidate = "1h"'


def script(path, text):
    write(path, f"#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n{text}'\n")
    path.chmod(0o755)


def release(directory, text):
    for name in ("a.txt", "deep/b.txt"):
        write(directory / name, text)
    write(directory / "404.html", f"page {text}")
    script(directory / "cgi" / "s", text)
    script(directory / "warm" / "s", text)


def switch(link, target):
    new = link.with_name(".switch")
    new.symlink_to(target)
    os.replace(new, link)


@pytest.fixture
def releases(tmp_path):
    release(tmp_path / "rel1", "one")
    release(tmp_path / "rel2", "two")
    return tmp_path


def serve_root(serve, root, server=HOUR):
    return serve(
        text=f'[server]\nthreads = 2\nadmin = "{root.parent}/admin"\n{server}\n'
        f'[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[site]]\nroot = "{root}"\n[[site.route]]\npath = "/*"\nerror_pages = {{ "404" = "/404.html" }}\n'
        f'[[site.route]]\npath = "/cgi/*"\nscript = {{ kind = "cgi", directory = "{root}/cgi" }}\n'
        f'[[site.route]]\npath = "/warm/*"\nscript = {{ kind = "warm", directory = "{root}/warm" }}\n'
    )


PATHS = ["/a.txt", "/deep/b.txt", "/missing", "/cgi/s", "/warm/s"]


def contents(server):
    """Which releases the responses are of."""
    bodies = [server.get(path)[2] for path in PATHS]
    return {b"one" if b"one" in body else b"two" if b"two" in body else body for body in bodies}


def reload(admin):
    command = [DUNLIN, "reload", "--admin", admin]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


WAYS = ["symlink", "symlink to a symlink", "directory swapped", "directory above swapped", "made anew"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("notify", ["true", "false"])
def test_a_root_that_resolves_elsewhere_takes_effect(serve, releases, way, notify):
    base = releases / "base"
    base.mkdir()
    current = base / "current"
    if way == "symlink":
        current.symlink_to("../rel1")
        change = lambda: switch(current, "../rel2")
    elif way == "symlink to a symlink":
        (releases / "middle").symlink_to("rel1")
        current.symlink_to("../middle")
        change = lambda: switch(releases / "middle", "rel2")
    elif way == "directory above swapped":
        (releases / "rel1").rename(current)
        (releases / "base2").mkdir()
        (releases / "rel2").rename(releases / "base2" / "current")

        def change():
            base.rename(releases / "old")
            (releases / "base2").rename(base)
    else:
        (releases / "rel1").rename(current)

        def change():
            current.rename(base / "old")
            if way == "made anew":
                release(current, "two")
            else:
                (releases / "rel2").rename(current)

    settings = HOUR if notify == "true" else '[server.cache]\nnotify = false\nrevalidate = "300ms"'
    server = serve_root(serve, current, settings)
    for _ in range(3):
        assert contents(server) == {b"one"}
    change()
    wait_until(lambda: contents(server) == {b"two"}, "the other release", 5)
    assert contents(server) == {b"two"}


def test_a_notified_switch_takes_effect_with_the_next_request(serve, releases):
    current = releases / "current"
    current.symlink_to("rel1")
    server = serve_root(serve, current)
    with server.connect() as connection:
        for n in range(40):
            target = f"rel{n % 2 + 1}"
            switch(current, target)
            for path in PATHS[:2]:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                body = read_response(connection)[2]
                assert body == (releases / target / "a.txt").read_bytes(), n


@pytest.mark.parametrize("notify", ["true", "false"])
def test_a_reload_reopens_and_reports_roots(serve, releases, notify):
    current = releases / "current"
    current.symlink_to("rel1")
    server = serve_root(serve, current, f'[server.cache]\nnotify = {notify}\nrevalidate = "1h"')
    assert contents(server) == {b"one"}

    output = reload(releases / "admin")
    assert "1 of 1 sites unchanged" in output
    switch(current, "rel2")
    output = reload(releases / "admin")
    assert contents(server) == {b"two"}
    assert "0 of 1 sites unchanged" in output and f"{current} now resolves to {releases}/rel2" in output
    assert "1 of 1 sites unchanged" in reload(releases / "admin")


def test_a_reload_replaces_workers_whose_directory_leads_elsewhere(serve, tmp_path):
    for name in ("rel1", "rel2"):
        write(
            tmp_path / name / "app.py",
            "def application(environ, start):\n    start('200 OK', [('Content-Length', '4')])\n"
            f"    return [b'{name}']\n",
        )
    current = tmp_path / "current"
    current.symlink_to("rel1")
    server = serve(
        text=f'[server]\nadmin = "{tmp_path}/admin"\n[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[site]]\nroot = "{tmp_path}/rel1"\n[[site.route]]\npath = "/app/*"\n'
        f'script = {{ kind = "wsgi", application = "app:application", directory = "{current}" }}\n'
    )
    assert server.get("/app/")[2] == b"rel1"
    switch(current, "rel2")
    assert f"{current} now resolves to {tmp_path}/rel2" in reload(tmp_path / "admin")
    assert server.get("/app/")[2] == b"rel2"
    reload(tmp_path / "admin")
    assert server.get("/app/")[2] == b"rel2"


@pytest.mark.parametrize("kind", ["file", "directory", "directory above the target"])
def test_every_link_of_a_chain_counts(serve, site, tmp_path, kind):
    for name in ("one", "two"):
        write(tmp_path / "data" / name / "sub" / "a.txt", name)
    middle = tmp_path / "data" / "middle"
    middle.symlink_to("one")
    (site / "dir").symlink_to(middle / "sub")
    (tmp_path / "data" / "file").symlink_to("middle/sub/a.txt")
    (site / "a.txt").symlink_to(tmp_path / "data" / "file")
    server = serve('symlinks = "follow"', server=HOUR)
    path = "/a.txt" if kind == "file" else "/dir/a.txt"
    for _ in range(3):
        assert server.get(path)[2] == b"one"
    if kind == "directory above the target":
        (tmp_path / "data" / "one").rename(tmp_path / "data" / "old")
        (tmp_path / "data" / "two").rename(tmp_path / "data" / "one")
    else:
        switch(middle, "two")
    wait_until(lambda: server.get(path)[2] == b"two", "the other end of the chain", 5)


def mount(*arguments):
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.decode().strip()}")


@pytest.mark.parametrize("over", ["the root", "a directory above", "a directory within", "a file"])
@pytest.mark.parametrize("notify", ["true", "false"])
def test_a_mount_and_an_unmount_take_effect(serve, tmp_path, over, notify):
    base = tmp_path / "base"
    write(base / "site" / "dir" / "a.txt", "below")
    write(tmp_path / "other" / "site" / "dir" / "a.txt", "mounted")
    parts = {"the root": "site", "a directory above": "", "a directory within": "site/dir", "a file": "site/dir/a.txt"}
    part = parts[over]
    cache = HOUR if notify == "true" else '[server.cache]\nnotify = false\nrevalidate = "300ms"'
    server = serve(
        text=f'[server]\nthreads = 2\n{cache}\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{base}/site"\n'
    )
    for _ in range(3):
        assert server.get("/dir/a.txt")[2] == b"below"
    mount("--bind", tmp_path / "other" / part, base / part)
    try:
        wait_until(lambda: server.get("/dir/a.txt")[2] == b"mounted", "the mount", 5)
    finally:
        subprocess.run(["umount", "-l", base / part], check=True)
    wait_until(lambda: server.get("/dir/a.txt")[2] == b"below", "the end of the mount", 5)
