"""Files in object storage: the store fails under load, and comes back."""

import threading
import time

import pytest
from support import outage
from support.objects import BUCKET, counting_store, serve_objects, store  # noqa: F401
from support.waiting import wait_until


class Load:
    """Sends requests, on one connection after the other, and keeps the statuses and times. `{}` in the path is a number."""

    def __init__(self, server, path):
        self.statuses, self.without_retry, self.longest, self.ends = [], 0, 0.0, False
        self.server, self.path = server, path
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ends:
            began = time.monotonic()
            status, fields, _ = self.server.get(self.path.format(len(self.statuses)))
            self.statuses.append(status)
            self.without_retry += status == 503 and "retry-after" not in fields
            self.longest = max(self.longest, time.monotonic() - began)

    def stop(self):
        self.ends = True
        self.thread.join()
        assert self.statuses


def down_and_up(server):
    lines = [line for line in server.log.splitlines() if "object store" in line]
    down = [line for line in lines if "may be stale" in line]
    up = [line for line in lines if "responds again" in line]
    return len(down), len(up), lines


FAILURES = {
    "killed": (lambda store: store.kill(), lambda store: store.start()),
    "stopped": (lambda store: store.pause(), lambda store: store.proceed()),
}


@pytest.mark.parametrize("how", FAILURES)
def test_what_is_held_is_sent_while_the_store_is_down(store, serve_objects, how):
    fail, recover = FAILURES[how]
    store.put("held.txt", "held")
    store.put("other.txt", "other")
    server = serve_objects(store, table='revalidate = "200ms"\ntimeout = "2s"')
    assert server.get("/held.txt")[2] == b"held"
    load = Load(server, "/held.txt")
    fail(store)
    server.logged("may be stale")
    status, fields, _ = server.get("/other.txt")
    assert status == 503 and int(fields["retry-after"]) > 0
    count = len(load.statuses)
    wait_until(lambda: len(load.statuses) > count + 100, "what is held is sent at once")
    cold = [Load(server, f"/none-{number}-{{}}.txt") for number in range(4)]
    time.sleep(outage.SECONDS)
    for others in cold:
        others.stop()
        assert set(others.statuses) == {503} and not others.without_retry
        assert others.longest < 2, "no request waits long for a store that is known to be down"
    assert sum(len(others.statuses) for others in cold) > 100
    recover(store)
    wait_until(lambda: server.get("/other.txt")[0] == 200, "the store is used again")
    server.logged("responds again")
    load.stop()
    assert set(load.statuses) == {200}
    assert load.longest < 2, "a request waits for the store for a second at most"
    assert down_and_up(server)[:2] == (1, 1), down_and_up(server)[2]
    store.put("held.txt", "newer")
    wait_until(lambda: server.get("/held.txt")[2] == b"newer", "changes are seen again")


def test_a_slow_store_delays_no_held_object_for_long(counting_store, serve_objects):
    counting_store.objects["held.txt"] = b"held"
    server = serve_objects(counting_store, table='revalidate = "200ms"')
    assert server.get("/held.txt")[2] == b"held"
    counting_store.head_delay = 4
    load = Load(server, "/held.txt")
    threading.Event().wait(5)
    load.stop()
    assert set(load.statuses) == {200} and len(load.statuses) > 100 and load.longest < 2
    counting_store.head_delay = 0
    counting_store.objects["held.txt"] = b"newer"
    wait_until(lambda: server.get("/held.txt")[2] == b"newer", "the change is seen")
    assert down_and_up(server)[0] == 0, "a slow store is not one that is down"


def test_a_server_starts_without_its_store(store, serve_objects):
    store.put("a.txt", "text")
    store.kill()
    server = serve_objects(store)
    assert server.get("/a.txt")[0] == 503
    store.start()
    wait_until(lambda: server.get("/a.txt")[2] == b"text", "the store is used")
    server.logged(f"s3://{BUCKET}")


def test_wrong_credentials_are_an_error_of_the_store(counting_store, serve_objects):
    counting_store.refuse = (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>")
    server = serve_objects(counting_store)
    assert server.get("/a.txt")[0] == 503
    server.logged("403 Forbidden (InvalidAccessKeyId)")
    counting_store.refuse = (403, b"<Error><Code>AccessDenied</Code></Error>")
    wait_until(lambda: server.get("/b.txt")[0] == 403, "an object that is not public is forbidden")
