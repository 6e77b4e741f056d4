"""Certificates that servers with a shared store obtain together, from a real authority (Pebble)."""

import re
import socket
import ssl
import time

import pytest

from support.acme import authority, free_port, serve_shared  # noqa: F401
from support.http import read_response
from support.shared_store import Store, lacks_feature, store  # noqa: F401
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(lacks_feature(), reason="the binary is built without the feature `fleet`")


@pytest.fixture
def start(serve, site, store, authority):
    """Starts a server that shares its certificate with the others."""

    def begin(number, challenge="tls-alpn-01", tls=0, plain=0):
        tables = f'[shared]\nurl = "{store.url}"\ntimeout = "500ms"'
        return serve_shared(serve, site, authority, number, challenge, (tls, plain), tables=tables)

    return begin


def handshake(server, root):
    """The certificate that is shown, if the authority `root` vouches for it."""
    made = ssl.create_default_context(cadata=root)
    try:
        with socket.create_connection(server.address, timeout=15) as plain:
            with made.wrap_socket(plain, server_hostname="a.example") as connection:
                shown = connection.getpeercert(binary_form=True)
                connection.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: a.example\r\n\r\n")
                assert read_response(connection)[2] == b"hello\n"
                return shown
    except (ssl.SSLError, ConnectionError):
        return None


def orders(servers):
    return sum(server.log.count("ACME: ordering a certificate") for server in servers)


@pytest.mark.parametrize("challenge", ["tls-alpn-01", "http-01"])
def test_five_servers_place_one_order_and_any_of_them_responds_to_its_challenge(tmp_path, start, authority, store, challenge):
    # The authority connects to the first server alone, whichever places the order.
    entry = free_port()
    authority.start(**{"tls" if challenge == "tls-alpn-01" else "http": entry})
    first = {"tls": entry} if challenge == "tls-alpn-01" else {"plain": entry}
    # Nothing is ordered without the store, so that all servers listen before the first order.
    store.stop()
    servers = [start(number, challenge, **(first if number == 4 else {})) for number in range(5)]
    for server in servers:
        server.logged("is not reachable")
    store.start()
    root = authority.root()
    shown = {wait_until(lambda: handshake(server, root), f"a certificate of server {number}", 40)
             for number, server in enumerate(servers)}
    assert len(shown) == 1, "all servers have the same certificate"
    assert orders(servers) == 1, "\n".join(server.log for server in servers)
    assert sum(server.log.count("the certificate was obtained") for server in servers) == 1
    # One account for all.
    accounts = {path.read_bytes() for path in tmp_path.glob("state*/acme/*/account.json")}
    assert len(accounts) == 1
    # A server that starts later has it from the store; one that starts without the store, from its files.
    late = start(5, challenge)
    assert wait_until(lambda: handshake(late, root), "the certificate") in shown
    store.stop()
    late.stop()
    again = start(5, challenge)
    assert handshake(again, root) in shown
    assert orders([*servers, late, again]) == 1


def test_a_server_that_ends_during_its_order_is_replaced_by_another_one(start, authority, store):
    # The authority connects to a port where nothing listens yet, so that the first order takes its time.
    entry = free_port()
    authority.start(tls=entry)
    first = start(0)
    first.logged("ACME: ordering a certificate")
    first.kill()
    # Its lock has an end; a test does not wait for it.
    wait_until(lambda: [store.command("del", key) for key in store.command("keys", "dunlin:lock:*").split()], "the lock")
    second = start(1, tls=entry)
    root = authority.root()
    assert wait_until(lambda: handshake(second, root), "a certificate", 60)


def test_a_certificate_from_before_is_shared_without_an_order(tmp_path, serve, start, authority, store):
    entry = free_port()
    authority.start(tls=entry)
    first = start(0, tls=entry)
    root = authority.root()
    shown = wait_until(lambda: handshake(first, root), "a certificate", 40)
    first.stop()
    store.command("flushall")
    again = start(0, tls=entry)
    again.logged("is reachable")
    wait_until(lambda: "acme" in store.command("keys", "dunlin:object:*"), "it is stored for the others")
    other = start(1)
    assert wait_until(lambda: handshake(other, root), "the certificate of the other server") == shown
    assert orders([first, again, other]) == 1


def test_without_the_store_nothing_is_ordered_and_with_it_one_server_orders(start, authority, store):
    entry = free_port()
    authority.start(tls=entry)
    store.stop()
    servers = [start(number, **({"tls": entry} if number == 0 else {})) for number in range(2)]
    for server in servers:
        server.logged("is not reachable")
    time.sleep(2)
    assert orders(servers) == 0
    store.start()
    root = authority.root()
    for server in servers:
        assert wait_until(lambda: handshake(server, root), "a certificate", 40)
    assert orders(servers) == 1


def test_keys_of_accounts_and_certificates_are_not_logged(start, authority, store):
    entry = free_port()
    authority.start(tls=entry)
    server = start(0, tls=entry)
    root = authority.root()
    wait_until(lambda: handshake(server, root), "a certificate", 40)
    assert not re.search("PRIVATE KEY|key_pkcs8", server.log)
