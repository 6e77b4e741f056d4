"""Dictionaries for pages of applications (RFC 9842): made of sampled responses, offered by Link, and used for dcz."""

import hashlib
import itertools
import random
import re
import subprocess
import threading
import time

import pytest

from support import browser as browsers
from support.browser import CHROMIUM, Browser, trusting
from support.dictionaries import VARY, name_of
from support.files import lines, write
from support.server import DUNLIN
from support.upstream import Upstream, chunked, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

HTML = "Content-Type: text/html; charset=utf-8"
TEMPLATE = "".join(f'<li class="entry"><a href="/s/{n}-{random.Random(n).getrandbits(64):x}">Section {n}</a></li>\n' for n in range(120))
MORE = '[[site.route]]\npath = "/status/*"\nstatus = true\n'


def page(target, design=0, extra=""):
    own = random.Random(target)
    menu = TEMPLATE.replace("entry", f"entry{design}") if not design else "".join(
        f'<div id="{design}-{random.Random(design * 1000 + n).getrandbits(80):x}">Part {n}</div>\n' for n in range(140)
    )
    article = "".join(f"<p>{own.getrandbits(64):x}</p>\n" for _ in range(20))
    return f"<!doctype html><title>{target}</title><ul>\n{menu}</ul>{extra}{article}<footer>The end of the page</footer>".encode()


def pages(**options):
    """An upstream with a page for each path."""
    return Upstream(lambda _, __, request: response(page(request.target, **options), "200 OK", HTML))


def route(upstream, more="", keys='match = "/blog/*"'):
    return f'[[site.route]]\npath = "/blog/*"\nproxy = "{upstream.url}"\ndictionary = {{ {keys} }}\n{more}\n{MORE}'


def link(fields):
    found = re.fullmatch(r'<(/\.dunlin/dictionary/[0-9a-f]{64})>; rel="compression-dictionary"', fields.get("link", ""))
    return found and found[1]


def learned(browser, fields=lambda number: ()):
    """Requests pages until a dictionary is offered; returns its path."""
    numbers = itertools.cycle(range(60))

    def offered():
        number = next(numbers)
        return link(browser.get(f"/blog/{number}", *fields(number))[1])

    return wait_until(offered, "the offer of a dictionary")


def loaded(browser, path):
    """The dictionary at a path, as a client loads it."""
    status, fields, content, _ = browser.get(path, codings="zstd")
    assert status == 200 and hashlib.sha256(content).hexdigest() == path.rsplit("/", 1)[1]
    return fields, content


def test_pages_are_sent_as_the_difference_to_what_they_have_in_common(tls, client):
    upstream = pages()
    browser = client(tls(more=route(upstream)))
    path = learned(browser)
    fields, dictionary = loaded(browser, path)
    assert fields["use-as-dictionary"] == f'match="/blog/*", id="{path.rsplit("/", 1)[1][:16]}", type=raw'
    assert fields["cache-control"] == "public, max-age=2592000, immutable" and fields["vary"] == "Accept-Encoding"
    assert b"Section 7</a>" in dictionary and b"The end of the page" in dictionary
    status, fields, body, length = browser.get("/blog/new", dictionary=dictionary)
    assert (status, fields["content-encoding"], fields["vary"], body) == (200, "dcz", VARY, page("/blog/new"))
    assert "link" not in fields
    _, fields, body, plain = browser.get("/blog/new")
    assert (fields["content-encoding"], fields["vary"], body, link(fields)) == ("zstd", VARY, page("/blog/new"), path)
    assert length * 2 < plain
    for other, codings in ((b"another", "zstd, dcz"), (dictionary, "zstd, dcz;q=0"), (dictionary, "gzip")):
        _, fields, body, _ = browser.get("/blog/new", dictionary=other, codings=codings)
        assert fields["content-encoding"] in ("zstd", "gzip") and body == page("/blog/new") and fields["vary"] == VARY
    # A client that takes no other coding.
    assert browser.get("/blog/new", dictionary=dictionary, codings="dcz")[1]["content-encoding"] == "dcz"
    head = browser.request("/blog/new", "Accept-Encoding: dcz", f"Available-Dictionary: {name_of(dictionary)}", method="HEAD")
    assert head[1]["content-encoding"] == "dcz" and head[1]["vary"] == VARY
    metrics = browser.request("/status/metrics")[2].decode()
    found = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith("dunlin_dictionar"))
    assert int(found["dunlin_dictionary_responses_total"]) == 2 and found["dunlin_dictionaries"] == "1"
    assert int(found["dunlin_dictionary_plain_bytes_total"]) > 3 * int(found["dunlin_dictionary_coded_bytes_total"])


@pytest.mark.parametrize("kind", ["cached", "chunked", "cgi", "coded"])
def test_all_kinds_of_pages_are(tls, client, tmp_path, kind):
    def answer(_, __, request):
        body = page(request.target)
        if kind == "chunked":
            return chunked(body[:3000], body[3000:9000], body[9000:], fields=(HTML,))
        if kind == "coded" and "gzip" in request.fields.get("accept-encoding", ""):
            return response(b"\x1f\x8b", "200 OK", HTML, "Content-Encoding: gzip")
        more = ("Cache-Control: max-age=60", 'ETag: "e"') if kind == "cached" else ()
        return response(body, "200 OK", HTML, *more)

    upstream = Upstream(answer)
    more = route(upstream, "cache = { responses = true }" if kind == "cached" else "")
    if kind == "cgi":
        for number in [*range(60), "last"]:
            write(tmp_path / "pages" / str(number), page(f"/blog/{number}"))
        script = write(tmp_path / "script", f"#!/bin/sh\nprintf 'Content-Type: text/html\\n\\n'\ncat \"{tmp_path}/pages/${{REQUEST_URI##*/}}\"\n")
        script.chmod(0o755)
        more = f'[[site.route]]\npath = "/blog/*"\nscript = {{ kind = "cgi", file = "{script}" }}\ndictionary = {{ match = "/blog/*" }}\n'
    browser = client(tls(more=more))
    _, dictionary = loaded(browser, learned(browser))
    for _ in range(3):
        _, fields, body, _ = browser.get("/blog/last", dictionary=dictionary)
        assert (fields["content-encoding"], body) == ("dcz", page("/blog/last"))
        assert browser.get("/blog/last")[2] == page("/blog/last")
    if kind == "cached":
        assert sum(request.target == "/blog/last" for request in upstream.requests) == 1
        assert fields["etag"] == 'W/"e"'
        status, fields, _, _ = browser.get("/blog/last", 'If-None-Match: W/"e"', dictionary=dictionary)
        assert status == 304 and fields["vary"] == VARY


def test_what_the_application_has_flushed_leaves_at_once(tls, client):
    gate = threading.Event()

    def answer(_, connection, request):
        body = page(request.target)
        if request.target == "/blog/last":
            connection.sendall(chunked(body[:5000], fields=(HTML,)).removesuffix(b"0\r\n\r\n"))
            gate.wait(10)
            return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) - 5000, body[5000:])
        return response(body, "200 OK", HTML)

    browser = client(tls(more=route(Upstream(answer))))
    _, dictionary = loaded(browser, learned(browser))
    head = f"GET /blog/last HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: dcz\r\nAvailable-Dictionary: {name_of(dictionary)}\r\n\r\n"
    browser.connection.sendall(head.encode())
    data = b""
    # The header of the coding, and more.
    while len(data.partition(b"\r\n\r\n")[2]) < 60:
        data += browser.connection.recv(1 << 16)
    gate.set()
    while not data.endswith(b"0\r\n\r\n"):
        data += browser.connection.recv(1 << 16)
    fields, body = browser.parsed(data)
    assert fields["content-encoding"] == "dcz" and browser.decode("dcz", body, dictionary) == page("/blog/last")


SECRET = "a secret of one visitor that nobody else may ever see, not even as a part of a dictionary"


@pytest.mark.parametrize(
    "given, sent, keys",
    [
        (("Cookie: a=b",), (), ""),
        (("Authorization: Basic eDp5",), (), ""),
        (("Proxy-Authorization: Basic eDp5",), (), ""),
        (("X-User: x",), (), ', unless = ["X-User"]'),
        ((), ("Set-Cookie: a=b",), ""),
        ((), ("Cache-Control: private, max-age=5",), ""),
        ((), ("Cache-Control: no-store",), ""),
        ((), ("Vary: *",), ""),
        ((), ("X-Secret: 1",), ', unless = ["X-Secret"]'),
    ],
)
def test_pages_of_one_visitor_have_no_part_in_a_dictionary(tls, client, given, sent, keys):
    def answer(_, __, request):
        is_secret = "secret" in request.target
        return response(page(request.target, extra=f"<b>{SECRET}</b>" if is_secret else ""), "200 OK", HTML, *(sent if is_secret else ()))

    upstream = Upstream(answer)
    browser = client(tls(more=route(upstream, keys=f'match = "/blog/*"{keys}')))
    for number in range(40):
        assert link(browser.get(f"/blog/secret{number}", *given)[1]) is None
    _, dictionary = loaded(browser, learned(browser))
    assert b"secret" not in dictionary and b"Section 7" in dictionary
    _, fields, body, _ = browser.get("/blog/secret", *given, dictionary=dictionary)
    assert fields["content-encoding"] == "zstd" and SECRET.encode() in body and fields["vary"] in (VARY, f"*, {VARY}", "*")
    assert browser.get("/blog/other", dictionary=dictionary)[1]["content-encoding"] == "dcz"


def test_what_one_visitor_or_one_url_has_is_in_no_dictionary(tls, client):
    def answer(_, __, request):
        extra = SECRET if request.fields.get("x-forwarded-for") == "192.0.2.7" or request.target == "/blog/invitation" else ""
        return response(page(request.target, extra=f"<b>{extra}</b>"), "200 OK", HTML)

    upstream = Upstream(answer)
    browser = client(tls(more=route(upstream)))
    for number in range(4):
        browser.get(f"/blog/x{number}", "X-Forwarded-For: 192.0.2.7")
        browser.get("/blog/invitation", f"X-Forwarded-For: 192.0.2.{number + 20}")
    _, dictionary = loaded(browser, learned(browser, fields=lambda number: (f"X-Forwarded-For: 198.51.100.{number}",)))
    assert b"secret" not in dictionary and b"Section 7" in dictionary


def test_public_pages_are_compressed_for_clients_with_cookies(tls, client):
    control = {"/blog/public": ("Cache-Control: public, max-age=5",), "/blog/varied": ("Cache-Control: public", "Vary: Cookie")}
    upstream = Upstream(lambda _, __, request: response(page(request.target), "200 OK", HTML, *control.get(request.target, ())))
    browser = client(tls(more=route(upstream)))
    _, dictionary = loaded(browser, learned(browser))
    coding = lambda path, *fields: browser.get(path, *fields, dictionary=dictionary)[1]["content-encoding"]
    assert [coding(path, "Cookie: a=b") for path in ("/blog/public", "/blog/varied", "/blog/x")] == ["dcz", "zstd", "zstd"]
    # Pages of other origins that see nothing of the response.
    assert coding("/blog/x", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors") == "zstd"
    assert coding("/blog/x", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors", "Origin: https://a") == "zstd"
    assert coding("/blog/x", "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate") == "dcz"


def test_a_dictionary_is_replaced_when_the_pages_change_and_kept_over_a_restart(tls, client, tmp_path):
    design = [0]
    bounds = f'cache = {{ directory = "{tmp_path}/kept", dictionaries = "1MB" }}'
    upstream = Upstream(lambda _, __, request: response(page(request.target, design[0]), "200 OK", HTML))
    more = route(upstream, keys='match = "/blog/*", rotate = "1s"')
    server = tls(more=more, server=bounds)
    browser = client(server)
    first = learned(browser)
    _, old = loaded(browser, first)
    design[0] = 1
    def replaced():
        numbers = range(random.getrandbits(30), 1 << 31)
        return any(link(browser.get(f"/blog/{number}")[1]) != first for number, _ in zip(numbers, range(30)))
    wait_until(replaced, "another dictionary")
    second = link(browser.get("/blog/x")[1])
    _, new = loaded(browser, second)
    for dictionary in (old, new):
        _, fields, body, _ = browser.get("/blog/x", dictionary=dictionary)
        assert (fields["content-encoding"], body) == ("dcz", page("/blog/x", 1))
    assert link(browser.get("/blog/x", dictionary=old)[1]) == second
    assert server.stop() == 0
    again = client(tls(more=more, server=bounds))
    # The directory is read at the first request.
    wait_until(lambda: link(again.get("/blog/y")[1]) == second, "the dictionary of before")
    for dictionary in (old, new):
        assert again.get("/blog/x", dictionary=dictionary)[1]["content-encoding"] == "dcz"
    assert loaded(again, second)[1] == new and again.get(f"/.dunlin/dictionary/{'0' * 64}")[0] == 404


def test_pages_without_anything_in_common_have_no_dictionary(tls, client):
    upstream = Upstream(lambda _, __, request: response(random.Random(request.target).randbytes(3000).hex().encode(), "200 OK", HTML))
    browser = client(tls(more=route(upstream)))
    for number in range(60):
        assert link(browser.get(f"/blog/{number}")[1]) is None


def test_without_tls_or_for_other_paths_and_types_there_is_none(tls, serve, client):
    kinds = {"/blog/json": "Content-Type: application/json"}
    upstream = Upstream(lambda _, __, request: response(page(request.target), "200 OK", kinds.get(request.target, HTML)))
    more = route(upstream, keys='match = "/blog/a*"')
    browser = client(tls(more=more))
    for number in range(30):
        _, fields, _, _ = browser.get(f"/blog/b{number}")
        assert "link" not in fields and fields["vary"] == "Accept-Encoding"
    assert browser.get("/blog/json")[1]["vary"] == "Accept-Encoding"
    plain = serve(route="", more=more)
    for number in range(30):
        assert "link" not in plain.get(f"/blog/a{number}", "Accept-Encoding: dcz")[1]


def test_check_explains_the_dictionary_and_rejects_what_cannot_be(tmp_path):
    def explained(keys):
        write(
            tmp_path / "dunlin.toml",
            f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{tmp_path}"\n[[site.route]]\npath = "/blog/*"\nproxy = "http://127.0.0.1:1"\n{keys}\n'.encode(),
        )
        done = subprocess.run([DUNLIN, "check", "--config", tmp_path / "dunlin.toml", "--explain", "/blog/x"], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    status, text = explained('dictionary = { match = "/blog/*", unless = ["X-User"] }')
    assert status == 0 and "dcz for pages of /blog/* over TLS" in text and "unless X-User" in text
    for keys, what in (
        ('dictionary = { match = "blog" }', "is not a path"),
        ('dictionary = { match = "/blog/*?x" }', "is not a path"),
        ('dictionary = { match = "/*", unless = ["a b"] }', "is not a field name"),
        ('dictionary = { match = "/*", rotate = "1ms" }', "less than a second"),
        ('dictionary = { match = "/*" }\ncompress = false', "compress = false"),
        ('dictionary = { match = "/*" }\ncompress_padding = "1KiB"', "compress_padding"),
        ('dictionary = { match = "/*" }\nallow = ["127.0.0.1"]', "allow or deny"),
        ("dictionary = { }", "match"),
    ):
        status, text = explained(keys)
        assert status == 1 and what in text and "dunlin.toml:8:" in text, text


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_chromium_loads_the_dictionary_and_decodes_pages(tls, client, tmp_path, monkeypatch):
    log = tmp_path / "access.log"
    upstream = Upstream(lambda _, __, request: response(page(request.target), "200 OK", HTML, "Cache-Control: public, max-age=0"))
    server = tls(more=route(upstream), server=f'access_log = {{ path = "{log}", format = "{{path}} {{coding}} {{bytes}}" }}')
    path = learned(client(server))
    monkeypatch.setattr(browsers, "FLAGS", [*browsers.FLAGS, trusting(tls.own[0])])
    with Browser(tmp_path / "profile") as browser:
        url = f"https://localhost:{server.address[1]}/blog/"
        browser.open(f"{url}first")
        wait_until(lambda: any(line.startswith(path) for line in lines(log)), "the dictionary", 30)
        # The browser writes the dictionary when it has all of it.
        time.sleep(2)
        browser.open(f"{url}second")
        assert browser.evaluate("document.title") == "/blog/second"
        assert browser.evaluate("document.querySelectorAll('li').length") == 120
    wait_until(lambda: any(line.startswith("/blog/second") for line in lines(log)), "a log line")
    [line] = [line for line in lines(log) if line.startswith("/blog/second")]
    assert line.split()[1] == "dcz" and int(line.split()[2]) < len(page("/blog/second")) / 5, lines(log)
