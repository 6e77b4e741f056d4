"""Pages as a browser sees them."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT, write
from test_tls import certificate

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--virtual-time-budget=5000",
]


def dom(url, profile):
    """The page after its scripts have run, and what the console said."""
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", url],
        capture_output=True, text=True, timeout=120,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console


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


@pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")
def test_a_browser_speaks_http2_and_says_so(serve, site, tmp_path):
    own = certificate(tmp_path, "own")
    write(site / "a.css", "p { color: green }")
    write(
        site / "index.html",
        '<!doctype html><link rel="stylesheet" href="a.css"><p id="said"><script>onload = () => {'
        'const spoken = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];'
        'said.textContent = spoken.map(entry => entry.name.split("/").pop() + "=" + entry.nextHopProtocol).join(" ")}</script>',
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
        assert re.search(f'<p id="said">{wanted}</p>', done.stdout), done.stdout
