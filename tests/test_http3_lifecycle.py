"""HTTP/3 by default, and what stays of it over reloads, upgrades and changes of addresses."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from support.admin import pid_of, run
from support.files import write
from support.http3 import configuration, connect
from support.nat import Nat
from support.processes import end, is_alive
from support.server import DUNLIN
from support.systemd import Manager
from support.tls import certificate, connect as connect_tls, context, fetch as fetch_tls
from support.waiting import wait_until


class Lifecycle:
    """A server with TLS, whose process is replaced by upgrades."""

    def __init__(self, tmp_path, serve, site, listen="", server="", more="", threads=2):
        self.tmp_path, self.admin = tmp_path, tmp_path / "admin.sock"
        self.own = certificate(tmp_path, "own")
        write(site / "hello.txt", b"hello\n")
        self.server = serve(text=self.text(site, listen, server, more, threads))
        self.file = tmp_path / "dunlin-0.toml"
        self.port, self.last = self.server.port, self.server.pid

    def text(self, site, listen, server, more, threads):
        return (
            f'[server]\nthreads = {threads}\nadmin = "{self.admin}"\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n{listen}\n'
            f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{self.own[0]}", key = "{self.own[1]}" }}\n{more}\n'
        )

    def change(self, before, after):
        """Changes the configuration, and reloads it."""
        text = self.file.read_text()
        assert before in text
        self.file.write_text(text.replace(before, after))
        code, out, error = run("reload", "--admin", str(self.admin))
        assert code == 0, (out, error)

    def upgrade(self):
        code, out, error = run("upgrade", "--admin", str(self.admin))
        assert code == 0, (out, error)
        before, self.last = self.last, wait_until(lambda: (pid := pid_of(self.admin)) != self.last and pid, "the new process")
        return before

    def announcement(self):
        with connect_tls(self, context(self.own[0])) as connection:
            return fetch_tls(connection)[1].get("alt-svc")

    @property
    def host(self):
        return self.server.host

    @property
    def address(self):
        return self.server.address

    def request(self, path="/hello.txt"):
        async def request():
            async with connect(self) as client:
                return await client.request(path)

        return run_async(request())


def run_async(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


@pytest.fixture
def lifecycle(tmp_path, serve, site):
    started = []

    def start(*arguments, **more):
        started.append(Lifecycle(tmp_path, serve, site, *arguments, **more))
        return started[-1]

    yield start
    for one in started:
        if one.last != one.server.pid and is_alive(one.last):
            end(one.last)


def udp_ports(pid):
    """The UDP ports that a process has open."""
    inodes = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            name = os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            continue
        if name.startswith("socket:["):
            inodes.add(name[8:-1])
    with open(f"/proc/{pid}/net/udp") as table:
        lines = [line.split() for line in table][1:]
    return [int(fields[1].rpartition(":")[2], 16) for fields in lines if fields[9] in inodes]


def test_a_listener_with_tls_has_it_without_a_setting(lifecycle):
    here = lifecycle()
    assert here.announcement() == f'h3=":{here.port}"; ma=86400'
    assert here.request().body == b"hello\n"
    # Switched off, clients are refused at once, and new ones do not learn of it.
    here.change("tls = true\n", "tls = true\nhttp3 = false\n")
    assert here.announcement() is None
    began = time.monotonic()
    with pytest.raises(ConnectionError):
        here.request()
    assert time.monotonic() - began < 20
    here.change("http3 = false\n", "\n")
    assert here.announcement() and here.request().body == b"hello\n"


def test_sites_without_tls_1_3_do_not_announce_it(lifecycle):
    here = lifecycle()
    here.change(".key\" }", ".key\", ciphers = [\"ECDHE-ECDSA-AES128-GCM-SHA256\"] }")
    assert here.announcement() is None


def test_nothing_is_opened_where_it_is_switched_off(lifecycle):
    here = lifecycle("http3 = false")
    assert here.announcement() is None and udp_ports(here.server.pid) == []
    here.change("http3 = false", "")
    assert set(udp_ports(here.server.pid)) == {here.port} and here.request().status == 200


def test_a_port_that_is_taken_is_a_warning_unless_it_is_required(tmp_path, site, serve):
    pair = certificate(tmp_path, "own")
    write(site / "hello.txt", b"hello\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken, socket.socket() as free:
        # Another program with the same option would get a share of the datagrams.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        taken.bind(("127.0.0.1", port))
        free.close()

        def text(listen):
            return f'[[listen]]\naddress = "127.0.0.1:{port}"\ntls = true\n{listen}\n[[site]]\nroot = "{site}"\ntls = {{ certificate = "{pair[0]}", key = "{pair[1]}" }}\n'

        server = serve(text=text(""))
        server.logged(f"no HTTP/3: opening the UDP port of 127.0.0.1:{port}: Address already in use")
        with connect_tls(server, context(pair[0])) as connection:
            assert fetch_tls(connection)[1].get("alt-svc") is None
        server.stop()
        file = tmp_path / "required.toml"
        file.write_text(text("http3 = true"))
        done = subprocess.run([DUNLIN, "serve", "--config", file], capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and f"http3: opening the UDP port of 127.0.0.1:{port}: Address already in use" in done.stderr


def test_the_service_manager_may_open_the_port(tmp_path, site):
    pair = certificate(tmp_path, "own")
    write(site / "hello.txt", b"hello\n")
    tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    tcp.bind(("127.0.0.1", 0))
    tcp.listen()
    # As systemd does without ReusePort: no further socket can be opened, and the workers share this one.
    udp.bind(tcp.getsockname())
    file = tmp_path / "dunlin.toml"
    file.write_text(
        f'[server]\nthreads = 3\n[[listen]]\naddress = "127.0.0.1:{tcp.getsockname()[1]}"\ntls = true\nhttp3 = true\n'
        f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{pair[0]}", key = "{pair[1]}" }}\n'
    )
    manager = Manager(tmp_path / "notify.sock")
    process = manager.start(file, tcp, udp)
    try:
        assert manager.next() == {"READY": "1"}
        url = f"https://localhost:{tcp.getsockname()[1]}/hello.txt"
        command = [DUNLIN, "load", "--http3", "--insecure", "--json", "-", "-n", "2000", "-c", "20", "--streams", "5", "--verify", url]
        result = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60).stdout)
        assert (result["status"], result["errors"]) == ({"200": 2000}, 0), result
    finally:
        process.terminate()
        process.communicate()
        manager.socket.close()
        tcp.close()
        udp.close()


WAITS = '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\nbegun "\nwhile [ ! -e {go} ]; do sleep 0.01; done\necho done\n'


def waiting_script(tmp_path):
    """A script whose response ends once the file `go` is there, and its route."""
    directory = tmp_path / "cgi-bin"
    directory.mkdir()
    script = directory / "slow"
    script.write_text(WAITS.format(go=tmp_path / "go"))
    script.chmod(0o755)
    return f'[[site.route]]\npath = "/cgi-bin/*"\nscript = {{ kind = "cgi", directory = "{directory}" }}\n'


async def change_port(client):
    """Gives a client another port."""
    before = client._transport
    loop = asyncio.get_running_loop()
    client._transport, _ = await loop.create_datagram_endpoint(lambda: client, local_addr=("::", 0))
    before._protocol = asyncio.DatagramProtocol()
    before.close()


@pytest.mark.parametrize("after", [1, 2, 5], ids=lambda count: f"{count} workers")
def test_an_upgrade_lets_connections_finish(lifecycle, tmp_path, after):
    here = lifecycle(more=waiting_script(tmp_path))

    async def requests():
        async with connect(here) as client:
            _, slow = client.begin("/cgi-bin/slow")
            await slow.begun.wait()
            # The next process has another number of workers.
            text = here.file.read_text()
            here.file.write_text(text.replace("threads = 2", f"threads = {after}"))
            first = await asyncio.to_thread(here.upgrade)
            async with connect(here) as other:
                assert (await other.request("/hello.txt")).body == b"hello\n"
                second = await asyncio.to_thread(here.upgrade)
                # The datagrams of the first process still arrive, from wherever its client sends them.
                for _ in range(5):
                    await change_port(client)
                    await client.ping()
                assert is_alive(first) and not slow.done.is_set()
            (tmp_path / "go").touch()
            await slow.done.wait()
            assert slow.body == b"begun done\n"
        for pid in (first, second):
            await asyncio.to_thread(wait_until, lambda pid=pid: not is_alive(pid), "the end of the old process", 40)
        assert (await asyncio.to_thread(here.request)).body == b"hello\n"

    run_async(requests())


def test_a_process_whose_successor_ends_reads_its_datagrams_again(lifecycle, tmp_path):
    here = lifecycle(more=waiting_script(tmp_path))

    async def requests():
        async with connect(here) as client:
            _, slow = client.begin("/cgi-bin/slow")
            await slow.begun.wait()
            await asyncio.to_thread(here.upgrade)
            os.kill(here.last, signal.SIGKILL)
            await client.ping()
            (tmp_path / "go").touch()
            await slow.done.wait()
            assert slow.body == b"begun done\n"

    run_async(requests())
    wait_until(lambda: here.server.process.poll() is not None, "the end of the old process", 40)


def test_a_connection_of_a_process_that_has_ended_is_reset(lifecycle):
    """The next process has the keys of stateless resets."""
    here = lifecycle(server='stop_timeout = "1s"')

    async def requests():
        async with connect(here, configuration(idle_timeout=300)) as client:
            assert (await client.request("/hello.txt")).status == 200
            token, received = client._quic._peer_cid.stateless_reset_token, []
            # It does not learn that the server closes the connection.
            client.datagram_received = lambda data, address: received.append(data)
            before = await asyncio.to_thread(here.upgrade)
            await asyncio.to_thread(wait_until, lambda: not is_alive(before), "the end of the old process", 40)
            assert not any(data.endswith(token) for data in received)
            client.begin("/hello.txt")
            while not any(data.endswith(token) for data in received):
                await asyncio.sleep(0.01)

    run_async(requests())


def load(port, *options):
    url = f"https://localhost:{port}/hello.txt"
    return [DUNLIN, "load", "--http3", "--insecure", "--verify", *options, url]


@pytest.mark.paced
def test_nothing_is_lost_over_reloads_upgrades_and_changes_of_addresses(lifecycle, tmp_path):
    seconds = float(os.environ.get("DUNLIN_LIFECYCLE_SECONDS", "14"))
    connections = os.environ.get("DUNLIN_LIFECYCLE_CONNECTIONS", "50")
    here = lifecycle(more='set_fields = { X-Generation = "0" }')
    nat, outcome = Nat(here.port), tmp_path / "load.json"
    options = ["-c", connections, "--streams", "4", "-d", f"{seconds}s", "--json", str(outcome)]
    running = subprocess.Popen(load(nat.port, *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    began, reloads, upgrades, rebindings = time.monotonic(), 0, 0, 0
    share = max(1, int(connections) // 200)
    try:
        while running.poll() is None and (passed := (time.monotonic() - began) / (seconds - 1)) < 1:
            if rebindings < 200 * passed:
                nat.rebind(share)
                rebindings += 1
            if reloads < 20 * passed:
                here.change(f'X-Generation = "{reloads}"', f'X-Generation = "{reloads + 1}"')
                reloads += 1
            if upgrades < 5 * passed - 0.5:
                here.upgrade()
                upgrades += 1
            time.sleep(0.005)
        out, _ = running.communicate(timeout=60)
        assert outcome.exists(), out
        reported = json.loads(outcome.read_text())
        counts = {key: reported[key] for key in ("requests", "errors", "errors_by_kind", "status", "connections")}
        print(json.dumps({"reloads": reloads, "upgrades": upgrades, "rebindings": rebindings, **counts}))
        assert (reloads, upgrades, rebindings) >= (20, 5, 190), (reloads, upgrades, rebindings)
        assert reported["requests"] > 1000 and reported["errors"] == 0, (counts, out)
        assert set(reported["status"]) == {"200"}, counts
        assert nat.end() >= 100
    finally:
        running.kill()
        nat.process.kill()


def test_check_prints_the_records_to_publish(tmp_path, site):
    pair = certificate(tmp_path, "own", ("a.example",))
    file = tmp_path / "dunlin.toml"
    file.write_text(
        f'[[listen]]\naddress = "127.0.0.1:443"\ntls = true\n'
        f'[[site]]\nhost = "a.example"\nroot = "{site}"\ntls = {{ certificate = "{pair[0]}", key = "{pair[1]}" }}\n'
    )
    code, out, error = run("check", "--config", str(file))
    assert code == 0 and 'a.example. HTTPS 1 . alpn="h3,h2"' in out, (out, error)
    file.write_text(file.read_text().replace("tls = true\n", "tls = true\nhttp3 = false\n"))
    assert "HTTPS 1" not in run("check", "--config", str(file))[1]
