"""HTTP/2 in the clear, with prior knowledge: real clients, h2spec, limits and abuse."""

import hashlib
import os
import re
import signal
import struct
import subprocess

import pytest

from support.files import write
from support.http2 import (
    ACK,
    CANCEL,
    Client,
    CONTINUATION,
    curl,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    frame,
    GOAWAY,
    goaways,
    h2spec,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    PRIORITY_UPDATE,
    request,
    RST_STREAM,
    section,
    WINDOW_UPDATE,
    window_update,
)
from support.processes import children, none_left
from support.waiting import wait_until

BIG = bytes(range(256)) * 16_384


@pytest.fixture
def kind():
    """Of the scripts that `cgi` starts."""
    return "cgi"


@pytest.fixture
def files(site):
    write(site / "index.html", "<p>home")
    write(site / "small", b"s" * 1024)
    write(site / "text.css", "a { b: c }\n" * 500)
    write(site / "64k", os.urandom(65_536))
    write(site / "big", BIG)
    write(site / "sub" / "a", "a")
    return site


def test_h2spec_finds_nothing(serve, files):
    h2spec(serve())


def test_files_are_the_same_as_over_http_1(serve, files):
    server = serve(route="listing = true")
    for path, fields in [
        ("/", []),
        ("/small", []),
        ("/64k", []),
        ("/big", []),
        ("/sub/", []),
        ("/nothing", []),
        ("/../x", []),
        ("/small", ["Range: bytes=5-9"]),
        ("/big", ["Range: bytes=1000000-3000000"]),
        ("/small", ["Range: bytes=0-1,5-6"]),
        ("/small", ["Range: bytes=9999-"]),
        ("/text.css", ["Accept-Encoding: gzip"]),
        ("/text.css", ["Accept-Encoding: zstd"]),
        ("/small", ["If-None-Match: *"]),
        ("/small", ["If-Match: \"x\""]),
    ]:
        for method in ["GET", "HEAD"]:
            # From the second time on, it comes from the cache.
            for _ in range(2):
                status, expected, body = server.get(path, *fields, method=method)
                arguments = [argument for field in fields for argument in ("-H", field)]
                arguments += ["-I"] if method == "HEAD" else []
                # Pages of the server name the host.
                got = curl(server, path, "-H", "Host: x", *arguments)
                assert got[0] == status, path
                for volatile in ["date", "connection"]:
                    expected.pop(volatile, None)
                    got[1].pop(volatile, None)
                if "boundary=" in expected.get("content-type", ""):
                    assert len(got[2]) == len(body)
                    continue
                assert got[1] == expected, (path, fields)
                assert got[2] == body, (path, fields)


def test_other_methods_and_errors(serve, files):
    server = serve(route='body_size = "1KB"')
    assert curl(server, "/small", "-X", "POST", "-d", "x")[0] == 405
    assert curl(server, "/small", "-X", "OPTIONS")[1]["allow"] == "GET, HEAD, OPTIONS"
    assert curl(server, "/small", "-X", "BREW")[0] == 501
    assert curl(server, "/small", "--data-binary", "@-", data=b"x" * 5000)[0] == 413
    assert curl(server, "/%zz")[0] == 400
    assert curl(server, "/small", "-H", "x: " + "a" * 60_000)[0] == 431
    assert curl(server, "/" + "a" * 10_000)[0] == 414
    assert curl(server, "/small")[0] == 200


def test_many_streams_all_get_responses(serve, files):
    server = serve()
    # From the cache, every connection has the same fields from its first response on.
    assert curl(server, "/small")[0] == 200
    for path, count in [("/small", 20_000), ("/64k", 2_000), ("/big", 60), ("/index.html", 20_000)]:
        done = subprocess.run(
            ["h2load", "-c16", "-m32", f"-n{count}", server.url + path],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert f"{count} succeeded, 0 failed, 0 errored" in done.stdout, done.stdout + server.log
        assert f"status codes: {count} 2xx" in done.stdout
        if path == "/small":
            # Repeated heads shrink to a few bytes.
            assert float(re.search(r"space savings ([\d.]+)%", done.stdout)[1]) > 90, done.stdout


def test_nghttp_reads_several_streams_at_once(serve, files):
    server = serve()
    urls = [server.url + path for path in ("/small", "/text.css", "/64k")]
    done = subprocess.run(["nghttp", "-ns", *urls], capture_output=True, text=True, timeout=60)
    assert len(re.findall(r" 200 ", done.stdout)) == 3, done.stdout


def test_the_log_names_the_version_and_counts_bodies(serve, files, tmp_path):
    log = tmp_path / "log"
    server = serve(server=f'access_log = "{log}"')
    curl(server, "/small")
    curl(server, "/big")
    curl(server, "/none")
    lines = lambda: log.read_text().splitlines() if log.exists() else []  # noqa: E731
    wait_until(lambda: len(lines()) == 3, "three lines")
    assert '"GET /small HTTP/2.0" 200 1024 ' in lines()[0]
    assert f'"GET /big HTTP/2.0" 200 {len(BIG)} ' in lines()[1]
    assert '"GET /none HTTP/2.0" 404 ' in lines()[2]


def test_a_listener_may_be_without(serve, files):
    text = (
        f'[[listen]]\naddress = "127.0.0.1:0"\nhttp2 = false\n[[site]]\nroot = "{files}"\n'
    )
    server = serve(text=text)
    assert server.exchange(PREFACE).startswith(b"HTTP/1.1 505 ")
    assert server.get("/small")[0] == 200


def test_scripts_get_bodies_and_respond(cgi):
    server = cgi(
        {
            "hello": "printf 'Content-Type: text/plain\\n\\nhello'\n",
            "sum": "printf 'Content-Type: text/plain\\n\\n'; sha256sum\n",
            "length": "printf 'Status: 203\\nX-Length: %s\\n\\n' $CONTENT_LENGTH; echo $SERVER_PROTOCOL $HTTP_HOST\n",
            "big": "printf 'Content-Type: text/plain\\n\\n'; head -c 3000000 /dev/zero\n",
            "nph-own": "printf 'HTTP/1.1 202 Fine\\r\\nX-Own: 1\\r\\n\\r\\nown'\n",
            "bad": "exit 3\n",
        },
        route='body_size = "8MB"',
    )
    assert curl(server, "/cgi-bin/hello")[2] == b"hello"
    assert curl(server, "/cgi-bin/hello", "-I")[2] == b""
    data = os.urandom(3_000_000)
    digest = hashlib.sha256(data).hexdigest().encode()
    assert curl(server, "/cgi-bin/sum", "--data-binary", "@-", data=data)[2].startswith(digest)
    assert curl(server, "/cgi-bin/sum", "-T", "-", data=data)[2].startswith(digest)
    status, fields, body = curl(server, "/cgi-bin/length", "-d", "12345")
    assert (status, fields["x-length"]) == (203, "5")
    assert body.decode() == f"HTTP/2.0 {server.host}:{server.port}\n"
    assert curl(server, "/cgi-bin/big")[2] == bytes(3_000_000)
    status, fields, body = curl(server, "/cgi-bin/nph-own")
    assert (status, fields["x-own"], body) == (202, "1", b"own")
    assert curl(server, "/cgi-bin/bad")[0] == 502
    none_left(server)


def test_a_streamed_response_arrives_as_it_is_generated(cgi, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = cgi({"slow": f"printf 'Content-Type: text/plain\\n\\nfirst'; read x < {gate}; printf last\n"})
    with Client(server) as client:
        client.send(request(1, "/cgi-bin/slow"))
        frames = client.read_until(lambda kind, *_: kind == DATA)
        assert frames[-1][3] == b"first" and not frames[-1][1] & END_STREAM
        # Others are served meanwhile on the same connection.
        client.send(request(3, "/none"))
        client.read_until(lambda kind, flags, stream, _: stream == 3 and flags & END_STREAM)
        gate.write_text("go\n")
        assert client.body(1) == b"last"


def test_a_reset_ends_the_script(cgi):
    server = cgi({"endless": "printf 'Content-Type: text/plain\\n\\nx'; while sleep 0.05; do printf x; done\n"})
    with Client(server) as client:
        client.send(request(1, "/cgi-bin/endless"))
        client.read_until(lambda kind, *_: kind == DATA)
        assert children(server)
        client.send(frame(RST_STREAM, 0, 1, struct.pack(">I", CANCEL)))
        none_left(server)
        # The connection continues.
        client.send(frame(PING, 0, 0, b"12345678"))
        client.read_until(lambda kind, flags, _, payload: (kind, flags, payload) == (PING, ACK, b"12345678"))


def test_a_closed_window_blocks_the_script_in_bounded_memory(cgi, tmp_path):
    count = write(tmp_path / "count", "")
    server = cgi(
        {
            "much": "printf 'Content-Type: text/plain\\n\\n'; i=0; while [ $i -lt 500 ]; do "
            f"head -c 40000 /dev/zero; i=$((i+1)); echo $i > {count}; done\n"
        }
    )
    with Client(server, [(INITIAL_WINDOW_SIZE, 100)]) as client:
        client.send(request(1, "/cgi-bin/much"))
        frames = client.read_until(lambda kind, *_: kind == DATA)
        assert len(frames[-1][3]) == 100
        # It stops when pipe, stream and frame are full.
        def still():
            before = count.read_text()
            client.send(frame(PING, 0, 0, b"12345678"))
            client.read_until(lambda kind, *_: kind == PING)
            subprocess.run(["sleep", "0.2"], check=True)
            return before and before == count.read_text()

        wait_until(still, "the script waits")
        assert int(count.read_text()) < 25
        client.send(window_update(0, 1 << 30) + window_update(1, 1 << 30))
        assert len(client.body(1)) == 500 * 40_000 - 100


def test_a_slow_script_limits_the_window_of_an_upload(cgi, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = cgi({"slow": f"read x < {gate}; printf 'Content-Type: text/plain\\n\\n'; wc -c\n"}, route='body_size = "8MB"\nbody = "stream"')
    with Client(server) as client:
        client.send(request(1, "/cgi-bin/slow", "POST", ("content-length", "2000000"), ended=False))
        # As much as the stream's first window; more would break the rules.
        left, window = 2_000_000, 65_535
        sent = 0
        while window:
            size = min(16_384, window)
            client.send(frame(DATA, 0, 1, bytes(size)))
            window, sent = window - size, sent + size
        client.send(frame(PING, 0, 0, b"12345678"))
        # The window for the bytes in the script's pipe is restored at once, perhaps before the response.
        unread = client.read_until(lambda kind, *_: kind == PING)
        gate.write_text("go\n")
        while sent < left:
            kind, _, stream, payload = unread.pop(0) if unread else client.read()
            if kind == WINDOW_UPDATE and stream == 1:
                window += struct.unpack(">I", payload)[0]
            while window and sent < left:
                size = min(16_384, window, left - sent)
                client.send(frame(DATA, END_STREAM if sent + size == left else 0, 1, bytes(size)))
                window, sent = window - size, sent + size
        assert client.body(1).strip() == b"2000000"


def test_more_urgent_responses_are_first(serve, files):
    server = serve()
    with Client(server, [(INITIAL_WINDOW_SIZE, 0)]) as client:
        client.send(request(1, "/64k") + request(3, "/64k", "GET", ("priority", "u=5")))
        client.send(request(5, "/64k", "GET", ("priority", "u=0")) + request(7, "/64k"))
        client.send(frame(PRIORITY_UPDATE, 0, 0, struct.pack(">I", 7) + b"u=1"))
        # The response for an uncached file may be later than those of later requests.
        begun = set()
        while len(begun) < 4:
            kind, _, stream, _ = client.read()
            begun |= {stream} if kind == HEADERS else set()
        client.send(window_update(0, 1 << 20) + b"".join(window_update(stream, 1 << 20) for stream in (1, 3, 5, 7)))
        order = []
        while len(order) < 4:
            _, flags, stream, _ = client.read()
            if flags & END_STREAM:
                order.append(stream)
        # The first frames left before the other windows were open.
        assert order == [5, 7, 1, 3]


def test_incremental_responses_alternate(serve, files):
    server = serve()
    with Client(server, [(INITIAL_WINDOW_SIZE, 0)]) as client:
        for stream in (1, 3):
            client.send(request(stream, "/64k", "GET", ("priority", "i")))
            client.read_until(lambda kind, _, of, __: (kind, of) == (HEADERS, stream))
        client.send(window_update(0, 1 << 20) + window_update(1, 1 << 20) + window_update(3, 1 << 20))
        order = []
        while sum(flags & END_STREAM for _, flags in order) < 2:
            kind, flags, stream, _ = client.read()
            order.append((stream, flags))
        streams = [stream for stream, _ in order]
        changes = sum(a != b for a, b in zip(streams, streams[1:]))
        assert changes >= 3, streams


def test_timeouts_end_slow_connections(serve, cgi, files):
    times = "idle_timeout = '1s'\nhead_timeout = '1s'\nbody_timeout = '1s'\nsend_timeout = '1s'"
    server = cgi({"sum": "sha256sum\n"}, server=f"[server.http1]\n{times}")
    with Client(server) as client:
        assert goaways(client.read_rest()) == [(0, 0, "idle")]
    with Client(server) as client:
        client.send(request(1)[:-3])
        assert goaways(client.read_rest()) == [(0, 1, "a frame took too long")]
    with Client(server) as client:
        client.send(frame(HEADERS, 0, 1, section()))
        assert goaways(client.read_rest()) == [(0, 1, "a frame took too long")]
    with Client(server) as client:
        client.send(request(1, "/cgi-bin/sum", "POST", ended=False))
        frames = client.read_until(lambda kind, *_: kind == HEADERS)
        assert frames[-1][3].startswith(b"\x48\x83\x68\x0f\x7f")  # :status: 408
    none_left(server)
    with Client(server, [(INITIAL_WINDOW_SIZE, 10)]) as client:
        client.send(request(1, "/big"))
        frames = client.read_until(lambda kind, *_: kind == RST_STREAM)
        assert frames[-1][3] == struct.pack(">I", CANCEL)


def test_a_client_that_reads_nothing_is_dropped(serve, files):
    server = serve(server="[server.http1]\nsend_timeout = '1s'")
    with Client(server, [(INITIAL_WINDOW_SIZE, 1 << 30)]) as client:
        client.send(window_update(0, 1 << 30))
        client.send(b"".join(request(stream, "/big") for stream in range(1, 200, 2)))
        # Nothing is read; the connection must end nevertheless.
        def is_gone():
            try:
                client.send(frame(PING, 0, 0, bytes(8)))
                return False
            except OSError:
                return True

        wait_until(is_gone, "the connection is reset", 30)


def test_a_graceful_stop_completes_requests_in_progress(cgi, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = cgi({"slow": f"printf 'Content-Type: text/plain\\n\\nfirst'; read x < {gate}; printf last\n"})
    with Client(server) as client, Client(server) as idle:
        client.send(request(1, "/cgi-bin/slow"))
        client.read_until(lambda kind, *_: kind == DATA)
        server.process.send_signal(signal.SIGTERM)
        # First the announcement, and when the client has acknowledged it, the last stream.
        for each in (client, idle):
            frames = each.read_until(lambda kind, *_: kind == PING)
            assert goaways(frames) == [(0x7FFFFFFF, 0, "")]
        client.send(request(3, "/none"))
        client.read_until(lambda _, flags, stream, __: stream == 3 and flags & END_STREAM)
        client.send(frame(PING, ACK, 0, b"draining"))
        assert goaways(client.read_until(lambda kind, *_: kind == GOAWAY)) == [(3, 0, "")]
        gate.write_text("go\n")
        assert client.body(1) == b"last"
        assert client.read() is None
        assert goaways(idle.read_rest()) == [(0, 0, "")]
    assert server.stop() == 0


@pytest.mark.parametrize("path", ["/cgi-bin/wait", "/big"])
def test_rapid_reset_ends_the_connection(cgi, files, path):
    server = cgi({"wait": "sleep 30\n"}, settings="processes = 2")
    with Client(server, [(INITIAL_WINDOW_SIZE, 0)]) as client:
        reset = lambda stream: frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))  # noqa: E731
        flood = b"".join(request(stream, path) + reset(stream) for stream in range(1, 4001, 2))
        try:
            client.send(flood)
        except OSError:
            pass
        [(last, code, reason)] = goaways(client.read_rest()) or [(0, ENHANCE_YOUR_CALM, "reset")]
        assert code == ENHANCE_YOUR_CALM and "reset" in reason and last < 1000
    wait_until(lambda: "rapid reset" in server.log, "the log line")
    none_left(server)
    assert server.get("/small")[0] == 200


def test_a_flood_of_continuation_frames_ends_the_connection(serve, files):
    server = serve()
    for piece in [b"", b"\0\x01a" + b"\x7d" + b"b" * 125]:
        with Client(server) as client:
            try:
                client.send(frame(HEADERS, END_STREAM, 1, section()))
                client.send(frame(CONTINUATION, 0, 1, piece * 100) * 1000)
            except OSError:
                pass
            rest = goaways(client.read_rest()) or [(0, ENHANCE_YOUR_CALM, "")]
            assert rest[0][1] == ENHANCE_YOUR_CALM
    assert server.get("/small")[0] == 200
    server.stop()  # Only then the log has the second of two equal lines.
    assert server.log.count("CONTINUATION flood") == 2


def test_a_section_in_many_frames_is_one(serve, files):
    server = serve()
    whole = section("/small")
    with Client(server) as client:
        client.send(frame(HEADERS, END_STREAM, 1, whole[:1]))
        for at in range(1, len(whole) - 1, 10):
            client.send(frame(CONTINUATION, 0, 1, whole[at : at + 10]))
        client.send(frame(CONTINUATION, END_HEADERS, 1))
        assert client.body(1) == b"s" * 1024
