"""The directory for temporary files (TMPDIR), and scripts when descriptors run short."""

import os
import subprocess

import pytest

from support.http import chunks, read_any, upload
from support.kinds import expected, Programs
from support.server import DUNLIN

pytestmark = pytest.mark.usefixtures("orderly_stop")

@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path / "programs")


def unusable(tmp_path, how):
    path = tmp_path / "tmp"
    if how == "a file":
        path.write_text("")
    elif how == "not writable":
        return "/proc"
    return str(path)


@pytest.mark.parametrize("how", ["missing", "a file", "not writable"])
def test_another_directory_is_used_for_an_unusable_tmpdir(serve, programs, tmp_path, monkeypatch, how):
    directory = unusable(tmp_path, how)
    monkeypatch.setenv("TMPDIR", directory)
    server = serve(
        more="".join(programs.route(kind, route='body_size = "10MB"') for kind in ("cgi", "wsgi", "fastcgi")),
        server=f'admin = "{tmp_path}/admin"',
    )
    server.logged(f"TMPDIR {directory}")
    body = os.urandom(300_000)
    for kind in ("cgi", "wsgi", "fastcgi"):
        with server.connect() as connection:
            connection.sendall(upload(f"{programs.path(kind)}?total", None) + chunks(body))
            assert read_any(connection)[2] == expected(body), server.log
    assert server.log.count(f"TMPDIR {directory}") == 1
    # A reload reports it again, and so does the check.
    done = subprocess.run([DUNLIN, "reload", "--admin", f"{tmp_path}/admin"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    server.stop()  # Only then the log has the second of two equal lines.
    assert server.log.count(f"TMPDIR {directory}") == 2, server.log
    checked = subprocess.run([DUNLIN, "check", "-c", f"{tmp_path}/dunlin-0.toml"], capture_output=True, text=True)
    assert f"TMPDIR {directory}" in checked.stdout and checked.returncode == 0


def test_a_tmpdir_that_is_removed_later_is_replaced(serve, programs, tmp_path, monkeypatch):
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    server = serve(more=programs.route("cgi") + programs.route("psgi"))
    assert "TMPDIR" not in server.log
    directory.rmdir()
    body = os.urandom(300_000)
    for kind in ("cgi", "psgi"):
        for _ in range(2):
            with server.connect() as connection:
                connection.sendall(upload(f"{programs.path(kind)}?total", len(body)) + body)
                assert read_any(connection)[2] == expected(body), server.log
    assert server.logged(f"TMPDIR {directory}").count(f"TMPDIR {directory}") == 1


def few_descriptors(serve, programs, site, limit=64):
    for number in range(200):
        (site / f"{number}.txt").write_bytes(os.urandom(400_000))
    kinds = ("cgi", "wsgi", "scgi", "warm", "fastcgi")
    return kinds, serve(
        route="cache_control = 'no-cache'",
        more="".join(programs.route(kind, "processes = 2", 'body_size = "1MB"') for kind in kinds),
        server=f"limits = {{ open_files = {limit} }}",
    )


def test_files_that_the_cache_keeps_open_leave_descriptors_for_scripts(serve, programs, site):
    kinds, server = few_descriptors(serve, programs, site)
    body = os.urandom(200_000)
    for kind in kinds:
        for number in range(200):
            assert server.get(f"/{number}.txt")[0] == 200
        for _ in range(2):
            status, _, response = server.get(f"{programs.path(kind)}?hello")
            assert (status, response) == (200, b"hello"), server.log
        with server.connect() as connection:
            connection.sendall(upload(f"{programs.path(kind)}?total", len(body)) + body)
            assert read_any(connection)[2] == expected(body), server.log


def test_a_limit_that_leaves_no_descriptors_prevents_the_start(programs, tmp_path, site):
    config = tmp_path / "few.toml"
    config.write_text(
        f'[server]\nthreads = 4\nlimits = {{ open_files = 32 }}\n[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[site]]\nroot = "{site}"\n{programs.route("cgi")}'
    )
    done = subprocess.run([DUNLIN, "serve", "-c", config], capture_output=True, text=True, timeout=20)
    assert done.returncode != 0
    assert "open_files" in done.stderr and "descriptors" in done.stderr, done.stderr
