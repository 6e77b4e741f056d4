"""Usage errors, exit statuses, and readers that leave before the end of the output."""

import os
import subprocess

import pytest

from support.files import write
from support.server import DUNLIN

GOOD = '[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n'


def run(*arguments, cwd=None):
    done = subprocess.run([DUNLIN, *arguments], capture_output=True, text=True, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "line, tip",
    [
        ("serve --port 80", "--listen :80"),
        ("serve --port=8000", "--listen :8000"),
        ("serve -p 80", "--listen :80"),
        ("serve --bind 0.0.0.0", "--listen"),
        ("serve --root www", "dunlin serve www"),
        ("serve --workers 4", "--threads 4"),
        ("load --concurrency 64 http://127.0.0.1:1/", "-c 64"),
        ("load --qps 100 http://127.0.0.1:1/", "--rate 100"),
        ("check --file x.toml", "--config x.toml"),
    ],
)
def test_an_option_of_another_program_names_the_one_to_use(line, tip):
    code, out, error = run(*line.split())
    assert code == 2 and tip in error, error
    assert "as a value" not in error and "-- -" not in error


@pytest.mark.parametrize("command", ["serve", "check", "load", "compare", "watch", "top", "reload", "passwd"])
def test_an_unknown_option_is_never_reported_as_a_value(command):
    code, _, error = run(command, "--frobnicate", "1")
    assert code == 2 and "--frobnicate" in error and "as a value" not in error, error


@pytest.mark.parametrize("command", ["check", "reload", "upgrade", "top", "watch"])
def test_every_command_without_a_configuration_fails_alike(command, tmp_path):
    if os.path.exists("/etc/dunlin/dunlin.toml"):
        pytest.skip("this machine has a configuration")
    code, _, error = run(command, cwd=tmp_path)
    assert code == 1 and "there is no ./dunlin.toml" in error and "--config" in error


@pytest.mark.parametrize("command", ["reload", "upgrade", "top", "watch"])
def test_a_broken_configuration_is_reported_as_such_by_every_command(command, tmp_path):
    (tmp_path / "dunlin.toml").write_text(GOOD + "lsting = true\n")
    code, _, error = run(command, cwd=tmp_path)
    assert code == 1 and "dunlin.toml:5:1" in error and "--admin" not in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["help", "load"],
        ["serve", "--help"],
        ["version"],
        ["--version"],
        ["check", "--schema"],
        ["check"],
        ["check", "--explain", "/", "--all"],
        ["load", "--schema"],
        ["load", "--help"],
        ["compare", "--list"],
        ["check", "-c", "none.toml"],
        ["load"],
        ["serve", "--frobnicate"],
        ["watch", "status=="],
        ["passwd", "--verify", "none", "ann"],
        ["completions", "bash"],
        ["man"],
        ["man", "man"],
    ],
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_output_is_no_panic(arguments, stream, tmp_path):
    (tmp_path / "dunlin.toml").write_text(GOOD)
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writing}
    process = subprocess.Popen([DUNLIN, *arguments], cwd=tmp_path, stdin=subprocess.DEVNULL, **streams)
    os.close(writing)
    out, error = process.communicate(timeout=60)
    assert b"panicked" not in (out or b"") + (error or b"")
    assert process.returncode in (0, 1, 2, 141), process.returncode
    assert stream == "stderr" or not error or process.returncode != 141


@pytest.mark.parametrize("options", [["--once"], []])
def test_top_and_watch_end_silently_when_their_output_is_closed(serve, site, tmp_path, options):
    admin = tmp_path / "admin.sock"
    write(site / "x.txt", "x")
    server = serve(server=f'admin = "{admin}"')
    command = ["top", "--once", "--admin", admin] if options else ["watch", "--admin", admin]
    reading, writing = os.pipe()
    process = subprocess.Popen([DUNLIN, *command], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    os.close(reading)
    while process.poll() is None:
        assert server.get("/x.txt")[0] == 200
    assert process.stderr.read() == b"" and process.returncode in (0, 141)


def test_a_server_whose_output_is_not_read_keeps_running(serve, tmp_path):
    write(tmp_path / "site" / "x.txt", "x")
    reading, writing = os.pipe()
    os.close(reading)
    server = serve(
        route="", preexec=lambda: os.dup2(writing, 2), server='error_log = { level = "debug" }',
        more='[[listen]]\naddress = "127.0.0.1:0"',
    )
    os.close(writing)
    server.process.stdout.close()
    for _ in range(3):
        assert server.get("/x.txt")[0] == 200
        # Something to log.
        server.exchange(b"nonsense\r\n\r\n")
    assert server.process.poll() is None


@pytest.mark.parametrize("address, shown", [(":0", "localhost"), ("0.0.0.0:0", "localhost"), ("127.0.0.1:0", "127.0.0.1")])
def test_a_start_prints_an_address_that_can_be_opened(tmp_path, address, shown):
    write(tmp_path / "x.txt", "x")
    process = subprocess.Popen(
        [DUNLIN, "serve", ".", "--listen", address], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        line = process.stdout.readline().decode()
        assert line.startswith(f"http://{shown}:"), line
        assert shown == "127.0.0.1" or "(listening on 0.0.0.0:" in line
    finally:
        process.kill()
        process.communicate()


def test_a_start_logs_version_and_configuration(serve, tmp_path):
    server = serve()
    log = server.logged("listening on 127.0.0.1:")
    line = next(line for line in log.splitlines() if "listening on" in line)
    assert "dunlin 0." in line and "dunlin-0.toml" in line and "1 site," in line
