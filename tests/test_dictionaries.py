"""Compression dictionaries (RFC 9842): a client that has an old version of a file gets the difference to the new one."""

import random
import subprocess
import time

import pytest

from support import browser as browsers
from support.browser import CHROMIUM, Browser, trusting
from support.dictionaries import VARY, name_of
from support.files import write
from support.http import read_response
from support.objects import BUCKET, counting_store  # noqa: F401
from support.server import DUNLIN
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

LONG = 'cache_control = "public, max-age=31536000, immutable"'


def version(seed, lines=600):
    """A script of which two versions differ in one line of a hundred."""
    common, own = random.Random(0), random.Random(seed)
    changed = set(own.sample(range(lines), lines // 100))
    text = ""
    for number in range(lines):
        value = common.getrandbits(64)
        if number in changed:
            value = own.getrandbits(64)
        text += f"function part{number}(a) {{ return a + 0x{value:x}; }}\n"
    return text.encode()


def deploy(site, old, new, content):
    """Replaces the file `old` by `new`."""
    write(site / new, content)
    if old != new:
        (site / old).unlink()


@pytest.mark.parametrize("old, new", [("app.3f2a.js", "app.77c1.js"), ("app.js", "app.js"), ("index-B3kLa_x9.css", "index-Cx1aa-b0.css")])
def test_the_next_version_is_sent_as_the_difference(tls, client, site, old, new):
    one, two = version(1), version(2)
    write(site / old, one)
    server = tls(route=LONG)
    browser = client(server)
    status, fields, body, _ = browser.get(f"/{old}")
    stem, _, end = old.rpartition("3f2a") if "3f2a" in old else old.rpartition("B3kLa_x9")
    assert (status, body, fields["vary"]) == (200, one, VARY)
    assert fields["use-as-dictionary"] == (f'match="/{stem}*{end}"' if stem else f'match="/{old}"')
    deploy(site, old, new, two)
    wait_until(lambda: browser.get(f"/{new}", dictionary=one)[2] == two, "the new version")
    time.sleep(0.1)
    status, fields, body, length = browser.get(f"/{new}", dictionary=one)
    assert (fields["content-encoding"], body, fields["vary"]) == ("dcz", two, VARY)
    assert length < len(two) / 20 and fields["use-as-dictionary"]
    plain = browser.get(f"/{new}")
    assert plain[1]["content-encoding"] == "zstd" and plain[2] == two and plain[1]["etag"] != fields["etag"]
    assert plain[3] > 5 * length
    # A client without that version, or without the coding.
    for dictionary, codings in ((b"another", "zstd, dcz"), (one, "gzip, dcb, zstd"), (one, "zstd, dcz;q=0")):
        status, fields, body, _ = browser.get(f"/{new}", dictionary=dictionary, codings=codings)
        assert (fields["content-encoding"], body, fields["vary"]) == ("zstd", two, VARY)


def test_conditions_ranges_and_head_apply_to_the_difference(tls, client, site):
    one, two = version(1), version(2)
    write(site / "app.js", one)
    server = tls(route=LONG)
    browser = client(server)
    browser.get("/app.js")
    write(site / "app.js", two)
    wait_until(lambda: browser.get("/app.js", dictionary=one)[1].get("content-encoding") == "dcz", "the difference")
    # The tag is strong when every later change has another time.
    wait_until(lambda: not browser.get("/app.js", dictionary=one)[1]["etag"].startswith("W/"), "a strong tag")
    given = ("Accept-Encoding: dcz, br", f"Available-Dictionary: {name_of(one)}")
    status, fields, whole = browser.request("/app.js", *given)
    assert (status, fields["content-encoding"], fields["accept-ranges"]) == (200, "dcz", "bytes")
    status, head, _ = browser.request("/app.js", *given, method="HEAD")
    assert status == 200 and head["length"] == str(len(whole))
    assert {name: head[name] for name in ("etag", "vary", "content-encoding", "use-as-dictionary")} == {
        name: fields[name] for name in ("etag", "vary", "content-encoding", "use-as-dictionary")
    }
    status, not_modified, body = browser.request("/app.js", *given, f"If-None-Match: {fields['etag']}")
    assert (status, body, not_modified["etag"], not_modified["vary"]) == (304, b"", fields["etag"], VARY)
    status, part, body = browser.request("/app.js", *given, "Range: bytes=10-59", f"If-Range: {fields['etag']}")
    assert (status, body, part["content-range"]) == (206, whole[10:60], f"bytes 10-59/{len(whole)}")
    assert part["content-encoding"] == "dcz" and "use-as-dictionary" not in part
    # The tag is not that of the file for clients without the dictionary.
    assert browser.request("/app.js", "Accept-Encoding: br", f"If-None-Match: {fields['etag']}")[0] == 200
    assert browser.request("/app.js", *given, "If-Match: \"x\"")[0] == 412


@pytest.mark.parametrize(
    "route, fields, is_offered, is_used",
    [
        (LONG, (), True, True),
        ('expires = "1h"', (), True, True),
        ("", (), False, False),
        ('cache_control = "no-cache"', (), False, False),
        ('cache_control = "private, max-age=60"', (), False, False),
        (f"{LONG}\ndictionary = false", (), False, False),
        (f"{LONG}\ncompress = false", (), False, False),
        (f"{LONG}\ncache = false", (), False, False),
        (f'{LONG}\nallow = ["127.0.0.1"]', (), False, False),
        (f'{LONG}\nset_fields = {{ Set-Cookie = "a=b" }}', (), False, False),
        (LONG, ("Authorization: Basic eDp5",), False, False),
        (LONG, ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors"), True, True),
        (LONG, ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"), True, False),
        (LONG, ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors", "Origin: https://a.example"), True, False),
        (f'{LONG}\nset_fields = {{ Access-Control-Allow-Origin = "*" }}', ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors", "Origin: https://a.example"), True, True),
    ],
)
def test_only_public_files_with_a_lifetime_are_dictionaries(tls, client, site, route, fields, is_offered, is_used):
    one, two = version(1), version(2)
    write(site / "app.js", one)
    browser = client(tls(route=route))
    for _ in range(2):
        _, found, body, _ = browser.get("/app.js", *fields)
        assert body == one and ("use-as-dictionary" in found) == is_offered
        may_depend = "Available-Dictionary" in found["vary"] if "vary" in found else False
        assert may_depend == (is_offered or bool(fields))
    if fields:
        browser.get("/app.js")
    write(site / "app.js", two)
    wait_until(lambda: browser.get("/app.js", *fields, dictionary=one)[2] == two, "the new version")
    for _ in range(3):
        coding = browser.get("/app.js", *fields, dictionary=one)[1].get("content-encoding")
    assert (coding == "dcz") == is_used


def test_other_types_and_sizes_are_no_dictionaries(tls, client, site):
    for name, content in (("a.png", version(1)), ("short.js", b"x"), ("a.svg", version(1)), ("a.wasm", version(1))):
        write(site / name, content)
    browser = client(tls(route=LONG))
    offered = {name: "use-as-dictionary" in browser.get(f"/{name}")[1] for name in ("a.png", "short.js", "a.svg", "a.wasm")}
    assert offered == {"a.png": False, "short.js": False, "a.svg": True, "a.wasm": True}


def test_nothing_is_offered_without_tls(tls, serve, site):
    write(site / "app.js", version(1))
    own = tls.own
    server = serve(
        text=f'[[listen]]\naddress = "127.0.0.1:0"\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n[[site]]\nroot = "{site}"\n'
        f'tls = {{ certificate = "{own[0]}", key = "{own[1]}" }}\n[[site.route]]\npath = "/*"\n{LONG}\n'
    )
    for _ in range(3):
        _, fields, _ = server.get("/app.js", "Accept-Encoding: dcz, br", f"Available-Dictionary: {name_of(version(1))}")
        assert "use-as-dictionary" not in fields and fields["content-encoding"] == "br"


def test_versions_survive_a_restart_and_damaged_ones_are_not_used(tls, client, site, tmp_path):
    kept = tmp_path / "kept"
    bounds = f'cache = {{ directory = "{kept}", dictionaries = "1MB" }}'
    one, two, three = version(1), version(2), version(3)
    write(site / "app.js", one)
    first = tls(route=LONG, server=bounds)
    client(first).get("/app.js")
    write(site / "app.js", two)
    browser = client(first)
    wait_until(lambda: browser.get("/app.js")[2] == two, "the new version")
    assert first.stop() == 0
    files = list((kept / "dictionaries").iterdir())
    assert len(files) == 2
    damaged = next(file for file in files if file.read_bytes().endswith(one))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    write(site / "app.js", three)
    again = client(tls(route=LONG, server=bounds))
    _, fields, body, _ = again.get("/app.js", dictionary=two)
    assert (fields["content-encoding"], body) == ("dcz", three)
    _, fields, body, _ = again.get("/app.js", dictionary=one)
    assert (fields["content-encoding"], body) == ("zstd", three)
    assert not damaged.exists()


def test_the_bound_of_versions_holds(tls, client, site, tmp_path):
    kept = tmp_path / "kept"
    browser = client(tls(route=LONG, server=f'cache = {{ directory = "{kept}", dictionaries = "200kB" }}'))
    for seed in range(12):
        write(site / f"app.{seed:08x}.js", version(seed))
        assert browser.get(f"/app.{seed:08x}.js")[2] == version(seed)
    files = list((kept / "dictionaries").iterdir())
    assert 2 <= len(files) < 12 and sum(file.stat().st_size for file in files) <= 200_000
    # The newest are there.
    write(site / "app.ffffffff.js", version(99))
    assert browser.get("/app.ffffffff.js", dictionary=version(11))[1]["content-encoding"] == "dcz"
    assert browser.get("/app.ffffffff.js", dictionary=version(0))[1]["content-encoding"] == "zstd"


def test_a_file_of_other_lines_is_no_better_than_without_a_dictionary(tls, client, site):
    one, other = version(1), random.Random(7).randbytes(40_000).hex().encode()
    write(site / "app.js", one)
    browser = client(tls(route=LONG))
    browser.get("/app.js")
    write(site / "app.js", other)
    wait_until(lambda: browser.get("/app.js", dictionary=one)[2] == other, "the new version")
    assert browser.get("/app.js", dictionary=one)[1]["content-encoding"] == "zstd"


def test_more_new_versions_than_can_be_compressed_at_a_time_are_sent_without(tls, client, site):
    """The queue of compression is full: such a request had the server try again without end, until its stack was exhausted."""
    one, two = version(1, 40_000), version(2, 40_000)
    names = [f"app{number}.js" for number in range(40)]
    for name in names:
        write(site / name, one)
    server = tls(route=f"{LONG}\ncompress = [\"gzip\"]", server='cache = { dictionaries = "200MB" }')
    first = client(server)
    for name in names:
        first.get(f"/{name}", codings="identity")
    for name in names:
        write(site / name, two)
    clients = [client(server) for _ in names]
    head = f"Host: localhost\r\nAccept-Encoding: dcz\r\nAvailable-Dictionary: {name_of(one)}\r\n\r\n"
    for name, browser in zip(names, clients):
        browser.connection.sendall(f"GET /{name} HTTP/1.1\r\n{head}".encode())
    codings = []
    for browser in clients:
        status, fields, body, _ = read_response(browser.connection)
        codings.append(fields.get("content-encoding"))
        assert status == 200 and browser.decode(codings[-1], body, one) == two
    assert "dcz" in codings and set(codings) <= {"dcz", None}


def test_objects_of_a_store_are_dictionaries(tls, serve, client, counting_store):  # noqa: F811
    one, two = version(1), version(2)
    counting_store.objects.update({"app.3f2a.js": one, "app.77c1.js": two})
    server = serve(
        text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n{counting_store.table()}\n[[site]]\n'
        f'root = "s3://{BUCKET}"\ntls = {{ certificate = "{tls.own[0]}", key = "{tls.own[1]}" }}\n[[site.route]]\npath = "/*"\n{LONG}\n'
    )
    browser = client(server)
    # A first request may be sent while the object arrives.
    wait_until(lambda: "use-as-dictionary" in browser.get("/app.3f2a.js")[1], "the offer")
    wait_until(lambda: browser.get("/app.77c1.js", dictionary=one)[1].get("content-encoding") == "dcz", "the difference")
    assert browser.get("/app.77c1.js", dictionary=one)[2] == two


def test_a_load_generator_verifies_the_content_of_differences(tls, client, site, tmp_path):
    one, two = version(1), version(2)
    write(site / "app.js", one)
    server = tls(route=LONG)
    client(server).get("/app.js")
    write(tmp_path / "old.js", one)
    write(site / "app.js", two)
    time.sleep(0.2)

    def load(directory, *more):
        url = f"https://localhost:{server.address[1]}/app.js"
        return subprocess.run(
            [DUNLIN, "load", url, "--insecure", "-c", "2", "-n", "200", f"--verify={directory}", "--dictionary", tmp_path / "old.js", *more],
            capture_output=True, text=True, timeout=60,
        )

    done = load(site)
    assert done.returncode == 0, done.stdout + done.stderr
    over_http2 = load(site, "--http2")
    assert over_http2.returncode == 0, over_http2.stdout + over_http2.stderr
    write(tmp_path / "app.js", two.replace(b"part7(", b"part8("))
    wrong = load(tmp_path)
    assert wrong.returncode != 0 and "200" in wrong.stdout
    metrics = client(server).get("/app.js", dictionary=one)
    assert metrics[1]["content-encoding"] == "dcz"


def test_the_metrics_count_what_dictionaries_save(tls, client, site):
    write(site / "app.js", version(1))
    browser = client(tls(route=LONG, more='[[site.route]]\npath = "/status/*"\nstatus = true\n'))
    browser.get("/app.js")
    write(site / "app.js", version(2))
    wait_until(lambda: browser.get("/app.js", dictionary=version(1))[1]["content-encoding"] == "dcz", "the difference")
    text = browser.request("/status/metrics")[2].decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("dunlin_dictionar"))
    assert found["dunlin_dictionaries"] == "2" and int(found["dunlin_dictionary_responses_total"]) >= 1
    assert 0 < int(found["dunlin_dictionary_coded_bytes_total"]) * 20 < int(found["dunlin_dictionary_plain_bytes_total"])


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_chromium_downloads_the_difference_after_a_deploy(tls, site, tmp_path, monkeypatch):
    log = tmp_path / "access.log"
    page = b"<!doctype html><title>page</title><script src=\"/app.%s.js\"></script>"
    script = lambda seed: version(seed) + b"document.title = 'version %d';\n" % seed
    write(site / "index.html", page % b"3f2a")
    write(site / "app.3f2a.js", script(1))
    routes = f'[[site.route]]\npath = "/"\ncache_control = "no-cache"\n[[site.route]]\npath = "*.js"\n{LONG}\n'
    server = tls(more=routes, server=f'access_log = {{ path = "{log}", format = "{{path}} {{coding}} {{bytes}}" }}')
    lines = lambda: log.read_text().splitlines() if log.exists() else []
    monkeypatch.setattr(browsers, "FLAGS", [*browsers.FLAGS, trusting(tls.own[0])])
    with Browser(tmp_path / "profile") as browser:
        url = f"https://localhost:{server.address[1]}/"
        browser.open(url)
        assert browser.evaluate("document.title") == "version 1"
        # The browser writes the dictionary when it has all of it.
        time.sleep(2)
        write(site / "index.html", page % b"77c1")
        deploy(site, "app.3f2a.js", "app.77c1.js", script(2))
        time.sleep(0.3)
        browser.open(url)
        assert browser.evaluate("document.title") == "version 2"
    wait_until(lambda: any(line.startswith("/app.77c1.js") for line in lines()), "a log line")
    [line] = [line for line in lines() if line.startswith("/app.77c1.js")]
    assert line.split()[1] == "dcz" and int(line.split()[2]) < len(script(2)) / 20, lines()
