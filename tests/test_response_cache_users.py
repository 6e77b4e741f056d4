"""The response cache and what a response depends on besides its URL: users, certificates, addresses, fields that end at the
server, spellings of paths. No user gets the response of another."""

import os
import re
import socket
import threading
import time

import pytest

from support.admin import fetch
from support.http import parse, read_all
from support.tls import certificate, connect, context, tls  # noqa: F401
from support.tls import fetch as fetch_tls
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

CACHE = "cache = { responses = true }"


@pytest.fixture
def endpoint():
    """The endpoint of forward authentication: the cookie `u` names the user."""

    def answer(_, __, request):
        user = re.search(r"u=(\w+)", request.fields.get("cookie", ""))
        return response(b"", "200 OK", *([f"Remote-User: {user[1]}"] if user else []))

    return Upstream(answer)


BLOCK = 4096


class Tier:
    """Where responses are found: in memory, or on disk by another process."""

    def __init__(self, folder, directory):
        self.directory, self.admin = directory, folder / "admin"
        cache = f'cache = {{ directory = "{directory}" }}' if directory else ""
        self.keys = f'{cache}\nadmin = "{self.admin}"'

    def again(self, server, start, files, urls=1):
        """Starts the server again when as many responses are on disk."""
        if not self.directory:
            return server
        found = lambda: list(self.directory.glob("??/*.response"))
        wait_until(lambda: len(found()) == files, f"{files} files")
        server.stop()
        # The server finds one file of a URL after the other, and counts blocks.
        size = sum(-(-file.stat().st_size // BLOCK) * BLOCK for file in found())
        server = start()
        lines = [f"dunlin_response_cache_disk_{figure}\n".encode() for figure in (f"urls {urls}", f"bytes {size}")]
        read = lambda: fetch(self.admin, "/metrics")[2]
        wait_until(lambda: all(map(read().__contains__, lines)), f"{urls} URLs of {size} bytes")
        return server


@pytest.fixture(params=["memory", "disk"])
def tier(request, tmp_path):
    return Tier(tmp_path, tmp_path / "responses" if request.param == "disk" else None)


def names(*fields, directives="public, max-age=60", vary=True, more=()):
    """An upstream whose response has the values of these request fields."""

    def answer(_, __, request):
        body = "; ".join(request.fields.get(name.lower(), "none")[-60:] for name in fields).encode()
        lines = [f"Vary: {', '.join(fields)}"] if vary else []
        return response(body, "200 OK", f"Cache-Control: {directives}", *lines, *more)

    return Upstream(answer)


def ask(server, *fields, path="/a", method="GET", source="127.0.0.1", body=b""):
    lines = "".join(f"{field}\r\n" for field in fields)
    length = f"Content-Length: {len(body)}\r\n" if body or method == "POST" else ""
    with socket.create_connection(server.address, timeout=15, source_address=(source, 0)) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}{length}\r\n".encode() + body)
        return parse(read_all(connection))


@pytest.mark.parametrize("directives", ["public, max-age=60", "s-maxage=60", "public, max-age=0, stale-while-revalidate=60"])
def test_a_user_gets_no_response_for_another(serve, endpoint, tier, directives):
    upstream = names("Remote-User", directives=directives)
    start = lambda: serve(route=f'proxy = "{upstream.url}"\n{CACHE}\nauth = {{ forward = "{endpoint.url}" }}', server=tier.keys)
    server = start()
    for number in range(3):
        for user in ["alpha", "beta", ""]:
            assert ask(server, f"Cookie: u={user}")[2].decode() == (user or "none")
        if number == 0:
            server = tier.again(server, start, 3)
    if "max-age=60" in directives:
        assert len(upstream.requests) == 3
    # A field of the client changes nothing.
    assert ask(server, "Cookie: u=beta", "Remote-User: alpha")[2] == b"beta"


@pytest.mark.parametrize("spelling", ["X_Lang", "X.Lang", "x_lang"])
def test_another_spelling_of_a_field_replaces_no_variant(serve, tier, spelling):
    def answer(_, __, request):
        # Programs behind WSGI, CGI and PHP read both as HTTP_X_LANG.
        body = request.fields.get(spelling.lower(), request.fields.get("x-lang", "none")).encode()
        return response(body, "200 OK", "Cache-Control: max-age=60", "Vary: X-Lang")

    upstream = Upstream(answer)
    server = serve(route=f'proxy = "{upstream.url}"\n{CACHE}', server=tier.keys)
    for _ in range(2):
        assert ask(server, f"{spelling}: evil")[2] == b"evil"
        assert ask(server, f"{spelling}: evil", "X-Lang: de")[2] == b"evil"
        assert ask(server)[2] == b"none"
        assert ask(server, "X-Lang: de")[2] == b"de"
        assert ask(server, "X-Lang: evil")[2] == b"evil"
    assert len(upstream.requests) == 7


def test_what_an_upstream_names_for_one_user_is_not_stored(serve):
    def answer(_, __, request):
        if request.target == "/inner":
            return response(b"for members", "200 OK", "Cache-Control: public, max-age=60")
        if "u=alpha" in request.fields.get("cookie", ""):
            return response(b"", "200 OK", "X-Accel-Redirect: /inner")
        return response(b"no", "403 Forbidden")

    upstream = Upstream(answer)
    inner = f'[[site.route]]\npath = "/inner"\nproxy = "{upstream.url}"\ninternal = true'
    server = serve(route=f'proxy = "{upstream.url}"\n{CACHE}', more=inner)
    for _ in range(2):
        assert ask(server, "Cookie: u=alpha")[2] == b"for members"
        assert ask(server)[0] == 403


def test_a_file_that_is_named_does_not_confirm_what_is_stored(serve, site):
    (site / "file").write_text("the file")
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - 1))
    os.utime(site / "file", (0, 0))
    fields = []
    upstream = Upstream(lambda *_: response(b"own", "200 OK", *fields))
    files = f'[[site.route]]\npath = "/file"\nroot = "{site}"\ninternal = true'
    server = serve(route=f'proxy = "{upstream.url}"\n{CACHE}', more=files)
    fields[:] = ["Cache-Control: max-age=0", f"Last-Modified: {date}"]
    assert ask(server)[2] == b"own"
    fields[:] = ["X-Accel-Redirect: /file"]
    assert [ask(server)[2] for _ in range(2)] == [b"the file"] * 2


def test_users_who_wait_for_one_response_get_their_own(serve, endpoint):
    gate, upstream = threading.Event(), names("Remote-User")
    answer = upstream.answer

    def slowly(*arguments):
        gate.wait(30)
        return answer(*arguments)

    upstream.answer = slowly
    server = serve(route=f'proxy = "{upstream.url}"\n{CACHE}\nauth = {{ forward = "{endpoint.url}" }}')
    users = ["alpha", "beta", "gamma"] * 4
    got = {}

    def one(number, user):
        got[number] = (user, ask(server, f"Cookie: u={user}")[2].decode())

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(users)]
    for thread in threads:
        thread.start()
    wait_until(lambda: upstream.requests and len(endpoint.requests) == 12, "the requests")
    gate.set()
    for thread in threads:
        thread.join()
    assert len(got) == 12 and all(user == answer for user, answer in got.values())
    assert len(upstream.requests) <= 6


@pytest.fixture
def clients(tmp_path):
    """An authority, and the certificates of two clients."""
    authority = certificate(tmp_path, "clients")
    return authority, *(certificate(tmp_path, name, issuer=authority) for name in ("alpha", "beta"))


def test_a_certificate_that_is_forwarded_selects_the_response(tls, clients, tier):  # noqa: F811
    authority, *both = clients
    upstream = names("Client-Cert")
    route = f'proxy = {{ to = "{upstream.url}", forward_client_certificate = "leaf" }}\n{CACHE}'
    keys = f'client_authority = "{authority[0]}", client_required = false'
    start = lambda: tls(keys=keys, route=route, server=tier.keys)
    server, found = start(), set()
    for number in range(2):
        for client in [*both, None]:
            with connect(server, context(tls.own[0], client=client)) as connection:
                found.add((client, fetch_tls(connection)[2]))
        if number == 0:
            server = tier.again(server, start, 3)
    assert len(found) == len({body for _, body in found}) == len(upstream.requests) == 3
    assert (None, b"none") in found


@pytest.mark.parametrize("how", ["leaf", "chain"])
def test_a_certificate_that_is_forwarded_is_authentication(tls, clients, how):  # noqa: F811
    authority, alpha, _ = clients
    upstream = names("Client-Cert", directives="max-age=60", vary=False)
    route = f'proxy = {{ to = "{upstream.url}", forward_client_certificate = "{how}" }}\n{CACHE}'
    server = tls(keys=f'client_authority = "{authority[0]}", client_required = false', route=route)
    for client, stored in [(alpha, "detail=authorization"), (None, "stored"), (alpha, "hit")]:
        with connect(server, context(tls.own[0], client=client)) as connection:
            assert stored in fetch_tls(connection)[1]["cache-status"]
    # The application does not learn of it.
    upstream = names("Client-Cert", directives="max-age=60", vary=False)
    server = tls(keys=f'client_authority = "{authority[0]}", client_required = false', route=f'proxy = "{upstream.url}"\n{CACHE}')
    with connect(server, context(tls.own[0], client=alpha)) as connection:
        assert "stored" in fetch_tls(connection)[1]["cache-status"]


def test_scripts_have_users_and_certificates_too(tls, clients, endpoint, tmp_path):  # noqa: F811
    authority, *both = clients
    script = tmp_path / "cgi-bin" / "who"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        'case "$QUERY_STRING" in\n'
        'u) echo "Vary: Remote-User"; echo "Cache-Control: public, max-age=60";;\n'
        'c) echo "Vary: Client-Cert"; echo "Cache-Control: public, max-age=60";;\n'
        'n) echo "Cache-Control: max-age=60";;\n'
        "esac\n"
        'body="$REMOTE_USER $SSL_CLIENT_S_DN"\n'
        'printf "Content-Length: ${#body}\\n\\n%s" "$body"\n'
    )
    script.chmod(0o755)
    server = tls(
        keys=f'client_authority = "{authority[0]}", client_required = false',
        more=f'[[site.route]]\npath = "/cgi-bin/*"\n{CACHE}\nauth = {{ forward = "{endpoint.url}" }}\n'
        f'script = {{ kind = "cgi", directory = "{script.parent}" }}',
    )

    def who(query, client, user):
        with connect(server, context(tls.own[0], client=client)) as connection:
            _, fields, body, _ = fetch_tls(connection, f"/cgi-bin/who?{query}", f"Cookie: u={user}\r\n")
        return body.decode(), fields["cache-status"]

    for _ in range(2):
        assert [who("u", None, user)[0] for user in ("alpha", "beta")] == ["alpha ", "beta "]
        assert [who("c", client, "")[0] for client in both] == [" CN=alpha", " CN=beta"]
        assert "detail=authorization" in who("n", both[0], "")[1]
    assert "hit" in who("u", None, "alpha")[1] and "hit" in who("c", both[1], "")[1]


HIDDEN = ["X-Lang", "Origin", "Accept-Language", "Cookie", "User-Agent", "Accept", "Priority"]


@pytest.mark.parametrize("name", HIDDEN)
def test_a_field_that_connection_hides_selects_no_response(serve, name, tier):
    upstream = names(name)
    start = lambda: serve(route=f'proxy = "{upstream.url}"\n{CACHE}', server=tier.keys)
    server = start()
    value = "https://shop.example"
    # The application does not get it, and so the response is one without it.
    assert ask(server, f"Connection: {name}", f"{name}: {value}")[2] == b"none"
    assert ask(server, f"{name}: {value}")[2].decode() == value
    server = tier.again(server, start, 2)
    assert "hit" in ask(server, f"{name}: {value}")[1]["cache-status"]
    assert ask(server)[2] == b"none"
    assert "hit" in ask(server, f"connection: x, {name.lower()}", f"{name}: {value}")[1]["cache-status"]
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded"])
def test_the_address_of_a_client_selects_the_response(serve, name):
    upstream = names(name)
    server = serve(route=f'proxy = "{upstream.url}"\n{CACHE}')
    for _ in range(2):
        for source in ["127.0.0.1", "127.0.0.2"]:
            assert source in ask(server, "X-Forwarded-For: 127.0.0.2", source=source)[2].decode()
    assert len(upstream.requests) == 2


def test_fields_that_the_configuration_sets_select_nothing(serve):
    upstream = names("Accept-Language")
    server = serve(
        route=f'proxy = {{ to = "{upstream.url}", set_request_fields = {{ accept-language = "en" }} }}\n{CACHE}'
    )
    for language in ["de", "fr"]:
        assert ask(server, f"Accept-Language: {language}")[2] == b"en"
    assert len(upstream.requests) == 1


def test_lines_of_a_cookie_are_one_cookie(serve):
    upstream = names("Cookie")
    server = serve(route=f'proxy = "{upstream.url}"\n{CACHE}')
    ask(server, "Cookie: a=1; b=2")
    assert "hit" in ask(server, "Cookie: a=1", "Cookie: b=2")[1]["cache-status"]


# Spellings


SPELLINGS = ["/%70urged/x", "/purged/%78", "//purged/x", "/./purged/x", "/x/../purged/x", "/purged//x", "/%2e/purged/x", "/purged/x"]


@pytest.fixture
def counted():
    """An upstream whose responses are numbered."""
    upstream = Upstream()
    upstream.answer = lambda *_: response(b"%d" % len(upstream.requests), "200 OK", "Cache-Control: max-age=60", "Cache-Tag: t")
    return upstream


@pytest.fixture
def purging(serve, counted, tier):
    """Starts a server. `purging.again(N)` starts it again when N responses are on disk."""
    start = lambda: serve(route=f'proxy = "{counted.url}"\n{CACHE}', server=tier.keys)

    class Purging:
        server = start()

        def ask(self, path, method="GET"):
            return ask(self.server, path=path, method=method)[2]

        def again(self, files, urls=1):
            self.server = tier.again(self.server, start, files, urls)

        def purge(self, order):
            return fetch(tier.admin, f"/purge?{order}", "POST")[2]

    return Purging()


@pytest.mark.parametrize(
    "order", ["path=/purged/x", "path=/purged/*", "path=/purge*", "path=/%2570urged/x", "path=//purged/./%2578", "tag=t", "path=/*"]
)
def test_a_purge_reaches_all_spellings(purging, order):
    assert purging.ask(SPELLINGS[0]) == b"1"
    purging.again(1)
    assert {purging.ask(spelling) for spelling in SPELLINGS} == {b"1"}, "they have one response"
    assert purging.purge(order) == b"1 URL purged\n"
    assert {purging.ask(spelling) for spelling in SPELLINGS} == {b"2"}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_unsafe_request_invalidates_all_spellings(purging, spelling):
    assert purging.ask(SPELLINGS[0]) == b"1"
    purging.again(1)
    assert purging.ask(spelling, "POST") == b"2"
    assert {purging.ask(other) for other in SPELLINGS} == {b"3"}


def test_characters_with_a_meaning_are_not_confused_but_purged_together(purging, counted):
    spellings = ["/a;b", "/a%3Bb", "/a%2Fb", "/a/b"]
    for number, spelling in enumerate(spellings, 1):
        assert purging.ask(spelling) == b"%d" % number
        assert counted.requests[-1].target == spelling
    purging.again(4, urls=3)
    assert purging.ask("/a%3bb") == b"2" and purging.ask("/a%2fb") == b"3"
    assert purging.purge("path=/a;b") == b"1 URL purged\n"
    assert [purging.ask(spelling) for spelling in spellings] == [b"5", b"6", b"3", b"4"]
    assert purging.purge("path=/a%252Fb") == b"1 URL purged\n"
    assert [purging.ask(spelling) for spelling in ["/a%2fb", "/a/b"]] == [b"7", b"4"]


# QUERY


def test_the_key_of_query_distinguishes_what_its_content_means(serve):
    upstream = Upstream()
    upstream.answer = lambda *_: response(b"%d" % len(upstream.requests), "200 OK", "Cache-Control: max-age=60")
    server = serve(route=f'proxy = "{upstream.url}"\n{CACHE}')
    lines = [
        (),
        ("Content-Type: gzip",),
        ("Content-Encoding: gzip",),
        ("Content-Language: gzip",),
        ("Content-Type: x", "Content-Encoding: gzip"),
        ("Content-Type: gzip", "Content-Encoding: x"),
        ("Content-Type: gzip", "Content-Language: x"),
    ]
    for _ in range(2):
        for number, fields in enumerate(lines, 1):
            assert ask(server, *fields, method="QUERY", body=b"q")[2] == b"%d" % number
    # The order of the lines does not matter, and the application does not get what `Connection` lists.
    assert ask(server, "Content-Encoding: gzip", "Content-Type: x", method="QUERY", body=b"q")[2] == b"5"
    assert ask(server, "Connection: content-type", "Content-Type: gzip", method="QUERY", body=b"q")[2] == b"1"


def test_directives_for_this_server_do_not_reach_clients(serve):
    upstream = Upstream(lambda *_: response(b"hello", "200 OK", "Dunlin-Cache-Control: max-age=60", "Cache-Control: no-store"))
    server = serve(
        more=f'[[site.route]]\npath = "/cached"\nproxy = "{upstream.url}"\n{CACHE}\n'
        f'[[site.route]]\npath = "/plain"\nproxy = "{upstream.url}"\n'
    )
    for path in ["/cached", "/cached", "/plain"]:
        status, fields, _ = ask(server, path=path)
        assert status == 200 and "dunlin-cache-control" not in fields and fields["cache-control"] == "no-store"
    assert len(upstream.requests) == 2
