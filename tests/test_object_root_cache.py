"""Files in object storage: what reaches the store, and when a change is seen."""

import json
import os
import socket
import threading
import time

import pytest
from support.admin import by_unix
from support.http import parse, read_all, read_until_cut
from support.objects import BUCKET, counting_store, serve_objects, store  # noqa: F401
from support.waiting import wait_until


def all_at_once(server, path, count):
    """Sends `count` requests, each by a connection of its own, before it reads a response. Returns the bodies."""
    connections = [server.connect(60) for _ in range(count)]
    for connection in connections:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    responses = [parse(read_all(connection)) for connection in connections]
    for connection in connections:
        connection.close()
    assert {response[0] for response in responses} == {200}
    return {response[2] for response in responses}


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_thousand_requests_for_a_cold_object_are_one_request_to_the_store(counting_store, serve_objects, size):
    content = os.urandom(size)
    counting_store.objects["cold.bin"] = content
    counting_store.head_delay = 0.5
    server = serve_objects(counting_store, table='revalidate = "1h"')
    count = 1000 if size < 1000 else 100
    assert all_at_once(server, "/cold.bin", count) == {content}
    assert len(counting_store.gets("cold.bin")) == 1
    assert server.get("/cold.bin")[2] == content
    assert len(counting_store.gets("cold.bin")) == 1


def test_a_missing_object_is_requested_once(counting_store, serve_objects):
    server = serve_objects(counting_store, table='revalidate = "1h"')
    assert [server.get("/none.txt")[0] for _ in range(5)] == [404] * 5
    assert len(counting_store.gets("none.txt")) == 1
    assert len([1 for request in counting_store.requests if "list-type" in request[0]]) == 1


def test_a_body_is_sent_while_it_arrives(counting_store, serve_objects):
    content = os.urandom(640_000)
    counting_store.objects["slow.bin"] = content
    counting_store.part_delay = 0.2
    server = serve_objects(counting_store)
    with server.connect() as connection:
        connection.sendall(b"GET /slow.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        first = connection.recv(65536)
        began = time.monotonic()
        rest = read_all(connection)
    assert time.monotonic() - began > 1, "the first bytes came long before the last"
    assert parse(first + rest)[2] == content


def test_a_body_that_ends_early_is_cut_and_not_cached(counting_store, serve_objects):
    whole = os.urandom(500_000)
    counting_store.objects["cut.bin"] = whole
    counting_store.part_delay = 0.3
    server = serve_objects(counting_store)
    wait = threading.Thread(target=lambda: (wait_until(lambda: counting_store.gets("cut.bin"), "a request"), counting_store.cut()))
    wait.start()
    received = read_until_cut(server, "/cut.bin")
    wait.join()
    assert 0 < len(received) < len(whole)
    counting_store.part_delay = 0
    assert server.get("/cut.bin")[2] == whole


def test_a_change_is_seen_after_revalidate(store, serve_objects):
    store.put("a.txt", "first")
    server = serve_objects(store, table='revalidate = "1s"')
    assert server.get("/a.txt")[2] == b"first"
    store.put("a.txt", "second")
    assert server.get("/a.txt")[2] == b"first"
    wait_until(lambda: server.get("/a.txt")[2] == b"second", "the change is seen", 5)
    store.delete("a.txt")
    wait_until(lambda: server.get("/a.txt")[0] == 404, "the object is gone", 5)
    store.put("a.txt", "third")
    wait_until(lambda: server.get("/a.txt")[2] == b"third", "the object is back", 5)


def test_with_revalidate_0_each_request_is_confirmed(store, serve_objects):
    server = serve_objects(store, table='revalidate = "0s"')
    for number in range(20):
        store.put("a.txt", f"version {number}")
        assert server.get("/a.txt")[2] == f"version {number}".encode()
        assert server.get("/a.txt")[2] == f"version {number}".encode()


def test_a_sibling_that_changes_is_seen(store, serve_objects):
    store.put("a.css", "a { }" * 100)
    store.put("a.css.gz", "not really gzip 1")
    server = serve_objects(store, table='revalidate = "500ms"')
    assert server.get("/a.css", "Accept-Encoding: gzip")[2] == b"not really gzip 1"
    store.put("a.css.gz", "not really gzip 2")
    wait_until(lambda: server.get("/a.css", "Accept-Encoding: gzip")[2] == b"not really gzip 2", "the change is seen", 5)


def notify(admin, *keys, bucket=BUCKET):
    records = [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": {"key": key}}} for key in keys]
    body = json.dumps({"Records": records}).encode()
    head = f"POST /object-events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return parse(by_unix(admin, head.encode() + body))


def test_a_notification_has_the_named_objects_requested_again(store, serve_objects, tmp_path):
    for key in ["a b.txt", "c.txt", "d.txt"]:
        store.put(key, "first")
    server = serve_objects(store, table='revalidate = "1h"')
    paths = ["/a%20b.txt", "/c.txt", "/d.txt"]
    assert [server.get(path)[2] for path in paths] == [b"first"] * 3
    assert server.get("/new.txt")[0] == 404
    for key in ["a b.txt", "c.txt", "new.txt"]:
        store.put(key, "second")
    store.delete("d.txt")
    assert [server.get(path)[2] for path in paths] == [b"first"] * 3
    status, _, body = notify(tmp_path / "admin.sock", "a+b.txt", "new.txt")
    assert (status, body) == (200, b"2 objects are requested again\n")
    assert [server.get(path)[2] for path in paths] == [b"second", b"first", b"first"]
    assert server.get("/new.txt")[2] == b"second"
    notify(tmp_path / "admin.sock", "c.txt", "d.txt")
    assert server.get("/c.txt")[2] == b"second" and server.get("/d.txt")[0] == 404
    assert b"no root" in notify(tmp_path / "admin.sock", "x", bucket="another")[2]
    wrong = by_unix(tmp_path / "admin.sock", b"POST /object-events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    assert parse(wrong)[0] == 400


def test_metrics_count_requests_to_the_store(store, serve_objects, tmp_path):
    store.put("a.txt", "x")
    server = serve_objects(store, table='revalidate = "0s"')
    assert [server.get("/a.txt")[0] for _ in range(3)] == [200] * 3
    raw = by_unix(tmp_path / "admin.sock", b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = parse(raw)[2].decode()
    assert f'dunlin_object_store_requests_total{{store="s3://{BUCKET}",operation="get"}} 3' in text
    assert f'dunlin_object_store_not_modified_total{{store="s3://{BUCKET}"}} 2' in text
    assert f'dunlin_object_store_available{{store="s3://{BUCKET}"}} 1' in text


def test_slow_clients_of_a_large_object_do_not_fill_the_memory(counting_store, serve_objects):
    counting_store.objects["huge.bin"] = os.urandom(64 << 20)
    server = serve_objects(counting_store, server='cache = { size = "32MiB" }')
    connections = [socket.create_connection(server.address, timeout=60) for _ in range(20)]
    for connection in connections:
        connection.sendall(b"GET /huge.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1000)
    threading.Event().wait(1)
    with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
        used = int(next(line.split()[1] for line in status if line.startswith("VmHWM"))) * 1024
    for connection in connections:
        connection.close()
    assert used < 300 << 20, "20 bodies of 64 MiB are not in memory"
