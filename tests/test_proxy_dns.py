"""The reverse proxy: names of upstreams, and services that SRV records name, with a name server of the test's own."""

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support import outage
from support.dns import A, AAAA, SRV, NameServer
from support.server import DUNLIN
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

SERVICE = "_http._tcp.app.test"


@pytest.fixture
def names():
    server = NameServer()
    yield server
    server.socket.close()


def named(text):
    """An upstream that responds with its name."""
    return Upstream(lambda *_: response(text.encode(), "200 OK", "Connection: close"))


def resolver(names):
    return f'resolver = ["{names.address}"]'


def reused(server, name):
    """How often the log says that the last addresses of a name are used."""
    return len(re.findall(rf"{re.escape(name)}.*; the last known addresses are used", server.log))


def test_a_name_is_resolved_by_the_name_server_again_after_its_ttl(serve, names):
    upstream = named("a")
    names.records[("app.test", A)] = ["127.0.0.1"]
    server = serve(route=f'proxy = "http://app.test:{upstream.port}"', server=resolver(names))
    assert server.get("/")[2] == b"a"
    assert ("app.test", A) in names.questions and ("app.test", AAAA) in names.questions
    first = len(names.questions)
    wait_until(lambda: server.get("/")[2] == b"a" and len(names.questions) > first, "another question")
    # The other address is used when the first one is gone from the answer.
    names.records[("app.test", A)] = ["127.0.0.77"]
    other = Upstream(lambda *_: response(b"other", "200 OK", "Connection: close"), host="127.0.0.77", port=upstream.port)
    wait_until(lambda: server.get("/")[2] == b"other", "the other address")
    assert other.requests


@pytest.mark.parametrize("fault", ["is_failing", "is_silent"])
def test_the_last_addresses_are_used_while_no_name_server_responds(serve, names, fault):
    upstream = named("a")
    names.records[("app.test", A)] = ["127.0.0.1"]
    server = serve(route=f'proxy = "http://app.test:{upstream.port}"', server=resolver(names))
    assert server.get("/")[2] == b"a"
    began, before = time.monotonic(), names.questions.count(("app.test", A))
    setattr(names, fault, True)

    def is_logged():
        assert server.get("/")[2] == b"a"
        return reused(server, "app.test") and outage.has_lasted(began)

    wait_until(is_logged, "the failure in the log", outage.SECONDS + 15)
    # Each attempt is 5 s after the previous one, and takes up to a second.
    assert names.questions.count(("app.test", A)) - before >= outage.SECONDS / 8
    setattr(names, fault, False)

    def is_over():
        assert server.get("/")[2] == b"a"
        return "app.test resolved again" in server.log

    wait_until(is_over, "the end of the failure in the log", 20)
    assert reused(server, "app.test") == server.log.count("app.test resolved again") == 1, server.log


def test_a_name_without_an_answer_is_an_error_of_dns(serve, names):
    route = 'proxy = "http://none.test:1"'
    server = serve(route=route, server=resolver(names))
    status, fields, _ = server.get("/")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=dns_error"
    assert "resolving none.test failed: there is no such name; the response" in server.logged("the upstream failed")


@pytest.mark.parametrize("url", ["http://none.test:1", "dns+http://none.test:1"])
def test_a_name_without_an_answer_is_looked_up_once_for_many_requests(serve, names, url):
    server = serve(route=f'proxy = "{url}"', server=resolver(names))
    with ThreadPoolExecutor(10) as pool:
        statuses = list(pool.map(lambda _: server.get("/")[0], range(50)))
    assert set(statuses) == {502}
    # One or two look-ups, for each of two types. A slow machine takes longer than the answer is kept.
    assert 2 <= len(names.questions) <= 8, names.questions
    # It is not kept for long.
    upstream = named("a")
    names.records[("none.test", A)] = ["127.0.0.1"]
    wait_until(lambda: names.questions.count(("none.test", A)) > 0 and server.get("/")[2] != b"", "a response")
    before = len(names.questions)
    wait_until(lambda: server.get("/")[1].get("proxy-status", "") != "dunlin; error=dns_error", "the address")
    assert len(names.questions) > before
    assert not upstream.requests, "it is at another port"


def test_requests_that_wait_for_the_first_answer_share_it(serve, names):
    upstream = named("a")
    names.records[("app.test", A)] = ["127.0.0.1"]
    names.ttl = 60
    server = serve(route=f'proxy = "http://app.test:{upstream.port}"', server=resolver(names))
    with ThreadPoolExecutor(20) as pool:
        assert {body for _, _, body in pool.map(lambda _: server.get("/"), range(20))} == {b"a"}
    assert sorted(names.questions) == [("app.test", A), ("app.test", AAAA)]


def test_names_of_the_hosts_file_need_no_name_server(serve, names):
    upstream = named("a")
    names.is_failing = True
    server = serve(route=f'proxy = "http://localhost:{upstream.port}"', server=resolver(names))
    assert server.get("/")[2] == b"a"


def test_srv_records_name_upstreams_with_ports_and_weights(serve, names):
    a, b = named("a"), named("b")
    names.records[(SERVICE, SRV)] = [(0, 1, a.port, "a.test"), (0, 3, b.port, "b.test")]
    names.records[("a.test", A)] = names.records[("b.test", A)] = ["127.0.0.1"]
    route = f'proxy = {{ to = "srv+http://{SERVICE}", balance = "round-robin", host = "upstream" }}'
    server = serve(route=route, server=resolver(names))
    bodies = [server.get("/")[2] for _ in range(40)]
    assert 8 <= bodies.count(b"a") <= 12 and bodies.count(b"a") + bodies.count(b"b") == 40
    assert a.requests[0].fields["host"] == f"a.test:{a.port}"
    c = named("c")
    names.records[(SERVICE, SRV)] = [(0, 1, c.port, "a.test")]
    wait_until(lambda: server.get("/")[2] == b"c", "the new record")
    assert {server.get("/")[2] for _ in range(5)} == {b"c"}


def test_another_target_gets_the_request_if_one_fails(serve, names):
    a, b = named("a"), named("b")
    a.stop()
    names.records[(SERVICE, SRV)] = [(0, 1, a.port, "a.test"), (5, 1, b.port, "a.test")]
    names.records[("a.test", A)] = ["127.0.0.1"]
    server = serve(route=f'proxy = "srv+http://{SERVICE}"', server=resolver(names))
    assert [server.get("/")[2] for _ in range(5)] == [b"b"] * 5
    assert "connection refused" in server.logged("another upstream gets the request").lower()


def test_targets_of_another_priority_get_no_requests_while_the_first_responds(serve, names):
    a, b = named("a"), named("b")
    names.records[(SERVICE, SRV)] = [(1, 1, a.port, "a.test"), (2, 100, b.port, "a.test")]
    names.records[("a.test", A)] = ["127.0.0.1"]
    server = serve(route=f'proxy = "srv+http://{SERVICE}"', server=resolver(names))
    assert {server.get("/")[2] for _ in range(20)} == {b"a"}


@pytest.mark.parametrize("fault", ["is_failing", "is_silent"])
def test_the_last_records_are_used_while_no_name_server_responds(serve, names, fault):
    a = named("a")
    names.records[(SERVICE, SRV)] = [(0, 1, a.port, "a.test")]
    names.records[("a.test", A)] = ["127.0.0.1"]
    server = serve(route=f'proxy = "srv+http://{SERVICE}"', server=resolver(names))
    assert server.get("/")[2] == b"a"
    setattr(names, fault, True)

    def is_logged():
        assert server.get("/")[2] == b"a"
        return reused(server, SERVICE)

    wait_until(is_logged, "the failure in the log")
    setattr(names, fault, False)
    b = named("b")
    names.records[(SERVICE, SRV)] = [(0, 1, b.port, "a.test")]
    wait_until(lambda: server.get("/")[2] == b"b", "the new record", 20)
    server.logged(f"{SERVICE} resolved again")
    assert reused(server, SERVICE) == 1, server.log


def test_a_service_without_records_is_an_error_of_dns(serve, names):
    server = serve(route=f'proxy = "srv+http://{SERVICE}"', server=resolver(names))
    status, fields, _ = server.get("/")
    assert status == 502 and fields["proxy-status"] == "dunlin; error=dns_error"
    assert f"resolving {SERVICE} failed" in server.logged("proxy: ")


@pytest.mark.parametrize("has_other_records", [False, True])
def test_the_last_records_are_used_while_the_response_is_empty(serve, names, has_other_records):
    """Such as NXDOMAIN, or no record of that type: what has registered the service may have failed."""
    a = named("a")
    names.records[(SERVICE, SRV)] = [(0, 1, a.port, "a.test")]
    names.records[("a.test", A)] = ["127.0.0.1"]
    server = serve(route=f'proxy = "srv+http://{SERVICE}"', server=resolver(names))
    assert server.get("/")[2] == b"a"
    if has_other_records:
        names.records[(SERVICE, A)] = ["127.0.0.1"]
    del names.records[(SERVICE, SRV)], names.records[("a.test", A)]

    def are_logged():
        assert server.get("/")[2] == b"a"
        return reused(server, SERVICE) and reused(server, "a.test")

    wait_until(are_logged, "the empty responses in the log")


def test_check_asks_the_name_servers_that_the_server_asks(names, tmp_path):
    names.records[("app.test", A)] = names.records[("a.test", A)] = ["127.0.0.1"]
    names.records[(SERVICE, SRV)] = [(0, 1, 80, "a.test"), (0, 1, 81, "b.test"), (0, 2, 82, "b.test")]
    to = ["http://app.test", f"srv+http://{SERVICE}", "h2c://none.test:1", "srv+h2c://_none._tcp.test", "http://127.0.0.1", "unix:/a"]
    lines = "".join(f"'{url}',\n" for url in to)
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[server]\n{resolver(names)}\n[[listen]]\naddress = ":8080"\n[[site]]\n[[site.route]]\npath = "/*"\nproxy = [\n{lines}]\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert done.returncode == 0
    found = re.findall(r":(\d+):\d+: (?:warning: )?proxy: resolving (\S+) failed.*; requests get 502", done.stderr)
    assert sorted(found) == [("10", "b.test"), ("11", "none.test"), ("12", "_none._tcp.test")], done.stderr


def test_targets_are_checked_for_their_health(serve, names):
    a = named("a")
    names.records[(SERVICE, SRV)] = [(0, 1, a.port, "a.test")]
    names.records[("a.test", A)] = ["127.0.0.1"]
    serve(
        route=f'proxy = {{ to = "srv+http://{SERVICE}", health = {{ path = "/health", interval = "50ms" }} }}',
        server=resolver(names),
    )
    wait_until(lambda: any(request.target == "/health" for request in a.requests), "a health check")


def test_each_address_of_a_name_is_an_upstream(serve, names):
    """One that fails is ejected by itself, and another address gets its requests."""
    hosts = ["127.0.0.1", "127.0.0.77", "127.0.0.78"]
    fails = set()

    def answer(host):
        def respond(*_):
            return response(host.encode(), "503 Service Unavailable" if host in fails else "200 OK", "Connection: close")

        return respond

    first = Upstream(answer(hosts[0]))
    for host in hosts[1:]:
        Upstream(answer(host), host=host, port=first.port)
    names.records[("app.test", A)] = hosts[:2]
    keys = 'balance = "round-robin", host = "upstream", eject = { failures = 2, time = "1m" }'
    route = f'proxy = {{ to = "dns+http://app.test:{first.port}", {keys} }}'
    server = serve(route=route, server=resolver(names))
    assert {server.get("/")[2].decode() for _ in range(4)} == set(hosts[:2])
    assert first.requests[0].fields["host"] == f"app.test:{first.port}"
    fails.add(hosts[1])
    statuses = [server.get("/")[0] for _ in range(20)]
    assert statuses.count(503) == 2, "it is ejected after two failures"
    assert f'upstream="http://{hosts[1]}:{first.port}"' in server.logged("has failed 2 times in a row")
    # At most half are ejected, and one that is ejected stays so when the records change.
    fails.add(hosts[0])
    assert {server.get("/")[0] for _ in range(5)} == {503}
    names.records[("app.test", A)] = hosts[1:]
    wait_until(lambda: server.get("/")[2].decode() == hosts[2], "the new address")
    assert {server.get("/")[2].decode() for _ in range(10)} == {hosts[2]}


def test_the_addresses_of_a_name_are_checked_for_their_health(serve, names):
    a = Upstream()
    Upstream(lambda *_: response(b"", "500 Internal Server Error"), host="127.0.0.77", port=a.port)
    names.records[("app.test", A)] = ["127.0.0.1", "127.0.0.77"]
    keys = 'health = { path = "/health", interval = "50ms", failures = 1 }, retry = false, eject = { failures = 0 }'
    server = serve(route=f'proxy = {{ to = "dns+http://app.test:{a.port}", {keys} }}', server=resolver(names))
    server.logged("the health check of the upstream fails")
    assert {server.get("/")[0] for _ in range(20)} == {200}
