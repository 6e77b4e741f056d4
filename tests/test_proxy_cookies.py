"""The reverse proxy: cookies that clients send in several fields reach everything behind it as one field."""

import threading

import pytest

from support import http2
from support.scripts import script
from support.tunnel import Connection
from support.upstream import Upstream, read_head, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

SPLIT = ["sid=abc", "csrf=x y", "theme=dark"]
JOINED = "sid=abc; csrf=x y; theme=dark"


def cookie_lines(upstream):
    """The cookie lines of the last request."""
    lines = upstream.requests[-1].head.decode().split("\r\n")
    return [line for line in lines if line.lower().startswith("cookie:")]


def by_http1(server, path, cookies):
    assert server.get(path, *(f"Cookie: {cookie}" for cookie in cookies), "X-After: 1")[0] == 200


def by_http2(server, path, cookies):
    with http2.Client(server) as client:
        client.send(http2.request(1, path, "GET", *(("cookie", cookie) for cookie in cookies), ("x-after", "1")))
        client.body(1)


CLIENTS = pytest.mark.parametrize("send", [by_http1, by_http2])


@CLIENTS
@pytest.mark.parametrize("way", ["tcp", "unix", "buffer", "cache", "auth"])
def test_an_upstream_gets_one_field_with_all_cookies(serve, tmp_path, send, way):
    upstream = Upstream(path=tmp_path / "socket") if way == "unix" else Upstream()
    endpoint = Upstream()
    keys = 'buffer = { request = "1MiB", response = "1MiB" }' if way == "buffer" else ""
    route = {"cache": "cache = { responses = true }", "auth": f'auth = {{ forward = "{endpoint.url}" }}'}.get(way, "")
    server = serve(route=f'proxy = {{ to = "{upstream.url}", {keys} }}\n{route}')
    for cookies, expected in [
        (SPLIT, [f"cookie: {JOINED}"]),
        (["a=1"], ["cookie: a=1"]),
        (["a=1; b=2", "c=3"], ["cookie: a=1; b=2; c=3"]),
        # Empty ones leave neither a line nor a separator.
        (["", "a=1", "", "b=2", ""], ["cookie: a=1; b=2"]),
        ([""], []),
        (["", ""], []),
    ]:
        send(server, "/", cookies)
        assert [line.replace("Cookie:", "cookie:") for line in cookie_lines(upstream)] == expected
        assert upstream.requests[-1].fields["x-after"] == "1"
        if way == "auth":
            assert [line.replace("Cookie:", "cookie:") for line in cookie_lines(endpoint)] == expected


def test_a_websocket_has_one_field_with_all_cookies(serve):
    def accept(_, connection, request):
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbye")

    upstream = Upstream(accept)
    server = serve(route=f'proxy = "{upstream.url}"')
    lines = "".join(f"Cookie: {cookie}\r\n" for cookie in SPLIT)
    head = f"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n{lines}\r\n"
    assert server.exchange(head.encode()).endswith(b"bye")
    assert cookie_lines(upstream) == [f"Cookie: {JOINED}"]


def test_an_extended_connect_has_one_field_with_all_cookies(serve):
    upstream = Upstream(lambda *_: response(b"no", "403 Forbidden"))
    server = serve(route=f'proxy = "{upstream.url}"')
    with Connection(server) as connection:
        assert connection.open("/chat", *(("cookie", cookie) for cookie in SPLIT)).head() == 403
    assert cookie_lines(upstream) == [f"cookie: {JOINED}"]


def test_an_upstream_is_chosen_by_all_cookies(serve):
    upstreams = [Upstream(lambda *_, name=name: response(name)) for name in (b"a", b"b", b"c", b"d")]
    urls = ", ".join(f'"{upstream.url}"' for upstream in upstreams)
    server = serve(route=f'proxy = {{ to = [{urls}], balance = "hash:Cookie" }}')
    for number in range(8):
        first = server.get("/", f"Cookie: s=1; t={number}")[2]
        assert server.get("/", "Cookie: s=1", f"Cookie: t={number}")[2] == first


@CLIENTS
def test_a_script_has_one_variable_with_all_cookies(cgi, send):
    server = cgi({"cookie": "printf 'X-Set: %s\\n\\n%s' \"${HTTP_COOKIE+yes}\" \"$HTTP_COOKIE\""})
    if send is by_http1:
        get = lambda *cookies: server.get("/cgi-bin/cookie", *(f"Cookie: {cookie}" for cookie in cookies))[2]  # noqa: E731
    else:

        def get(*cookies):
            with http2.Client(server) as client:
                client.send(http2.request(1, "/cgi-bin/cookie", "GET", *(("cookie", cookie) for cookie in cookies)))
                return client.body(1)

    assert get(*SPLIT) == JOINED.encode()
    assert get("", "a=1", "", "b=2") == b"a=1; b=2"
    assert get("") == b""
