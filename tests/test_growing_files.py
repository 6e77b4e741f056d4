"""Files that change while a client downloads them: announced bytes that are intact are sent to the end."""

import os
import subprocess

import pytest

from support.waiting import wait_until

SIZE = 12_000_000
LINE = b"a line of the log\n"


def append(file):
    with file.open("ab") as out:
        out.write(LINE)


def touch(file):
    os.utime(file)


def link(file):
    os.link(file, file.with_suffix(".copy"))


def overwrite(file):
    with file.open("r+b") as out:
        out.seek(SIZE - 100)
        out.write(b"other")


def rewrite(file):
    file.write_bytes(b"x" * (2 * SIZE))


def shorten(file):
    os.truncate(file, SIZE // 2)


def download(server, tmp_path, change, *options):
    """Downloads slowly, with a change in the middle. Returns the exit status of curl and the bytes."""
    file, out = tmp_path / "site" / "app.log", tmp_path / "out"
    command = ["curl", "-s", "--limit-rate", "6M", "-o", out, *options, f"{server.url}/app.log"]
    client = subprocess.Popen(command)
    times = 0

    def step():
        nonlocal times
        if client.poll() is None and out.exists() and out.stat().st_size > 500_000:
            change(file) if times == 0 or change is append else None
            times += 1
        return client.poll() is not None

    wait_until(step, "the end of the download")
    assert times > 0
    return client.returncode, out.read_bytes()


@pytest.fixture
def file(site):
    content = (LINE * (SIZE // len(LINE) + 1))[:SIZE]
    (site / "app.log").write_bytes(content)
    return content


@pytest.mark.parametrize("change", [append, touch, link, lambda file: file.chmod(0o600)], ids=["append", "touch", "link", "chmod"])
@pytest.mark.parametrize("options", [[], ["--http2-prior-knowledge"], ["-r", "1000-9999999"]], ids=["HTTP/1.1", "HTTP/2", "range"])
@pytest.mark.parametrize("route", ["", "cache = false", "sendfile = true"])
def test_bytes_that_were_announced_are_sent(serve, tmp_path, file, change, options, route):
    server = serve(route)
    code, body = download(server, tmp_path, change, *options)
    assert code == 0
    assert body == (file[1000:10_000_000] if "-r" in options else file)
    if change is append:
        # The next request gets the whole file.
        assert len(server.get("/app.log")[2]) > SIZE


@pytest.mark.parametrize("change, reason", [(overwrite, "the file was overwritten"), (rewrite, "the file "), (shorten, "the file has become shorter")], ids=["overwrite", "rewrite", "shorten"])
@pytest.mark.parametrize("options", [[], ["--http2-prior-knowledge"]], ids=["HTTP/1.1", "HTTP/2"])
def test_a_download_of_another_version_is_broken_off_with_a_line_in_the_log(serve, tmp_path, file, change, reason, options):
    server = serve()
    code, body = download(server, tmp_path, change, *options)
    assert code != 0 and file.startswith(body[:SIZE]) and len(body) < SIZE
    line = server.logged("a download is broken off")
    assert reason in line and "app.log" in line
