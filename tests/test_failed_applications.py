"""What the error log says about an application that fails: one message with the traceback, one with the request."""

import json

import pytest

from support.files import write
from support.waiting import wait_until

WSGI = """
def inner():
    raise RuntimeError("no tea")

def application(environ, start_response):
    if environ["PATH_INFO"] == "/chained":
        try:
            inner()
        except RuntimeError as error:
            raise ValueError("two\\nlines: \\x1b") from error
    inner()
"""
ASGI = """
async def application(scope, receive, send):
    if scope["type"] == "http":
        raise RuntimeError("no tea")
    raise ValueError
"""
PSGI = "sub { die 'no tea' }\n"


def messages(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def start(serve, tmp_path):
    def start(kind, text):
        name = {"wsgi": "app.py", "asgi": "app.py", "psgi": "app.psgi"}[kind]
        write(tmp_path / "app" / name, text)
        application = "app.psgi" if kind == "psgi" else "app:application"
        log = tmp_path / "error.log"
        server = serve(
            f'script = {{ kind = "{kind}", application = "{application}", directory = "{tmp_path}/app" }}',
            server=f'error_log = {{ path = "{log}", format = "json" }}\naccess_log = {{ path = "{tmp_path}/access.log", format = "json" }}',
        )
        return server, log

    return start


def find(log, text):
    found = wait_until(lambda: [line for line in messages(log) if text in line["message"]], text)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("kind, text", [("wsgi", WSGI), ("asgi", ASGI)])
def test_a_traceback_is_one_message_and_the_failure_names_the_exception(start, kind, text):
    server, log = start(kind, text)
    assert server.get("/x")[0] == 500
    traceback = find(log, "Traceback (most recent call last)")
    assert traceback["message"].startswith("stderr: Traceback") and traceback["message"].endswith("RuntimeError: no tea")
    assert find(log, "the script failed")["message"] == "the script failed: RuntimeError: no tea"


def test_a_chained_traceback_is_one_message_whose_text_cannot_begin_a_line(start):
    server, log = start("wsgi", WSGI)
    assert server.get("/chained")[0] == 500
    text = find(log, "Traceback (most recent call last)")["message"]
    assert text.count("Traceback (most recent call last)") == 2 and "direct cause of the following exception" in text
    assert all(line.startswith("  ") for line in text.splitlines()[1:])
    failed = find(log, "the script failed")["message"]
    assert failed.startswith("the script failed: ") and "\n" not in failed and "\x1b" not in failed


def test_an_error_of_perl_is_in_the_message_about_the_request(start):
    server, log = start("psgi", PSGI)
    assert server.get("/x")[0] == 500
    assert find(log, "the script failed")["message"].startswith("the script failed: no tea at ")


def test_both_logs_have_the_same_names(start, tmp_path):
    server, log = start("wsgi", WSGI)
    page = server.get("/x?y=1", host="a.example")[2].decode()
    failed = find(log, "the script failed")
    access = wait_until(lambda: messages(tmp_path / "access.log"), "the access log")[0]
    for name in ("request_id", "method", "remote", "host", "target"):
        assert failed[name] == access[name], (name, failed, access)
    assert failed["time"][:10] == access["time"][:10] and failed["time"].endswith("Z")
    assert failed["level"] == "ERROR" and "fields" not in failed and "timestamp" not in failed
    assert f"Request {failed['request_id']}" in page and "Try again" in page and "error log" not in page


def test_the_page_of_a_failed_upstream_has_the_request_of_the_log(serve, tmp_path):
    log = tmp_path / "error.log"
    server = serve('proxy = "http://127.0.0.1:1"', server=f'error_log = {{ path = "{log}", format = "json" }}')
    status, _, page = server.get("/x")
    assert status == 502
    failed = find(log, "the upstream failed")
    assert f"Request {failed['request_id']}" in page.decode() and failed["target"] == "/x"
    missing = serve().get("/none")[2].decode()
    assert '<a href="/">Home page</a>' in missing and "Request " not in missing
