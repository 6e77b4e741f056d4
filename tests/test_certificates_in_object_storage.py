"""Certificates that servers obtain together, from a real authority (Pebble), by a bucket of an object store."""

import json
import re

import pytest

from support.acme import authority, free_port, serve_shared  # noqa: F401
from support.admin import run
from support.objects import BUCKET, Store, Versity, each_store, store  # noqa: F401
from support.shared_store import lacks_feature
from support.waiting import wait_until
from test_shared_certificates import handshake, orders

pytestmark = pytest.mark.skipif(lacks_feature(), reason="the binary is built without the feature `fleet`")


@pytest.fixture
def start(serve, site, authority):
    """Starts a server that shares its certificate with the others."""

    def begin(store, number, challenge="tls-alpn-01", tls=0, plain=0):
        storage = f'acme_storage = "s3://{BUCKET}/acme"'
        ports, tables = (tls, plain), store.table('timeout = "10s"')
        return serve_shared(serve, site, authority, number, challenge, ports, storage, tables)

    return begin


@pytest.mark.parametrize("each_store, challenge", [(Store, "tls-alpn-01"), (Versity, "http-01")], indirect=["each_store"])
def test_five_servers_place_one_order_and_any_of_them_responds_to_its_challenge(tmp_path, start, authority, each_store, challenge):
    # The authority connects to the last server alone, whichever places the order.
    entry = free_port()
    authority.start(**{"tls" if challenge == "tls-alpn-01" else "http": entry})
    last = {"tls": entry} if challenge == "tls-alpn-01" else {"plain": entry}
    servers = [start(each_store, number, challenge, **(last if number == 4 else {})) for number in range(5)]
    root = authority.root()
    shown = {wait_until(lambda: handshake(server, root), f"a certificate of server {number}", 60)
             for number, server in enumerate(servers)}
    assert len(shown) == 1, "all servers have the same certificate"
    assert orders(servers) == 1, "\n".join(server.log for server in servers)
    accounts = {path.read_bytes() for path in tmp_path.glob("state*/acme/*/account.json")}
    assert len(accounts) == 1
    # A server that starts later has it from the bucket; one that starts without the bucket, from its files.
    late = start(each_store, 5, challenge)
    assert wait_until(lambda: handshake(late, root), "the certificate") in shown
    each_store.kill()
    late.stop()
    again = start(each_store, 5, challenge)
    assert handshake(again, root) in shown
    assert orders([*servers, late, again]) == 1
    assert not re.search("PRIVATE KEY|key_pkcs8|secret", "".join(server.log for server in [*servers, late, again]))


def test_a_server_that_ends_during_its_order_is_replaced_by_another_one(start, authority, store):
    # The authority connects to a port where nothing listens yet, so that the first order takes its time.
    entry = free_port()
    authority.start(tls=entry)
    first = start(store, 0)
    first.logged("ACME: ordering a certificate")
    first.kill()
    # Its locks have an end; a test does not wait for it.
    keys = store.keys("acme/locks/")
    [key] = [key for key in keys if key.endswith(".pem")]
    assert json.loads(store.get(key))["fence"] == 1
    for each in keys:
        store.put(each, json.dumps({**json.loads(store.get(each)), "lease": 0}))
    second = start(store, 1, tls=entry)
    root = authority.root()
    # An attempt that fails is repeated after a minute.
    assert wait_until(lambda: handshake(second, root), "a certificate", 120)
    assert json.loads(store.get(key))["fence"] == 2


def test_a_renewed_certificate_is_announced_to_servers_that_wait(tmp_path, start, authority, store):
    entry = free_port()
    authority.start(tls=entry)
    servers = [start(store, 0, tls=entry), start(store, 1)]
    root = authority.root()
    old = {wait_until(lambda: handshake(server, root), "a certificate", 60) for server in servers}
    assert len(old) == 1
    # A third server without any certificate of its own is as one whose certificate is due.
    [key] = [key for key in store.keys("acme/content/") if key.endswith(".pem")]
    store.delete(key)
    servers[0].stop()
    third = start(store, 2, tls=entry)
    new = wait_until(lambda: handshake(third, root), "a new certificate", 60)
    assert new not in old
    wait_until(lambda: handshake(servers[1], root) == new, "the other server uses it", 30)


def test_without_the_store_nothing_is_ordered_and_with_it_one_server_orders(start, authority, store):
    entry = free_port()
    authority.start(tls=entry)
    store.kill()
    servers = [start(store, number, **({"tls": entry} if number == 0 else {})) for number in range(2)]
    for server in servers:
        server.logged(f"ACME: storage s3://{BUCKET}/acme: Connection refused")
    assert orders(servers) == 0
    store.start()
    root = authority.root()
    for server in servers:
        assert wait_until(lambda: handshake(server, root), "a certificate", 60)
        assert server.log.count("none is obtained or renewed until") == 1
        assert server.log.count("it responds again") == 1
    assert orders(servers) == 1


@pytest.mark.parametrize("storage, roots, reason", [
    ("https://a.example/acme", "/srv/www", "has no conditional writes"),
    ("/var/acme", "/srv/www", "it is not a URL"),
    ("s3://b/site/acme", "s3://b/site", "overlaps the root s3://b/site"),
    ("s3://b", "s3://b/content", "overlaps the root s3://b/content"),
])
def test_a_storage_that_clients_could_read_or_that_cannot_lock_is_an_error(tmp_path, storage, roots, reason):
    file = tmp_path / "dunlin.toml"
    file.write_text(
        f'[server]\nacme_storage = "{storage}"\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{roots}"\n'
    )
    code, _, error = run("check", "--config", str(file))
    assert code != 0 and reason in error and "dunlin.toml:2" in error, error
