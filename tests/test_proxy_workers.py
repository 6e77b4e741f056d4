"""The reverse proxy with several workers, which share idle connections to upstreams."""

import ssl
import threading
from contextlib import ExitStack

import pytest

from support.http import read_response
from support.http2 import Client, request
from support.tls import certificate
from support.upstream import Upstream, response

pytestmark = pytest.mark.usefixtures("orderly_stop")

# With this number of connections, either worker has some more than it keeps.
CLIENTS, KEPT = 32, 4


class Together:
    """Has an upstream respond when a number of requests have arrived."""

    def __init__(self):
        self.barrier = threading.Barrier(CLIENTS)

    def expect(self, number):
        self.barrier = threading.Barrier(number)

    def __call__(self, *_):
        self.barrier.wait(15)
        return response(b"hello")


def upstream_of(kind, folder, answer):
    """The upstream, and further keys of the proxy."""
    if kind == "unix":
        return Upstream(answer, path=folder / "app.sock"), ""
    if kind == "http":
        return Upstream(answer), ""
    authority = certificate(folder, "authority")
    own = certificate(folder, "upstream", issuer=authority)
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(*map(str, own))
    return Upstream(answer, tls=made), f'authority = "{authority[0]}"'


@pytest.mark.parametrize("kind", ["http", "https", "unix"])
def test_a_worker_uses_idle_connections_of_the_other(serve, tmp_path, kind):
    together = Together()
    upstream, keys = upstream_of(kind, tmp_path, together)
    server = serve(
        text='[server]\nthreads = 2\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\n[[site.route]]\npath = "/*"\n'
        f'proxy = {{ to = "{upstream.url}", idle_connections = {KEPT}, {keys} }}\n'
    )
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(CLIENTS)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert all(read_response(client)[2] == b"hello" for client in clients)
    assert upstream.connections == CLIENTS
    # Those of the worker of this connection, and as many that both share.
    together.expect(2 * KEPT)
    client = Client(server)
    client.send(b"".join(request(1 + 2 * number) for number in range(2 * KEPT)))
    ended = set()
    while len(ended) < 2 * KEPT:
        kind, flags, stream, _ = client.read()
        if kind in (0, 1) and flags & 1:
            ended.add(stream)
    assert upstream.connections == CLIENTS, "connections were opened although some were idle"
    client.socket.close()


def test_shared_connections_that_the_upstream_has_closed_are_not_used(serve, tmp_path):
    together = Together()
    upstream = Upstream(together)
    server = serve(
        text='[server]\nthreads = 2\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\n[[site.route]]\npath = "/*"\n'
        f'proxy = {{ to = "{upstream.url}", idle_connections = {KEPT} }}\n'
    )
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(CLIENTS)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert all(read_response(client)[2] == b"hello" for client in clients)
    upstream.close_connections()
    together.expect(1)
    assert all(server.get("/")[2] == b"hello" for _ in range(3 * KEPT))
    assert upstream.connections > CLIENTS
