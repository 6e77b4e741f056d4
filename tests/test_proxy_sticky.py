"""The reverse proxy: the cookie that keeps a client at one upstream."""

import re

import pytest

from support.upstream import Upstream, response

pytestmark = pytest.mark.usefixtures("orderly_stop")


@pytest.fixture
def upstreams():
    return [Upstream(lambda *_, name=name: response(name)) for name in (b"a", b"b", b"c")]


def start(serve, upstreams, keys='sticky = "at"', **more):
    urls = ", ".join(f'"{upstream.url}"' for upstream in upstreams)
    return serve(route=f"proxy = {{ to = [{urls}], balance = 'round-robin', {keys} }}", **more)


def test_a_cookie_keeps_a_client_at_its_upstream(serve, upstreams):
    server = start(serve, upstreams)
    for _ in range(3):
        status, fields, name = server.get("/")
        assert re.fullmatch(r"at=[0-9a-f]{16}; Path=/; HttpOnly; SameSite=Lax", fields["set-cookie"])
        cookie = fields["set-cookie"].partition(";")[0]
        for _ in range(4):
            _, again, got = server.get("/", f"Cookie: x=at=1; {cookie}; y=2")
            assert got == name and "set-cookie" not in again
    restarted = start(serve, upstreams)
    assert restarted.get("/", f"Cookie: {cookie}")[2] == name


def test_a_client_whose_upstream_is_gone_gets_another(serve, upstreams):
    server = start(serve, upstreams)
    fields, name = server.get("/")[1:]
    cookie = fields["set-cookie"].partition(";")[0]
    upstreams[b"abc".index(name)].stop()
    status, fields, other = server.get("/", f"Cookie: {cookie}")
    assert status == 200 and other != name and fields["set-cookie"].partition(";")[0] != cookie
    assert server.get("/", "Cookie: at=unknown")[1]["set-cookie"].startswith("at=")


def test_the_attributes_of_the_cookie_can_be_set(serve, upstreams):
    server = start(serve, upstreams, 'sticky = { cookie = "at", same_site = "none", max_age = "1h" }')
    assert server.get("/")[1]["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=None; Max-Age=3600; Secure")


def test_a_secret_determines_the_values(serve, upstreams):
    def values(secret):
        server = start(serve, upstreams, f'sticky = {{ cookie = "at", secret = "{secret}" }}' if secret else 'sticky = "at"')
        pairs = [server.get("/")[1:] for _ in range(3)]
        return {name: fields["set-cookie"].partition(";")[0] for fields, name in pairs}, server

    (first, server), (again, restarted) = values("0123456789abcdef"), values("0123456789abcdef")
    (other, _), (plain, _) = values("0123456789abcdeX"), values("")
    assert first == again
    found = [*first.values(), *other.values(), *plain.values()]
    assert len(set(found)) == 9 and all(re.fullmatch("at=[0-9a-f]{16}", value) for value in found)
    for name, cookie in first.items():
        assert restarted.get("/", f"Cookie: {cookie}")[2] == name
        # Neither the value without the secret, nor a part of a value, nor the address names an upstream.
        for wrong in (plain[name], cookie[:-1], cookie + "0", cookie.upper().replace("AT=", "at="), "at=", f"at={upstreams[0].url}"):
            if wrong != cookie:
                assert "set-cookie" in server.get("/", f"Cookie: {wrong}")[1], wrong


@pytest.mark.parametrize(
    "keys, reason",
    [('sticky = { cookie = "a", secret = "short" }', "less than 16 bytes"), ('sticky = "a b"', "is not a cookie name"), ('sticky = { cookie = "a", same_site = "none", secure = false }', "without `secure`")],
)
def test_wrong_cookies_are_reported(serve, upstreams, keys, reason):
    with pytest.raises(AssertionError, match=reason):
        start(serve, upstreams, keys)
