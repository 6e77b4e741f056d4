"""The response cache before every kind of script."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.http import parse, read_all
from support.kinds import KINDS, expected
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

CACHE = "cache = { responses = true }"

# Each program appends to COUNT when it runs. The query selects what it does:
# `fresh` may be stored, `stale` has to be validated, `private` and `cookie` may not be stored, `slow` takes a while,
# `broken` ends in the middle of its body.
PHP = """<?php
file_put_contents('COUNT', 'x', FILE_APPEND);
$query = $_SERVER['QUERY_STRING'];
header('Content-Type: text/plain');
header('ETag: "a"');
header('Cache-Control: ' . ($query === 'private' ? 'private, ' : '') . ($query === 'stale' ? 'max-age=0' : 'max-age=600'));
if ($query === 'cookie') header('Set-Cookie: a=b');
if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '"a"') { http_response_code(304); exit; }
if ($query === 'slow') usleep(300000);
echo str_repeat('x', 50000);
flush();
if ($query === 'broken') posix_kill(getmypid(), 9);
echo str_repeat('y', 50000);
"""

WSGI = """
import os, time
def application(environ, start_response):
    open('COUNT', 'a').write('x')
    query = environ['QUERY_STRING']
    value = ('private, ' if query == 'private' else '') + ('max-age=0' if query == 'stale' else 'max-age=600')
    fields = [('Content-Type', 'text/plain'), ('ETag', '"a"'), ('Cache-Control', value)]
    if query == 'cookie':
        fields.append(('Set-Cookie', 'a=b'))
    if environ.get('HTTP_IF_NONE_MATCH') == '"a"':
        start_response('304 Not Modified', fields)
        return []
    if query == 'slow':
        time.sleep(0.3)
    start_response('200 OK', fields)
    def parts():
        yield b'x' * 50000
        if query == 'broken':
            os.kill(os.getpid(), 9)
        yield b'y' * 50000
    return parts()
"""

ASGI = """
import asyncio, os
async def application(scope, receive, send):
    if scope['type'] != 'http':
        return
    open('COUNT', 'a').write('x')
    query = scope['query_string'].decode()
    value = ('private, ' if query == 'private' else '') + ('max-age=0' if query == 'stale' else 'max-age=600')
    fields = [(b'content-type', b'text/plain'), (b'etag', b'"a"'), (b'cache-control', value.encode())]
    if query == 'cookie':
        fields.append((b'set-cookie', b'a=b'))
    if dict(scope['headers']).get(b'if-none-match') == b'"a"':
        await send({'type': 'http.response.start', 'status': 304, 'headers': fields})
        return await send({'type': 'http.response.body'})
    if query == 'slow':
        await asyncio.sleep(0.3)
    await send({'type': 'http.response.start', 'status': 200, 'headers': fields})
    await send({'type': 'http.response.body', 'body': b'x' * 50000, 'more_body': True})
    if query == 'broken':
        os.kill(os.getpid(), 9)
    await send({'type': 'http.response.body', 'body': b'y' * 50000})
"""

CGI = """#!/usr/bin/python3
import os, sys, time
open('COUNT', 'a').write('x')
query, out = os.environ['QUERY_STRING'], sys.stdout.buffer
value = ('private, ' if query == 'private' else '') + ('max-age=0' if query == 'stale' else 'max-age=600')
fields = f'Content-Type: text/plain\\nETag: "a"\\nCache-Control: {value}\\n'
if query == 'cookie':
    fields += 'Set-Cookie: a=b\\n'
if os.environ.get('HTTP_IF_NONE_MATCH') == '"a"':
    out.write(f'Status: 304\\n{fields}\\n'.encode())
    sys.exit()
if query == 'slow':
    time.sleep(0.3)
length = 'Content-Length: 100000\\n' if query == 'broken' else ''
out.write(f'{fields}{length}\\n'.encode() + b'x' * 50000)
out.flush()
if query == 'broken':
    os.kill(os.getpid(), 9)
out.write(b'y' * 50000)
"""

BODY = b"x" * 50000 + b"y" * 50000
GET = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Application:
    """A server with an application of a kind behind the cache."""

    def __init__(self, kind, serve, tmp_path):
        self.count, folder = tmp_path / "count", tmp_path / "app"
        folder.mkdir()
        self.count.touch()
        source, name, keys = {
            "fastcgi": (PHP, "a.php", f'command = ["php-cgi"], root = "{folder}"'),
            "wsgi": (WSGI, "app.py", f'application = "app:application", directory = "{folder}"'),
            "asgi": (ASGI, "app.py", f'application = "app:application", directory = "{folder}"'),
            "cgi": (CGI, "a.php", f'directory = "{folder}"'),
        }[kind]
        (folder / name).write_text(source.replace("COUNT", str(self.count)))
        (folder / name).chmod(0o755)
        self.server = serve(
            server=f'cache.directory = "{tmp_path}/responses"',
            route=f'script = {{ kind = "{kind}", {keys} }}\n{CACHE}',
        )

    def get(self, query, *fields, method="GET"):
        """The state of the cache, the response, and how often the application has run."""
        before = len(self.count.read_text())
        status, found, body = self.server.get(f"/a.php?{query}", *fields, method=method)
        state = found["cache-status"].removeprefix("dunlin; ").split("; ttl")[0]
        return state, status, body, len(self.count.read_text()) - before


@pytest.fixture(params=["cgi", "fastcgi", "wsgi", "asgi"])
def application(request, serve, tmp_path):
    return Application(request.param, serve, tmp_path)


def test_a_response_is_stored_and_validated(application):
    assert application.get("fresh") == ("fwd=uri-miss; stored", 200, BODY, 1)
    assert application.get("fresh") == ("hit", 200, BODY, 0)
    assert application.get("fresh", "Range: bytes=49999-50000") == ("hit", 206, b"xy", 0)
    assert application.get("fresh", 'If-None-Match: "a"') == ("hit", 304, b"", 0)
    assert application.get("fresh", method="HEAD") == ("hit", 200, b"", 0)
    assert application.get("stale") == ("fwd=uri-miss; stored", 200, BODY, 1)
    assert application.get("stale") == ("fwd=stale; fwd-status=304; stored", 200, BODY, 1)
    assert application.get("stale", 'If-None-Match: "a"') == ("fwd=stale; fwd-status=304; stored", 304, b"", 1)
    assert application.get("fresh", "Content-Length: 0", method="POST")[3] == 1
    assert application.get("fresh") == ("fwd=uri-miss; stored", 200, BODY, 1)


def test_what_may_not_be_stored_is_not(application):
    for query, why in (("private", "private"), ("cookie", "set-cookie")):
        for _ in range(2):
            assert application.get(query) == (f"fwd=uri-miss; detail={why}", 200, BODY, 1)


def test_a_response_that_breaks_off_is_not_stored(application):
    server, count = application.server, application.count
    for number in range(1, 3):
        with server.connect() as connection:
            connection.sendall(GET % b"/a.php?broken")
            received = b""
            try:
                while part := connection.recv(1 << 16):
                    received += part
            except ConnectionResetError:
                pass
        assert not received.endswith(b"y") and not received.endswith(b"0\r\n\r\n"), "it looks complete"
        wait_until(lambda: len(count.read_text()) >= number, "the application")
    assert application.get("fresh")[1] == 200


def test_concurrent_requests_are_one(application):
    with ThreadPoolExecutor(30) as pool:
        for result in pool.map(lambda _: application.server.get("/a.php?slow"), range(30)):
            assert result[0] == 200 and result[2] == BODY
    assert application.count.read_text() == "x"


def test_a_client_that_leaves_does_not_break_the_response(application):
    with application.server.connect() as connection:
        connection.sendall(GET % b"/a.php?slow")
        wait_until(lambda: application.count.read_text(), "the application")
    for _ in range(2):
        assert application.get("slow")[1:3] == (200, BODY)
    assert application.get("slow") == ("hit", 200, BODY, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_script_is_cached(programs, serve, kind):
    route = f'{CACHE}\nset_fields = {{ Dunlin-Cache-Control = "max-age=600" }}'
    server = serve(more=programs.route(kind, "", route))
    path = programs.path(kind)

    def get(query, *fields, method="GET", body=b""):
        with server.connect() as connection:
            head = f"{method} {path}?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + "".join(f"{field}\r\n" for field in fields)
            head += f"Content-Length: {len(body)}\r\n\r\n" if body else "\r\n"
            connection.sendall(head.encode() + body)
            status, found, content = parse(read_all(connection), method)
        assert "dunlin-cache-control" not in found
        return status, found["cache-status"].removeprefix("dunlin; ").split("; ttl")[0], content

    assert get("hello") == (200, "fwd=uri-miss; stored", b"hello")
    assert get("hello") == (200, "hit", b"hello")
    assert get("hello", "Range: bytes=1-2") == (206, "hit", b"el")
    assert get("hello", method="HEAD") == (200, "hit", b"")
    for status in (404, 503):
        assert get(f"status={status}") == (status, "fwd=uri-miss; stored", b"hello")
        assert get(f"status={status}") == (status, "hit", b"hello")
    for body in (b"one", b"two"):
        for state in ("fwd=uri-miss; stored", "hit"):
            assert get("total", method="QUERY", body=body) == (200, state, expected(body))
    assert get("hello", method="POST", body=b"x")[:2] == (200, "fwd=method")
    assert get("hello") == (200, "fwd=uri-miss; stored", b"hello")
