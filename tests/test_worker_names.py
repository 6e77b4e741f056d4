"""Workers whose addresses the Domain Name System has, with a name server of the test's own."""

import json
import socket
import struct
import threading

import pytest

from support.admin import run
from support.dns import A, SRV, NameServer
from support.fastcgi import end_request, record
from support.waiting import wait_until

SERVICE = "_worker._tcp.app.test"


class Worker:
    """An SCGI worker that responds with its name."""

    def __init__(self, name, host="127.0.0.1", port=0):
        self.name, self.open = name, []
        self.socket = socket.create_server((host, port))
        self.port = self.socket.getsockname()[1]
        self.hold = threading.Event()
        self.hold.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.respond, args=(connection,), daemon=True).start()

    def respond(self, connection):
        with connection:
            if self.receive(connection):
                self.open.append(connection)
                self.hold.wait()
                output = f"Status: 200 OK\r\nContent-Type: text/plain\r\n\r\n{self.name}"
                connection.sendall(self.encode(output.encode()))

    def receive(self, connection):
        """Reads a request, which has no body. Returns `False` if it has no end."""
        head = b""
        while not head.endswith(b","):
            part = connection.recv(65536)
            if not part:
                return False
            head += part
        return True

    def encode(self, output):
        return output

    def stop(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class FastCgiWorker(Worker):
    """The same by FastCGI."""

    def receive(self, connection):
        with connection.makefile("rb") as stream:
            while len(head := stream.read(8)) == 8:
                _, kind, _, size, padding = struct.unpack(">BBHHBx", head)
                stream.read(size + padding)
                # The request ends with an empty record of its standard input.
                if kind == 5 and not size:
                    return True
        return False

    def encode(self, output):
        return record(6, output) + record(6) + end_request()


WORKERS = {"scgi": Worker, "fastcgi": FastCgiWorker}


@pytest.fixture
def kind():
    return "scgi"


@pytest.fixture
def names():
    running = NameServer()
    yield running
    running.socket.close()


@pytest.fixture
def start(serve, names, kind):
    def begin(*addresses, settings="cool_down = \"1s\""):
        route = f'script = {{ kind = "{kind}", connect = {json.dumps(addresses)}, {settings} }}'
        return serve(route=route, server=f'resolver = ["{names.address}"]')

    return begin


def bodies(server, count):
    return [server.get("/x")[2].decode() for _ in range(count)]


def test_each_address_of_a_name_is_used_and_a_change_is_followed(start, names):
    first = Worker("a", "127.0.0.1")
    second = Worker("b", "127.0.0.2", first.port)
    names.records[("app.test", A)] = ["127.0.0.1", "127.0.0.2"]
    server = start(f"app.test:{first.port}")
    # While one responds to nothing, the other one gets the requests.
    first.hold.clear()
    waiting = threading.Thread(target=lambda: first_bodies.append(server.get("/x")[2]))
    first_bodies = []
    waiting.start()
    wait_until(lambda: first.open or second.open, "the first request")
    assert set(bodies(server, 5)) == {"b"}
    first.hold.set()
    waiting.join()
    third = Worker("c", "127.0.0.3", first.port)
    names.records[("app.test", A)] = ["127.0.0.3"]
    wait_until(lambda: bodies(server, 1) == ["c"], "the new address")
    assert set(bodies(server, 5)) == {"c"}
    # With the name server silent, the last addresses are used, which is logged once.
    names.is_failing = True
    wait_until(lambda: bodies(server, 1) == ["c"] and "the last known addresses are used" in server.log, "the failure in the log", 30)
    names.is_failing = False
    wait_until(lambda: bodies(server, 1) == ["c"] and "app.test resolved again" in server.log, "the end of the failure", 30)
    assert server.log.count("the last known addresses are used") == 1
    for worker in [first, second, third]:
        worker.stop()


@pytest.mark.parametrize("kind", WORKERS)
def test_srv_records_have_priorities_and_weights(start, names, kind):
    workers = {name: WORKERS[kind](name) for name in "abc"}
    names.records[("w.test", A)] = ["127.0.0.1"]
    names.records[(SERVICE, SRV)] = [
        (0, 3, workers["a"].port, "w.test"), (0, 1, workers["b"].port, "w.test"), (1, 100, workers["c"].port, "w.test"),
    ]
    server = start(f"srv://{SERVICE}", settings='cool_down = "30s", processes = 20')
    for worker in workers.values():
        worker.hold.clear()
    threads = [threading.Thread(target=server.get, args=("/x",)) for _ in range(8)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        wait_until(lambda: sum(len(worker.open) for worker in workers.values()) == number, f"request {number}")
    assert [len(workers[name].open) for name in "abc"] == [6, 2, 0]
    for worker in workers.values():
        worker.hold.set()
    for thread in threads:
        thread.join()
    workers["a"].stop()
    workers["b"].stop()
    assert set(bodies(server, 5)) == {"c"}, "those with a higher number are for when no other one can be reached"


def test_a_name_without_an_address_is_reported(start, names, tmp_path):
    server = start("none.test:9000")
    assert server.get("/x")[0] == 502
    server.logged("resolving none.test failed")
    code, out, error = run("check", "--config", str(tmp_path / "dunlin-0.toml"))
    assert "script: resolving none.test failed" in out + error and "requests get 502 until it can be resolved" in out + error


@pytest.mark.parametrize("address", ["srv://", "srv://a b", "php", "php:0", "php:x", "1.2.3:80", "a..b:80", "http://php:80"])
def test_what_is_no_address_is_an_error(tmp_path, address):
    file = tmp_path / "dunlin.toml"
    file.write_text(
        '[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "/srv/www"\n[[site.route]]\npath = "/*"\n'
        f'script = {{ kind = "fastcgi", connect = "{address}" }}\n'
    )
    code, _, error = run("check", "--config", str(file))
    assert code != 0 and "is not an address such as" in error and "dunlin.toml:7" in error, error
