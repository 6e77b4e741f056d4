"""Pages as a browser sees them."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT, write

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
