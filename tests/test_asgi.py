"""ASGI applications: scope and events, responses, lifespan."""

import json
import os
import signal
import sys
import threading

import pytest

from support.http import parse, post, read_all, read_until_cut
from support.http2 import curl
from support.processes import is_alive, workers
from support.scripts import assert_an_upload_arrives, assert_events_arrive_as_they_are_sent
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

APP = '''
import asyncio, hashlib, json, os

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    name = scope["path"].removeprefix(scope["root_path"]).strip("/").split("/")[0] or "hello"
    await globals()[name](scope, receive, send)

async def lifespan(scope, receive, send):
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            scope["state"]["began"] = "yes"
            await send({"type": "lifespan.startup.complete"})
        else:
            open(os.environ["ENDED"], "a").write("ended\\n")
            await send({"type": "lifespan.shutdown.complete"})
            return

async def begin(send, status=200, kind=b"text/plain"):
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})

async def body(send, data=b"", more=False):
    await send({"type": "http.response.body", "body": data, "more_body": more})

async def hello(scope, receive, send):
    await begin(send)
    await body(send, b"hello")

async def pid(scope, receive, send):
    await begin(send)
    await body(send, str(os.getpid()).encode())

async def env(scope, receive, send):
    data = b""
    while True:
        message = await receive()
        data += message["body"]
        if not message["more_body"]:
            break
    reported = {key: value if isinstance(value, (str, tuple, dict)) else repr(value) for key, value in scope.items()}
    reported["headers"] = sorted((a.decode(), b.decode()) for a, b in scope["headers"])
    await begin(send, 201)
    await body(send, json.dumps({"scope": reported, "body": data.decode()}).encode())

async def total(scope, receive, send):
    digest, more = hashlib.sha256(), True
    while more:
        message = await receive()
        digest.update(message["body"])
        more = message["more_body"]
    await begin(send)
    await body(send, digest.hexdigest().encode())

async def large(scope, receive, send):
    await begin(send)
    for at in range(300):
        await body(send, bytes([65 + at % 26]) * 10_000, True)
    await body(send)

async def one(scope, receive, send):
    await begin(send)
    await body(send, b"o" * 3_000_000)

async def wait_for(path):
    while not os.path.exists(path):
        await asyncio.sleep(0.002)

async def events(scope, receive, send):
    await begin(send, kind=b"text/event-stream")
    for number in range(3):
        await body(send, b"data: %d\\n\\n" % number, True)
        await wait_for(scope["query_string"].decode() + str(number))
    await body(send)

async def wait(scope, receive, send):
    await wait_for(scope["query_string"].decode())
    await hello(scope, receive, send)

async def fails(scope, receive, send):
    raise RuntimeError("on purpose")

async def fails_late(scope, receive, send):
    await begin(send)
    await body(send, b"x" * 300_000, True)
    raise RuntimeError("late on purpose")

async def silent(scope, receive, send):
    pass

async def split(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b\\r\\nset-cookie: evil")]})
    await body(send)

async def endless(scope, receive, send):
    await begin(send)
    left = asyncio.ensure_future(listen(receive))
    while not left.done():
        await body(send, b"x" * 1000, True)
        await asyncio.sleep(0)
    open(scope["query_string"].decode(), "w").close()

async def listen(receive):
    while (await receive())["type"] != "http.disconnect":
        pass
'''


@pytest.fixture
def asgi(serve, tmp_path):
    """Starts a server with the application: `asgi(settings)`."""
    directory = tmp_path / "app"
    directory.mkdir()
    (directory / "app.py").write_text(APP)

    def start(settings="processes = 1", route="", application="app:application"):
        return serve(
            more=f'[[site.route]]\npath = "/app/*"\n{route}\nscript = {{ kind = "asgi", '
            f'application = "{application}", interpreter = "{sys.executable}", '
            f'env = {{ ENDED = "{tmp_path}/ended" }}, directory = "{directory}", {settings} }}\n'
        )

    return start


def test_the_scope_describes_the_request_and_the_lifespan(asgi, tmp_path):
    server = asgi()
    status, _, response = post(
        server, "/app/env/%C3%A4%20b?x=%41", b"a=1", "Content-Type: text/x", "X-Two: 1", "X-Two: 2"
    )
    assert status == 201
    reported = json.loads(response)
    scope = reported["scope"]
    assert reported["body"] == "a=1"
    assert scope["client"][0] == "127.0.0.1" and scope["server"] == ["Example.org", server.port]
    for name, value in {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/app/env/ä b",
        "raw_path": "b'/app/env/%C3%A4%20b'",
        "query_string": "b'x=%41'",
        "root_path": "/app",
        "state": {"began": "yes"},
    }.items():
        assert scope[name] == value, name
    by = ("traceparent", "x-request-id")
    assert [pair[0] for pair in scope["headers"] if pair[0] in by] == list(by)
    for name, value in {
        "headers": [
            ["content-length", "3"],
            ["content-type", "text/x"],
            ["host", "Example.org:81"],
            ["x-two", "1, 2"],
        ],
    }.items():
        assert [pair for pair in scope[name] if pair[0] not in by] == value, name
    assert not (tmp_path / "ended").exists()
    assert server.stop() == 0
    assert (tmp_path / "ended").read_text() == "ended\n"


def test_the_scope_has_the_version_of_http_as_asgi_writes_it(asgi):
    server = asgi()
    found = [json.loads(curl(server, "/app/env")[2])]
    for version in (b"1.1", b"1.0"):
        response = server.exchange(b"GET /app/env HTTP/%s\r\nHost: x\r\nConnection: close\r\n\r\n" % version)
        found.append(json.loads(parse(response)[2]))
    assert [reported["scope"]["http_version"] for reported in found] == ["2", "1.1", "1.0"]


def test_requests_are_processed_concurrently(asgi, tmp_path):
    server = asgi()
    gate = tmp_path / "gate"
    responses = []
    threads = [
        threading.Thread(target=lambda: responses.append(server.get(f"/app/wait?{gate}")[2]))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert server.get("/app/")[2] == b"hello"
    assert not responses
    gate.touch()
    for thread in threads:
        thread.join()
    assert responses == [b"hello"] * 20 and len(workers(server)) == 1


@pytest.mark.parametrize("chunked, megabytes", [(False, 200), (True, 20)])
def test_a_large_upload_arrives_complete(asgi, chunked, megabytes):
    server = asgi(route='body_size = "300MB"')
    assert_an_upload_arrives(server, "/app/total", megabytes, chunked)


def test_a_large_response_arrives_complete_while_others_are_served(asgi):
    server = asgi()
    wanted = b"".join(bytes([65 + at % 26]) * 10_000 for at in range(300))
    assert server.get("/app/one")[2] == b"o" * 3_000_000
    with server.connect() as connection:
        connection.sendall(b"GET /app/large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        # While its client does not read, the others are served.
        for _ in range(20):
            assert server.get("/app/")[2] == b"hello"
        status, fields, body = parse(read_all(connection))
    assert body == wanted


def test_events_arrive_as_they_are_sent(asgi, tmp_path):
    server = asgi()
    assert_events_arrive_as_they_are_sent(server, f"/app/events?{tmp_path}/gate", tmp_path)


def test_failures_are_logged_and_visible_to_the_client(asgi):
    server = asgi()
    assert server.get("/app/fails")[0] == 500
    wait_until(lambda: "RuntimeError: on purpose" in server.log, "the traceback")
    assert server.get("/app/silent")[0] == 500
    status, fields, _ = server.get("/app/split")
    assert status == 500 and "set-cookie" not in fields
    assert not read_until_cut(server, "/app/fails_late").endswith(b"0\r\n\r\n")
    assert server.get("/app/")[2] == b"hello"


def test_the_application_gets_an_event_when_its_client_disconnects(asgi, tmp_path):
    server = asgi()
    with server.connect() as connection:
        connection.sendall(f"GET /app/endless?{tmp_path}/left HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert connection.recv(100)
    wait_until((tmp_path / "left").exists, "http.disconnect")
    assert server.get("/app/")[2] == b"hello"


def test_a_killed_host_is_replaced(asgi):
    server = asgi('processes = 1, backoff = "5ms"')
    before = server.get("/app/pid")[2]
    os.kill(int(before), signal.SIGKILL)
    wait_until(lambda: not is_alive(int(before)), "it is gone")
    status, _, after = server.get("/app/pid")
    assert status == 200 and after != before
    assert len(workers(server)) == 1


def test_a_host_does_not_outlive_a_server_that_was_killed(asgi):
    server = asgi()
    pid = int(server.get("/app/pid")[2])
    server.process.kill()
    wait_until(lambda: not is_alive(pid), "the host is gone")
