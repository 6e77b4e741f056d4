"""Stores that misbehave cost no more than their own requests: object stores, and the store of shared state."""

import contextlib
import json
import socket
import threading

import pytest
from support.files import write
from support.hostile import hostile, pour, send
from support.objects import BUCKET, REGION, counting_store, serve_objects  # noqa: F401
from support.processes import rss
from support.shared_store import lacks_feature
from support.stub import StubServer
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(lacks_feature(), reason="the binary is built without the feature `fleet`")

MB = 1 << 20
VALIDATORS = ("ETag: \"a\"", "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT")


@pytest.fixture
def serve_bucket(serve, tmp_path):
    """Starts a server whose files are in the bucket of a store at an endpoint, but for `/local/`."""
    write(tmp_path / "local" / "a.txt", b"local")

    def start(endpoint, more=""):
        credentials = write(
            tmp_path / "credentials",
            b"[default]\naws_access_key_id = KEY\naws_secret_access_key = SECRET\naws_session_token = TOKENSECRET\n",
        )
        return serve(
            text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n'
            f'[store.s3]\nendpoint = "{endpoint}"\nregion = "{REGION}"\ncredentials = "{credentials}"\n'
            f'timeout = "5s"\nrevalidate = "0s"\n'
            f'[[site]]\nroot = "s3://{BUCKET}"\n{more}\n[[site.route]]\npath = "/*"\nlisting = true\n'
            f'[[site.route]]\npath = "/local/*"\nroot = "{tmp_path}"\n'
        )

    return start


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_of_a_store_is_followed(serve_bucket, status):
    with hostile(lambda connection, _: send(connection, 200, b"inside", *VALIDATORS)) as inside:

        def respond(connection, head):
            send(connection, status, b"", f"Location: {inside.endpoint}/inside")

        with hostile(respond) as store:
            server = serve_bucket(store.endpoint)
            status_code, _, body = server.get("/a.txt")
            assert status_code in (502, 503) and b"inside" not in body
            server.logged(f"it redirects a request ({status})")
            assert server.get("/list/")[0] in (404, 502, 503)
            assert any("TOKENSECRET" in head for head in store.heads), "the store itself gets the token"
            assert inside.heads == []
            assert server.get("/local/a.txt")[2] == b"local"


def test_a_redirect_within_the_store_is_not_followed_and_costs_its_own_request_only(serve_bucket):
    def respond(connection, head):
        if "/moved" in head.split()[1]:
            return send(connection, 302, b"", f"Location: /{BUCKET}/a.txt")
        return send(connection, 200, b"content", *VALIDATORS)

    with hostile(respond) as store:
        server = serve_bucket(store.endpoint)
        assert server.get("/moved.txt")[0] in (502, 503)
        assert server.get("/a.txt")[2] == b"content", "the store is not down"
        paths = [head.split()[1] for head in store.heads]
        assert paths == [f"/{BUCKET}/moved.txt", f"/{BUCKET}/a.txt"]


@pytest.mark.parametrize("fields", [("Content-Range: bytes 0-4/10",), ("Content-Range: bytes 0-4/5",), ()])
def test_a_part_of_an_object_is_no_whole(serve_bucket, fields):
    with hostile(lambda connection, _: send(connection, 206, b"01234", *fields, *VALIDATORS)) as store:
        server = serve_bucket(store.endpoint)
        status, _, body = server.get("/part.txt")
        assert status in (502, 503) and body != b"01234"
        server.logged("206")


@pytest.mark.parametrize("status", [201, 202, 204, 226])
def test_what_has_no_status_of_an_object_is_none(serve_bucket, status):
    def respond(connection, head):
        body = b"" if head.startswith("HEAD ") or status == 204 else b"queued"
        send(connection, status, body, *VALIDATORS)

    with hostile(respond) as store:
        server = serve_bucket(store.endpoint)
        for method in ("GET", "HEAD"):
            assert server.get("/a.html", method=method)[0] in (502, 503)
        server.logged(f"it sent no object, but the status {status}")
        assert server.get("/local/a.txt")[2] == b"local"


@pytest.mark.parametrize(
    "content_range, body",
    [
        ("bytes 0-4/{size}", b"01234"),
        ("bytes 100-103/{size}", b"0123"),
        ("bytes 100-104/{size}", b"0123"),
        ("bytes 100-104/200", b"01234"),
        ("bytes 100-18446744073709551615/{size}", b"01234"),
        ("bytes */{size}", b"01234"),
        ("", b"01234"),
    ],
)
def test_another_part_than_was_requested_is_never_sent(serve_bucket, content_range, body):
    size = 1 << 36

    def respond(connection, head):
        if "\r\nrange:" not in head.lower():
            # The object is too large for the cache, and its content is not sent yet.
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n{VALIDATORS[0]}\r\n{VALIDATORS[1]}\r\n\r\n".encode())
            return None
        fields = [f"Content-Range: {content_range.format(size=size)}"] if content_range else []
        return send(connection, 206, body, *fields, *VALIDATORS)

    with hostile(respond) as store:
        server = serve_bucket(store.endpoint)
        data = b"GET /large.bin HTTP/1.1\r\nHost: x\r\nRange: bytes=100-104\r\nConnection: close\r\n\r\n"
        response = b""
        with contextlib.suppress(ConnectionResetError):
            response = server.exchange(data)
        assert b"\r\n\r\n01234" not in response
        wait_until(lambda: any("range: bytes=100-104" in head.lower() for head in store.heads), "the range is requested")
        assert server.get("/local/a.txt")[2] == b"local"


ODD = ["site/list//x", "site/list/../x", "site/list/./x", "site/list/..", "site/list/a\nb", "site/list/\x7fx/y"]


@pytest.mark.parametrize("odd", [*[[key] for key in ODD], ODD, [f"site/list//{number}" for number in range(5)]])
def test_an_odd_key_hides_itself_only(counting_store, serve_objects, odd):  # noqa: F811
    counting_store.objects.update({"site/list/good.txt": b"good", "site/list/sub/x.txt": b"x"})
    counting_store.objects.update(dict.fromkeys(odd, b"odd"))
    server = serve_objects(counting_store, prefix="/site", route="listing = true")
    status, _, body = server.get("/list/", "Accept: application/json")
    assert status == 200
    assert {entry["name"].rstrip("/") for entry in json.loads(body)["entries"]} == {"good.txt", "sub"}
    status, fields, _ = server.get("/list")
    assert (status, fields["location"]) == (301, "/list/")
    assert server.get("/list/good.txt")[2] == b"good"


ENTRY = b"<Contents><Key>list/a</Key><Size>1</Size><LastModified>2023-11-14T22:13:20.000Z</LastModified></Contents>"


@pytest.mark.parametrize(
    "framing",
    ["Transfer-Encoding: chunked", "Content-Length: 1000000000000", "Connection: close"],
    ids=["chunked", "length", "close"],
)
def test_a_listing_without_an_end_is_bounded(serve_bucket, framing):
    sent = []

    def respond(connection, head):
        if "list-type=2" not in head:
            return send(connection, 404)
        if "max-keys=1" in head:
            # Whether there is such a directory.
            return send(connection, 200, b"<ListBucketResult>" + ENTRY + b"</ListBucketResult>")
        connection.sendall(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode())
        piece = ENTRY * 600
        if "chunked" in framing:
            piece = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
        sent.append(pour(connection, piece))
        return connection.close()

    with hostile(respond) as store:
        server = serve_bucket(store.endpoint)
        server.get("/local/a.txt")
        before = rss(server)
        threads = [threading.Thread(target=server.get, args=("/list/" + f"?{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.get("/list/")[0] in (404, 502, 503)
        server.logged("longer than")
        # Four are read at a time.
        assert rss(server) - before < 250 * MB
        assert max(sent) < 64 * MB
        assert server.get("/local/a.txt")[2] == b"local"


def test_an_error_document_without_an_end_is_an_error(serve_bucket):
    def respond(connection, head):
        if "list-type=2" in head:
            return send(connection, 200, b"<ListBucketResult></ListBucketResult>")
        status = 404 if "missing" in head else 500
        connection.sendall(f"HTTP/1.1 {status} x\r\nConnection: close\r\n\r\n".encode())
        pour(connection, b"<Error><Code>x" + b"x" * 5000)
        return connection.close()

    with hostile(respond) as store:
        server = serve_bucket(store.endpoint)
        before = rss(server)
        assert server.get("/missing.txt")[0] == 404
        assert server.get("/failing.txt")[0] == 503
        assert rss(server) - before < 30 * MB


def test_content_that_comes_byte_by_byte_takes_no_more_memory(serve_bucket):
    size = 3 * MB

    def bytewise(connection, head):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n{VALIDATORS[0]}\r\n{VALIDATORS[1]}\r\n\r\n".encode())
        for _ in range(20000):
            connection.sendall(b"x")
        connection.sendall(b"x" * (size - 20000))

    with hostile(bytewise) as store:
        server = serve_bucket(store.endpoint)
        server.get("/local/a.txt")
        before = rss(server)
        assert len(server.get("/a.bin")[2]) == size
        assert rss(server) - before < 24 * MB


class HostileRedis(StubServer):
    """A store of shared state that responds to commands as the test sets."""

    def __init__(self):
        self.answer = None
        self.sent = 0
        self.connections = 0
        super().__init__(socket.create_server(("127.0.0.1", 0)))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self, connection):
        self.connections += 1
        with connection:
            try:
                while connection.recv(65536):
                    begin, piece = self.answer
                    connection.sendall(begin)
                    if piece:
                        self.sent = max(self.sent, pour(connection, piece))
                        return
            except OSError:
                return

    def close(self):
        self.listener.close()


@pytest.fixture
def redis():
    running = HostileRedis()
    yield running
    running.close()


@pytest.mark.parametrize(
    "answer",
    [
        (b"$1000000000\r\n", b"x"),
        (b"$9223372036854775807\r\n", b"x"),
        (b"*1000000000\r\n", b":1\r\n"),
        (b"*1000000000\r\n", b"$0\r\n\r\n"),
        (b"", b"*1\r\n"),
        (b"", b"*1000000\r\n"),
        (b"+", b"x"),
        (b"-ERR ", b"x"),
        (b"%1000000000\r\n", b"+a\r\n"),
        (b">3\r\n", b"+invalidate\r\n"),
    ],
    ids=lambda answer: repr(answer),
)
def test_a_reply_of_the_shared_store_is_bounded(serve, tmp_path, redis, answer):
    write(tmp_path / "www" / "a.txt", b"a")
    redis.answer = answer
    server = serve(
        text=f'[server]\nthreads = 1\n[shared]\nurl = "{redis.url}"\n[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[site]]\nroot = "{tmp_path / "www"}"\n[[site.route]]\npath = "/*"\n'
        'limit = { requests = "100/s", burst = 100, shared = true }\n'
    )
    before = rss(server)
    wait_until(lambda: redis.connections >= 3, "the server connects again and again", 30)
    assert server.get("/a.txt")[2] == b"a"
    assert rss(server) - before < 40 * MB
    assert redis.sent < 40 * MB
    server.logged("is not reachable")
