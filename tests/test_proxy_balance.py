"""The reverse proxy before several upstreams: balance, retries, ejection and health checks."""

import collections
import json
import select
import threading
import time

import pytest

from support.http import parse, post, read_response
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")


@pytest.fixture
def balanced(serve):
    """Starts a server before upstreams: `balanced([upstream, ...], "more keys")`."""

    def start(upstreams, keys="", route="", more=""):
        targets = ", ".join(
            f'{{ url = "{upstream[0].url}", weight = {upstream[1]} }}' if isinstance(upstream, tuple) else f'"{upstream.url}"'
            for upstream in upstreams
        )
        return serve(route=f"proxy = {{ to = [{targets}], {keys} }}\n{route}", more=more)

    return start


def named(name, answer=None):
    """An upstream whose responses have its name."""
    return Upstream(answer or (lambda *_: response(name.encode())))


def counts(server, number, *fields):
    return collections.Counter(server.get("/", *fields)[2].decode() for _ in range(number))


STATUS = '[[site.route]]\npath = "/status/*"\nstatus = true\n[[site.route]]\npath = "/status"\nstatus = false\n'


def available(server):
    """Which upstreams get requests, in the order of the configuration."""
    report = json.loads(server.get("/status/status.json")[2])
    return [upstream["is_available"] for upstream in report["upstreams"]]


def test_an_upstream_that_fails_is_shown_as_failing_with_the_reason(balanced):
    broken = [True]
    upstream = named("a", lambda *_: b"nonsense" if broken[0] else response(b"a"))
    server = balanced([upstream], more=STATUS)

    def state():
        [shown] = json.loads(server.get("/status/status.json")[2])["upstreams"]
        return shown["is_available"], shown["failing"], shown["last_error"], shown["last_failure"]

    assert state() == (True, 0, None, None)
    began = time.time()
    for _ in range(3):
        assert server.get("/")[0] == 502
    is_available, failing, error, at = state()
    assert is_available and failing == 3 and error and began - 1 < at < time.time() + 1
    broken[0] = False
    assert server.get("/")[0] == 200
    assert state() == (True, 0, error, at)


def test_upstreams_take_turns_by_weight(balanced):
    server = balanced([(named("a"), 1), (named("b"), 3)], 'balance = "round-robin"')
    assert counts(server, 40) == {"a": 10, "b": 30}


def test_a_field_or_the_address_selects_the_upstream(balanced):
    upstreams = [named(name) for name in "abc"]
    server = balanced(upstreams, 'balance = "hash:X-User"')
    users = {user: counts(server, 3, f"X-User: {user}") for user in range(20)}
    assert all(len(count) == 1 for count in users.values())
    assert len({name for count in users.values() for name in count}) == 3
    assert len(counts(server, 10)) == 1, "without the field, the address"


def test_a_busy_upstream_gets_fewer_requests(balanced):
    gate = threading.Event()
    busy = named("a", lambda *_: gate.wait(15) and response(b"a"))
    server = balanced([busy, named("b")], 'balance = "least-connections"')
    with server.connect() as first, server.connect() as second:
        for connection in (first, second):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: busy.requests, "a request at the busy upstream")
        # The other one has its response.
        assert select.select([first, second], [], [], 15)[0]
        assert counts(server, 10) == {"b": 10}
        gate.set()
        read_response(first), read_response(second)


def test_a_slow_upstream_gets_few_requests(balanced):
    slow = named("slow", lambda *_: time.sleep(0.2) or response(b"slow"))
    server = balanced([slow, named("fast")])
    assert counts(server, 30)["fast"] >= 28


@pytest.mark.parametrize("balance", ["least-loaded", "least-connections", "round-robin", "hash:address"])
def test_no_request_fails_when_an_upstream_is_killed(balanced, balance):
    upstreams = [named(name) for name in "abc"]
    server = balanced(upstreams, f'balance = "{balance}"')
    failed, stop = [], threading.Event()

    def load():
        while not stop.is_set():
            status = server.get("/")[0]
            if status != 200:
                failed.append(status)

    threads = [threading.Thread(target=load) for _ in range(4)]
    [thread.start() for thread in threads]
    wait_until(lambda: sum(len(upstream.requests) for upstream in upstreams) > 100, "some requests")
    gone = max(upstreams, key=lambda upstream: len(upstream.requests))
    gone.stop()
    before = sum(len(upstream.requests) for upstream in upstreams)
    wait_until(lambda: sum(len(upstream.requests) for upstream in upstreams) > before + 100, "requests at the others")
    stop.set()
    [thread.join() for thread in threads]
    assert not failed


def test_an_upstream_without_a_response_in_time_is_replaced(balanced):
    gate = threading.Event()
    stuck = named("stuck", lambda *_: gate.wait(15) and None)
    server = balanced([stuck, named("b")], 'balance = "round-robin", retry = { timeout = "200ms" }, eject = { failures = 0 }')
    assert counts(server, 4) == {"b": 4}
    # A request that may have been processed is not sent again.
    server = balanced([stuck, named("b")], 'balance = "round-robin", first_byte_timeout = "200ms", eject = { failures = 0 }')
    assert sorted(post(server, "/", b"x")[0] for _ in range(4)) == [200, 200, 504, 504]
    gate.set()


def test_a_response_that_breaks_off_is_fetched_from_another_upstream(balanced):
    def cut(upstream, connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Le")

    broken = named("broken", cut)
    server = balanced([broken, named("b")], 'balance = "round-robin", eject = { failures = 0 }')
    assert counts(server, 4) == {"b": 4} and len(broken.requests) == 2
    assert sorted(post(server, "/", b"x")[0] for _ in range(4)) == [200, 200, 502, 502]


def test_retries_can_be_turned_off_and_have_a_budget(balanced):
    def cut(upstream, connection, request):
        return None

    broken = named("broken", cut)
    server = balanced([broken, named("b")], 'balance = "round-robin", retry = false, eject = { failures = 0 }')
    assert sorted(server.get("/")[0] for _ in range(4)) == [200, 200, 502, 502]
    upstreams = [named("a", cut), named("b", cut)]
    server = balanced(upstreams, "retry = { budget = 10 }, eject = { failures = 0 }")
    for _ in range(100):
        assert server.get("/")[0] == 502
    attempts = sum(len(upstream.requests) for upstream in upstreams)
    assert 120 <= attempts <= 131, "20 that are saved up, and one in ten requests"


def test_an_upstream_that_fails_is_ejected_for_a_while(balanced):
    is_broken = [True]
    flaky = named("a", lambda *_: response(b"", "503 Service Unavailable") if is_broken[0] else response(b"a"))
    server = balanced([flaky, named("b")], 'balance = "round-robin", eject = { failures = 2, time = "1s" }', more=STATUS)
    statuses = [server.get("/")[0] for _ in range(10)]
    assert statuses.count(503) == 2 and len(flaky.requests) == 2
    server.logged("it gets no requests for 1s")
    assert available(server) == [False, True]
    is_broken[0] = False
    wait_until(lambda: "a" in counts(server, 2), "the upstream is used again")
    server.logged("the upstream responds again")
    assert available(server) == [True, True]


def test_all_upstreams_are_used_if_all_have_failed(balanced):
    upstreams = [named(name, lambda *_: response(b"", "503 Service Unavailable")) for name in "ab"]
    server = balanced(upstreams, 'eject = { failures = 1, time = "1h", share = 100 }')
    for _ in range(10):
        assert server.get("/")[0] == 503
    assert all(upstream.requests for upstream in upstreams)


def test_an_unhealthy_upstream_gets_no_requests(balanced):
    is_healthy = [True]

    def check(upstream, connection, request):
        if request.target != "/health?x":
            return response(b"a")
        return response(b"", "200 OK" if is_healthy[0] else "500 Internal Server Error")

    upstream = named("a", check)
    keys = 'balance = "round-robin", health = { path = "/health?x", interval = "200ms", failures = 2 }'
    server = balanced([upstream, named("b")], keys, more=STATUS)
    wait_until(lambda: any(request.target == "/health?x" for request in upstream.requests), "a health check")
    assert counts(server, 10) == {"a": 5, "b": 5}
    is_healthy[0] = False
    server.logged("the health check of the upstream fails: the status is 500")
    assert counts(server, 10) == {"b": 10} and available(server) == [False, True]
    is_healthy[0] = True
    server.logged("the upstream is healthy again")
    assert counts(server, 10) == {"a": 5, "b": 5}


def test_health_checks_survive_a_reload_and_are_made_once(balanced):
    upstream = named("a")
    server = balanced([upstream, named("b")], 'health = { path = "/health", interval = "200ms" }')
    for _ in range(3):
        server.process.send_signal(1)
        time.sleep(0.05)
    before, start = len(upstream.requests), time.monotonic()
    wait_until(lambda: len(upstream.requests) >= before + 8, "further checks")
    assert time.monotonic() - start > 8 * 0.15, "checks are made more than once"
