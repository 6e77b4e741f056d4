"""Servers that share their state by a store: limits, tickets, purges, passwords, maintenance, and the loss of the store."""

import asyncio
import base64
import json
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from support import outage
from support.acme import free_port
from support.files import write
from support.http import read_response
from support.http3 import connect as connect_http3
from support.server import DUNLIN
from support.shared_store import Store, lacks_feature, store  # noqa: F401
from support.tls import certificate
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    lacks_feature(),
    reason="the binary is built without the feature `fleet`",
)

RATE = 100
LIMIT = f'limit = {{ requests = "{RATE}/s", burst = {RATE}, shared = true }}'


@pytest.fixture
def fleet(serve, site, tmp_path):
    """Starts servers with the same site and store, and waits until each has seen all of them."""
    write(site / "a.txt", b"a\n")

    def start(count, url, route="", more="", table="", sees=True, listen=""):
        servers = []
        for number in range(len(serve.running), len(serve.running) + count):
            text = (
                f'[server]\nthreads = 1\nadmin = "admin{number}"\nstate = "state{number}"\n'
                f'[shared]\nurl = {json.dumps(url)}\n{table}\n'
                f'[[listen]]\naddress = "127.0.0.1:0"\n{listen}\n[[site]]\nroot = "{site}"\n{more}\n'
                f'[[site.route]]\npath = "/*"\n{route}\n'
            )
            server = serve(text=text)
            server.admin = tmp_path / f"admin{number}"
            servers.append(server)
        if sees:
            for server in servers:
                wait_until(lambda: metric(server, "dunlin_shared_servers") == len(servers), "the servers see each other")
        return servers

    return start


def admin(server, *words):
    """Runs a command for a server."""
    done = subprocess.run([DUNLIN, *words, "--admin", server.admin], capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout + done.stderr


def admin_response(server, path):
    """The response of the admin socket, with its head."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(15)
        connection.connect(str(server.admin))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        text = b""
        while part := connection.recv(65536):
            text += part
    return text.decode()


def metric(server, name):
    values = [line.split()[-1] for line in admin_response(server, "/metrics").splitlines() if line.startswith(name + " ")]
    return float(values[0]) if values else None


class Load:
    """Requests to a server on a connection, as fast as `rate` per second, until it is stopped."""

    def __init__(self, server, rate):
        self.server, self.rate = server, rate
        self.statuses, self.slowest, self.failure = {}, 0.0, None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            with self.server.connect() as connection:
                self.first = time.monotonic()
                sent = 0
                while not self.stopped.is_set():
                    due = int((time.monotonic() - self.first) * self.rate) - sent
                    for _ in range(due):
                        began = time.monotonic()
                        connection.sendall(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n")
                        status = read_response(connection)[0]
                        self.slowest = max(self.slowest, time.monotonic() - began)
                        self.statuses[status] = self.statuses.get(status, 0) + 1
                        sent += 1
                    self.stopped.wait(0.005)
        except Exception as failure:  # reported by the test
            self.failure = failure

    def stop(self):
        self.stopped.set()
        self.thread.join()
        assert self.failure is None, self.failure
        return self


def load(servers, rates, seconds):
    """The number of requests that were allowed, and the time that it took."""
    loads = [Load(server, rate) for server, rate in zip(servers, rates) if rate]
    time.sleep(seconds)
    for one in loads:
        one.stop()
        assert set(one.statuses) <= {200, 429}, one.statuses
    return sum(one.statuses.get(200, 0) for one in loads), time.monotonic() - min(one.first for one in loads)


@pytest.mark.paced
@pytest.mark.parametrize("rates", [(120, 120, 120), (300, 0, 0), (200, 40, 10)], ids=["uniform", "one", "uneven"])
def test_three_servers_allow_what_one_would(fleet, store, rates):
    servers = fleet(3, store.url, LIMIT)
    allowed, seconds = load(servers, rates, 8)
    expected = RATE * seconds + RATE
    assert 0.95 <= allowed / expected <= 1.05, f"{allowed} of {expected:.0f}"


@pytest.mark.paced
def test_without_the_store_each_server_has_its_part_and_one_line_is_logged_each_way(fleet, store):
    servers = fleet(3, store.url, LIMIT)
    load(servers, (200, 200, 200), 2)
    store.stop()
    for server in servers:
        server.logged("is not reachable, this server allows 1/3 of shared limits until it is")
    allowed, seconds = load(servers[:1], (200,), max(6, outage.SECONDS))
    ended = time.monotonic()
    assert allowed <= 1.1 * (RATE / 3) * (seconds + 1), "a third of the rate and of the burst"
    assert allowed >= 0.9 * RATE / 3 * seconds
    store.start()
    for server in servers:
        server.logged("is reachable again")
    wait_until(lambda: store.command("zcard", "dunlin:servers") == "3", "the store sees all servers")
    # What the server has spent of its third of the burst is owed, unless it was refilled since.
    owed = max(RATE / 3 * (1 - (time.monotonic() - ended)), 0)
    allowed, seconds = load(servers[:1], (300,), 6)
    expected = RATE * seconds + RATE - owed
    assert 0.95 <= allowed / expected <= 1.05, f"{allowed} of {expected:.0f}"
    for server in servers:
        assert server.log.count("is not reachable") == 1, server.log
        assert server.log.count("is reachable again") == 1, server.log


@pytest.mark.paced
def test_a_store_that_does_not_respond_delays_no_request(fleet, store):
    servers = fleet(2, store.url, LIMIT)
    loads = [Load(server, 100) for server in servers]
    store.pause()
    try:
        for server in servers:
            server.logged("is not reachable")
        # Attempts to connect time out, too.
        time.sleep(outage.SECONDS)
    finally:
        store.resume()
    for server in servers:
        server.logged("is reachable again")
    for one in loads:
        one.stop()
        assert set(one.statuses) <= {200, 429} and one.slowest < 0.5, (one.statuses, one.slowest)
    for server in servers:
        assert server.log.count("is not reachable") == server.log.count("is reachable again") == 1, server.log


def test_a_server_starts_without_the_store(fleet, store):
    store.stop()
    (server,) = fleet(1, store.url, LIMIT, sees=False)
    server.logged("no other server has been seen, so shared limits apply only to this one")
    assert server.get("/a.txt")[0] == 200
    code, text = admin(server, "maintenance", "on")
    assert code == 1 and "nothing was changed: the store 127.0.0.1" in text
    assert server.get("/a.txt")[0] == 200
    store.start()
    server.logged("is reachable again")


def test_sessions_are_resumed_by_any_server(fleet, store, site, tmp_path):
    own = certificate(tmp_path, "own", ("localhost",))
    tls = f'tls = {{ certificate = "{own[0]}", key = "{own[1]}" }}'
    servers = fleet(2, store.url, more=tls, listen="tls = true")
    made = ssl.create_default_context(cafile=own[0])

    def connect(server, session=None):
        with made.wrap_socket(server.connect(), server_hostname="localhost", session=session) as connection:
            connection.sendall(b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_response(connection)[0] == 200
            return connection.session_reused, connection.session

    def is_shared():
        return connect(servers[1], connect(servers[0])[1])[0]

    wait_until(is_shared, "the servers have the same keys")
    resumed = sum(connect(servers[n % 2], connect(servers[1 - n % 2])[1])[0] for n in range(100))
    assert resumed >= 99
    # A session that was resumed elsewhere is resumed again, with TLS 1.2 as well.
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    assert is_shared()
    store.stop()
    servers[0].logged("is not reachable")
    assert is_shared(), "the keys stay in use without the store"


def test_tickets_of_sites_that_verify_clients_and_early_data_stay_at_one_server(fleet, store, site, tmp_path):
    own = certificate(tmp_path, "own", ("localhost",))
    for settings, resumes_at_home in ((f'client_authority = "{own[0]}", client_required = false', True), ("early_data = true", True)):
        tls = f'tls = {{ certificate = "{own[0]}", key = "{own[1]}", {settings} }}'
        servers = fleet(2, store.url, more=tls, listen="tls = true", sees=False)
        for server in servers:
            server.logged("is reachable")
            wait_until(lambda: store.command("llen", "dunlin:tickets") == "1", "there is a secret")
        made = ssl.create_default_context(cafile=own[0])

        def connect(server, session=None):
            with made.wrap_socket(server.connect(), server_hostname="localhost", session=session) as connection:
                connection.sendall(b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert read_response(connection)[0] == 200
                return connection.session_reused, connection.session

        for _ in range(5):
            assert not connect(servers[1], connect(servers[0])[1])[0]
        assert connect(servers[0], connect(servers[0])[1])[0] == resumes_at_home


def test_connections_of_http3_are_reset_by_any_server(fleet, store, tmp_path):
    own = certificate(tmp_path, "own", ("localhost",))
    servers = fleet(2, store.url, more=f'tls = {{ certificate = "{own[0]}", key = "{own[1]}" }}', listen="tls = true", sees=False)
    for server in servers:
        server.logged("is reachable")

    async def reset():
        async with connect_http3(servers[0]) as client:
            assert (await client.request("/a.txt")).status == 200
            sent = []
            client._transport.sendto = lambda data, address: sent.append(data)
            await asyncio.wait({asyncio.ensure_future(client.ping())}, timeout=0.05)
            token = client._quic._peer_cid.stateless_reset_token
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.settimeout(0.5)
                other.sendto(sent[-1] + bytes(100), ("127.0.0.1", servers[1].port))
                try:
                    return other.recv(2000).endswith(token)
                except TimeoutError:
                    return False

    # Connections that began before the servers had the secret are not known elsewhere.
    wait_until(lambda: asyncio.run(reset()), "a reset by the other server")


def test_a_purge_reaches_all_servers(fleet, store, tmp_path):
    upstream = Upstream(lambda *_: response(b"x", "200 OK", "Cache-Control: max-age=600"))
    try:
        route = f'proxy = "http://127.0.0.1:{upstream.port}"\ncache = {{ responses = true }}'
        servers = fleet(3, store.url, route)

        def states():
            return [server.get("/p")[1]["cache-status"] for server in servers]

        states()
        assert all("hit" in state for state in states())
        code, text = admin(servers[1], "purge", "/p")
        assert (code, text) == (0, "1 URL purged here; all 3 servers have confirmed it\n")
        assert not any("hit" in state for state in states())
        assert all("hit" in state for state in states())
        store.stop()
        servers[0].logged("is not reachable")
        code, text = admin(servers[0], "purge", "/p")
        assert code == 1 and text.startswith("dunlin: 1 URL purged here only: the store 127.0.0.1"), text
    finally:
        upstream.stop()


def test_a_server_that_was_not_connected_purges_what_it_has_missed(fleet, store):
    upstream = Upstream(lambda *_: response(b"x", "200 OK", "Cache-Control: max-age=600"))
    try:
        route = f'proxy = "http://127.0.0.1:{upstream.port}"\ncache = {{ responses = true }}'
        servers = fleet(2, store.url, route, table='timeout = "200ms"')
        for server in servers:
            server.get("/p")
            assert "hit" in server.get("/p")[1]["cache-status"]
        # The second server cannot reach the store while the first one purges.
        servers[1].process.send_signal(signal.SIGSTOP)
        code, text = admin(servers[0], "purge", "/p")
        assert code == 0 and "1 of 2 servers have confirmed it" in text, text
        servers[1].process.send_signal(signal.SIGCONT)
        wait_until(lambda: "hit" not in servers[1].get("/p")[1]["cache-status"], "the purge arrives")
    finally:
        upstream.stop()


def test_attempts_against_passwords_are_counted_over_all_servers(fleet, store, tmp_path):
    users = tmp_path / "users"
    subprocess.run([DUNLIN, "passwd", users, "ann"], input="right horse battery\n", text=True, check=True, capture_output=True)
    servers = fleet(3, store.url, f'auth = {{ basic = "{users}", attempts = 6 }}')

    def attempt(server, password):
        given = base64.b64encode(f"ann:{password}".encode()).decode()
        return server.get("/a.txt", f"Authorization: Basic {given}")[0]

    assert attempt(servers[0], "right horse battery") == 200
    statuses = []
    for number in range(6):
        statuses.append(attempt(servers[number % 3], f"wrong{number}"))
        # The store has counted it before the next one.
        wait_until(lambda: total(store) == number + 1, "the attempt is counted")
    assert statuses == [401] * 6
    for server in servers:
        wait_until(lambda: attempt(server, "right horse battery!") == 429, "every server rejects further attempts")
    assert attempt(servers[0], "right horse battery") == 200, "a password that was verified is not tried again"


def total(store):
    keys = store.command("keys", "dunlin:attempts:*").split()
    return sum(int(store.command("get", key) or 0) for key in keys)


def test_a_site_is_closed_on_all_servers(fleet, store):
    servers = fleet(2, store.url, 'error_pages = { 503 = "/a.txt" }')
    code, text = admin(servers[0], "maintenance", "on", "--retry-after", "60")
    assert (code, text) == (0, "all sites are under maintenance; all 2 servers have confirmed it\n")
    for server in servers:
        status, fields, body = server.get("/a.txt")
        assert (status, fields["retry-after"], body) == (503, "60", b"a\n")
    (late,) = fleet(1, store.url, sees=False)
    wait_until(lambda: late.get("/a.txt")[0] == 503, "a server that starts learns of it")
    store.stop()
    servers[1].logged("is not reachable")
    assert servers[1].get("/a.txt")[0] == 503
    store.start()
    wait_until(lambda: servers[1].get("/a.txt")[0] == 200, "the store has lost it")
    assert admin(servers[0], "maintenance", "on", "--site", "nobody")[0] == 1


def test_a_store_with_password_and_tls(fleet, tmp_path):
    ca = certificate(tmp_path, "ca")
    own = certificate(tmp_path, "store", issuer=ca)
    made = Store(
        tmp_path / "store", "--requirepass", "secret", "--tls-cert-file", own[0], "--tls-key-file", own[1],
        "--tls-ca-cert-file", ca[0], "--tls-auth-clients", "no", tls=True,
    )
    try:
        servers = fleet(2, f"rediss://:secret@localhost:{made.port}", LIMIT, table=f'authority = "{ca[0]}"')
        assert servers[0].get("/a.txt")[0] == 200
        (wrong,) = fleet(1, f"rediss://:wrong@localhost:{made.port}", LIMIT, table=f'authority = "{ca[0]}"', sees=False)
        wrong.logged("is not reachable")
        for server in (*servers, wrong):
            assert "secret" not in server.log and ":wrong" not in server.log
            text = admin_response(server, "/config")
            assert "rediss://:hidden-" in text and ":secret" not in text and ":wrong" not in text
    finally:
        made.stop()


def test_a_master_that_sentinels_name(fleet, tmp_path):
    first = Store(tmp_path / "first")
    second = Store(tmp_path / "second", "--replicaof", "127.0.0.1", str(first.port))
    watch = tmp_path / "watch"
    watch.mkdir()
    (watch / "store.conf").write_text(
        f"sentinel monitor main 127.0.0.1 {first.port} 1\nsentinel down-after-milliseconds main 500\n"
        "sentinel failover-timeout main 2000\n"
    )
    sentinel = Store(watch, mode=("--sentinel",))
    try:
        wait_until(lambda: "slaves=1" in sentinel.command("info", "sentinel"), "the sentinel knows the replica")
        servers = fleet(2, sentinel.url, LIMIT, table='sentinel = "main"\ntimeout = "500ms"')
        assert servers[0].get("/a.txt")[0] == 200
        first.stop()
        for server in servers:
            server.logged("is reachable again")
        assert second.command("zcard", "dunlin:servers") == "2"
    finally:
        for one in (sentinel, second, first):
            one.stop()


def test_a_cluster(fleet, tmp_path):
    # By default it is 10,000 above the other port, which the kernel may choose too high for that.
    buses = [free_port() for _ in range(3)]
    settings = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
    nodes = [Store(tmp_path / f"node{n}", *settings, "--cluster-port", str(bus)) for n, bus in enumerate(buses)]
    try:
        for number, node in enumerate(nodes):
            first, last = number * 5461 + (number > 0), min((number + 1) * 5461, 16383)
            node.command("cluster", "addslotsrange", str(first), str(last))
            nodes[0].command("cluster", "meet", "127.0.0.1", str(node.port), str(buses[number]))
        for node in nodes:
            wait_until(lambda: "cluster_state:ok" in node.command("cluster", "info"), "the cluster is complete")
        servers = fleet(2, [node.url for node in nodes], LIMIT, table="cluster = true")
        allowed, seconds = load(servers, (150, 150), 4)
        assert 0.9 <= allowed / (RATE * seconds + RATE) <= 1.05
        code, text = admin(servers[0], "maintenance", "on")
        assert code == 0 and "all 2 servers" in text
    finally:
        for node in nodes:
            node.stop()
