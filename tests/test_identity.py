"""The request ID and trace of a request to a script, in the script, the logs and the response;
its phases; and the failures that `show_errors` shows."""

import json
import re

import pytest

from support.fastcgi import PHP_CGI
from support.files import lines
from support.scripts import HELLO, PRINT
from support.waiting import wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-00"
FAILS = "echo 'line <one>' >&2; echo 'line two' >&2; exit 3\n"


def fetch_environment(server, *fields, path="/cgi-bin/print.py"):
    status, response, body = server.get(path, *fields)
    assert status == 200
    return json.loads(body)["env"], response


def test_each_request_has_its_own_id_and_trace(cgi):
    server = cgi({"print.py": PRINT})
    seen = [fetch_environment(server, "X-Request-Id: mine") for _ in range(3)]
    ids = {env["HTTP_X_REQUEST_ID"] for env, _ in seen}
    assert len(ids) == 3 and all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)
    for env, response in seen:
        parent = re.fullmatch("00-([0-9a-f]{32})-([0-9a-f]{16})-01", env["TRACEPARENT"])
        assert parent[1] == env["HTTP_X_REQUEST_ID"] and env["HTTP_TRACEPARENT"] == parent[0]
        assert "x-request-id" not in response


def test_a_trace_of_the_client_is_continued(cgi):
    server = cgi({"print.py": PRINT})
    env, _ = fetch_environment(server, f"traceparent: {PARENT}", "tracestate: a=b")
    found = re.fullmatch(f"00-{TRACE}-([0-9a-f]{{16}})-00", env["HTTP_TRACEPARENT"])
    assert found and found[1] != "00f067aa0ba902b7"
    assert env["HTTP_TRACESTATE"] == "a=b" and env["HTTP_X_REQUEST_ID"] != TRACE
    env, _ = fetch_environment(server, "traceparent: 00-nonsense")
    assert env["TRACEPARENT"].startswith(f"00-{env['HTTP_X_REQUEST_ID']}-")


def test_the_clients_number_counts_where_it_is_accepted(cgi):
    server = cgi({"print.py": PRINT}, 'request_id = "accept", send_request_id = true')
    env, response = fetch_environment(server, "X-Request-Id: a-1:b")
    assert env["HTTP_X_REQUEST_ID"] == response["x-request-id"] == "a-1:b"
    assert env["TRACEPARENT"] == env["HTTP_TRACEPARENT"] and "a-1" not in env["TRACEPARENT"]
    for bad in ["a b", 'a"', "x" * 129, ""]:
        env, response = fetch_environment(server, f"X-Request-Id: {bad}")
        assert re.fullmatch("[0-9a-f]{32}", env["HTTP_X_REQUEST_ID"]), bad
        assert response["x-request-id"] == env["HTTP_X_REQUEST_ID"]


def test_the_request_id_is_in_script_error_log_access_log_and_response(cgi, tmp_path):
    log = tmp_path / "access.log"
    server = cgi(
        {"fails": FAILS, "hello": HELLO},
        "send_request_id = true",
        server=f'access_log = {{ path = "{log}", format = "json" }}',
    )
    status, response, _ = server.get("/cgi-bin/fails")
    assert status == 502
    id = response["x-request-id"]
    server.logged("line two")
    text = server.logged("exit status is 3")
    for part in ["stderr: line two", "its exit status is 3"]:
        line = next(line for line in text.splitlines() if part in line)
        assert id in line, line
    server.get("/cgi-bin/hello")
    server.get("/none")
    wait_until(lambda: len(lines(log)) == 3, "three lines")
    failed, hello, none = map(json.loads, lines(log))
    assert failed["request_id"] == id and failed["status"] == 502
    moments = hello["script_ns"]
    assert moments.keys() - {"request_sent"} == {"chosen", "started", "first_byte", "ended"}
    in_order = [moments[name] for name in ("chosen", "started", "first_byte", "ended")]
    assert sorted(in_order) == in_order and in_order[0] > 0
    assert moments["ended"] < hello["duration_us"] * 1000 + 1000
    assert "request_id" not in none and "script_ns" not in none


def test_a_log_template_has_the_number(cgi, tmp_path):
    log = tmp_path / "access.log"
    server = cgi(
        {"hello": HELLO},
        "send_request_id = true",
        server=f'access_log = {{ path = "{log}", format = "{{status}} {{request_id}}" }}',
    )
    id = server.get("/cgi-bin/hello")[1]["x-request-id"]
    server.get("/none")
    wait_until(lambda: lines(log) == [f"200 {id}", "404 -"], "both lines")


@pytest.mark.parametrize("shown", [True, False])
def test_a_failure_is_explained_only_with_show_errors(cgi, shown):
    settings = f"show_errors = {str(shown).lower()}, first_byte_timeout = '300ms'"
    server = cgi({"fails": FAILS, "hangs": "echo waiting >&2; sleep 60\n"}, settings)
    status, response, body = server.get("/cgi-bin/fails")
    assert status == 502 and response["content-type"] == "text/html; charset=utf-8"
    parts = [b"line &lt;one&gt;\nline two", b"exit status is 3"]
    assert [part in body for part in parts] == [shown] * 2
    assert b"cgi-bin/fails" in body
    # The ID is shown to everybody, and the log has the reason beside it.
    id = re.search(b"[0-9a-f]{32}", body)
    assert id, body
    reason = next(line for line in server.logged("exit status is 3").splitlines() if "exit status is 3" in line)
    assert id[0].decode() in reason, reason
    status, _, body = server.get("/cgi-bin/hangs")
    assert status == 504 and (b"waiting" in body) == shown
    assert re.search(b"[0-9a-f]{32}", body), body
    # A missing script is not a failure.
    assert b"The program for" not in server.get("/cgi-bin/none")[2]


def test_log_lines_by_fastcgi_have_the_request_id_too(serve, site):
    assert PHP_CGI, "php-cgi is missing"
    (site / "a.php").write_text("<?php error_log('of one request'); echo 'hello';")
    server = serve(
        route=f'script = {{ kind = "fastcgi", command = ["php-cgi", "-d", "log_errors=1"], root = "{site}", '
        "processes = 1, send_request_id = true }"
    )
    id = server.get("/a.php")[1]["x-request-id"]
    line = next(line for line in server.logged("of one request").splitlines() if "of one request" in line)
    assert id in line
    server.stop()


APP = 'kind = "{kind}", application = "{application}", directory = "{folder}", processes = 1'
WRITES = "#!/bin/sh\nread line < $CGIPLUSIN\necho 'broken <here>' >&2\nexit 3\n"
# A failing script for each persistent kind: file, content, path, settings of the script, status.
FAILURES = {
    "wsgi": ("app.py", "def application(environ, start):\n    raise RuntimeError('broken <here>')\n", "/s/", APP, 500),
    "asgi": ("app.py", "async def application(scope, receive, send):\n    raise RuntimeError('broken <here>')\n", "/s/", APP, 500),
    "psgi": ("app.psgi", "sub { die 'broken <here>' }\n", "/s/", APP, 500),
    "wsgi that cannot be loaded": ("app.py", "raise RuntimeError('broken <here>')\n", "/s/", APP, 502),
    "rte": ("fails.py", "raise RuntimeError('broken <here>')\n", "/s/fails.py", 'kind = "rte", directory = "{folder}"', 500),
    "rte in Perl": ("fails.pl", "die 'broken <here>';\n", "/s/fails.pl", 'kind = "rte", interpreter = "perl", directory = "{folder}"', 500),
    "cgiplus": ("fails", WRITES, "/s/fails", 'kind = "cgiplus", directory = "{folder}"', 502),
    "fastcgi": ("fails.php", "", "/s/fails.php", 'kind = "fastcgi", command = ["sh", "-c", "sleep 0.1; echo \'broken <here>\' >&2; exit 3"], '
                'directory = "{folder}", processes = 1', 502),
}  # fmt: skip


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_in_a_persistent_process_is_explained_too(serve, tmp_path, name, shown):
    file, content, path, settings, expected = FAILURES[name]
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / file).write_text(content)
    (folder / file).chmod(0o755)
    application = "app.psgi" if file == "app.psgi" else "app:application"
    settings = settings.format(kind=name.partition(" ")[0], application=application, folder=folder)
    more = f'[[site.route]]\npath = "/s/*"\nscript = {{ {settings}, show_errors = {str(shown).lower()} }}\n'
    server = serve(more=more)
    status, response, body = server.get(path)
    assert status == expected and response["content-type"].startswith("text/html"), body
    assert (b"broken &lt;here&gt;" in body) == shown
    # Without `show_errors`, nothing of the reason is in the page, and the ID is.
    assert shown or not re.search(rb"broken|RuntimeError|Traceback|exit status|scripts/", body), body
    assert re.search(b"[0-9a-f]{32}", body), body
    if "dunlin-failed" in response:
        raise AssertionError("a report to the server has reached the client")
    server.logged("broken <here>")
