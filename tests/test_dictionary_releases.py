"""The bytes of 21 releases of npm packages for a browser that has the release before, against their forms in Brotli 11.

The packages are fetched with npm and not kept.
"""

import hashlib
import json
import shutil
import subprocess
import tarfile
import time

import pytest

from support import browser as browsers
from support.browser import CHROMIUM, Browser, trusting
from support.files import write
from support.waiting import wait_until

# Package, old and new release, and file.
RELEASES = [
    ("vue", "3.5.12", "3.5.13", "dist/vue.global.prod.js"),
    ("bootstrap", "5.3.2", "5.3.3", "dist/css/bootstrap.min.css"),
    ("bootstrap", "5.3.2", "5.3.3", "dist/js/bootstrap.bundle.min.js"),
    ("react-dom", "18.2.0", "18.3.0", "umd/react-dom.production.min.js"),
    ("jquery", "3.7.0", "3.7.1", "dist/jquery.min.js"),
    ("@mui/material", "5.16.6", "5.16.7", "umd/material-ui.production.min.js"),
    ("swagger-ui-dist", "5.17.13", "5.17.14", "swagger-ui-bundle.js"),
    ("lodash", "4.17.20", "4.17.21", "lodash.min.js"),
    ("d3", "7.8.4", "7.8.5", "dist/d3.min.js"),
    ("chart.js", "4.4.1", "4.4.2", "dist/chart.umd.js"),
    ("axios", "1.6.7", "1.6.8", "dist/axios.min.js"),
    ("moment", "2.29.3", "2.29.4", "min/moment.min.js"),
    ("leaflet", "1.9.3", "1.9.4", "dist/leaflet.js"),
    ("htmx.org", "1.9.10", "1.9.11", "dist/htmx.min.js"),
    ("alpinejs", "3.13.4", "3.13.5", "dist/cdn.min.js"),
    ("preact", "10.19.3", "10.19.4", "dist/preact.min.js"),
    ("vue-router", "4.2.4", "4.2.5", "dist/vue-router.global.prod.js"),
    ("marked", "12.0.0", "12.0.1", "marked.min.js"),
    ("dompurify", "3.0.8", "3.0.9", "dist/purify.min.js"),
    ("swiper", "11.0.5", "11.0.6", "swiper-bundle.min.js"),
    ("echarts", "5.4.2", "5.4.3", "dist/echarts.min.js"),
]

LONG = 'cache_control = "public, max-age=31536000, immutable"'


@pytest.fixture
def releases(tmp_path):
    """The name and both contents of each file."""
    folder = tmp_path / "npm"
    folder.mkdir()
    specs = sorted({f"{package}@{version}" for package, *versions, _ in RELEASES for version in versions})
    if not shutil.which("npm"):
        pytest.skip("there is no npm here")
    try:
        done = subprocess.run(["npm", "pack", "--silent", *specs], cwd=folder, capture_output=True, timeout=240)
    except subprocess.TimeoutExpired:
        pytest.skip("the registry of npm does not respond")
    if done.returncode:
        pytest.skip("the registry of npm cannot be reached")

    def content(package, version, file):
        archive = folder / f"{package.replace('@', '').replace('/', '-')}-{version}.tgz"
        with tarfile.open(archive) as packed:
            return packed.extractfile(f"package/{file}").read()

    return [
        (file.rpartition("/")[2], content(package, old, file), content(package, new, file))
        for package, old, new, file in RELEASES
    ]


def hashed(name, content):
    """The name with a hash of the content, as build tools write it."""
    stem, _, end = name.rpartition(".")
    return f"{stem}.{hashlib.sha256(content).hexdigest()[:8]}.{end}"


def deploy(site, files):
    """Writes the files, and a page that loads all of them."""
    names = [hashed(name, content) for name, content in files]
    for name, (_, content) in zip(names, files):
        write(site / "assets" / name, content)
    page = f"""<!doctype html><title>loading</title><script>
    Promise.all({json.dumps(names)}.map(async name => (await (await fetch('/assets/' + name)).arrayBuffer()).byteLength))
        .then(lengths => document.title = 'lengths ' + lengths.join(' '))</script>"""
    write(site / "index.html", page.encode())
    return names


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_a_browser_downloads_a_tenth_of_brotli_after_a_deploy(tls, site, tmp_path, releases, monkeypatch):
    log = tmp_path / "access.log"
    monkeypatch.setattr(browsers, "FLAGS", [*browsers.FLAGS, trusting(tls.own[0])])
    server = tls(
        more=f'[[site.route]]\npath = "/"\ncache_control = "no-cache"\n[[site.route]]\npath = "/assets/*"\n{LONG}\n',
        server=f'access_log = {{ path = "{log}", format = "{{path}} {{coding}} {{bytes}}" }}',
    )
    url = f"https://localhost:{server.address[1]}/"
    lengths = "document.title.startsWith('lengths') && document.title"

    def load(browser, files):
        browser.open(url)
        wait_until(lambda: browser.evaluate(lengths), "all files", 60)
        assert browser.evaluate(lengths) == "lengths " + " ".join(str(len(content)) for _, content in files)

    old = [(name, content) for name, content, _ in releases]
    new = [(name, content) for name, _, content in releases]
    first = deploy(site, old)
    with Browser(tmp_path / "profile") as browser:
        load(browser, old)
        # The browser writes dictionaries when it has all of them.
        time.sleep(5)
        for name in first:
            (site / "assets" / name).unlink()
        second = deploy(site, new)
        time.sleep(0.5)
        load(browser, new)
    wait_until(lambda: all(f"/assets/{name} " in log.read_text() for name in second), "the log", 20)
    sent = {line.split()[0]: line.split()[1:] for line in log.read_text().splitlines()}
    total = brotli = 0
    for name, (_, content) in zip(second, new):
        coding, length = sent[f"/assets/{name}"]
        sibling = len(subprocess.run(["brotli", "-c", "-q", "11"], input=content, capture_output=True, check=True).stdout)
        print(f"{name}: {len(content)} bytes, brotli {sibling}, {coding} {length}, {int(length) / sibling:.1%}")
        total, brotli = total + int(length), brotli + sibling
    print(f"together: {total} of {brotli} bytes, {total / brotli:.1%}")
    assert total <= brotli / 10
