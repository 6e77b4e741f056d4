#!/usr/bin/env python3
"""Takes the picture of the status page in README and book: a real server under light load, as Chromium shows it.

    docs/screenshot.py > docs/src/status.png

It needs Chromium and takes two minutes, the time that the charts show.
"""

import base64
import http.client
import random
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from serving import serving  # noqa: E402
from support.browser import Browser, CHROMIUM  # noqa: E402

WIDTH, HEIGHT = 1120, 940
# Seconds of load before the picture: the range of the charts.
SECONDS = 124
IDLE_CONNECTIONS = 36

ROUTES = """
[[site.route]]
path = "/*"
cache_control = "max-age=60"
[[site.route]]
path = "/status/*"
status = true
access_log = false
[[site.route]]
path = "/cgi-bin/*"
script = { kind = "cgi", directory = "cgi-bin", processes = 4 }
[[site.route]]
path = "/search"
respond = { body = "nothing found" }
limit = { requests = "5/s", burst = 5 }
"""

SCRIPT = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nhello\\n'\n"

# Path, and requests per second.
LOAD = [("/", 120), ("/style.css", 90), ("/photo.jpg", 40), ("/cgi-bin/hello", 6), ("/search", 6), ("/favicon.ico", 2)]


def prepare(folder):
    """The files and the script of the site."""
    (folder / "index.html").write_text("<h1>A site</h1>\n" + "text " * 400)
    (folder / "style.css").write_text("p { margin: 0 }\n" * 300)
    (folder / "photo.jpg").write_bytes(random.Random(1).randbytes(60_000))
    script = folder / "cgi-bin" / "hello"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o755)


def request_often(address, path, rate, end):
    """Requests `path` on one connection, at random times, until `end`."""
    connection = http.client.HTTPConnection(*address)
    while time.monotonic() < end:
        connection.request("GET", path)
        connection.getresponse().read()
        time.sleep(random.expovariate(rate))


def picture(url, profile):
    """The status page after the load, as a PNG."""
    parts = urlsplit(url)
    address = (parts.hostname, parts.port)
    end = time.monotonic() + SECONDS
    threads = [threading.Thread(target=request_often, args=(address, *each, end + 5), daemon=True) for each in LOAD]
    idle = [socket.create_connection(address) for _ in range(IDLE_CONNECTIONS)]
    for thread in threads:
        thread.start()
    with Browser(profile) as browser:
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        browser.open(f"{url}/status/", width=WIDTH, height=HEIGHT)
        time.sleep(SECONDS)
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1}
        data = browser.call("Page.captureScreenshot", clip=clip)["data"]
    for connection in idle:
        connection.close()
    for thread in threads:
        thread.join()
    return base64.b64decode(data)


def main():
    if not CHROMIUM:
        raise SystemExit("docs/screenshot.py needs chromium")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profile:
        prepare(Path(folder))
        with serving(folder, '[server]\nthreads = 2\nhttp1 = { idle_timeout = "10m" }\n', ROUTES) as url:
            sys.stdout.buffer.write(picture(url, profile))


if __name__ == "__main__":
    main()
