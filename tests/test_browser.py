"""Pages as a browser sees them."""

import json
import re
import subprocess
import threading

import pytest

from support.browser import Browser, CHROMIUM, FLAGS, SCREENSHOTS, dom
from support.files import write
from support.server import ROOT
from support.tls import certificate
from support.upstream import Upstream, response
from support.waiting import wait_until


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_a_listing_works_under_its_own_policy(serve, site, tmp_path):
    for n in range(12):
        write(site / f"file {n} <b>&\".txt", "x" * n)
    server = serve("listing = true")
    page, console = dom(f"{server.url}/?sort=size&order=desc", tmp_path / "profile")
    assert not console, console
    names = re.findall(r'<td><a href="[^"]*"><svg.*?</svg><bdi>([^<]*)</bdi>', page)
    assert len(names) == 12 and names[0].startswith("file 11 &lt;b&gt;")
    # The script has run: a filter is worth showing from eight names on.
    assert re.search(r'<input id="filter"(?![^>]*hidden)', page)
    assert 'aria-sort="descending"' in page


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_the_demonstration_has_no_errors(serve, tmp_path):
    text = (ROOT / "demo" / "dunlin.toml").read_text()
    text = text.replace("127.0.0.1:8080", "127.0.0.1:0").replace('root = "www"', f'root = "{ROOT}/demo/www"').replace('directory = "', f'directory = "{ROOT}/demo/')
    server = serve(text=text)
    for path in ("/scripts/seen.sh", "/warm/seen.sh", "/app/a"):
        status, fields, _ = server.get(path)
        assert status == 200 and "dur=" in fields["server-timing"], path
    page, console = dom(server.url, tmp_path / "profile")
    assert not console, console
    assert "shows what it does" in page


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_the_status_page_draws_live_charts(serve, site, tmp_path):
    write(site / "a.txt", "x" * 3000)
    limited = '[[site.route]]\npath = "/a.txt"\nlimit = { requests = "100000/s" }\nthrottle = { max_concurrent = 7 }\n'
    server = serve(more='[[site.route]]\npath = "/status/*"\nstatus = true\n' + limited)
    stop = threading.Event()

    def load():
        while not stop.is_set():
            server.get("/a.txt")
            server.get("/none")

    thread = threading.Thread(target=load)
    thread.start()
    browser = Browser(tmp_path / "profile")
    try:
        browser.call("Emulation.setDeviceMetricsOverride", width=1280, height=1000, deviceScaleFactor=1, mobile=False)
        browser.call("Page.navigate", url=f"{server.url}/status/")
        shown = lambda id: browser.evaluate(f"document.getElementById('{id}')?.textContent") or ""
        wait_until(lambda: re.match(r"[1-9]", shown("rate")), "requests a second")
        wait_until(lambda: "127.0.0.1" in shown("clients"), "the client")
        assert "live" in shown("link") and f"process {server.pid}" in shown("about")
        assert "/status/*" in shown("routes") and re.search(r"\d+ µs|ms", shown("latency"))
        assert "7 concurrent" in shown("limits") and "100000/s" in shown("limits"), shown("limits")
        drawn = "[...document.getElementById('rate-chart').getContext('2d').getImageData(0, 20, 9999, 60).data].some((v) => v)"
        assert browser.evaluate(drawn), "the chart has a line"
        # By keyboard: its own key, and navigation through the page.
        browser.press("p")
        wait_until(lambda: shown("pause") == "Paused", "the pause")
        browser.press("p")
        browser.press("Tab")
        assert browser.evaluate("document.activeElement.className") == "skip"
        for scheme in ("light", "dark"):
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.picture(SCREENSHOTS / f"status-under-load-{scheme}.png")
        pictures = [(SCREENSHOTS / f"status-under-load-{scheme}.png").read_bytes() for scheme in ("light", "dark")]
        assert pictures[0] != pictures[1]
        # The server stops, and the page shows it.
        stop.set()
        thread.join()
        assert not browser.console_errors(), browser.console_errors()
        server.stop()
        wait_until(lambda: "lost" in shown("link"), "the loss")
    finally:
        stop.set()
        thread.join()
        browser.process.kill()
        browser.process.wait()
@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_the_status_page_has_the_response_cache_where_there_is_one(serve, tmp_path):
    upstream = Upstream(lambda *_: response(b"hello", "200 OK", "Cache-Control: max-age=60"))
    status = '[[site.route]]\npath = "/status/*"\nstatus = true\n'
    app = f'[[site.route]]\npath = "/app/*"\nproxy = "{upstream.url}"\ncache = {{ responses = true }}\n'
    browser = Browser(tmp_path / "profile")
    try:
        for more, keys in ((status, ""), (status + app, f'cache.directory = "{tmp_path}/responses"')):
            server = serve(more=more, server=keys)
            for _ in range(4):
                server.get("/app/a")
            browser.call("Page.navigate", url=f"{server.url}/status/")
            shown = lambda id: browser.evaluate(f"document.getElementById('{id}')?.textContent") or ""
            wait_until(lambda: f"process {server.pid}" in shown("about"), "the page")
            hidden = browser.evaluate("document.getElementById('response-cache').closest('div').hidden")
            assert hidden == (more == status)
        wait_until(lambda: "75.0 %" in shown("response-cache"), "three hits of four requests")
        # All boxes in one line: no figure runs over its frame.
        browser.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
        over = "[...document.querySelectorAll('.facts dd')].filter((figure) => figure.getBoundingClientRect().right > figure.closest('.facts > div').getBoundingClientRect().right - 5).length"
        assert browser.evaluate("document.querySelectorAll('.facts dd').length") > 20 and browser.evaluate(over) == 0
        for part in ("· hit", "· miss", "URLs1", "URLs on disk1", "written1", "failed to write0"):
            wait_until(lambda: part in shown("response-cache"), part)
        assert not browser.console_errors(), browser.console_errors()
    finally:
        browser.process.kill()
        browser.process.wait()


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_a_browser_uses_http2(serve, site, tmp_path):
    own = certificate(tmp_path, "own")
    write(site / "a.css", "p { color: green }")
    write(
        site / "index.html",
        '<!doctype html><link rel="stylesheet" href="a.css"><p id="protocols"><script>onload = () => {'
        'const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];'
        'protocols.textContent = entries.map(entry => entry.name.split("/").pop() + "=" + entry.nextHopProtocol).join(" ")}</script>',
    )
    for http2, wanted in (("true", "=h2 a.css=h2"), ("false", "=http/1.1 a.css=http/1.1")):
        server = serve(
            text=f'[[listen]]\naddress = "127.0.0.1:0"\ntls = true\nhttp2 = {http2}\n'
            f'[[site]]\nroot = "{site}"\ntls = {{ certificate = "{own[0]}", key = "{own[1]}" }}\n'
        )
        done = subprocess.run(
            [CHROMIUM, *FLAGS, "--ignore-certificate-errors", f"--user-data-dir={tmp_path}/profile-{http2}", "--dump-dom", server.url + "/"],
            capture_output=True, text=True, timeout=120,
        )
        assert re.search(f'<p id="protocols">{wanted}</p>', done.stdout), done.stdout


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_the_status_page_has_the_seconds_before_it_was_opened(serve, site, tmp_path):
    write(site / "a.txt", "x")
    server = serve(more='[[site.route]]\npath = "/status/*"\nstatus = true\n')
    past = lambda: json.loads(server.get("/status/history")[2])

    def seconds_with_requests():
        server.get("/a.txt")
        return [sample for sample in past()["samples"] if sample[past()["keys"].index("rate")] >= 1]

    wait_until(lambda: len(seconds_with_requests()) >= 3, "three seconds with requests")
    before = len(past()["samples"])
    with Browser(tmp_path / "profile") as browser:
        browser.call("Page.navigate", url=f"{server.url}/status/")
        now = lambda: float(browser.evaluate("document.getElementById('rate-chart').getAttribute('aria-valuenow')") or 0)
        wait_until(lambda: browser.evaluate("document.getElementById('link')?.textContent") == "live", "the page")
        browser.evaluate("document.getElementById('rate-chart').focus(); 0")
        browser.press("Home")
        wait_until(lambda: now() <= 1 - before, "a second from before the page was opened")
        assert not browser.console_errors(), browser.console_errors()
