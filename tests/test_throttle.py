"""Throttles and limits of requests, measured from outside."""

import asyncio
import os
import re
import select
import socket
import ssl
import stat
import threading
import time

import pytest

from support.files import write
from support.http import read_all, read_response
from support.http2 import Client, curl, DATA, END_STREAM, INITIAL_WINDOW_SIZE, request, window_update
from support.tls import certificate
from support.waiting import wait_until

MEGA = 1 << 20


def receive(connection, path, seconds, receive_size=1 << 16):
    """Bytes of the body that arrive within a time, and the arrival of each part."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    start = time.monotonic()
    parts, head = [], b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(receive_size)
    assert head.startswith(b"HTTP/1.1 200"), head
    parts.append((time.monotonic() - start, len(head.partition(b"\r\n\r\n")[2])))
    while (left := start + seconds - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            part = connection.recv(receive_size)
        except TimeoutError:
            break
        if not part:
            break
        parts.append((time.monotonic() - start, len(part)))
    return parts


def total(parts):
    return sum(size for _, size in parts)


def most_within(parts, span):
    """The most bytes that arrived within any interval of that length."""
    most = 0
    for at, (begin, _) in enumerate(parts):
        most = max(most, sum(size for moment, size in parts[at:] if moment < begin + span))
    return most


@pytest.fixture
def big(site):
    path = site / "big"
    with open(path, "wb") as file:
        file.truncate(400 * MEGA)
    write(site / "small", b"s" * 1000)
    write(site / "medium", os.urandom(200_000))
    return path


@pytest.mark.serial
@pytest.mark.parametrize("rate", [10_000, 1_000_000, 100_000_000])
@pytest.mark.parametrize("sendfile", ["true", "false"])
def test_one_connection_is_sent_at_the_rate_and_smoothly(serve, big, rate, sendfile):
    server = serve(f'throttle = {{ bandwidth = "{rate}B/s" }}\nsendfile = {sendfile}')
    with server.connect() as connection:
        parts = receive(connection, "/big", 2, 1 << 20)
    assert total(parts) <= 2.1 * rate
    # A busy machine is not always fast enough for the highest.
    assert total(parts) >= (1.9 if rate < 100_000_000 else 1.5) * rate
    if rate <= 1_000_000:
        assert most_within(parts, 0.1) <= 0.25 * rate


@pytest.mark.paced
def test_a_connection_has_its_own_rate_over_all_its_responses(serve, big):
    server = serve('throttle = { per_connection = "100KB/s" }')
    with server.connect() as one, server.connect() as other:
        results = {}
        threads = [
            threading.Thread(target=lambda c=c: results.update({c: receive(c, "/big", 2)}))
            for c in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for parts in results.values():
            assert total(parts) == pytest.approx(200_000, rel=0.06)
    # Neither small responses in sequence nor pipelined ones bypass the limit.
    for pipelined in (1, 20):
        with server.connect() as connection:
            start, count, rest = time.monotonic(), 0, b""
            while time.monotonic() < start + 1:
                connection.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n" * pipelined)
                for _ in range(pipelined):
                    status, _, body, rest = read_response(connection, rest)
                    assert (status, len(body)) == (200, 1000)
                count += pipelined
            elapsed = time.monotonic() - start
            assert count * 1000 <= 110_000 * elapsed
            assert count * 1000 >= 85_000 * elapsed


@pytest.mark.paced
@pytest.mark.parametrize("threads", [1, 2])
def test_many_connections_share_a_ceiling_fairly(serve, site, big, threads):
    server = serve(
        text=f'[server]\nthreads = {threads}\n[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[site]]\nroot = "{site}"\n[[site.route]]\npath = "/*"\n'
        'throttle = { bandwidth = "2MB/s" }\n'
    )
    count = 200
    received = asyncio.run(read_many(server.address, count, 2_000_000))
    # The first had larger pieces as long as they were few.
    share = sum(received) / count
    assert min(received) >= 0.6 * share
    assert sorted(received)[-5] <= 1.5 * share


async def read_many(address, count, rate):
    """Bytes of bodies that each connection gets, until they have the rate.

    A machine that lets the reader wait makes single seconds slow. A throttle that
    allows too little does so for good, and one that allows too much is over the
    rate at once. So three seconds in sequence must reach the lower bound once, and
    the upper bound holds for the whole time.
    """
    received = [0] * count
    clock = asyncio.get_running_loop().time
    pairs = [await asyncio.open_connection(*address) for _ in range(count)]

    async def read(number, reader, writer):
        writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        while part := await reader.read(1 << 16):
            received[number] += len(part)

    moments = [(clock(), 0)]
    readers = [asyncio.ensure_future(read(number, *pair)) for number, pair in enumerate(pairs)]
    while len(moments) <= 20:
        await asyncio.sleep(1)
        moments.append((clock(), sum(received)))
        assert moments[-1][1] <= 1.05 * rate * (moments[-1][0] - moments[0][0])
        if len(moments) > 3:
            (begin, before), (end, after) = moments[-4], moments[-1]
            if after - before >= 0.95 * rate * (end - begin):
                break
    else:
        pytest.fail(f"never {rate} bytes in a second: {moments}")
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    for _, writer in pairs:
        writer.transport.abort()
    return received


@pytest.mark.paced
def test_a_client_that_reads_slowly_leaves_its_share_to_others(serve, big):
    server = serve('throttle = { bandwidth = "4MB/s" }')
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(server.address)
    slow.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    with server.connect() as connection:
        # The kernel's buffer for the slow one is full soon.
        receive(connection, "/big", 3)
    with server.connect() as connection:
        assert total(receive(connection, "/big", 2)) >= 6_800_000
    slow.close()


def test_bodies_arrive_complete(serve, site, big):
    server = serve('throttle = { bandwidth = "2MB/s", per_connection = "400KB/s" }')
    body = (site / "medium").read_bytes()
    for _ in range(2):
        status, _, got = server.get("/medium")
        assert status == 200 and got == body
    status, _, got = server.get("/medium", "Range: bytes=100000-100999")
    assert status == 206 and got == body[100_000:101_000]
    status, fields, got = server.get("/medium", method="HEAD")
    assert (status, fields["content-length"]) == (200, "200000")


@pytest.mark.paced
def test_tls_keeps_to_the_rate(tmp_path, serve, site, big):
    pair = certificate(tmp_path, "own")
    server = serve(
        text='[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n'
        f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{pair[0]}", key = "{pair[1]}" }}\n'
        '[[site.route]]\npath = "/*"\nthrottle = { bandwidth = "500KB/s" }\n'
    )
    made = ssl.create_default_context(cafile=str(pair[0]))
    with made.wrap_socket(server.connect(), server_hostname="localhost") as connection:
        assert total(receive(connection, "/big", 2)) == pytest.approx(1_000_000, rel=0.06)
        # A complete response is intact.
    with made.wrap_socket(server.connect(), server_hostname="localhost") as connection:
        connection.sendall(b"GET /medium HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_response(connection)[2] == (site / "medium").read_bytes()


@pytest.mark.paced
@pytest.mark.parametrize("rule", ["bandwidth", "per_connection"])
def test_http2_streams_share_the_rate(serve, site, big, rule):
    server = serve(f'throttle = {{ {rule} = "500KB/s" }}')
    with Client(server, [(INITIAL_WINDOW_SIZE, 1 << 30)]) as client:
        client.send(window_update(0, 1 << 30))
        client.send(request(1, "/big") + request(3, "/big"))
        start, sums = time.monotonic(), {1: 0, 3: 0}
        while time.monotonic() < start + 2:
            kind, _, stream, payload = client.read()
            if kind == DATA:
                sums[stream] += len(payload)
        assert sum(sums.values()) == pytest.approx(1_000_000, rel=0.06)
        assert min(sums.values()) >= 0.4 * sum(sums.values())
    with Client(server) as client:
        client.send(window_update(0, 1 << 20) + request(1, "/medium"))
        body = b""
        while True:
            kind, flags, stream, payload = client.read()
            if kind == DATA:
                body += payload
                client.send(window_update(1, len(payload) or 1))
                if flags & END_STREAM:
                    break
        assert body == (site / "medium").read_bytes()


@pytest.fixture
def script(tmp_path):
    """Writes a script: `script(name, text)`. Returns the directory."""
    folder = tmp_path / "scripts"
    folder.mkdir()

    def make(name, text):
        path = write(folder / name, text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return folder

    return make


@pytest.mark.paced
@pytest.mark.parametrize("over", ["HTTP/1", "HTTP/2"])
def test_a_script_is_slowed_down(serve, script, over):
    marks = script("out", "")
    folder = script(
        "flood",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n"
        f"exec dd if=/dev/zero bs=65536 count=1000 2> {marks}/out\n",
    )
    server = serve(
        more='[[site.route]]\npath = "/cgi/*"\n'
        f'script = {{ kind = "cgi", directory = "{folder}" }}\nthrottle = {{ bandwidth = "400KB/s" }}\n'
    )
    if over == "HTTP/1":
        with server.connect() as connection:
            received = total(receive(connection, "/cgi/flood", 2))
    else:
        with Client(server, [(INITIAL_WINDOW_SIZE, 1 << 30)]) as client:
            client.send(window_update(0, 1 << 30) + request(1, "/cgi/flood"))
            start, received = time.monotonic(), 0
            while time.monotonic() < start + 2:
                kind, _, _, payload = client.read()
                received += len(payload) if kind == DATA else 0
    assert received == pytest.approx(800_000, rel=0.08)
    # dd had not written its 65 MB: it waited for the client.
    assert "copied" not in (marks / "out").read_text() or b"65536000" not in (marks / "out").read_bytes()


def test_a_request_whose_share_would_be_too_small_is_rejected(serve, big):
    server = serve('throttle = { bandwidth = "100KB/s", minimum = "40KB/s" }')
    first, second = server.connect(), server.connect()
    receive(first, "/big", 0.2)
    receive(second, "/big", 0.2)
    status, fields, _ = server.get("/big")
    assert status == 503 and int(fields["retry-after"]) > 0
    second.close()
    # It is missed when the next bytes are sent.
    wait_until(lambda: begins(server, "/big"), "room for another")
    first.close()
    server.stop()
    assert re.search(r"bandwidth throttle.*rejected=[1-9]", server.log)


def begins(server, path):
    with server.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return connection.recv(12) == b"HTTP/1.1 200"


def test_other_routes_are_not_slowed_down(serve, site, big):
    write(site / "fast" / "big", os.urandom(5_000_000))
    server = serve(
        more='[[site.route]]\npath = "/big"\nthrottle = { bandwidth = "10KB/s" }\n',
    )
    with server.connect() as slow:
        slow.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        start = time.monotonic()
        assert len(server.get("/fast/big")[2]) == 5_000_000
        assert time.monotonic() - start < 60, "at 10 KB/s it takes 500 s"


# ---- concurrency ----


@pytest.fixture
def gate(serve, script, tmp_path):
    """A route whose requests run until they are released: `gate(throttle)`."""
    folder = script(
        "hold",
        "#!/bin/sh\n"
        f'echo "$QUERY_STRING" >> {tmp_path}/began\n'
        f'while [ ! -e {tmp_path}/go-$QUERY_STRING ]; do sleep 0.02; done\n'
        "printf 'Content-Type: text/plain\\n\\n%s' $QUERY_STRING\n",
    )
    (tmp_path / "began").touch()

    def start(throttle, threads=1):
        return serve(
            text=f'[server]\nthreads = {threads}\n[[listen]]\naddress = "127.0.0.1:0"\n'
            f'[[site]]\nroot = "{tmp_path}/site"\n[[site.route]]\npath = "/cgi/*"\n'
            f'script = {{ kind = "cgi", directory = "{folder}" }}\nthrottle = {{ {throttle} }}\n'
        )

    start.began = lambda: (tmp_path / "began").read_text().split()
    start.go = lambda name: (tmp_path / f"go-{name}").touch()
    return start


def begin(server, name, source=None):
    connection = socket.create_connection(
        server.address, timeout=20, source_address=(source, 0) if source else None
    )
    connection.sendall(f"GET /cgi/hold?{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    return connection


def status_of(connection):
    data = read_all(connection)
    return int(data.split(b" ", 2)[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_requests_run_one_after_the_other_in_the_order_of_their_coming(gate, threads):
    server = gate("max_concurrent = 1, queue = 3", threads)
    waiting = []
    for name in "abcd":
        waiting.append(begin(server, name))
        # The order is that of the requests' coming.
        wait_until(lambda: gate.began() == ["a"], "the first runs")
        time.sleep(0.05)
    refused = begin(server, "e")
    assert b"Retry-After: 30" in refused.recv(1000)
    for number, name in enumerate("abcd"):
        wait_until(lambda: gate.began() == list("abcd")[: number + 1], f"{name} runs next")
        gate.go(name)
        assert read_all(waiting[number]).endswith(name.encode())
    server.stop()
    assert re.search(r"concurrency throttle.*served=4 queued=3 overdue=0 rejected=1", server.log)


def test_a_disconnected_client_leaves_the_queue(gate):
    server = gate("max_concurrent = 1, queue = 2")
    first = begin(server, "a")
    wait_until(lambda: gate.began() == ["a"], "the first runs")
    leaving, last = begin(server, "b"), None
    time.sleep(0.05)
    last = begin(server, "c")
    wait_until(lambda: status_of(begin(server, "x")) == 503, "the queue is full")
    leaving.close()

    # The queue has a free place again, which this one gets.
    connections = []

    def waits():
        connections.append(begin(server, "d"))
        return not select.select([connections[-1]], [], [], 0.2)[0]

    wait_until(waits, "a place in the queue")
    for name in "acd":
        gate.go(name)
    assert [status_of(connection) for connection in (first, last, connections[-1])] == [200] * 3
    assert "b" not in gate.began()
    # A running request whose client disconnects returns its permit, too.
    running = begin(server, "e")
    wait_until(lambda: "e" in gate.began(), "it runs")
    running.close()
    gate.go("f")
    assert status_of(begin(server, "f")) == 200


@pytest.mark.paced
def test_a_request_that_has_waited_runs_or_is_rejected(gate):
    server = gate('max_concurrent = 1, queue = 5, burst_after = "300ms", burst_concurrent = 2, queue_timeout = "1s"')
    first = begin(server, "a")
    wait_until(lambda: gate.began() == ["a"], "the first runs")
    start = time.monotonic()
    second = begin(server, "b")
    time.sleep(0.05)
    third = begin(server, "c")
    wait_until(lambda: gate.began() == ["a", "b"], "the second runs anyway")
    assert 0.28 <= time.monotonic() - start <= 1
    assert status_of(third) == 503
    assert 1 <= time.monotonic() - start <= 1.6
    gate.go("a")
    gate.go("b")
    assert (status_of(first), status_of(second)) == (200, 200)
    server.stop()
    assert re.search(r"overdue=1 rejected=0 expired=1", server.log)


def test_a_client_has_its_share_and_others_pass_it(gate):
    server = gate("max_concurrent = 4, queue = 4, max_per_client = 1")
    greedy = [begin(server, "a"), begin(server, "b")]
    assert status_of(begin(server, "c")) == 503
    other = begin(server, "d", "127.0.0.2")
    wait_until(lambda: sorted(gate.began()) in (["a", "d"], ["b", "d"]), "the other runs")
    for name in "abd":
        gate.go(name)
    assert [status_of(connection) for connection in [*greedy, other]] == [200] * 3


def test_a_dry_run_delays_no_request(gate):
    server = gate("max_concurrent = 1, queue = 1, dry_run = true")
    connections = [begin(server, name) for name in "abc"]
    wait_until(lambda: sorted(gate.began()) == ["a", "b", "c"], "all run")
    for name in "abc":
        gate.go(name)
    assert [status_of(connection) for connection in connections] == [200] * 3
    server.stop()
    assert re.search(r"served=3 queued=1 overdue=0 rejected=1", server.log)


def test_files_wait_for_a_permit_also_over_http2(serve, site, big):
    server = serve('throttle = { max_concurrent = 1, queue = 5, per_connection = "100KB/s" }')
    with server.connect() as running, Client(server) as client:
        receive(running, "/big", 0.2)
        client.send(request(1, "/small"))
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.body(1)
        client.socket.settimeout(15)
        running.close()
        assert client.body(1) == b"s" * 1000


# ---- request rates ----


@pytest.mark.paced
def test_requests_beyond_the_rate_are_rejected_with_ratelimit_fields(serve, site, big):
    server = serve('limit = { requests = "5/s", burst = 3 }')
    with server.connect() as connection:
        seen = []
        for _ in range(5):
            connection.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
            seen.append(read_response(connection))
        assert [status for status, *_ in seen] == [200, 200, 200, 429, 429]
        fields = seen[-1][1]
        assert fields["retry-after"] == "1"
        assert fields["ratelimit-policy"] == '"5/s by address";q=3;w=1'
        assert fields["ratelimit"] == '"5/s by address";r=0;t=1'
        assert "ratelimit" not in seen[0][1]

        def passes():
            connection.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
            return read_response(connection)[0] == 200

        start = time.monotonic()
        wait_until(passes, "the next request passes")
        assert time.monotonic() - start < 0.4
    # Another address has a limit of its own.
    other = socket.create_connection(server.address, timeout=15, source_address=("127.0.0.3", 0))
    other.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
    assert read_response(other)[0] == 200
    server.stop()
    assert re.search(r"rate limit.*passed=5 rejected=[2-9]", server.log)


def test_limits_by_field_and_route_apply_together(serve, site, big):
    server = serve(
        'limit = [{ requests = "100/h", burst = 2, by = "header:X-Key" }, '
        '{ requests = "1000/d", burst = 5, by = "route" }]'
    )
    status = lambda key: server.get("/small", f"X-Key: {key}")[0]  # noqa: E731
    assert [status("a"), status("a"), status("a")] == [200, 200, 429]
    assert [status("b"), status("c"), status("d")] == [200, 200, 200]
    last, fields, _ = server.get("/small", "X-Key: e")
    assert last == 429 and fields["ratelimit-policy"].startswith('"1000/d by route";q=5')


def test_every_response_has_ratelimit_fields_with_tell(serve, site, big):
    server = serve('limit = { requests = "10/m", burst = 4, send_headers = true }')
    left = [server.get("/small")[1]["ratelimit"] for _ in range(3)]
    assert [re.search(r"r=(\d+)", value)[1] for value in left] == ["3", "2", "1"]
    with Client(server) as client:
        client.send(request(1, "/small"))
        assert client.body(1) == b"s" * 1000
    status, fields, _ = curl(server, "/small")
    assert status == 429 and fields["ratelimit"].startswith('"10/m by address";r=0;t=')


def test_rejected_requests_have_the_status_of_the_limit(serve, site, big):
    server = serve('limit = { requests = "1/h", status = 503 }')
    assert [server.get("/small")[0] for _ in range(2)] == [200, 503]


def test_a_dry_run_of_a_limit_rejects_no_request(serve, site, big):
    server = serve('limit = { requests = "1/h", dry_run = true }')
    assert [server.get("/small")[0] for _ in range(4)] == [200] * 4
    server.stop()
    assert re.search(r"rate limit.*passed=1 rejected=3", server.log)


@pytest.mark.parametrize(
    "route, what",
    [
        ('throttle = { minimum = "1KB/s" }', "there is neither"),
        ('throttle = { bandwidth = "0B/s" }', "bandwidth is 0"),
        ('throttle = { max_concurrent = 1, status = 200 }', "status 200 is not that of an error"),
        ('throttle = { bandwidth = "1KB/s", minimum = "2KB/s" }', "minimum is more than bandwidth"),
        ('throttle = { bandwidth = "1KB/s", queue = 3 }', "`queue` goes with `max_concurrent`"),
        ("throttle = { max_concurrent = 0 }", "max_concurrent is 0"),
        ("throttle = { max_concurrent = 2, burst_concurrent = 3 }", "`burst_concurrent` goes with `burst_after`"),
        ('throttle = { max_concurrent = 2, queue = 9223372036854775807, max_per_client = 3 }', "queue is too large"),
        ('throttle = { max_concurrent = 2, burst_concurrent = 2, burst_after = "1s" }', "burst_concurrent is not more than max_concurrent"),
        ('throttle = { max_concurrent = 2, client_by = "user" }', "`client_by` goes with `max_per_client`"),
        ('limit = { requests = "fast" }', "a number per time"),
        ('limit = { requests = "1/s", by = "shoe" }', "is not address, user, route or header:NAME"),
        ('limit = { requests = "1/s", burst = 0 }', "burst is 0"),
    ],
)
def test_contradictory_settings_are_errors_with_their_location(serve, route, what):
    with pytest.raises(AssertionError, match=what) as error:
        serve(route)
    assert re.search(r"toml:\d+:\d+", str(error.value))
