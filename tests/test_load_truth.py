"""The figures of `dunlin load` beside those of a server that the test controls."""

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

import hpack
import pytest

from support.server import DUNLIN
from support.truth import abort, literal, OK, request, Server, slow, Streams
from support.waiting import wait_until


def run(*arguments, code=None, **options):
    command = [DUNLIN, "load", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, **options)
    assert code is None or done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done


def load(*arguments, code=0, **options):
    return json.loads(run(*arguments, "--quiet", "--json", "-", code=code, **options).stdout)


@pytest.fixture
def start():
    servers = []

    def start(serve, **options):
        servers.append(Server(serve, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


# Rates


@pytest.mark.paced
def test_a_rate_is_found_whatever_the_response_time(start):
    """80 ms of each response are outside of a level of 1 s: that is no fault of the level."""
    server = start(slow(0.08))
    outcome = load(server.url, "--find-rate", "--p99", "500ms", "-d", "1s", "--most", 100, "--precision", 0.5, "-c", 100)
    assert outcome["search"]["found"] == 100 and outcome["rate"]["held"] > 0.98, outcome["search"]


@pytest.mark.paced
def test_a_search_names_the_connections_as_its_limit(start):
    server = start(slow(0.1))
    done = run(server.url, "--find-rate", "--p99", "5s", "-d", "500ms", "--most", 400, "--precision", 0.5, "-c", 5)
    assert "the 5 connections (-c) were the limit" in " ".join(done.stdout.split()), done.stdout


@pytest.mark.paced
def test_a_search_without_a_level_that_held_fails(start):
    server = start(slow(0.1))
    outcome = load(server.url, "--find-rate", "--p99", "20ms", "-d", "200ms", "--most", 16, "--precision", 0.9, code=1)
    assert outcome["search"]["found"] == 0 and outcome["verdict"] == "RATE-NOT-HELD"
    assert "no level held" in outcome["reasons"]


@pytest.mark.paced
def test_a_rate_that_was_not_held_is_not_valid_and_names_its_limit(start):
    server = start(slow(0.1))
    outcome = load(server.url, "--rate", 200, "-c", 5, "-d", "2s", code=1)
    assert outcome["verdict"] == "RATE-NOT-HELD" and outcome["rate"]["limit"] == "connections"
    assert outcome["rate"]["due"] == 400 and outcome["rate"]["held"] < 0.4
    assert "all 5 connections" in outcome["reasons"][0] and "need more than" in outcome["reasons"][0]
    assert outcome["rate"]["reason"] == outcome["reasons"][0]
    assert run(server.url, "--rate", 200, "-c", 5, "-d", "1s", "--fail-if", "rate_held<99%", code=3)
    enough = load(server.url, "--rate", 200, "-c", 60, "-d", "1s", "--fail-if", "rate_held<98%")
    assert enough["rate"] == {"due": 200, "held": 1.0, "limit": None, "reason": None} and enough["unfinished"]["waiting"] == 0


@pytest.mark.paced
def test_a_server_that_handles_one_request_at_a_time_is_the_limit(start):
    lock = asyncio.Lock()

    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            async with lock:
                await asyncio.sleep(0.01)
            writer.write(OK)

    outcome = load(start(serve).url, "--rate", 400, "-c", 20, "-d", "1500ms", code=1)
    assert (outcome["verdict"], outcome["rate"]["limit"]) == ("RATE-NOT-HELD", "server"), outcome["reasons"]


@pytest.mark.paced
def test_an_open_run_lasts_as_long_as_it_was_told(start):
    server = start(slow(0))
    for rate, due in ((2, 3), (0.5, 1)):
        outcome = load(server.url, "--rate", rate, "-d", "1500ms")
        assert outcome["duration_seconds"] == 1.5 and outcome["requests"] == due == outcome["rate"]["due"]


@pytest.mark.paced
@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("rate", [["--rate", 4], ["--rate", 4, "--http2"], ["--connection-rate", 4]])
def test_a_number_of_requests_at_a_low_rate_has_that_rate(start, rate, threads):
    """The run lasts until another request would be due, whatever the number of threads."""
    server = http2(start, lambda streams, stream, _: streams.respond(stream)) if "--http2" in rate else start(slow(0))
    outcome = load(server.url, *rate, "-n", 4, "-t", threads, "-c", 8)
    assert outcome["requests"] == 4 and 1 <= outcome["duration_seconds"] < 1.2, outcome["duration_seconds"]
    assert outcome["requests_per_second"] <= 4


@pytest.mark.paced
def test_a_server_that_is_away_fails_attempts_and_no_requests(start):
    server = start(slow(0))
    url, port = server.url, server.port

    def outage():
        time.sleep(0.5)
        server.close()
        time.sleep(0.5)
        replaced.append(subprocess.Popen(["python3", "-c", AGAIN, str(port)]))

    replaced = []
    thread = threading.Thread(target=outage)
    thread.start()
    outcome = load(url, "--rate", 100, "-c", 2, "-d", "3s", "--timeout", "20s", code=None)
    thread.join()
    replaced[0].kill()
    replaced[0].wait()
    assert outcome["failed_connections"] > 0 and outcome["errors"] == outcome["failed_connections"] + outcome["failed_requests"]
    # Those that the server has read and not answered.
    assert outcome["failed_requests"] <= 2 and outcome["requests"] >= 290, outcome["errors_by_kind"]
    if outcome["failed_requests"] == 0:
        # A connection that the first server has left open is a stall.
        assert outcome["verdict"] != "WRONG-ANSWERS", outcome["reasons"]
        assert any("attempts to connect failed; requests waited" in reason for reason in outcome["reasons"]), outcome["reasons"]


@pytest.mark.paced
@pytest.mark.parametrize("protocol", [[], ["--http2"]])
def test_attempts_to_connect_that_fail_at_a_rate_are_no_wrong_answers(start, protocol):
    """The server closes each of the first connections as soon as it is accepted, before a request could be sent."""

    async def serve(server, reader, writer):
        if server.connections in range(2, 6):
            return abort(writer)
        await slow(0)(server, reader, writer)

    def handle(streams, stream, _):
        streams.respond(stream)

    async def serve2(server, reader, writer):
        if server.connections in range(2, 6):
            return abort(writer)
        streams = Streams(server, reader, writer)
        await streams.start()
        while True:
            handle(streams, *await streams.next_request())

    server = start(serve2 if protocol else serve)
    outcome = load(server.url, "--rate", 50, "-c", 2, "-d", "2s", *protocol, "--fail-if", "errors>=1%", code=None)
    assert outcome["failed_requests"] <= 4, outcome["first_errors"]
    if outcome["failed_requests"] == 0:
        assert outcome["verdict"] != "WRONG-ANSWERS", outcome["reasons"]


def test_bytes_without_a_request_are_a_wrong_answer_at_a_rate(start):
    async def serve(server, reader, writer):
        await request(server, reader)
        writer.write(OK + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(10)

    outcome = load(start(serve).url, "--rate", 50, "-c", 2, "-d", "500ms", code=1)
    assert outcome["verdict"] == "WRONG-ANSWERS" and outcome["failed_requests"] > 0, outcome["reasons"]


@pytest.mark.paced
@pytest.mark.parametrize("options", [["-c", 400], ["-c", 1, "--streams", 400, "--http2"]])
def test_a_rate_is_not_held_if_requests_gather_in_flight(start, options):
    """With connections enough, no arrival waits for one."""
    is_free = asyncio.Lock()

    async def respond(send):
        async with is_free:
            await asyncio.sleep(0.02)
        send()

    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            await respond(lambda: writer.write(OK))

    def handle(streams, stream, _):
        return respond(lambda: streams.respond(stream))

    server = http2(start, handle) if "--http2" in options else start(serve)
    outcome = load(server.url, "--rate", 150, "-d", "2s", *options, code=1)
    assert (outcome["verdict"], outcome["rate"]["limit"]) == ("RATE-NOT-HELD", "server"), outcome["reasons"]
    assert outcome["unfinished"]["waiting"] == 0 and outcome["rate"]["held"] < 0.6 and "in flight" in outcome["reasons"][0]


@pytest.mark.paced
def test_slow_responses_that_do_not_gather_hold_the_rate(start):
    outcome = load(start(slow(1.2)).url, "--rate", 50, "-c", 100, "-d", "2s")
    assert outcome["rate"] == {"due": 100, "held": 1.0, "limit": None, "reason": None}, outcome["reasons"]


@pytest.mark.paced
@pytest.mark.parametrize("protocol", [[], ["--http2"]])
def test_a_number_of_requests_at_a_rate_that_was_not_held_is_not_valid(start, protocol):
    async def handle(streams, stream, _):
        await asyncio.sleep(0.1)
        streams.respond(stream)

    server = http2(start, handle) if protocol else start(slow(0.1))
    outcome = load(server.url, "--rate", 200, "-c", 2, "-n", 50, *protocol, code=1)
    assert outcome["requests"] == 50 and outcome["rate"]["due"] == 50, outcome["rate"]
    assert (outcome["verdict"], outcome["rate"]["limit"]) == ("RATE-NOT-HELD", "connections"), outcome["reasons"]
    assert outcome["rate"]["held"] < 0.5 and not any("itself was late" in reason for reason in outcome["reasons"])
    enough = load(server.url, "--rate", 200, "-c", 50, "-n", 50, *protocol)
    assert enough["rate"] == {"due": 50, "held": 1.0, "limit": None, "reason": None}


@pytest.mark.paced
def test_a_level_without_a_response_does_not_hold(start):
    """The server responds at low rates only."""
    times = []

    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            times.append(time.monotonic())
            if len([at for at in times if at > times[-1] - 0.5]) > 20:
                return await asyncio.sleep(30)
            writer.write(OK)

    outcome = load(start(serve).url, "--find-rate", "--p99", "200ms", "-d", "1s", "--most", 100, "--precision", 0.6, "-c", 100, code=None)
    held = [level for level in outcome["search"]["levels"] if level["held"]]
    assert all(level["achieved"] > 0 for level in held), outcome["search"]


@pytest.mark.paced
def test_each_request_of_a_run_is_answered_unfinished_or_waits(start):
    server = start(slow(0.003))
    for options in (["--rate", 300, "-c", 20], ["--rate", 300, "-c", 1]):
        outcome = load(server.url, "-d", "700ms", *options, code=None)
        unfinished = outcome["unfinished"]
        assert outcome["requests"] + unfinished["in_flight"] + unfinished["waiting"] == outcome["rate"]["due"] == 210, outcome


AGAIN = """
import asyncio, sys
async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\\r\\n\\r\\n")
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    except Exception:
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""


# Users


@pytest.mark.paced
@pytest.mark.parametrize("how", ["--no-keepalive", "--http1.0", "announced", "silent", "later"])
def test_a_user_thinks_also_when_its_connection_is_closed(start, how):
    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            field = b"Connection: close\r\n" if how == "announced" else b""
            writer.write(OK.replace(b"\r\n\r\n", b"\r\n" + field + b"\r\n", 1))
            await writer.drain()
            if how == "later":
                await asyncio.sleep(0.03)
            if how in ("announced", "silent", "later"):
                return

    server = start(serve)
    options = [how] if how.startswith("-") else []
    outcome = load(server.url, "-c", 2, "-d", "1s", "--think", "100ms", *options)
    assert 12 <= outcome["requests"] <= 22 and outcome["errors"] == 0, outcome["requests"]


@pytest.mark.paced
def test_http2_users_think_too(start):
    async def serve(server, reader, writer):
        streams = Streams(server, reader, writer)
        await streams.start()
        while True:
            streams.respond((await streams.next_request())[0])

    outcome = load(start(serve).url, "--http2", "-c", 1, "--streams", 2, "-d", "1s", "--think", "100ms")
    assert 12 <= outcome["requests"] <= 22, outcome["requests"]


def test_the_warmup_is_in_no_figure(start):
    server = start(slow(0.001))
    for options in ([], ["--http2"]):
        if options:

            async def serve(server, reader, writer):
                streams = Streams(server, reader, writer)
                await streams.start()
                while True:
                    stream, _ = await streams.next_request()
                    await asyncio.sleep(0.001)
                    streams.respond(stream)

            server = start(serve)
        outcome = load(server.url, "-c", 2, "-d", "500ms", "--warmup", "500ms", *options)
        assert outcome["status"] == {"200": outcome["requests"]} and outcome["connections"]["opened"] == 2
        assert outcome["latency_ms"]["count"] - outcome["requests"] <= outcome["unfinished"]["in_flight"]
        assert abs(outcome["connections"]["requests_each"] - outcome["requests"] / 2) < 1
        counted = outcome["requests"] + outcome["warmup"]["requests"] + outcome["unfinished"]["in_flight"]
        assert outcome["warmup"]["requests"] > 10 and abs(server.requests - counted) <= 2, (server.requests, counted)
    exact = load(start(slow(0)).url, "-c", 2, "-n", 50, "--warmup", "200ms")
    assert exact["requests"] == 50 and exact["warmup"]["requests"] > 0


def test_a_number_of_requests_can_have_a_longest_duration(start):
    outcome = load(start(slow(0.05)).url, "-c", 1, "-n", 1000, "-d", "500ms")
    assert outcome["duration_seconds"] <= 0.6 and 1 <= outcome["requests"] <= 10


# Failures


def test_timeouts_are_in_the_percentiles(start):
    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            if server.requests % 10 == 0:
                await asyncio.sleep(30)
            writer.write(OK)

    outcome = load(start(serve).url, "-c", 4, "-n", 40, "--timeout", "300ms", "--fail-if", "p99>100ms", code=3)
    assert outcome["errors_by_kind"] == {"timeout": 4} and outcome["requests"] == 36
    assert outcome["latency_ms"]["count"] == 40 and outcome["latency_ms"]["p99"] >= 300


def test_a_request_on_a_kept_connection_that_ends_is_sent_again_once(start):
    """As at a graceful reload: the request crosses the end of its connection."""

    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            if server.requests in (200, 400):
                return abort(writer)
            writer.write(OK)

    server = start(serve)
    outcome = load(server.url, "-c", 2, "-n", 1000)
    assert outcome["requests"] == 1000 and outcome["errors"] == 0 and outcome["sent_again"]["lost"] == 2
    assert server.requests == 1002
    assert "lost-connections" in [finding["kind"] for finding in outcome["findings"]]
    post = load(start(serve).url, "-c", 2, "-n", 1000, "-X", "POST", code=1)
    assert post["errors_by_kind"] == {"reset": 2} and post["sent_again"]["lost"] == 0


@pytest.mark.paced
@pytest.mark.parametrize("protocol", [[], ["--http2"]])
def test_a_request_is_sent_again_while_kept_connections_end(start, protocol):
    """As at a reload with several idle connections: those that the request is sent again on have ended as well."""
    lost = (300, 301, 302)

    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            if server.requests in lost:
                return abort(writer)
            writer.write(OK)

    def handle(streams, stream, _):
        if streams.server.requests in lost:
            return abort(streams.writer)
        streams.respond(stream)

    server = http2(start, handle) if protocol else start(serve)
    outcome = load(server.url, "--rate", 400, "-c", 8, "-d", "1500ms", *protocol, code=None)
    assert outcome["failed_requests"] == 0 and outcome["sent_again"]["lost"] >= 3, (outcome["sent_again"], outcome["first_errors"])


def test_a_request_that_always_ends_its_connection_fails(start):
    async def serve(server, reader, writer):
        while True:
            if b" /bad" in await request(server, reader):
                return abort(writer)
            writer.write(OK)

    server = start(serve)
    outcome = load(server.url + "good", server.url + "bad", "-c", 2, "-n", 40, code=1)
    assert outcome["errors_by_kind"]["reset"] >= 10 and server.requests <= 40 * 11


def test_a_server_that_often_loses_connections_fails_the_run(start):
    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            if server.requests % 10 == 0:
                return abort(writer)
            writer.write(OK)

    outcome = load(start(serve).url, "-c", 2, "-n", 200, code=1)
    assert outcome["verdict"] == "WRONG-ANSWERS" and "reset" in outcome["errors_by_kind"]
    assert "/: its connection ended before a response" in outcome["first_errors"]["reset"]


def test_a_timeout_of_the_server_on_an_idle_connection_is_no_failure(start):
    late = b"HTTP/1.1 408 Request Time-out\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    async def serve(server, reader, writer):
        while True:
            try:
                await asyncio.wait_for(request(server, reader), 0.05)
            except asyncio.TimeoutError:
                writer.write(late)
                return
            writer.write(OK)

    outcome = load(start(serve).url, "-c", 2, "-d", "1s", "--think", "100ms")
    assert outcome["errors"] == 0 and outcome["connections"]["closed_by_server"] >= 10


def test_failures_before_a_request_are_as_many_as_requested(start, tmp_path):
    plain = start(slow(0))
    outcome = load(plain.url.replace("http:", "https:"), "-n", 5, "--timeout", "500ms", code=1)
    assert outcome["errors"] == 5 == outcome["failed_connections"], outcome["errors_by_kind"]


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "two different Content-Lengths"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both Content-Length and"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 3_000_000 + b"\r\n\r\n", "larger than 64 KB"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "no colon"),
    ],
)
def test_what_is_not_http_is_explained(start, response, why):
    async def serve(server, reader, writer):
        await request(server, reader)
        writer.write(response)
        await reader.read()

    outcome = load(start(serve).url, "-c", 1, "-n", 1, code=1)
    assert why in outcome["first_errors"]["protocol"], outcome["first_errors"]


def test_a_folded_field_is_one_field(start):
    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            writer.write(b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length:\r\n\t2\r\n\r\nok")

    assert load(start(serve).url, "-c", 1, "-n", 3)["requests"] == 3


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-H", "Content-Length: 3", "--data", "hello"], "the body has 5 bytes"),
        (["-H", "Transfer-Encoding: chunked", "--data", "hello"], "not in chunks"),
        (["-H", "Connection: close", "--http2"], "HTTP/2 has no such field"),
        (["-H", "TE: gzip", "--http2"], "HTTP/2 has no such field"),
        (["-H", "Content-Length: 7", "--data", "hello", "--http2"], "the body has 5 bytes"),
        (["-H", "Connection: close", "--requests-per-connection", "3"], "--no-keepalive"),
        (["--sni", "a.example"], "does nothing without https"),
        (["--urls-file", "/dev/null"], "no URL"),
        (["--urls-file", "-", "--body", "-"], "cannot both be standard input"),
        (["--source", "192.0.2.1"], "192.0.2.1"),
    ],
)
def test_options_that_contradict_the_request_are_refused(options, message):
    assert message in run("http://127.0.0.1:1/", *options, code=2).stderr


def test_connection_close_is_a_connection_for_each_request(start):
    async def serve(server, reader, writer):
        await request(server, reader)
        writer.write(OK)

    server = start(serve)
    outcome = load(server.url, "-c", 2, "-n", 50, "-H", "Connection: close")
    assert outcome["requests"] == 50 and outcome["plan"]["reuse"] == "never" and server.requests == 50
    assert all(head.lower().count(b"connection:") == 1 for head in server.heads)


def test_a_password_of_the_url_is_sent_and_not_shown(start):
    server = start(slow(0))
    done = run(server.url.replace("://", "://user:secret@"), "-n", 1, "-c", 1, code=0)
    assert b"Authorization: Basic " + base64.b64encode(b"user:secret") in server.heads[0]
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("url", ["http://user:secret@[bad/", "http://user:secret@h ost/", "user:secret@127.0.0.1:99999"])
def test_a_password_of_what_is_no_url_is_not_shown(url):
    done = run(url, "-n", 1, code=2)
    assert "secret" not in done.stdout + done.stderr and done.stderr.count("\n") == 1


def test_urls_and_bodies_can_come_from_standard_input(start, tmp_path):
    server = start(slow(0))
    run(server.url + "base", "--urls-file", "-", "-n", 4, "-c", 1, input="/a\n/b\n", code=0)
    assert [head.split()[1] for head in server.heads] == [b"/a", b"/b"] * 2
    (tmp_path / "list").write_text("/a\nPOST /f\n")
    assert f"{tmp_path}/list:2: POST /f" in run(server.url, "--urls-file", tmp_path / "list", code=2).stderr


def test_every_address_of_a_name_is_tried(start, tmp_path):
    server = start(slow(0), host="127.0.0.3")
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.2 many.test\n127.0.0.3 many.test\n")
    command = f"mount --bind {hosts} /etc/hosts && exec {DUNLIN} load http://many.test:{server.port}/ -c 2 -n 20 --quiet --json -"
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["requests"] == 20 == server.requests and outcome["address"] == f"127.0.0.3:{server.port}"


# HTTP/2


def http2(start, handle, settings=()):
    """A server whose `handle(streams, stream, section)` answers each request."""

    async def serve(server, reader, writer):
        streams = Streams(server, reader, writer, settings)
        server.streams.append(streams)
        await streams.start()
        while True:
            stream, section = await streams.next_request()
            answer = handle(streams, stream, section)
            if asyncio.iscoroutine(answer):
                asyncio.ensure_future(answer)

    server = start(serve)
    server.streams = []
    return server


def test_http2_sends_the_host_as_authority(start):
    heads = []

    def handle(streams, stream, section):
        streams.decoder = getattr(streams, "decoder", None) or hpack.Decoder()
        heads.append([(str(name), str(value)) for name, value in streams.decoder.decode(section)])
        streams.respond(stream)

    server = http2(start, handle)
    outcome = load(server.url, "--http2", "-c", 1, "-n", 3, "-H", "Host: other.example", "-H", "Content-Length: 2", "--data", "ok")
    assert outcome["requests"] == 3
    for head in heads:
        names = [name for name, _ in head]
        assert (":authority", "other.example") in head and "host" not in names
        assert names.count("content-length") == 1, head


def test_http2_bytes_are_those_of_the_wire(start):
    field = literal("x", "y" * 15_000)
    server = http2(start, lambda streams, stream, _: streams.respond(stream, fields=field))
    outcome = load(server.url, "--http2", "-c", 1, "-n", 20)
    assert outcome["requests"] == 20 and 20 * 15_000 < outcome["bytes"] <= server.sent, (outcome["bytes"], server.sent)


@pytest.mark.serial
def test_http2_requests_are_sent_when_they_are_due(start):
    server = http2(start, lambda streams, stream, _: streams.respond(stream))
    lags = [load(server.url, "--http2", "-c", 1, "--streams", 10, "--rate", 100, "-d", "1s")["lag_ms"]["p50"] for _ in range(3)]
    assert min(lags) < 0.5, lags


def test_http2_streams_that_the_server_refuses_are_sent_again(start):
    async def handle(streams, stream, _):
        if streams.open > 5:
            return streams.reset(stream, 7)
        await asyncio.sleep(0.002)
        streams.respond(stream)

    outcome = load(http2(start, handle).url, "--http2", "-c", 2, "--streams", 20, "-n", 400)
    assert outcome["requests"] == 400 and outcome["errors"] == 0, outcome["errors_by_kind"]
    assert outcome["sent_again"]["refused"] > 0 and outcome["connections"]["opened"] == 2


def test_http2_resets_and_lengths_have_their_own_kinds_and_close_no_connection(start):
    def reset(streams, stream, _):
        streams.reset(stream, 2) if stream % 20 == 1 else streams.respond(stream)

    outcome = load(http2(start, reset).url, "--http2", "-c", 1, "--streams", 4, "-n", 100, code=1)
    assert outcome["errors_by_kind"] == {"stream_reset": 10}, outcome["first_errors"]
    assert outcome["requests"] == 90 and outcome["connections"]["opened"] == 1
    assert outcome["connections"]["closed_by_server"] == 0

    def short(streams, stream, _):
        streams.respond(stream, fields=literal("content-length", "5" if stream % 20 == 1 else "2"))

    outcome = load(http2(start, short).url, "--http2", "-c", 1, "-n", 100, code=1)
    assert outcome["errors_by_kind"] == {"length": 10}, outcome["first_errors"]
    assert outcome["connections"]["closed_by_server"] == 0


def test_http2_connections_that_the_generator_gives_up_are_its_own(start):
    outcome = load(http2(start, lambda *_: None).url, "--http2", "-c", 2, "-n", 2, "--timeout", "300ms", code=1)
    assert outcome["errors_by_kind"] == {"timeout": 2}
    assert outcome["connections"]["closed_by_server"] == 0


def test_http2_connections_that_the_server_closes_are_the_servers(start):
    def handle(streams, stream, _):
        streams.respond(stream)
        if stream >= 19:
            streams.writer.close()

    outcome = load(http2(start, handle).url, "--http2", "-c", 1, "-n", 30, "--think", "20ms")
    assert outcome["requests"] == 30 and outcome["errors"] == 0
    assert outcome["connections"]["closed_by_server"] in (2, 3) and outcome["connections"]["closed_by_generator"] == 0


@pytest.mark.paced
def test_http2_keeps_to_a_limit_of_streams_that_the_server_lowers(start):
    async def handle(streams, stream, _):
        if streams.server.requests >= 10 and not hasattr(streams, "lowered"):
            streams.lowered = True
            streams.send(b"\0\0\x06\x04\0\0\0\0\0" + bytes.fromhex("000300000003"))
        await asyncio.sleep(0.01)
        if streams.server.requests > 100:
            streams.most_after = max(getattr(streams, "most_after", 0), streams.open)
        streams.respond(stream)

    server = http2(start, handle, [(3, 100)])
    outcome = load(server.url, "--http2", "-c", 1, "--streams", 20, "-d", "1s")
    assert server.streams[-1].most_after == 3
    assert outcome["latency_ms"]["p50"] < 30, outcome["latency_ms"]
    assert "streams-not-reached" in [finding["kind"] for finding in outcome["findings"]]


@pytest.mark.paced
def test_http2_counts_what_is_unfinished_at_the_end(start):
    async def handle(streams, stream, _):
        await asyncio.sleep(0.04)
        streams.respond(stream)

    outcome = load(http2(start, handle).url, "--http2", "-c", 2, "--streams", 5, "-d", "500ms")
    assert outcome["status"] == {"200": outcome["requests"]} and outcome["unfinished"]["in_flight"] > 0
    assert outcome["duration_seconds"] == 0.5


def test_http2_lasts_until_a_server_that_always_rejects_has_failed_each_request(start):
    server = http2(start, lambda streams, stream, _: streams.reset(stream, 7))
    outcome = load(server.url, "--http2", "-c", 2, "-n", 2, code=1)
    assert outcome["errors_by_kind"] == {"stream_reset": 2} and "rejected" in outcome["first_errors"]["stream_reset"]


# TLS


def test_the_start_of_tls_is_not_in_the_first_connection(tmp_path):
    (tmp_path / "index.html").write_text("hello")
    command = [DUNLIN, "serve", str(tmp_path), "--tls-self-signed", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            for options in ([], ["--http2"]):
                times = [load(url, "--insecure", "-c", 1, "-n", 1, *options)["connect_ms"]["max"] for _ in range(5)]
                assert min(times) < 15, times
            named = load(url, "--insecure", "-c", 1, "-n", 1, "--sni", "localhost", "-H", "Host: localhost")
            assert named["requests"] == 1
        finally:
            server.terminate()


def test_a_server_that_does_not_speak_tls_or_demands_a_certificate_is_explained(start, tmp_path):
    async def mute(server, reader, writer):
        await reader.read()

    url = start(mute).url.replace("http:", "https:")
    outcome = load(url, "-c", 1, "-n", 1, "--timeout", "300ms", code=1)
    assert "no TLS handshake" in outcome["first_errors"]["timeout"], outcome["first_errors"]
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED

    def demand(listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            # The alert arrives before the end of the connection.
            with client.dup() as kept, contextlib.suppress(OSError):
                with contextlib.suppress(ssl.SSLError):
                    context.wrap_socket(client, server_side=True)
                kept.shutdown(socket.SHUT_WR)
                while kept.recv(1 << 16):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=demand, args=(listener,), daemon=True).start()
        done = run(f"https://127.0.0.1:{listener.getsockname()[1]}/", "--insecure", "-c", 1, "-n", 2, code=1)
        listener.shutdown(socket.SHUT_RDWR)
    assert "TLS handshakes failed" in done.stdout and "client certificate" in " ".join(done.stdout.split()), done.stdout


# Reports


def test_the_first_failure_has_its_url(start):
    async def serve(server, reader, writer):
        head = await request(server, reader)
        if b" /bad" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            await writer.drain()
            return abort(writer)
        writer.write(OK)

    url = start(serve).url
    outcome = load(url + "good", url + "bad", "-c", 1, "-n", 4, "--no-keepalive", code=1)
    assert outcome["first_errors"]["reset"].startswith(f"{url}bad: "), outcome["first_errors"]


def test_a_conditional_request_is_explained(start):
    async def serve(server, reader, writer):
        while True:
            await request(server, reader)
            writer.write(b"HTTP/1.1 304 Not Modified\r\n\r\n")

    shown = " ".join(run(start(serve).url, "-n", 2, "-c", 1, code=1).stdout.split())
    assert "the request is conditional" in shown and "redirects" not in shown


def test_the_start_of_the_generator_is_not_its_load(start):
    url = start(slow(0)).url
    for _ in range(3):
        outcome = load(url, "-c", 1, "-n", 3)
        assert not [reason for reason in outcome["reasons"] if "processor" in reason], outcome["reasons"]


@pytest.mark.serial
def test_the_progress_counts_from_the_start_of_the_load(start):
    done = run(start(slow(0)).url, "--rate", 500, "-d", "2500ms", "-c", 20)
    rates = [float(rate.replace(",", "")) for rate in re.findall(r"([\d,.]+) requests/s, p50", done.stderr)]
    assert len(rates) >= 2 and all(420 <= rate <= 580 for rate in rates), done.stderr
    done = run(start(slow(0)).url, "--rate", 500, "-d", "500ms", "--warmup", "1500ms", "-c", 20)
    assert "warm-up, " in done.stderr and " 0.0 requests/s" not in done.stderr, done.stderr


# nginx


@pytest.fixture
def nginx(tmp_path, site):
    (site / "a.txt").write_text("hello")
    processes = []

    def start(options="", listen=""):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = tmp_path / "nginx.conf"
        paths = "".join(f"{kind}_temp_path {tmp_path}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config.write_text(
            f"user root; daemon off; pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; {paths} "
            f"keepalive_requests 10000000; {options} server {{ listen 127.0.0.1:{port} {listen}; root {site}; }} }}"
        )
        tmp_path.chmod(0o755)
        path = os.environ["PATH"] + ":/usr/sbin"
        processes.append(subprocess.Popen(["nginx", "-e", "stderr", "-c", config], env={**os.environ, "PATH": path}, stderr=subprocess.DEVNULL))
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "nginx is ready")
        return processes[-1], f"http://127.0.0.1:{port}/a.txt"

    yield start
    for process in processes:
        process.terminate()
        process.wait(20)


@pytest.mark.paced
def test_a_graceful_reload_of_nginx_is_no_failure(nginx):
    process, url = nginx()
    command = [DUNLIN, "load", url, "-c", "10", "-d", "3s", "--quiet", "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        for _ in range(3):
            time.sleep(0.7)
            process.send_signal(signal.SIGHUP)
        outcome = json.loads(run.communicate(timeout=60)[0])
    assert run.returncode == 0 and outcome["errors"] == 0 and outcome["connections"]["closed_by_server"] > 0, outcome["first_errors"]


def test_a_small_limit_of_streams_of_nginx_is_no_failure(nginx):
    _, url = nginx("http2_max_concurrent_streams 8;", "http2")
    outcome = load(url, "--http2", "-c", 2, "--streams", 20, "-n", 400)
    assert outcome["requests"] == 400 and outcome["errors"] == 0 and outcome["connections"]["opened"] == 2
