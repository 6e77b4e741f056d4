"""Every page: by keyboard, on a phone, in light and dark, and for assistive technology.

Pictures of the pages are kept in target/screenshots. Findings are those of axe-core, which ./test fetches with npm.
"""

import json
import subprocess

import pytest

from support.browser import Browser, CHROMIUM, SCREENSHOTS
from support.comparison import results_of
from support.files import write
from support.server import DUNLIN, ROOT
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")

AXE = ROOT / "target" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
PHONE, DESKTOP = 360, 1280
WIDTHS = {"phone": PHONE, "tablet": 768, "desktop": DESKTOP}

# What Tab should reach.
FOCUSABLE = """[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
    .filter((element) => element.checkVisibility() && !element.disabled && (!element.closest('pre') || element.textContent))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def demo(serve):
    """The URL of the demonstration."""
    text = (ROOT / "demo" / "dunlin.toml").read_text()
    text = text.replace("127.0.0.1:8080", "127.0.0.1:0").replace('root = "www"', f'root = "{ROOT}/demo/www"')
    return serve(text=text.replace('directory = "', f'directory = "{ROOT}/demo/')).url


@pytest.fixture
def plain(serve, site, tmp_path):
    """The URL of a server with a page of each kind that the server itself makes."""
    for number in range(1, 13):
        write(site / "list" / f"report-{number}.txt", "x" * number * 1000)
    write(site / "list" / "a folder" / "index.html", "in the folder")
    (site / "many").mkdir()
    for number in range(2_003):
        (site / "many" / f"file {number}.txt").touch()
    (site / "unlisted").mkdir()
    (site / "list" / "empty").mkdir()
    write(site / "cgi" / "fails.sh", "#!/bin/sh\necho what went wrong >&2\nexit 3\n").chmod(0o755)
    route = '[[site.route]]\npath = "{}"\n{}\n'
    script = f'script = {{ kind = "cgi", directory = "{site}/cgi", show_errors = %s }}'
    more = (
        route.format("/list/*", "listing = true")
        + route.format("/many/*", "listing = true")
        + route.format("/fails/*", script % "true")
        + route.format("/fails-quietly/*", script % "false")
        + route.format("/private/*", 'deny = ["0.0.0.0/0"]')
        + route.format("/old", 'redirect = { to = "/new", status = 301 }')
    )
    text = f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nhost = "127.0.0.1"\nroot = "{site}"\n{more}'
    return serve(text=text).url


@pytest.fixture
def report(tmp_path):
    """The URL of a report of `dunlin compare`."""
    results = results_of({"one": [12.0, 12.2, 11.9], "another": [10.0, 10.2, 10.1]})
    (tmp_path / "results.json").write_text(json.dumps(results))
    out = tmp_path / "out"
    command = [DUNLIN, "compare", "--report", tmp_path / "results.json", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (out / "report.html").as_uri()


# Name, fixture, path, and what the page contains when it is complete.
PAGES = [
    ("demo", "demo", "/", "Only what has changed"),
    ("demo-not-found", "demo", "/none", "Not here"),
    ("status", "demo", "/status/", "live"),
    ("listing", "plain", "/list/", "report-12.txt"),
    ("listing-last-page", "plain", "/many/?page=2", "Page 2 of 2"),
    ("listing-filtered", "plain", "/many/?filter=FILE+200&sort=size&order=desc", "4 of 2,003 names match"),
    ("listing-empty", "plain", "/list/empty/", "Empty directory"),
    ("error-404", "plain", f"/{'long' * 30}", "has no page at this address"),
    ("error-403", "plain", "/private/x", "does not permit"),
    ("error-unlisted", "plain", "/unlisted/", "has no index page"),
    ("error-502", "plain", "/fails-quietly/fails.sh", "The program for"),
    ("error-502-explained", "plain", "/fails/fails.sh", "what went wrong"),
    ("compare-report", "report", "", "Servers compared"),
]


@pytest.fixture(params=PAGES, ids=[name for name, *_ in PAGES])
def page(request):
    name, fixture, path, text = request.param
    return name, request.getfixturevalue(fixture) + path, text


def shown(browser, url, text, **window):
    """Opens the page and waits for the text."""
    browser.open(url, **window)
    wait_until(lambda: text in browser.evaluate("document.body.innerText"), f"{text!r} on {url}")
    if url.endswith("/status/"):
        points = "document.getElementById('rate-chart').getAttribute('aria-label')"
        wait_until(lambda: "now" in (browser.evaluate(points) or ""), "a point of the charts")


def test_a_page_fits_a_phone_and_has_light_and_dark_colours(browser, page):
    name, url, text = page
    backgrounds = {}
    for kind, width in WIDTHS.items():
        for scheme in ("light", "dark"):
            shown(browser, url, text, width=width, scheme=scheme)
            browser.picture(SCREENSHOTS / f"{name}-{kind}-{scheme}.png")
            wide = browser.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"the page is {wide} pixels wide"
            # The canvas of a page without a background of its own follows color-scheme.
            backgrounds[scheme] = browser.evaluate("getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color")
    assert backgrounds["light"] != backgrounds["dark"]


def test_a_page_has_no_errors_and_is_used_by_keyboard(browser, page):
    name, url, text = page
    shown(browser, url, text)
    unexpected = [
        event for event in browser.console_errors()
        # The browser logs the status of the page itself.
        if "Failed to load resource" not in event["params"].get("entry", {}).get("text", "")
    ]
    assert not unexpected, unexpected
    browser.evaluate(f"window.wanted = new Set({FOCUSABLE}); window.invisible = []; 0")
    for _ in range(browser.evaluate("wanted.size") + 2):
        browser.press("Tab")
        # Focus is shown by an outline.
        browser.evaluate(
            "wanted.delete(document.activeElement);"
            "if (document.activeElement !== document.body && getComputedStyle(document.activeElement).outlineStyle === 'none')"
            " invisible.push(document.activeElement.outerHTML.slice(0, 200)); 0"
        )
    missed = browser.evaluate("[...wanted].map((element) => element.outerHTML.slice(0, 200))")
    assert not missed, f"Tab does not reach {missed}"
    assert not browser.evaluate("invisible"), browser.evaluate("invisible")


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: ./test fetches it with npm")
def test_axe_finds_nothing(browser, page):
    name, url, text = page
    source = AXE.read_text()
    for scheme in ("light", "dark"):
        for width in (PHONE, DESKTOP):
            shown(browser, url, text, width=width, scheme=scheme)
            browser.evaluate(source + "; 0")
            violations = browser.evaluate("axe.run({ rules: { 'target-size': { enabled: true } } }).then((done) => done.violations)")
            found = [(rule["id"], rule["impact"], rule["help"], [node["html"] for node in rule["nodes"]]) for rule in violations]
            assert not found, (scheme, width, json.dumps(found, indent=1))


def test_a_listing_is_filtered_and_moved_through_by_keys(browser, plain):
    shown(browser, f"{plain}/list/", "report-12.txt")
    names = browser.evaluate("[...document.querySelectorAll('bdi')].map((name) => name.textContent)")
    assert names == ["a folder", "empty", *(f"report-{number}.txt" for number in range(1, 13))]
    count = lambda: browser.evaluate("document.getElementById('count').textContent")
    focused = lambda: browser.evaluate("document.activeElement.textContent")
    assert count() == "2 folders, 12 files, 78 KB"
    assert browser.evaluate("document.title").startswith("/list/ – 127.0.0.1:")
    for key, name in [("End", "report-12.txt"), ("ArrowUp", "report-11.txt"), ("Home", "../"), ("j", "a folder/")]:
        browser.press(key)
        assert focused() == name
    browser.press("/")
    for key in "rt-1":
        browser.press(key)
    assert count() == "4 of 14 names match"
    browser.press("x")
    assert count() == "No matches"
    browser.press("Escape")
    assert count() == "2 folders, 12 files, 78 KB"
    # The keys that are letters can be switched off, for good.
    browser.evaluate("document.getElementById('letters').click()")
    browser.open(f"{plain}/list/")
    browser.press("/")
    assert browser.evaluate("document.activeElement.id") == ""
    browser.evaluate("document.getElementById('letters').click()")


@pytest.mark.parametrize("scripts", [True, False])
def test_the_pages_of_a_listing_are_reached_by_keyboard(browser, plain, scripts):
    complete = "document.readyState === 'complete' &&"
    page = lambda: browser.evaluate(f"{complete} document.querySelector('nav span')?.textContent")
    count = lambda: browser.evaluate(f"{complete} document.getElementById('count')?.textContent")
    browser.call("Emulation.setScriptExecutionDisabled", value=not scripts)
    try:
        for width in (PHONE, DESKTOP):
            browser.open(f"{plain}/many/?order=desc", width=width)
            assert page() == "Page 1 of 2" and count() == "2,003 files, 0 B"
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            # From the top, without passing the names.
            for _ in range(10):
                browser.press("Tab")
                if browser.evaluate("document.activeElement.rel") == "next":
                    break
            browser.press("Enter")
            wait_until(lambda: page() == "Page 2 of 2", "the second page")
            assert browser.evaluate("[...document.querySelectorAll('bdi')].map((name) => name.textContent)") == [
                "file 2.txt", "file 1.txt", "file 0.txt"]
            assert browser.evaluate("document.title").startswith("/many/, page 2 of 2 – ")
            browser.evaluate("document.getElementById('filter').focus()")
            for key in "200":
                browser.press(key)
            assert count() == "2,003 files, 0 B", "the browser does not filter some of the names"
            browser.press("Enter")
            wait_until(lambda: "5 of" in (count() or ""), "the names that match")
            assert count() == "5 of 2,003 names match “200”: 5 files, 0 B" and page() is None
            assert browser.evaluate("document.querySelector('bdi').textContent") == "file 2002.txt", "the order is kept"
            browser.evaluate("document.querySelector('form a').focus()")
            browser.press("Enter")
            wait_until(lambda: page() == "Page 1 of 2", "all names")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    if scripts:
        for key, number in [("n", 2), ("p", 1)]:
            browser.press(key)
            wait_until(lambda: page() == f"Page {number} of 2", f"page {number}")


def test_charts_have_values_under_the_pointer_and_for_the_keyboard(browser, demo):
    shown(browser, f"{demo}/status/", "live")
    shows = lambda id: browser.evaluate(f"document.getElementById('{id}').textContent")
    attribute = lambda name: browser.evaluate(f"document.getElementById('rate-chart').getAttribute('{name}')")
    assert attribute("aria-label").startswith("Requests per second, last 2 minutes: now ")
    count = "Number(document.getElementById('rate-chart').getAttribute('aria-valuenow'))"
    wait_until(lambda: browser.evaluate("document.querySelector('#errors-chart').getAttribute('aria-valuetext')"), "errors")
    browser.evaluate("document.getElementById('rate-chart').focus(); 0")
    wait_until(lambda: browser.evaluate(count) <= -1, "a point that is a second old")
    assert " at " in shows("rate") and " at " in shows("errors"), "all charts show the same time"
    time = attribute("aria-valuetext").split(": ")[0]
    browser.press("ArrowRight")
    assert attribute("aria-valuetext").split(": ")[0] > time
    browser.press("Escape")
    assert " at " not in shows("rate")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=600, y=230)
    browser.evaluate("document.activeElement.blur(); 0")
    box = browser.evaluate("(({x, y, width}) => ({x, y, width}))(document.getElementById('errors-chart').getBoundingClientRect())")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"] + box["width"] - 5, y=box["y"] + 20)
    assert " at " in shows("rate")


def test_a_status_page_without_scripts_leads_to_the_figures(browser, demo):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(f"{demo}/status/")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    text = browser.evaluate("document.body.innerText")
    assert "needs JavaScript" in text and "connecting" not in text and "Routes" not in text
