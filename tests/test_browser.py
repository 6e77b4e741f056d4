"""Pages as a browser sees them."""

import base64
import fcntl
import json
import os
import re
import subprocess
import threading

import pytest

from support.browser import CHROMIUM, dom, FLAGS
from support.files import write
from support.server import ROOT
from support.tls import certificate
from support.waiting import wait_until


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_a_listing_works_under_its_own_policy(serve, site, tmp_path):
    for n in range(12):
        write(site / f"file {n} <b>&\".txt", "x" * n)
    server = serve("listing = true")
    page, console = dom(f"{server.url}/?sort=size&order=desc", tmp_path / "profile")
    assert not console, console
    names = re.findall(r'<td><a href="[^"]*"><bdi>([^<]*)</bdi>', page)
    assert len(names) == 12 and names[0].startswith("file 11 &lt;b&gt;")
    # The script has run: a filter is worth showing from eight names on.
    assert re.search(r'<input id="filter"(?![^>]*hidden)', page)
    assert 'aria-sort="descending"' in page


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_the_demonstration_has_no_errors(serve, tmp_path):
    text = (ROOT / "demo" / "dunlin.toml").read_text()
    text = text.replace("127.0.0.1:8080", "127.0.0.1:0").replace('root = "."', f'root = "{ROOT}/demo"').replace('directory = "', f'directory = "{ROOT}/demo/')
    server = serve(text=text)
    for path in ("/scripts/seen.sh", "/warm/seen.sh", "/app/a"):
        status, fields, _ = server.get(path)
        assert status == 200 and "dur=" in fields["server-timing"], path
    page, console = dom(server.url, tmp_path / "profile")
    assert not console, console
    assert "A web server that people can measure" in page


class Browser:
    """A running browser, controlled by its debugging pipe."""

    def __init__(self, profile):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def connect():
            # The browser reads from 3 and writes to 4.
            there, back = fcntl.fcntl(to_browser, fcntl.F_DUPFD, 10), fcntl.fcntl(from_browser, fcntl.F_DUPFD, 10)
            os.dup2(there, 3)
            os.dup2(back, 4)

        flags = [flag for flag in FLAGS if "budget" not in flag]
        self.process = subprocess.Popen(
            [CHROMIUM, *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._number, self._session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                part = os.read(self._in, 1 << 16)
                assert part, "the browser is gone"
                self._rest += part
            text, _, self._rest = self._rest.partition(b"\0")
            response = json.loads(text)
            if response.get("id") == self._number:
                assert "error" not in response, response
                return response["result"]
            self.events.append(response)

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            code = 9 if key == "Tab" else 0
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def console_errors(self):
        names = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [event for event in self.events if event.get("method") in names]

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


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
            browser.picture(tmp_path / f"{scheme}.png")
        assert (tmp_path / "light.png").read_bytes() != (tmp_path / "dark.png").read_bytes()
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
