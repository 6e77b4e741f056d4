"""The reverse proxy: replacements in Location, Refresh and cookies of upstreams, and flags of cookies."""

import pytest

from support.upstream import Upstream, response

pytestmark = pytest.mark.usefixtures("orderly_stop")


def answering(*fields):
    return Upstream(lambda *_: response(b"x", "302 Found", *fields))


def fields_of(server, path="/"):
    status, fields, _ = server.get(path)
    assert status == 302
    return fields


def test_the_first_replacement_that_matches_holds_for_locations(serve):
    rules = [("http://backend/app/", "/"), ("http://backend/", "https://{host}/x/"), ("~(?i)^http://([a-z]+)[.]internal/(.*)$", "/{1}/{2}")]
    keys = "replace_location = [" + ", ".join(f'{{ from = "{start}", to = "{to}" }}' for start, to in rules) + "]"
    for value, expected in [
        ("http://backend/app/a?b", "/a?b"),
        ("http://backend/y", "https://h.test/x/y"),
        ("HTTP://Shop.internal/z", "/Shop/z"),
        ("http://other/app/", "http://other/app/"),
        ("/a", "/a"),
    ]:
        upstream = answering(f"Location: {value}", f"Refresh: 3; url={value}")
        server = serve(route=f'proxy = {{ to = "{upstream.url}", {keys} }}')
        status, fields, _ = server.get("/", host="h.test")
        assert (status, fields["location"], fields["refresh"]) == (302, expected, f"3; url={expected}")


def test_domains_and_paths_of_cookies_are_replaced(serve):
    keys = 'replace_cookie_domain = [{ from = "app.internal", to = ".example.com" }, { from = "~^(.+)[.]local$", to = "{1}.org" }], replace_cookie_path = [{ from = "/app/", to = "/" }]'
    for cookie, expected in [
        ("a=1; Domain=.App.internal; Path=/app/x; Secure", "a=1; Domain=.example.com; Path=/x; Secure"),
        ("a=1;Domain=x.LOCAL", "a=1; Domain=x.org"),
        ("a=domain=app.internal;Path=/other", "a=domain=app.internal;Path=/other"),
    ]:
        server = serve(route=f'proxy = {{ to = "{answering(f"Set-Cookie: {cookie}", "Location: /").url}", {keys} }}')
        assert fields_of(server)["set-cookie"] == expected


def test_flags_of_cookies_are_set_and_removed(serve):
    keys = 'cookie_flags = [{ cookie = "session", secure = true, http_only = true, same_site = "lax" }, { cookie = "~^old", secure = false, same_site = "off" }]'
    for cookie, expected in [
        ("Session=1; Path=/; samesite=none;secure", "Session=1; Path=/; Secure; HttpOnly; SameSite=Lax"),
        ("oldest=1; Secure; SameSite=Strict; HttpOnly", "oldest=1; HttpOnly"),
        ("other=1;secure", "other=1;secure"),
    ]:
        server = serve(route=f'proxy = {{ to = "{answering(f"Set-Cookie: {cookie}", "Location: /").url}", {keys} }}')
        assert fields_of(server)["set-cookie"] == expected
