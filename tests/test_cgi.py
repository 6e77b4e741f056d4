"""CGI (RFC 3875): variables, responses and limits of scripts."""

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import threading
import time

import pytest

from support.http import parse, read_all, read_response
from support.files import lines
from support.processes import children, is_alive, none_left, rss
from support.scripts import HELLO, IDENTITY, PRINT, script
from support.server import DUNLIN
from support.waiting import wait_until


@pytest.fixture(params=["cgi", "warm"])
def kind(request):
    return request.param


def test_a_script_gets_every_variable_of_rfc_3875(cgi, site):
    server = cgi({"sub/print.py": PRINT}, 'env = { APP = "blue" }')
    body = "a=1&b=2"
    data = (
        "POST //cgi-bin/sub/print.py/extra/%C3%A4%20b?x=%41&y HTTP/1.1\r\nHost: Example.org:81\r\n"
        "Connection: close\r\nContent-Type: text/x; y=z\r\nX-Two: 1\r\nX-Two: 2\r\n"
        "Cookie: a=b\r\nCookie: c=d\r\nProxy: http://evil/\r\nX_Two: evil\r\n"
        f"Authorization: Basic eDp5\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    with server.connect() as connection:
        address, port = connection.getsockname()
        connection.sendall(data.encode())
        status, fields, response = parse(read_all(connection))
    assert status == 200
    reported = json.loads(response)
    env = reported["env"]
    path = env.pop("PATH")
    assert path
    env.pop("LC_CTYPE", None)  # Python's own
    for name in IDENTITY:
        assert env.pop(name)
    directory = cgi.directory
    assert env == {
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_SOFTWARE": env["SERVER_SOFTWARE"],
        "SERVER_NAME": "Example.org",
        "SERVER_PORT": str(server.port),
        "SERVER_ADDR": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REQUEST_METHOD": "POST",
        "REQUEST_SCHEME": "http",
        "REQUEST_URI": "//cgi-bin/sub/print.py/extra/%C3%A4%20b?x=%41&y",
        "QUERY_STRING": "x=%41&y",
        "SCRIPT_NAME": "/cgi-bin/sub/print.py",
        "SCRIPT_FILENAME": str(directory / "sub/print.py"),
        "DOCUMENT_ROOT": str(site),
        "PATH_INFO": "/extra/ä b",
        "PATH_TRANSLATED": f"{site}/extra/ä b",
        "DOCUMENT_URI": "/cgi-bin/sub/print.py/extra/ä b",
        "REMOTE_ADDR": address,
        "REMOTE_HOST": address,
        "REMOTE_PORT": str(port),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "text/x; y=z",
        "REDIRECT_STATUS": "200",
        "HTTP_HOST": "Example.org:81",
        "HTTP_X_TWO": "1, 2",
        "HTTP_COOKIE": "a=b; c=d",
        "APP": "blue",
    }
    assert env["SERVER_SOFTWARE"].startswith("dunlin/")
    assert reported["body"] == body
    assert reported["cwd"] == str(directory / "sub")
    assert reported["group"]
    none_left(server)


def test_a_script_inherits_no_descriptor_of_the_server(cgi, site):
    (site / "a.txt").write_bytes(b"x" * 500_000)
    server = cgi({"fds": "echo; ls -l /proc/self/fd/", "fds.py": PRINT}, more="")
    server.get("/a.txt")
    status, fields, body = server.get("/cgi-bin/fds.py")
    # The three standard streams, and the program that lists them.
    assert json.loads(body)["fds"] == ["0", "1", "2", "3"]


def test_variables_that_do_not_apply_are_not_set(cgi):
    server = cgi({"print.py": PRINT}, "authorization = true")
    _, _, body = server.get("/cgi-bin/print.py", "Authorization: Basic eDp5")
    env = json.loads(body)["env"]
    absent = {"PATH_INFO", "PATH_TRANSLATED", "CONTENT_LENGTH", "CONTENT_TYPE", "AUTH_TYPE",
              "REMOTE_USER", "REMOTE_IDENT", "HTTP_PROXY", "HTTP_CONNECTION"}
    assert not absent & env.keys()
    assert env["QUERY_STRING"] == ""
    assert env["HTTP_AUTHORIZATION"] == "Basic eDp5"


def test_an_indexed_query_becomes_arguments_unless_it_could_be_an_option(cgi):
    server = cgi({"print.py": PRINT})

    def arguments(query, method="GET"):
        return json.loads(server.get(f"/cgi-bin/print.py?{query}", method=method)[2])["args"]

    assert arguments("one+t%77o+%26$(x)") == ["one", "two", "&$(x)"]
    assert arguments("a%3Db") == ["a=b"]
    for none in ("a=b", "", "-s", "a+-dx", "%2Ds", "a%0", "a%00"):
        assert arguments(none) == [], none
    assert arguments("one", "DELETE") == []


def test_the_script_is_the_first_file_on_the_path_and_the_rest_is_path_info(cgi):
    show = 'printf "Content-Type: text/plain\\n\\n$SCRIPT_NAME|$PATH_INFO"'
    server = cgi({"a": show, "b/c.d": show, ".hidden": show})
    assert server.get("/cgi-bin/a")[2] == b"/cgi-bin/a|"
    assert server.get("/cgi-bin/a/")[2] == b"/cgi-bin/a|/"
    assert server.get("/cgi-bin/b/c.d/e/f")[2] == b"/cgi-bin/b/c.d|/e/f"
    for missing in ("x", "b", "b/", "", "b/x", ".hidden"):
        assert server.get(f"/cgi-bin/{missing}")[0] == 404, missing


def test_programs_that_cannot_run_are_errors_with_a_logged_reason(cgi):
    server = cgi({"a": HELLO, "no-interpreter": "#!/does/not/exist\n"})
    (cgi.directory / "plain").write_text("data")
    (cgi.directory / "noexec").write_bytes(b"\x01\x02garbage")
    (cgi.directory / "noexec").chmod(0o755)
    (cgi.directory / "out").symlink_to("/bin/ls")
    assert server.get("/cgi-bin/plain")[0] == 403
    assert server.get("/cgi-bin/out")[0] == 403
    assert server.get("/cgi-bin/noexec")[0] == 500
    assert server.get("/cgi-bin/no-interpreter")[0] == 500
    assert server.get("/cgi-bin/a", method="TRACE")[0] == 405
    server.logged("not executable")
    server.logged("its interpreter")
    assert server.get("/cgi-bin/a")[2] == b"hello"


def test_every_kind_of_response(cgi, site):
    (site / "page.txt").write_text("a page")
    server = cgi({
        "status": "printf 'Status: 404 Gone Fishing\\r\\nContent-Type: text/plain\\r\\n\\r\\nno'",
        "client": "printf 'Location: http://a.example/x\\n\\n'",
        "client-body": "printf 'Status: 301 Moved\\nLocation: http://a.example/\\n"
                       "Content-Type: text/html\\n\\n<p>there'",
        "cookie": "printf 'Location: /page.txt\\nSet-Cookie: a=b\\n\\n'",
        "local": "cat >/dev/null; printf 'Location: /page.txt\\n\\n'",
        "local-script": "printf 'Location: /cgi-bin/query/i?q=%%20x\\n\\n'",
        "query": 'printf "Content-Type: text/plain\\n\\n"; '
                 'echo $REQUEST_METHOD $PATH_INFO "$QUERY_STRING" "$CONTENT_LENGTH" $HTTP_X_A',
        "loop": "printf 'Location: /cgi-bin/loop\\n\\n'",
        "empty": "printf 'Status: 204\\n\\n'",
        "unmodified": "printf 'Status: 304\\nETag: \"a\"\\n\\n'",
        "fields": "printf 'Content-Type: a/b\\nX-A: 1\\nX-A: 2\\nConnection: close\\n"
                  "Date: never\\nServer: evil\\n\\nx'",
    })
    status, fields, body = server.get("/cgi-bin/status")
    assert (status, body) == (404, b"no")
    status, fields, body = server.get("/cgi-bin/client")
    assert (status, fields["location"], body) == (302, "http://a.example/x", b"")
    status, fields, body = server.get("/cgi-bin/client-body")
    assert (status, fields["location"], body) == (301, "http://a.example/", b"<p>there")
    status, fields, body = server.get("/cgi-bin/cookie")
    assert (status, fields["location"], fields["set-cookie"]) == (302, "/page.txt", "a=b")
    for method in ("GET", "POST"):
        status, fields, body = server.get("/cgi-bin/local", "Content-Length: 0", method=method)
        assert (status, body) == (200, b"a page")
    _, _, body = server.get("/cgi-bin/local-script", "X-A: kept", "Content-Length: 0", method="POST")
    assert body == b"GET /i q=%20x  kept\n"
    assert server.get("/cgi-bin/loop")[0] == 502
    assert server.get("/cgi-bin/empty")[0] == 204
    status, fields, _ = server.get("/cgi-bin/unmodified")
    assert (status, fields["etag"]) == (304, '"a"')
    _, fields, _ = server.get("/cgi-bin/fields")
    assert fields["x-a"] == "1, 2" and fields["server"] == "dunlin" and "GMT" in fields["date"]
    wait_until(lambda: "local redirects" in server.log, "the worker is notified")
    none_left(server)


def test_head_has_the_header_only_and_the_script_runs_to_its_end(cgi, tmp_path):
    server = cgi({
        "body": f"printf 'Content-Type: a/b\\nX-M: '; printf $REQUEST_METHOD; printf '\\n\\nhello';"
                f" seq 200000; touch {tmp_path}/done",
        "stated": "printf 'Content-Length: 1000\\n\\n'",
    })
    with server.connect() as connection:
        for path in ("body", "stated"):
            connection.sendall(f"HEAD /cgi-bin/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            status, fields, rest = parse(data, "HEAD")
            assert (status, rest) == (200, b"")
        assert fields["content-length"] == "1000"
    wait_until((tmp_path / "done").exists, "the script was not cut off")


def test_an_nph_script_speaks_for_itself(cgi):
    server = cgi({
        "nph-a": "printf 'HTTP/1.1 299 Mine\\r\\nX-A: b\\r\\n\\r\\nraw'",
        "nph-bad": "printf 'hello\\n'",
    })
    assert server.exchange(b"GET /cgi-bin/nph-a HTTP/1.1\r\nHost: x\r\n\r\n") == (
        b"HTTP/1.1 299 Mine\r\nX-A: b\r\n\r\nraw"
    )
    assert server.get("/cgi-bin/nph-bad")[0] == 502


@pytest.mark.parametrize("text, reason", [
    ("echo hello world", "is not a field"),
    ("printf 'Content-Type: a/b\\nX y: 1\\n\\n'", "is not a field"),
    ("printf 'X-A: 1\\rSet-Cookie: b\\n\\n'", "is not a field"),
    ("printf 'X-A: 1\\n folded\\n\\n'", "is not a field"),
    ("printf 'Status: 12\\n\\n'", "its Status"),
    ("printf 'Status: 100 Continue\\n\\n'", "its Status"),
    ("printf 'Content-Length: 5\\nContent-Length: 6\\n\\n'", "two Content-Lengths"),
    ("printf 'Transfer-Encoding: gzip\\n\\nx'", "Transfer-Encoding"),
    ("printf '\\nbody'", "no field"),
    ("yes 'A: b'", "more than"),
    ("yes | tr -d '\\n'", "more than"),
    ("true", "it wrote nothing"),
    ("exit 3", "exit status is 3"),
    ("printf 'Content-Type: a/b\\n'", "no end"),
    ("kill -SEGV $$", "signal 11"),
])
def test_an_invalid_response_gives_502_and_one_line(cgi, text, reason):
    server = cgi({"bad": text, "good": HELLO})
    with server.connect() as connection:
        connection.sendall(b"GET /cgi-bin/bad HTTP/1.1\r\nHost: x\r\n\r\n")
        status, fields, body, _ = read_response(connection)
        assert status == 502 and b"evil" not in body
        # The connection is still good.
        connection.sendall(b"GET /cgi-bin/good HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status, fields, body = parse(read_all(connection))
        assert body == b"hello"
    lines = [line for line in server.logged("/bad").splitlines() if "/bad" in line]
    assert len(lines) == 1 and reason in lines[0], server.log
    none_left(server)


def test_a_body_that_is_shorter_than_stated_is_never_complete(cgi):
    """The response is 502 if the script ends before its first bytes are sent."""
    server = cgi({"short": "printf 'Content-Length: 10\\n\\nhello'"})
    response = b""
    with server.connect() as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(b"GET /cgi-bin/short HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while part := connection.recv(65536):
            response += part
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 ") or b"Content-Length: 10" in head and b"hello".startswith(body), response
    lines = [line for line in server.logged("/short").splitlines() if "/short" in line]
    assert len(lines) == 1 and "it wrote 5 bytes" in lines[0], server.log
    none_left(server)


def test_a_script_begins_with_no_signal_blocked(cgi):
    server = cgi({"a": "printf 'Content-Type: a/b\\n\\n'; grep SigBlk /proc/self/status"})
    assert server.get("/cgi-bin/a")[2] == b"SigBlk:\t0000000000000000\n"


def test_a_truncated_response_is_visibly_truncated(cgi, tmp_path):
    go = tmp_path / "go"
    wait = f"while ! [ -e {go} ]; do sleep 0.02; done"
    server = cgi({
        "killed": f"printf 'Content-Type: a/b\\n\\nhello'; {wait}; kill -KILL $$",
        "short": f"printf 'Content-Length: 10\\n\\nhello'; {wait}",
    })
    for name in ("killed", "short"):
        for version in ("1.1", "1.0"):
            go.unlink(missing_ok=True)
            with server.connect() as connection:
                connection.sendall(f"GET /cgi-bin/{name} HTTP/{version}\r\nHost: x\r\n\r\n".encode())
                data = b""
                while b"hello" not in data:
                    data += connection.recv(65536)
                go.touch()
                try:
                    while part := connection.recv(65536):
                        data += part
                    # A clean end, which the framing has to contradict.
                    assert version == "1.1" or name == "short", data
                except ConnectionResetError:
                    pass
            assert not data.endswith(b"0\r\n\r\n")
    none_left(server)


def test_bytes_beyond_the_stated_length_are_discarded_and_the_connection_persists(cgi):
    server = cgi({"long": "printf 'Content-Length: 5\\n\\nhelloworld'"})
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(b"GET /cgi-bin/long HTTP/1.1\r\nHost: x\r\n\r\n")
            status, _, body, rest = read_response(connection)
            assert (status, body, rest) == (200, b"hello", b"")
    wait_until(lambda: "more than its Content-Length" in server.log, "the warning")


def test_a_script_that_closes_stdout_early_continues_in_the_background(cgi, tmp_path):
    server = cgi({
        "bg": f"printf 'Content-Type: a/b\\n\\nhello'; exec 1>&-; sleep 0.5; touch {tmp_path}/done",
    }, 'idle_timeout = "200ms"')
    began = time.monotonic()
    assert server.get("/cgi-bin/bg")[2] == b"hello"
    assert not (tmp_path / "done").exists() or time.monotonic() - began > 0.5
    wait_until((tmp_path / "done").exists, "it was not killed")
    none_left(server)


SUM = """#!/usr/bin/python3
import hashlib, os, sys
sum, length = hashlib.sha256(), 0
while data := sys.stdin.buffer.read(1 << 16):
    sum.update(data)
    length += len(data)
print("Content-Type: text/plain\\n")
print(os.environ.get("CONTENT_LENGTH"), length, sum.hexdigest())
"""


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_upload_arrives_unchanged_in_bounded_memory(cgi, kind, chunked):
    server = cgi({"sum.py": SUM}, route='body_size = "300MB"')
    block = os.urandom(1 << 20)
    before = rss(server)
    # The server handles the bodies of both kinds in the same way.
    total, checksum = 200 if kind == "cgi" and not chunked else 20, hashlib.sha256()
    with server.connect(120) as connection:
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {total << 20}"
        connection.sendall(
            f"POST /cgi-bin/sum.py HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{length}\r\n\r\n".encode()
        )
        for _ in range(total):
            checksum.update(block)
            if chunked:
                connection.sendall(b"%x\r\n" % len(block))
            connection.sendall(block)
            if chunked:
                connection.sendall(b"\r\n")
        if chunked:
            connection.sendall(b"0\r\n\r\n")
        status, fields, body = parse(read_all(connection))
    assert status == 200
    expected = f"{total << 20} {total << 20} {checksum.hexdigest()}"
    assert body.decode().strip() == expected
    assert rss(server) - before < (20 << 20 if total > 20 else 12 << 20)


@pytest.mark.parametrize("body", [b"", b"small", b"x" * 70_000])
def test_a_chunked_body_has_a_content_length_for_the_script(cgi, body):
    server = cgi({"sum.py": SUM})
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part)
                      for part in (body[:3], body[3:]) if part)
    data = (b"POST /cgi-bin/sum.py HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    status, fields, response = parse(server.exchange(data))
    expected = f"{len(body)} {len(body)} {hashlib.sha256(body).hexdigest()}"
    assert response.decode().strip() == expected


def test_a_request_body_is_sent_while_the_response_is_received(cgi):
    server = cgi({"cat": "printf 'Content-Type: a/b\\n\\n'; exec cat"}, route='body_size = "100MB"')
    block = os.urandom(1 << 20)
    blocks = 40
    with server.connect(60) as connection:
        def send():
            connection.sendall(b"POST /cgi-bin/cat HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                               b"Content-Length: %d\r\n\r\n" % (len(block) * blocks))
            for _ in range(blocks):
                connection.sendall(block)

        sender = threading.Thread(target=send)
        sender.start()
        status, fields, body = parse(read_all(connection))
        sender.join()
    assert status == 200 and body == block * blocks


@pytest.mark.parametrize("length", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_does_not_arrive_ends_the_script(cgi, length):
    server = cgi({"sum.py": SUM, "hello": HELLO}, server='http1 = { body_timeout = "300ms" }')
    with server.connect() as connection:
        connection.sendall(f"POST /cgi-bin/sum.py HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())
        connection.sendall(b"5\r\nhello\r\n")
        assert parse(read_all(connection))[0] == 408
    none_left(server)
    # The handler's own time does not count.
    assert server.get("/cgi-bin/hello")[2] == b"hello"


def test_a_body_that_trickles_is_not_waited_for_without_end(cgi):
    server = cgi({"sum.py": SUM}, server='http1 = { body_timeout = "500ms", body_rate = "1KB/s" }')
    with server.connect() as connection:
        connection.sendall(b"POST /cgi-bin/sum.py HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n")
        connection.settimeout(0.05)
        for _ in range(100):
            connection.sendall(b"x")
            try:
                assert parse(connection.recv(65536))[0] == 408
                break
            except TimeoutError:
                pass
        else:
            pytest.fail("the slow upload was not rejected")
    none_left(server)


def test_bodies_over_the_limit_are_rejected_before_a_script_runs(cgi, tmp_path):
    server = cgi({"a": f"touch {tmp_path}/ran; {HELLO}"}, route='body_size = "100KB"')
    head = b"POST /cgi-bin/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    data = server.exchange(head + b"Content-Length: 200000\r\n\r\n")
    assert parse(data)[0] == 413
    with server.connect() as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(4):
            connection.sendall(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        assert parse(read_all(connection))[0] == 413
    data = server.exchange(head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
    assert parse(data)[0] == 400
    assert not (tmp_path / "ran").exists()


def test_100_continue_is_sent_when_the_body_is_read(cgi):
    server = cgi({"sum.py": SUM, "ignore": HELLO})
    with server.connect() as connection:
        connection.sendall(b"POST /cgi-bin/sum.py HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                           b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        status, fields, body = parse(read_all(connection))
        assert body.startswith(b"5 5 ")
    data = server.exchange(b"POST /cgi-bin/nothing HTTP/1.1\r\nHost: x\r\n"
                           b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert parse(data)[0] == 404


def test_a_script_that_ignores_its_input_does_not_block_the_connection(cgi):
    server = cgi({"ignore": "exec 0<&-\n" + HELLO}, route='body_size = "100MB"')
    body = b"x" * 3_000_000
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(b"POST /cgi-bin/ignore HTTP/1.1\r\nHost: x\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
            data = b""
            while not (data.endswith(b"0\r\n\r\n") or data.endswith(b"hello")):
                part = connection.recv(65536)
                assert part
                data += part
            assert b"200 OK" in data
    none_left(server)


def test_responses_after_a_script_keep_the_order_of_requests(cgi, site):
    (site / "a.txt").write_text("a file")
    server = cgi({"sum.py": SUM, "hello": HELLO})
    data = server.exchange(
        b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n"
        b"POST /cgi-bin/sum.py HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        b"GET /cgi-bin/hello HTTP/1.1\r\nHost: x\r\n\r\n"
        b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    places = [data.find(text) for text in (b"a file", b"3 3 ba7816bf", b"hello")]
    places.append(data.rfind(b"a file"))
    assert places == sorted(places) and -1 not in places and data.count(b"HTTP/1.1 200") == 4


def test_events_arrive_one_by_one(cgi, tmp_path):
    server = cgi({
        "events": "printf 'Content-Type: text/event-stream\\n\\n'\n"
                  f"for i in 1 2 3; do echo data: $i; while ! [ -e {tmp_path}/$i ]; do sleep 0.01; done; done",
    })
    with server.connect() as connection:
        connection.sendall(b"GET /cgi-bin/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        data = b""
        for event in (1, 2, 3):
            while b"data: %d\n" % event not in data:
                data += connection.recv(65536)
            assert b"data: %d" % (event + 1) not in data
            (tmp_path / str(event)).touch()
        assert (data + read_all(connection)).endswith(b"0\r\n\r\n")


def test_a_slow_client_limits_how_much_of_a_scripts_output_is_buffered(cgi):
    server = cgi({"much": "printf 'Content-Type: a/b\\n\\n'; head -c 100000000 /dev/zero"})
    before = rss(server)
    with server.connect() as connection:
        connection.sendall(b"GET /cgi-bin/much HTTP/1.0\r\n\r\n")
        connection.recv(100)
        time.sleep(0.5)
        assert rss(server) - before < 8 << 20
        length = 0
        while part := connection.recv(1 << 20):
            length += len(part)
    assert length > 100_000_000


def hang(pids, more=""):
    """A script that prints its process ID and that of a child, and hangs."""
    return (f"{more}\nsleep 1000 & echo $$ $! > {pids}.new; mv {pids}.new {pids}\n"
            "printf 'Content-Type: a/b\\n\\nhello'; wait")


@pytest.mark.parametrize("more", ["", "trap '' TERM"])
def test_a_client_that_disconnects_ends_the_script_and_its_children(cgi, tmp_path, more):
    pids = tmp_path / "pids"
    server = cgi({"hang": hang(pids, more)})
    connection = server.connect()
    connection.sendall(b"GET /cgi-bin/hang HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_until(pids.exists, "it runs")
    numbers = [int(pid) for pid in pids.read_text().split()]
    assert all(is_alive(pid) for pid in numbers)
    connection.close()
    wait_until(lambda: not any(is_alive(pid) for pid in numbers), "the group is gone")
    none_left(server)


@pytest.mark.parametrize("settings, text, reason", [
    ('timeout = "300ms"', "cat /dev/zero >&2", "timeout"),
    ('timeout = "300ms"', "sleep 1000", "timeout"),
    ('first_byte_timeout = "300ms"', "sleep 1000", "first_byte_timeout"),
    ('idle_timeout = "300ms"', "sleep 1000", "idle_timeout"),
    ('timeout = "300ms"', "printf 'Content-Type: a/b\\n'; while :; do :; done", "timeout"),
])
def test_a_script_that_hangs_is_ended(cgi, settings, text, reason):
    server = cgi({"hang": text}, settings)
    assert server.get("/cgi-bin/hang")[0] == 504
    wait_until(lambda: f"`{reason}`" in server.log, "the log names the limit")
    none_left(server)


def test_a_script_that_writes_without_end_and_without_a_reader_is_ended(cgi):
    server = cgi({"yes": "printf 'Content-Type: a/b\\n\\n'; exec cat /dev/zero"}, 'timeout = "500ms"')
    assert server.get("/cgi-bin/yes", method="HEAD")[0] == 200
    wait_until(lambda: "`timeout`" in server.log, "it is ended")
    none_left(server)


def test_a_timeout_within_a_response_aborts_it(cgi, tmp_path):
    server = cgi({"hang": hang(tmp_path / "pids")}, 'idle_timeout = "300ms"')
    with server.connect() as connection:
        connection.sendall(b"GET /cgi-bin/hang HTTP/1.1\r\nHost: x\r\n\r\n")
        data = b""
        with pytest.raises(ConnectionResetError):
            while part := connection.recv(65536):
                data += part
    none_left(server)


def test_stderr_is_logged_line_by_line_and_bounded(cgi):
    server = cgi({
        "two": f"printf 'first\\nse\\033cond' >&2; {HELLO}",
        "endless": "yes complaint >&2 & sleep 0.3; kill $!; " + HELLO,
    })
    assert server.get("/cgi-bin/two")[2] == b"hello"
    wait_until(lambda: "cond" in server.log, "both lines are there")
    lines = [line for line in server.log.splitlines() if "/two" in line]
    assert len(lines) == 2 and "stderr: first" in lines[0] and "se\\u{1b}cond" in lines[1]
    assert server.get("/cgi-bin/endless")[2] == b"hello"
    wait_until(lambda: "were left out" in server.log, "the end is logged")
    assert server.log.count("complaint") < 10_000


def test_a_grandchild_that_keeps_stderr_does_not_keep_the_process(cgi, tmp_path):
    pids = tmp_path / "pids"
    server = cgi({"daemon": f"{HELLO} setsid sleep 60 >/dev/null </dev/null & echo $! >> {pids}"}, "processes = 1")
    for _ in range(3):
        assert server.get("/cgi-bin/daemon")[2] == b"hello"
    none_left(server)
    daemons = [int(pid) for pid in wait_until(lambda: len(lines(pids)) == 3 and lines(pids), "all have started")]
    assert all(map(is_alive, daemons)), "no request has waited for the end of a daemon"
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)


def test_1000_concurrent_requests_never_exceed_the_limit_of_processes(cgi, tmp_path):
    running = tmp_path / "running"
    running.mkdir()
    server = cgi({
        "count": f"touch {running}/$$; ls {running} | wc -l >> {tmp_path}/seen; "
                 f"{HELLO} rm {running}/$$",
    }, "processes = 5", server="connections = 2000")
    connections = [server.connect(60) for _ in range(1000)]
    for connection in connections:
        connection.sendall(b"GET /cgi-bin/count HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    for connection in connections:
        status, fields, body = parse(read_all(connection))
        assert (status, body) == (200, b"hello")
        connection.close()
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(seen) == 1000 and max(seen) <= 5
    none_left(server)


def test_a_full_queue_gives_503_with_retry_after(cgi, tmp_path):
    go = tmp_path / "go"
    server = cgi({"wait": f"while ! [ -e {go} ]; do sleep 0.02; done; {HELLO}"},
                 "processes = 1, queue = 1")
    request = b"GET /cgi-bin/wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    first = server.connect()
    first.sendall(request)
    wait_until(lambda: children(server), "the first one runs")
    second = server.connect()
    second.sendall(request)
    third = server.connect()
    third.sendall(request)
    # Two wait for the one free place in the queue, and either may get it.
    [refused] = select.select([second, third], [], [], 15)[0]
    status, fields, _ = parse(read_all(refused))
    assert (status, fields["retry-after"]) == (503, "1")
    go.touch()
    for connection in {first, second, third} - {refused}:
        status, fields, body = parse(read_all(connection))
        assert (status, body) == (200, b"hello")


def test_a_client_that_disconnects_leaves_the_queue(cgi, tmp_path):
    log, go = tmp_path / "access.log", tmp_path / "go"
    server = cgi({"wait": f"while ! [ -e {go} ]; do sleep 0.02; done; {HELLO}"},
                 "processes = 1, queue = 1",
                 server=f'access_log = {{ path = "{log}", format = "common" }}')
    request = b"GET /cgi-bin/wait?%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    first, second = server.connect(), server.connect()
    first.sendall(request % 1)
    wait_until(lambda: children(server), "the first one runs")
    second.sendall(request % 2)
    second.close()
    wait_until(lambda: log.exists() and "?2 HTTP/1.1\" 499 0" in log.read_text(), "it is logged")
    third = server.connect()
    third.sendall(request % 3)
    go.touch()
    for connection in (first, third):
        status, fields, body = parse(read_all(connection))
        assert (status, body) == (200, b"hello")
        connection.close()


def test_a_wait_for_a_process_ends_in_time(cgi):
    server = cgi({"hang": "sleep 1000"}, 'processes = 1, queue_timeout = "200ms"')
    with server.connect() as first:
        first.sendall(b"GET /cgi-bin/hang HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: children(server), "the first one runs")
        for _ in range(2):
            assert server.get("/cgi-bin/hang")[0] == 503
    # An overload is logged once, not with every request that it turns away.
    wait_until(lambda: server.log.count("all processes are busy") == 1, "the warning")
    none_left(server)


@pytest.mark.serial
def test_a_post_in_two_segments_costs_no_40_ms(cgi):
    server = cgi({"hello": "cat >/dev/null\n" + HELLO})

    def post(split):
        with server.connect() as connection:
            times = []
            for _ in range(20):
                began = time.monotonic()
                head = b"POST /cgi-bin/hello HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
                if split:
                    # Without TCP_NODELAY the second part waits for the acknowledgement.
                    connection.sendall(head)
                    connection.sendall(b"body")
                else:
                    connection.sendall(head + b"body")
                data = b""
                while b"hello" not in data or not data.endswith((b"hello", b"0\r\n\r\n")):
                    data += connection.recv(65536)
                times.append(time.monotonic() - began)
            return sorted(times)[len(times) // 2]

    whole, split = post(False), post(True)
    assert split - whole < 0.02, (whole, split)


def test_stopping_the_server_ends_scripts_that_do_not_end(cgi, tmp_path):
    pids = tmp_path / "pids"
    server = cgi({"hang": hang(pids, "trap '' TERM")}, server='stop_timeout = "200ms"')
    with server.connect() as connection:
        connection.sendall(b"GET /cgi-bin/hang HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(pids.exists, "it runs")
        server.stop(signal.SIGTERM)
    numbers = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: not any(is_alive(pid) for pid in numbers), "the group is gone")


def test_resource_limits_apply_to_processes(cgi):
    server = cgi({"limits": "sleep 0.1; printf 'Content-Type: a/b\\n\\n'; ulimit -v; ulimit -t; nice"},
                 'memory = "512MiB", cpu = "7s", nice = 5')
    own = os.getpriority(os.PRIO_PROCESS, server.pid)
    assert server.get("/cgi-bin/limits")[2].split() == [b"524288", b"7", b"%d" % min(own + 5, 19)]


def test_programs_in_perl_and_c_run(cgi):
    server = cgi({"p.pl": '#!/usr/bin/perl\nprint "Content-Type: text/plain\\n\\nperl $ENV{PATH_INFO}";\n'})
    source = cgi.directory.parent / "hello.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("Content-Type: a/b\\n\\nfrom c"); }\n')
    subprocess.run(["gcc", "-o", cgi.directory / "c", source], check=True)
    assert server.get("/cgi-bin/p.pl/x")[2] == b"perl /x"
    assert server.get("/cgi-bin/c")[2] == b"from c\n"


def test_the_access_log_and_server_timing_have_the_times_of_scripts(cgi, tmp_path):
    log = tmp_path / "access.log"
    server = cgi({"hello": HELLO, "hang": hang(tmp_path / "pids")}, route="server_timing = true",
                 server=f'access_log = {{ path = "{log}", format = "common" }}')
    _, fields, _ = server.get("/cgi-bin/hello")
    assert fields["server-timing"].startswith("wait;dur=")
    with server.connect() as connection:
        connection.sendall(b"GET /cgi-bin/hang HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until((tmp_path / "pids").exists, "it runs")
        while b"hello" not in connection.recv(65536):
            pass
    wait_until(lambda: log.read_text().count("\n") == 2, "both lines are there")
    first, second = log.read_text().splitlines()
    assert '"GET /cgi-bin/hello HTTP/1.1" 200 5' in first
    assert '"GET /cgi-bin/hang HTTP/1.1" 200 5' in second


def test_several_workers_share_the_permits_and_leave_no_zombie(cgi, tmp_path):
    server = cgi({"hello": HELLO}, "processes = 2", server="")
    text = (tmp_path / "dunlin-0.toml").read_text().replace("threads = 1", "threads = 4")
    server.stop()
    server = start_again(cgi, text)
    results = []

    def fetch():
        for _ in range(20):
            results.append(server.get("/cgi-bin/hello")[2])

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [b"hello"] * 160
    none_left(server)
    # No descriptor either: the same ones are open later.
    count = lambda: len(os.listdir(f"/proc/{server.pid}/fd"))
    wait_until(lambda: count() < 60, "every pipe and pidfd is closed")


def start_again(cgi, text):
    return cgi.serve(text=text)


def test_check_verifies_the_directory(tmp_path):
    file = tmp_path / "dunlin.toml"
    file.write_text('[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n[[site.route]]\n'
                    'path = "/cgi-bin/*"\nscript = { kind = "cgi", directory = "none" }\n')
    result = subprocess.run([DUNLIN, "check", "--config", file], capture_output=True, text=True)
    assert result.returncode == 1
    assert "dunlin.toml:7:38" in result.stdout + result.stderr and "directory" in result.stderr


def test_a_renamed_script_is_looked_up_again(cgi):
    server = cgi({"a": HELLO, "other/b": HELLO})
    for _ in range(3):
        assert server.get("/cgi-bin/a")[0] == 200
        assert server.get("/cgi-bin/other/b")[0] == 200
    (cgi.directory / "a").chmod(0o644)
    assert server.get("/cgi-bin/a")[0] == 403
    (cgi.directory / "a").chmod(0o755)
    assert server.get("/cgi-bin/a")[0] == 200
    (cgi.directory / "a").unlink()
    assert server.get("/cgi-bin/a")[0] == 404
    (cgi.directory / "a").mkdir()
    script(cgi.directory, "a/below", "printf 'Content-Type: text/plain\\n\\nbelow'\n")
    assert server.get("/cgi-bin/a/below")[2] == b"below"
    (cgi.directory / "other").rename(cgi.directory / "another")
    assert server.get("/cgi-bin/other/b")[0] == 404
    assert server.get("/cgi-bin/another/b")[0] == 200


def test_a_script_behind_a_symlink_is_looked_for_each_time(cgi, tmp_path):
    server = cgi({"first": HELLO})
    beside = script(tmp_path, "cgi-bin/second", "printf 'Content-Type: text/plain\\n\\nsecond'\n")
    (cgi.directory / "current").symlink_to("first")
    assert [server.get("/cgi-bin/current")[2] for _ in range(2)] == [b"hello"] * 2
    beside.rename(cgi.directory / "first")
    assert server.get("/cgi-bin/current")[2] == b"second"
