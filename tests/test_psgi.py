"""PSGI applications: environment, responses, processes."""

import os
import signal

import pytest

from support.http import post, read_response, read_until_cut
from support.processes import is_alive, workers
from support.scripts import (
    application_and_cgi_outputs,
    assert_an_upload_arrives,
    assert_events_arrive_as_they_are_sent,
    assert_same_variables,
)
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")


def test_an_application_gets_the_variables_of_a_cgi_program(psgi, tmp_path):
    application, cgi = application_and_cgi_outputs(psgi, tmp_path, "latin-1")
    assert application["version"] == "1.1"
    for name, value in {
        "url_scheme": "http", "multithread": "", "multiprocess": 1, "run_once": "", "nonblocking": "", "streaming": 1
    }.items():
        assert application["env"].pop(f"psgi.{name}") == value, name
    assert_same_variables(application["env"], cgi["env"])


def test_responses_of_every_form_arrive(psgi):
    server = psgi()
    assert server.get("/app/")[2] == b"hello"
    assert server.get("/app/later")[::2] == (202, b"later")
    assert server.get("/app/file")[2] == (psgi.directory / "app.psgi").read_bytes()
    assert server.get("/app/large")[2] == b"".join(bytes([65 + at % 26]) * 10_000 for at in range(300))
    assert server.get("/app/cookies")[1]["set-cookie"] == "a=1, b=2"
    assert post(server, "/app/lines", b"one\ntwo\nthree")[2] == b"one|two|three"
    with server.connect() as connection:
        connection.sendall(b"GET /app/ HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        rest = b""
        for _ in range(20):
            status, _, body, rest = read_response(connection, rest)
            assert (status, body) == (200, b"hello")
    status, fields, body = server.get("/app/hello", method="HEAD")
    assert (status, body, fields["content-length"]) == (200, b"", "5")
    assert len(workers(server)) == 1


@pytest.mark.parametrize("chunked, megabytes", [(False, 200), (True, 20)])
def test_a_large_upload_arrives_complete(psgi, chunked, megabytes):
    server = psgi(route='body_size = "300MB"')
    assert_an_upload_arrives(server, "/app/total", megabytes, chunked)
    assert post(server, "/app/ignore", os.urandom(200_000), chunked=chunked)[2] == b"ignored"
    assert server.get("/app/")[2] == b"hello"


def test_events_arrive_as_they_are_sent(psgi, tmp_path):
    server = psgi()
    assert_events_arrive_as_they_are_sent(server, f"/app/events?{tmp_path}/gate", tmp_path)


def test_failures_are_logged_and_visible_to_the_client(psgi):
    server = psgi()
    for name in ("fails", "nothing", "split", "wide"):
        status, fields, _ = server.get(f"/app/{name}")
        assert status == 500 and "set-cookie" not in fields, name
    for reason in ("on purpose", "sent no response", "a line break", "beyond a byte"):
        server.logged(reason)
    assert not read_until_cut(server, "/app/fails_late").endswith(b"0\r\n\r\n")
    # It is small enough to be buffered until its end, which never comes.
    assert server.get("/app/unfinished")[0] == 502
    server.logged("late on purpose")
    assert server.get("/app/says")[2] == b"ok"
    server.logged("said to the log")
    assert server.get("/app/")[2] == b"hello"


@pytest.mark.parametrize("application, reason", [
    ("none.psgi", "No such file"),
    ("bad.psgi", "syntax error"),
    ("number.psgi", "does not end with a PSGI application"),
])
def test_an_application_that_cannot_be_loaded_is_reported(psgi, application, reason):
    (psgi.directory / "bad.psgi").write_text("sub {")
    (psgi.directory / "number.psgi").write_text("42;")
    server = psgi('processes = 1, queue_timeout = "1s"', application=application)
    assert server.get("/app/")[0] in (502, 503)
    server.logged(reason)


def test_a_client_that_disconnects_ends_the_response(psgi, tmp_path):
    server = psgi()
    with server.connect() as connection:
        connection.sendall(f"GET /app/endless?{tmp_path}/left HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        connection.recv(1 << 16)
    wait_until(lambda: (tmp_path / "left").exists(), "the application is notified")
    assert server.get("/app/")[2] == b"hello"


def test_a_host_that_hangs_is_ended_and_replaced(psgi):
    server = psgi('processes = 1, timeout = "2s"')
    before = server.get("/app/pid")[2]
    assert server.get("/app/spin")[0] == 504
    wait_until(lambda: not is_alive(int(before)), "it is gone")
    status, _, after = server.get("/app/pid")
    assert status == 200 and after != before


def test_hosts_that_die_or_have_done_enough_are_replaced(psgi):
    server = psgi('processes = 1, requests = 5, backoff = "5ms"')
    pids = [server.get("/app/pid")[2] for _ in range(12)]
    assert len(set(pids)) == 3 and pids[0] == pids[4] != pids[5]
    os.kill(int(pids[-1]), signal.SIGKILL)
    wait_until(lambda: not is_alive(int(pids[-1])), "it is gone")
    status, _, body = server.get("/app/pid")
    assert status == 200 and body not in pids


def test_a_host_does_not_outlive_a_server_that_was_killed(psgi):
    server = psgi()
    pid = int(server.get("/app/pid")[2])
    server.process.kill()
    wait_until(lambda: not is_alive(pid), "the host is gone")
