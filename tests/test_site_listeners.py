"""Sites that are served on some listeners only."""

import re
import socket
import ssl
import subprocess

import pytest

from support.http import parse, read_all
from support.server import DUNLIN, Server
from support.tls import certificate, context
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")


def ports(count):
    """Ports that are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    numbers = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return numbers


def get(port, path="/", host="a.test"):
    with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return parse(read_all(connection), "GET")


def listeners(numbers, names):
    entries = zip(numbers, names)
    return "".join(f'[[listen]]\naddress = "127.0.0.1:{port}"\nname = "{name}"\n' for port, name in entries)


def site(text, body):
    return f'[[site]]\n{text}\nrespond = {{ body = "{body}" }}\n'


@pytest.fixture
def started(tmp_path):
    servers = []

    def start(text):
        file = tmp_path / "dunlin.toml"
        file.write_text(text)
        server = Server(["--config", str(file)], cwd=tmp_path)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


def test_a_site_is_served_on_its_listeners(started, tmp_path):
    one, two, three = numbers = ports(3)
    text = listeners(numbers, ["one", "two", "three"])
    text += site('host = "a.test"\nlisten = "one"', "a on one")
    text += site(f'host = "a.test"\nlisten = ["127.0.0.1:{two}"]', "a on two")
    text += site('host = "*.test"', "every listener") + site('listen = "three"', "default of three")
    server = started(text)
    assert get(one)[2] == b"a on one" and get(two)[2] == b"a on two" and get(three)[2] == b"every listener"
    assert get(one, host="b.test")[2] == b"every listener" and get(three, host="x")[2] == b"default of three"
    assert get(one, host="x")[0] == 421
    # A reload keeps the listeners of open connections.
    with socket.create_connection(("127.0.0.1", two), timeout=15) as connection:
        request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
        connection.sendall(request)
        assert b"a on two" in connection.recv(4096)
        (tmp_path / "dunlin.toml").write_text(text.replace("a on two", "two again"))
        server.process.send_signal(1)
        server.logged("reloaded")
        connection.sendall(request)
        assert b"two again" in connection.recv(4096)


def test_errors_of_listeners_name_the_place(tmp_path):
    base = '[[listen]]\naddress = "127.0.0.1:1"\nname = "one"\n'
    for text, words in (
        (site('host = "a"\nlisten = "two"', "x"), 'no [[listen]] has the name or address "two"'),
        (site('host = "a"\nlisten = []', "x"), "the list of listeners is empty"),
        (site('host = "a"\nlisten = "one"', "x") + site('host = "a"\nlisten = ["127.0.0.1:1"]', "y"), "two sites have the host"),
        (site('listen = "one"', "x") + site('listen = "one"', "y"), "two sites are without `host`, the other one in line 4"),
    ):
        file = tmp_path / "c.toml"
        file.write_text(base + text)
        run = subprocess.run([DUNLIN, "check", "--config", str(file)], capture_output=True, text=True)
        output = run.stdout + run.stderr
        assert run.returncode == 1 and words in output and re.search(r"c\.toml:\d+", output), output


def test_each_site_of_a_host_has_its_own_certificate(started, tmp_path):
    one, two, three = numbers = ports(3)
    files = {name: certificate(tmp_path, name, ["a.test"]) for name in ("first", "second", "third")}
    entries = [("one", "first"), ("two", "second"), ("three", "third")]
    text = "".join(f'[[listen]]\naddress = "127.0.0.1:{port}"\nname = "{name}"\ntls = true\n' for port, (name, _) in zip(numbers, entries))
    for (listener, name), host in zip(entries, ['host = "a.test"', 'host = "a.test"', ""]):
        file, key = files[name]
        text += f'[[site]]\n{host}\nlisten = "{listener}"\ntls = {{ certificate = "{file}", key = "{key}" }}\nrespond = {{ body = "{name}" }}\n'
    started(text)

    def fetch(port, name, host):
        with socket.create_connection(("127.0.0.1", port), timeout=15) as plain:
            with context(files[name][0]).wrap_socket(plain, server_hostname=host) as connection:
                connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                return parse(read_all(connection), "GET")[2].decode()

    for port, (_, name) in zip(numbers, entries):
        # Its certificate is the only one that the client trusts.
        assert fetch(port, name, "a.test") == name
        for other in files.keys() - {name}:
            with pytest.raises(ssl.SSLCertVerificationError):
                fetch(port, other, "a.test")
    assert fetch(three, "third", "127.0.0.1") == "third"
    # Without a name, too.
    for port, name in ((one, "first"), (two, "second"), (three, "third")):
        with socket.create_connection(("127.0.0.1", port), timeout=15) as plain:
            unnamed = context(files[name][0])
            unnamed.check_hostname = False
            with unnamed.wrap_socket(plain) as connection:
                assert connection.getpeercert()["subject"] == ((("commonName", name),),)
