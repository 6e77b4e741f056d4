"""The status of several servers, added up by one of them."""

import json
import re
import signal
import subprocess

import pytest

from support.dns import A, NameServer, SRV
from support.files import write
from support.server import DUNLIN
from support.waiting import wait_until

NAME = "_http._tcp.web.test"


@pytest.fixture
def fleet(serve, site):
    """Three servers that SRV records name. The first one adds them up."""
    write(site / "a.txt", "a")
    names = NameServer()
    own = '[[site.route]]\npath = "/status/*"\nstatus = true\nallow = ["127.0.0.1"]\n'
    sums = own.replace("true", f'{{ fleet = "{NAME}" }}')
    servers = [serve(server=f'resolver = ["{names.address}"]', more=sums), serve(more=own), serve(more=own)]
    for number in range(3):
        names.records[(f"r{number}.web.test", A)] = ["127.0.0.1"]

    def name(*listed):
        names.records[(NAME, SRV)] = [(0, 1, server.port, f"r{servers.index(server)}.web.test") for server in listed]

    name(*servers)
    return servers, names, name


def address(server):
    return f"127.0.0.1:{server.port}"


def requests(report):
    """Requests for files."""
    return sum(route["requests"] for route in report["routes"] if route["route"] != "/status/*")


def by_address(report):
    return {replica["address"]: replica for replica in report["replicas"]["each"]}


class Events:
    """The server-sent events of a path."""

    def __init__(self, server, path):
        self.connection = server.connect()
        self.connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self.unread = b""

    def next(self):
        while b"\n\n" not in self.unread:
            part = self.connection.recv(65536)
            assert part, "the stream has ended"
            self.unread += part
        event, self.unread = self.unread.split(b"\n\n", 1)
        return json.loads(event[event.index(b"{") : event.rindex(b"}") + 1])

    def until(self, condition, what):
        last = None

        def found():
            nonlocal last
            last = self.next()
            return condition(last)

        wait_until(found, what, 30)
        return last


def test_one_server_adds_up_all_that_the_records_name(fleet):
    servers, _, _ = fleet
    for server, count in zip(servers, (3, 4, 5)):
        for _ in range(count):
            server.get("/a.txt")
    # Counts are published a moment after the responses.
    wait_until(lambda: requests(json.loads(servers[0].get("/status/fleet/status.json")[2])) == 12, "all requests are counted")
    status, fields, body = servers[0].get("/status/fleet/status.json")
    report = json.loads(body)
    assert (status, fields["content-type"], requests(report)) == (200, "application/json", 12)
    assert report["replicas"]["name"] == NAME and report["replicas"]["error"] is None
    assert set(by_address(report)) == set(map(address, servers))
    assert all(replica["error"] is None and replica["age"] < 5 for replica in by_address(report).values())
    # Its own status is that of one, and the others add nothing up.
    assert json.loads(servers[0].get("/status/status.json")[2])["replicas"] is None
    assert servers[1].get("/status/fleet/status.json")[0] == 404
    # The terminal shows the same sum.
    top = subprocess.run(
        [DUNLIN, "top", "--once", "--admin", f"{servers[0].url}/status/fleet/"], capture_output=True, text=True, timeout=60
    )
    assert re.search(r"^route +default \(site\): .* 12 requests", top.stdout, re.M), top


def test_the_pages_of_one_and_of_all_lead_to_each_other(fleet):
    servers, _, _ = fleet
    assert b'<a href="fleet/">All replicas</a>' in servers[0].get("/status/")[2]
    status, fields, page = servers[0].get("/status/fleet/")
    assert status == 200 and b'<a href="../">This server</a>' in page and b'href="../metrics"' in page
    assert servers[0].get("/status/fleet")[1]["location"] == "fleet/"
    assert servers[0].get("/status/fleet/", method="HEAD")[2] == b""
    assert b"All replicas" not in servers[1].get("/status/")[2]


def test_a_server_that_does_not_respond_keeps_its_last_figures_with_their_age(fleet):
    servers, _, _ = fleet
    for server in servers:
        server.get("/a.txt")
    events = Events(servers[0], "/status/fleet/events")
    events.until(lambda report: requests(report) == 3, "all have responded")
    hung, killed = servers[1], servers[2]
    hung.process.send_signal(signal.SIGSTOP)
    killed.kill()
    try:
        report = events.until(
            lambda report: all(by_address(report)[address(server)]["error"] for server in (hung, killed)), "both are missed"
        )
        assert requests(report) == 3, "what is known is not forgotten"
        replicas = by_address(report)
        assert replicas[address(servers[0])]["error"] is None
        assert "not reached" in replicas[address(killed)]["error"] and "took too long" in replicas[address(hung)]["error"]
        events.until(lambda report: by_address(report)[address(killed)]["age"] > 2.5, "its figures become older")
        # Meanwhile the worker responds at once, although one server does not respond at all.
        assert servers[0].get("/a.txt")[0] == 200
    finally:
        hung.process.send_signal(signal.SIGCONT)
    events.until(lambda report: by_address(report)[address(hung)]["error"] is None, "it is back")


def test_replicas_come_and_go_with_the_records_and_stay_without_a_name_server(fleet):
    servers, names, name = fleet
    name(servers[0])
    events = Events(servers[0], "/status/fleet/events")
    events.until(lambda report: len(by_address(report)) == 1, "there is one")
    name(*servers)
    events.until(lambda report: len(by_address(report)) == 3 and not report["replicas"]["error"], "there are three")
    names.is_failing = True
    report = events.until(lambda report: report["replicas"]["error"], "the failure is shown")
    assert NAME in report["replicas"]["error"] and len(by_address(report)) == 3
    names.is_failing = False
    name(servers[1])
    report = events.until(lambda report: len(by_address(report)) == 1, "one is left")
    assert list(by_address(report)) == [address(servers[1])]


def test_nothing_is_collected_without_a_viewer(fleet):
    servers, names, _ = fleet
    events = Events(servers[0], "/status/fleet/events")
    events.until(lambda report: len(by_address(report)) == 3, "it is collected")
    events.connection.close()

    def threads():
        return [task for task in tasks(servers[0]) if task == "replicas"]

    assert len(threads()) <= 1
    wait_until(lambda: not threads(), "the thread has ended")
    # The next viewer starts it again.
    assert len(by_address(json.loads(servers[0].get("/status/fleet/status.json")[2]))) == 3


def tasks(server):
    done = subprocess.run(["ps", "-L", "-o", "comm=", "-p", str(server.pid)], capture_output=True, text=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    "status, message",
    [
        ('{ fleet = "" }', "is not an SRV record name"),
        ('{ fleet = "http://a/" }', "is not an SRV record name"),
        ('{ fleet = "_http._tcp.a", path = "status" }', '"status" is not a path'),
        ("{}", "the table has no `fleet`"),
        ('"yes"', "true, false or a table"),
    ],
)
def test_settings_that_name_no_servers_are_errors(tmp_path, status, message):
    text = f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "/"\n[[site.route]]\npath = "/s/*"\nstatus = {status}\n'
    file = write(tmp_path / "dunlin.toml", text)
    done = subprocess.run([DUNLIN, "check", "--config", file], capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stdout + done.stderr, done.stderr
