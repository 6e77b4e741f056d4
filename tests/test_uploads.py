"""Uploads to scripts: slow ones occupy no process, and their resources are bounded."""

import os
import resource
import time

import pytest

from support.http import chunks, parse, read_all, read_any, read_response, slow_uploads, upload
from support.http2 import Client, DATA, END_STREAM, frame, HEADERS, request, WINDOW_UPDATE
from support.kinds import expected, KINDS
from support.processes import rss
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

@pytest.mark.parametrize("length", [200_000, 1_000, None], ids=["long", "short", "chunked"])
@pytest.mark.parametrize("kind", KINDS)
def test_slow_uploads_occupy_no_process(serve, programs, kind, length):
    # With two processes and no queue, a request that found both busy would get 503.
    settings = "processes = 2, queue = 0"
    if kind in ("wsgi", "psgi", "asgi", "fastcgi", "cgiplus", "rte"):
        settings = 'processes = 2, queue = 2, queue_timeout = "30s"'
    server = serve(more=programs.route(kind, settings))
    path = programs.path(kind)
    assert server.get(f"{path}?hello")[0] == 200
    with slow_uploads(server, f"{path}?total", 8, length) as connections:
        for _ in range(6):
            status, _, body = server.get(f"{path}?hello")
            assert (status, body) == (200, b"hello"), server.log
        # Each upload that is completed gets a response.
        for connection in connections:
            body = b"x" * (length or 100)
            connection.sendall(body[100:] if length else b"0\r\n\r\n")
            connection.settimeout(30)
            status, fields, response, _ = read_any(connection)
            assert (status, response) == (200, expected(body)), server.log


@pytest.mark.parametrize("kind", ["cgi", "wsgi", "fastcgi", "asgi"])
def test_slow_uploads_over_http2_occupy_no_process(serve, programs, kind):
    server = serve(more=programs.route(kind, "processes = 2, queue = 16"))
    path = programs.path(kind)
    assert server.get(f"{path}?hello")[0] == 200
    with Client(server) as client:
        streams = range(1, 17, 2)
        for stream in streams:
            client.send(request(stream, f"{path}?total", "POST", ended=False) + frame(DATA, 0, stream, b"x" * 100))
        for _ in range(4):
            assert server.get(f"{path}?hello")[2] == b"hello", server.log
        for stream in streams:
            client.send(frame(DATA, END_STREAM, stream, b"y" * 1000))
        bodies, open_streams = {}, set(streams)
        while open_streams:
            found, flags, stream, payload = client.read()
            if found == DATA:
                bodies[stream] = bodies.get(stream, b"") + payload
            if stream in open_streams and flags & END_STREAM and found in (DATA, HEADERS):
                open_streams.discard(stream)
        assert set(bodies.values()) == {expected(b"x" * 100 + b"y" * 1000)}


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 1_000_000])
@pytest.mark.parametrize("kind", KINDS)
def test_bodies_of_every_size_arrive_unchanged(serve, programs, kind, size):
    server = serve(more=programs.route(kind, route='body_size = "10MB"'))
    path, body = f"{programs.path(kind)}?total", os.urandom(size)
    for length in (size, None):
        for pieces in (1, 3):
            data = body if length is not None else chunks(body)
            with server.connect(30) as connection:
                head = upload(path, length)
                step = max(1, -(-len(data) // pieces))
                connection.sendall(head + data[:step] if pieces == 1 else head)
                for at in range(0 if pieces > 1 else step, len(data), step):
                    time.sleep(0.01)
                    connection.sendall(data[at : at + step])
                status, _, response, _ = read_any(connection)
                assert (status, response) == (200, expected(body)), (length, pieces, server.log)


def test_a_body_over_http2_is_larger_than_its_windows(serve, programs):
    server = serve(more="".join(programs.route(kind, route='body_size = "10MB"') for kind in ("cgi", "wsgi")))
    body = os.urandom(3_000_000)
    for kind in ("cgi", "wsgi"):
        with Client(server) as client:
            client.send(request(1, f"{programs.path(kind)}?total", "POST", ended=False))
            at, window, response = 0, client.window, b""
            stream_window = 65_535
            while True:
                while at < len(body) and min(window, stream_window) > 0:
                    part = body[at : at + min(16_384, window, stream_window)]
                    at += len(part)
                    window -= len(part)
                    stream_window -= len(part)
                    client.send(frame(DATA, END_STREAM if at == len(body) else 0, 1, part))
                found, flags, stream, payload = client.read()
                if found == WINDOW_UPDATE:
                    more = int.from_bytes(payload, "big")
                    window += 0 if stream else more
                    stream_window += more if stream else 0
                if stream == 1 and found == DATA:
                    response += payload
                if stream == 1 and found in (DATA, HEADERS) and flags & END_STREAM:
                    break
            assert response == expected(body), kind


@pytest.mark.parametrize("kind", ["cgi", "wsgi", "fastcgi"])
def test_with_stream_a_script_begins_before_its_body_has_arrived(serve, programs, tmp_path, kind):
    server = serve(more=programs.route(kind, "processes = 1, queue = 1", 'body = "stream"'))
    path, body = programs.path(kind), b"x" * 50_000
    assert server.get(f"{path}?hello")[0] == 200
    with slow_uploads(server, f"{path}?total", 1, len(body)) as [connection]:
        with server.connect() as waiting:
            waiting.settimeout(0.5)
            waiting.sendall(f"GET {path}?hello HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            with pytest.raises(TimeoutError):
                waiting.recv(1)
            connection.sendall(body[100:])
            assert read_any(connection)[2] == expected(body)
            waiting.settimeout(15)
            assert read_any(waiting)[2] == b"hello"
    # A chunked body is received first nevertheless: its length is unknown.
    with slow_uploads(server, f"{path}?total", 3, None) as connections:
        assert server.get(f"{path}?hello")[2] == b"hello"
        connections[0].sendall(b"0\r\n\r\n")
        assert read_any(connections[0])[2] == expected(b"x" * 100)


ECHO = '''
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    names = [name for name, _ in scope["headers"]]
    kind = b"with" if b"content-length" in names else b"without"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": kind + b" length\\n", "more_body": True})
    while True:
        message = await receive()
        await send({"type": "http.response.body", "body": message["body"], "more_body": True})
        if not message.get("more_body"):
            break
    await send({"type": "http.response.body", "body": b""})
'''


def asgi_echo(serve, programs, route):
    (programs.directory / "echo_app.py").write_text(ECHO)
    text = programs.route("asgi", route=route).replace("asgi_app:", "echo_app:")
    return serve(more=text)


def receive_until(connection, text):
    data = b""
    while text not in data:
        part = connection.recv(65536)
        assert part, data
        data += part
    return data


def test_an_asgi_application_reads_a_streamed_body_as_it_arrives(serve, programs):
    server = asgi_echo(serve, programs, 'body = "stream"')
    with server.connect() as connection:
        connection.sendall(upload("/asgi/run", None) + b"3\r\none\r\n")
        assert b"without length" in receive_until(connection, b"one")
        connection.sendall(b"3\r\ntwo\r\n")
        receive_until(connection, b"two")
        connection.sendall(b"0\r\n\r\n")
        receive_until(connection, b"0\r\n\r\n")
    with server.connect() as connection:
        connection.sendall(upload("/asgi/run", 6) + b"one")
        assert b"with length" in receive_until(connection, b"one")
        connection.sendall(b"two")
        receive_until(connection, b"two")


def test_an_asgi_application_reads_a_buffered_body_in_parts(serve, programs):
    server = asgi_echo(serve, programs, 'body_size = "10MB"')
    body = os.urandom(700_000)
    for length in (len(body), None):
        with server.connect() as connection:
            connection.sendall(upload("/asgi/run", length, "POST", "Connection: close"))
            connection.sendall(body if length else chunks(body))
            status, fields, response = parse(read_all(connection))
            assert response == b"with length\n" + body


def test_a_slow_upload_takes_no_permit_of_the_throttle(serve, programs):
    route = "throttle = { max_concurrent = 1, queue = 0 }"
    server = serve(more=programs.route("wsgi", route=route))
    path = programs.path("wsgi")
    with slow_uploads(server, f"{path}?total", 4, 1_000) as connections:
        for _ in range(3):
            assert server.get(f"{path}?hello")[2] == b"hello"
        for connection in connections:
            connection.sendall(b"x" * 900)
            assert read_any(connection)[::2][0] == 200
    # The body is received before the request waits, and then is not received again.
    body = os.urandom(300_000)
    with server.connect() as connection:
        connection.sendall(upload(f"{path}?total", len(body)) + body)
        assert read_any(connection)[2] == expected(body)


def test_early_responses_precede_the_body(serve, programs):
    closed = programs.route("cgi", route='methods = ["GET", "POST"]\nbody_size = "1MB"')
    server = serve(more=closed)
    for head, status in (
        (upload("/cgi/none.py", 1000), 404),
        (upload("/cgi/run.py?total", 5_000_000), 413),
        (upload("/cgi/run.py?total", 1000, "PUT"), 405),
    ):
        with server.connect() as connection:
            connection.sendall(head)
            assert read_response(connection)[0] == status


@pytest.mark.parametrize("kind", ["cgi", "wsgi", "scgi"])
def test_100_continue_is_sent_when_the_server_reads_the_body(serve, programs, kind):
    server = serve(more=programs.route(kind))
    path, body = f"{programs.path(kind)}?total", b"x" * 100_000
    for length in (len(body), None):
        with server.connect() as connection:
            connection.sendall(upload(path, length, "POST", "Expect: 100-continue"))
            assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(body if length else chunks(body))
            assert read_any(connection)[2] == expected(body)


def test_clients_that_leave_within_an_upload_leave_nothing_behind(serve, programs):
    server = serve(more=programs.route("cgi", route='body_size = "10MB"') + programs.route("wsgi", route='body_size = "10MB"'))
    for kind in ("cgi", "wsgi"):
        assert server.get(f"{programs.path(kind)}?hello")[0] == 200
    count = lambda: len(os.listdir(f"/proc/{server.pid}/fd"))  # noqa: E731
    before = count()
    for kind in ("cgi", "wsgi"):
        with slow_uploads(server, f"{programs.path(kind)}?total", 20, 500_000, b"x" * 200_000):
            wait_until(lambda: count() > before + 20, "the bodies are stored")
    wait_until(lambda: count() <= before, "all files are closed")


def test_the_size_of_spooled_bodies_is_bounded(serve, programs):
    route = 'body_size = "10MB"'
    server = serve(more=programs.route("cgi", route=route), server='spool_size = "1MB"')
    path = f"{programs.path('cgi')}?total"
    # An upload with a stated length is rejected before its body is read.
    with server.connect() as connection:
        connection.sendall(upload(path, 2_000_000))
        status, fields, _, _ = read_response(connection)
        assert status == 503 and "retry-after" in fields
    body = b"x" * 3_000_000
    status, _, _ = parse(server.exchange(upload(path, None, "POST", "Connection: close") + chunks(body)))
    assert status == 503
    assert server.logged("spool_size").count("request bodies are rejected") == 1
    # Short ones need no file, and there is space again.
    for size in (1000, 900_000, 900_000):
        with server.connect() as connection:
            connection.sendall(upload(path, size) + b"x" * size)
            assert read_any(connection)[2] == expected(b"x" * size)


def test_memory_of_many_slow_bodies_is_bounded(serve, programs):
    server = serve(more=programs.route("cgi"))
    path = f"{programs.path('cgi')}?total"
    before = rss(server)
    with slow_uploads(server, path, 1500, 100_000, b"x" * 60_000) as connections:
        assert server.get(f"{programs.path('cgi')}?hello")[2] == b"hello"
        # 90 MB have arrived; 32 MiB of them may be in memory, besides buffers.
        assert rss(server) - before < 70 << 20
        for connection in (connections[0], connections[-1]):
            connection.sendall(b"x" * 40_000)
            assert read_any(connection)[2] == expected(b"x" * 100_000)


def test_a_full_disk_is_the_failure_of_that_request_only(serve, programs, tmp_path):
    """Files may have 100 KB (RLIMIT_FSIZE), which stands for a disk without room."""
    def limit():
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    server = serve(more=programs.route("cgi"), preexec=limit)
    path = f"{programs.path('cgi')}?total"
    for _ in range(2):
        data = server.exchange(upload(path, 500_000, "POST", "Connection: close") + b"x" * 500_000)
        assert parse(data)[0] == 500
        server.logged("could not be stored")
        with server.connect() as connection:
            connection.sendall(upload(path, 90_000) + b"x" * 90_000)
            assert read_any(connection)[2] == expected(b"x" * 90_000)
