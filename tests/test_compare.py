"""Comparisons from end to end, their reports in a browser, and their statistics beside scipy's."""

import html
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from support.browser import CHROMIUM, dom, FLAGS
from support.comparison import results_of
from support.components import OPERATION
from support.server import DUNLIN, ROOT

VALUES = [12.1, 11.8, 12.6, 12.0, 13.9, 11.5, 12.2, 12.4, 11.9, 12.3, 12.8]
OTHERS = [10.0, 10.2, 10.1, 9.9, 10.4, 9.8, 10.3, 10.0, 10.1, 9.9, 10.2]


def compare(*arguments, code=0, cwd=None):
    done = subprocess.run(
        [DUNLIN, "compare", *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=cwd,
        env={**os.environ, "CARGO_TARGET_DIR": str(OPERATION)},
    )
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-3000:])
    return done


@pytest.mark.serial
def test_three_servers_are_compared_within_a_minute(tmp_path):
    began = time.monotonic()
    done = compare("wasd-files", "--servers", "dunlin,nginx,lighttpd", "--quick", "--out", tmp_path / "out")
    assert time.monotonic() - began < 60
    out = tmp_path / "out"
    check_text(done)
    for name in ("dunlin", "nginx", "lighttpd"):
        relation = r"first|only \w+ was measured|tied with the first, (95 %|no valid round)|[\d.]+× slower, 95 %|not valid|not ranked"
        # A figure of one valid round has no interval.
        assert re.search(rf"^  {name} +[\d,.]+/s(?: ± +\d+ %)? +({relation})", done.stdout, re.M), done.stdout
    assert done.stdout.rstrip().endswith("report.html")
    results = json.loads((out / "results.json").read_text())
    (scenario,) = results["scenarios"]
    for row in scenario["rows"]:
        for name in ("dunlin", "nginx", "lighttpd"):
            cell = row["cells"][name]
            assert cell["state"] == "measured" and len(cell["rounds"]) == 3, cell
            for run in cell["rounds"]:
                assert run["values"]["errors"] == 0 and run["values"]["requests_per_second"] > 100
                assert run["values"]["cpu_us_per_request"] > 0
    orders = [run["order"] for row in scenario["rows"] for cell in row["cells"].values() for run in cell["rounds"]]
    assert sorted(orders) == list(range(len(orders))), "every run has its place in one order"
    assert {path.name for path in (out / "charts").iterdir()} >= {"wasd-files-requests_per_second.svg"}
    for server in results["servers"]:
        assert all((out / path).is_file() for path in server["configurations"].values())
    assert "| 0 KB, 10 at a time, cache on |" in (out / "report.md").read_text()
    same = compare("--diff", out, out)
    check_text(same)
    assert "better" not in same.stdout and "worse" not in same.stdout
    assert "figures: the interval includes 1" in same.stdout or "not comparable" in same.stdout
    check_page(out / "report.html", tmp_path)


def check_text(done):
    """Text for people has at most 80 columns, and no control characters where the output is no terminal."""
    for line in (done.stdout + done.stderr).splitlines():
        assert len(line) <= 80 or " " not in line.strip().removeprefix("Report: "), line
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)


MEASURE = """
const report = {wide: [], cut: [], unnamed: []};
report.width = document.documentElement.scrollWidth;
report.rows = Math.max(0, ...[...document.querySelectorAll('tbody tr')].map(row => row.getBoundingClientRect().height));
for (const table of document.querySelectorAll('table'))
  if (!table.caption || !table.caption.textContent.trim()) report.unnamed.push('table');
for (const svg of document.querySelectorAll('svg')) {
  const names = svg.getAttribute('aria-labelledby').split(' ').map(id => document.getElementById(id));
  if (!names.every(name => name && svg.contains(name) && name.textContent.trim())) report.unnamed.push('svg');
  const {width, height} = svg.viewBox.baseVal;
  for (const text of svg.querySelectorAll('text')) {
    const box = text.getBBox();
    if (box.width && (box.x < -1 || box.y < -1 || box.x + box.width > width + 1 || box.y + box.height > height + 1))
      report.cut.push(text.textContent);
  }
}
document.title = 'measured ' + JSON.stringify(report);
"""


def measure(page, width, profile):
    """Sizes of the page with all its sections open, in a window of that width."""
    probe = page.with_name("probe.html")
    text = page.read_text().replace("<details>", "<details open>")
    probe.write_text(text.replace("</body>", f"<script>{MEASURE}</script></body>"))
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--window-size={width},900", f"--user-data-dir={profile}", "--dump-dom", probe.as_uri()],
        capture_output=True, text=True, timeout=120,
    )
    return json.loads(html.unescape(re.search(r"<title>measured (.*?)</title>", done.stdout)[1]))


def check_page(page, tmp_path):
    text = page.read_text()
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text), "the page needs nothing from elsewhere"
    if not CHROMIUM:
        return
    shown, console = dom(page.as_uri(), tmp_path / "profile")
    assert not console, console
    assert "Servers compared" in shown
    for width, highest in ((1280, 150), (500, 190)):
        sizes = measure(page, width, tmp_path / f"profile-{width}")
        assert sizes["width"] <= width, "the page itself does not scroll sideways"
        assert sizes["rows"] <= highest and not sizes["cut"] and not sizes["unnamed"], sizes


def test_statistics_are_those_of_scipy(tmp_path):
    numpy = pytest.importorskip("numpy")
    stats = pytest.importorskip("scipy.stats")
    (tmp_path / "results.json").write_text(json.dumps(results_of({"a": VALUES, "b": OTHERS})))
    compare("--report", tmp_path / "results.json", "--out", tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()

    def bootstrap(values):
        done = stats.bootstrap((values,), numpy.median, method="percentile", n_resamples=20_000, random_state=1)
        return done.confidence_interval

    low, high = map(float, re.search(r"★ </span>12\.2<small>([\d.]+) – ([\d.]+)</small>", page).groups())
    expected = bootstrap(VALUES)
    assert math.isclose(low, expected.low, rel_tol=0.01) and math.isclose(high, expected.high, rel_tol=0.01)
    ratio = re.search(r"first: a; next: b, ([\d.]+)× slower, 95 % interval ([\d.]+)–([\d.]+)", page)
    logs = [math.log(a / b) for a, b in zip(VALUES, OTHERS)]
    interval = bootstrap(logs)
    for reported, right in zip(ratio.groups(), (numpy.median(logs), interval.low, interval.high)):
        assert math.isclose(float(reported), math.exp(right), rel_tol=0.01), (reported, math.exp(right))


def test_a_report_shows_failures_and_escapes_the_output_of_servers(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(results_of({"a": VALUES, "b": [v * 1.001 for v in VALUES[::-1]]})))
    compare("--report", tmp_path / "results.json", "--out", tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page and "&lt;b&gt;" in page
    assert "failed: it died" in page and "Not available: gone: it is not installed" in page
    assert '<th scope="col">hurt</th>' in page and ">gone</th>" not in page, "a server that ran nowhere has no column"
    assert "cannot be distinguished" in page and "7.00 <small>then</small>" in page
    check_page(tmp_path / "out" / "report.html", tmp_path)


def test_diff_reports_a_changed_figure(tmp_path):
    for name, factor in (("a", 1.0), ("b", 1.3)):
        (tmp_path / name).mkdir()
        made = results_of({"x": [value * factor for value in VALUES]})
        (tmp_path / name / "results.json").write_text(json.dumps(made))
    done = compare("--diff", tmp_path / "a", tmp_path / "b")
    check_text(done)
    heading, *rest = done.stdout.splitlines()
    assert heading.startswith("The second comparison relative to the first"), done.stdout
    found = re.search(r"\n  better    1\.300×  ([\d.]+)–([\d.]+)  12\.2 → 15\.9/s  x, a row", done.stdout)
    low, high = map(float, found.groups())
    assert 1.2 < low < 1.28 and 1.32 < high < 1.4, "rounds of two comparisons are no pairs"
    assert "worse" in compare("--diff", tmp_path / "b", tmp_path / "a").stdout
    compare("--diff", tmp_path / "a", tmp_path / "b", "--fail-if-worse")
    assert "1 figure is worse" in compare("--diff", tmp_path / "b", tmp_path / "a", "--fail-if-worse", code=3).stderr
    compare("--diff", tmp_path / "b", tmp_path / "a", "--fail-if-worse", "50%")
    assert "such as 5%" in compare("--diff", tmp_path / "b", tmp_path / "a", "--fail-if-worse", "much", code=2).stderr
    (tmp_path / "b" / "results.json").write_text('{\n "format": x')
    assert "results.json:2:" in compare("--diff", tmp_path / "a", tmp_path / "b", code=1).stderr


def test_a_custom_scenario_and_its_errors(tmp_path):
    good = (ROOT / "scenarios" / "wasd-records.toml").read_text()
    (tmp_path / "own.toml").write_text(good)
    compare(tmp_path / "own.toml", "--servers", "dunlin", "--rounds", 1, "--duration", 0.2, "--out", tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [cell["state"] for row in results["scenarios"][0]["rows"] for cell in row["cells"].values()] == ["measured"] * 3
    (tmp_path / "bad.toml").write_text(good.replace("paths =", "pahts =", 1))
    reported = compare(tmp_path / "bad.toml", code=2).stderr
    assert re.search(r"bad\.toml:\d+:\d+: .*pahts", reported), reported
    assert "did you mean wasd-files?" in compare("wasd-fils", code=2).stderr
    assert "no server ngnix; did you mean nginx?" in compare("wasd-files", "--servers", "ngnix", code=2).stderr
    unknown = compare("wasd-files", "--servers", "foo", code=2).stderr
    assert "no server foo; the known ones are dunlin, nginx" in unknown and "mean" not in unknown


def test_a_server_with_wrong_responses_is_a_cell_and_the_others_are_measured(tmp_path):
    scenario = tmp_path / "own.toml"
    scenario.write_text(
        'title = "t"\nsummary = "s"\ndocument = "d"\n'
        '[[file]]\npath = "a.bin"\nsize = 100\n'
        '[[metric]]\nkey = "requests_per_second"\ntitle = "r"\nunit = "/s"\nbetter = "higher"\n'
        '[[row]]\nid = "missing"\ntitle = "m"\npaths = ["/none.bin"]\ngenerated = true\nload = ["-n", "10"]\n'
        '[[row]]\nid = "there"\ntitle = "t"\npaths = ["/a.bin"]\nload = ["-n", "10"]\n'
    )
    compare(scenario, "--servers", "dunlin", "--rounds", 2, "--out", tmp_path / "out")
    rows = {row["id"]: row["cells"]["dunlin"] for row in json.loads((tmp_path / "out" / "results.json").read_text())["scenarios"][0]["rows"]}
    assert [run["verdict"] for run in rows["missing"]["rounds"]] == ["WRONG-ANSWERS"] * 2
    assert rows["there"]["state"] == "measured" and rows["there"]["rounds"][0]["values"]["errors"] == 0


def test_an_interrupted_comparison_keeps_its_results(tmp_path):
    process = subprocess.Popen(
        [DUNLIN, "compare", "wasd-files", "--servers", "dunlin", "--rounds", "50", "--out", tmp_path / "out"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )
    seen = ""
    while " 4 of " not in seen:
        seen += process.stderr.read(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert process.returncode == 0 and results["interrupted"]
    runs = [run for row in results["scenarios"][0]["rows"] for cell in row["cells"].values() for run in cell.get("rounds", [])]
    assert len(runs) >= 2


@pytest.mark.serial
def test_proxies_are_compared_before_one_upstream(tmp_path):
    out = tmp_path / "out"
    proxies = ["dunlin", "nginx", "haproxy", *(["caddy"] if shutil.which("caddy") else [])]
    compare("proxy-small", "proxy-large", "--servers", ",".join([*proxies, "lighttpd"]), "--quick", "--rounds", 1, "--duration", "1s", "--out", out)
    results = json.loads((out / "results.json").read_text())
    installed = {server["name"] for server in results["servers"] if not server.get("missing")}
    assert "dunlin" in installed
    for scenario in results["scenarios"]:
        for row in scenario["rows"]:
            for name in installed & set(proxies):
                cell = row["cells"][name]
                assert cell["state"] == "measured", cell
                assert all(run["values"]["errors"] == 0 for run in cell["rounds"])
            assert row["cells"]["lighttpd"]["state"] != "measured"
    text = (out / "configurations" / "proxy-small-dunlin-proxy.conf").read_text()
    assert 'proxy = { to = "http://127.0.0.1:' in text


@pytest.mark.serial
def test_the_forms_of_an_operation_are_compared_and_their_phases_probed(tmp_path):
    out = tmp_path / "out"
    done = compare("cgi-phases", "--servers", "dunlin,lighttpd", "--quick", "--rounds", 1, "--duration", "500ms", "--out", out)
    results = json.loads((out / "results.json").read_text())
    rows = {row["id"]: row for row in results["scenarios"][0]["rows"]}
    for kind in ("cgi", "warm", "cgiplus", "fastcgi"):
        (run,) = rows[f"operation-{kind}"]["cells"]["dunlin"]["rounds"]
        assert run["values"]["errors"] == 0
        facts = rows[f"experiments-{kind}"]["cells"]["dunlin"]["facts"]
        assert [name[0] for name in facts] == list("1234567")
        *waits, read = facts.values()
        assert read == "– (1996: 110 ms)", "no call of the server waits"
        total, within, *parts = (float(re.match(r"([\d.]+) ms \(1996: ", value)[1]) for value in waits)
        assert total > within > parts[0] >= parts[1] >= parts[2] >= 0 and parts[3] >= 0, facts
        assert rows[f"experiments-{kind}"]["cells"]["lighttpd"]["state"] != "measured"
    page = (out / "report.md").read_text()
    assert "| Experiment | CGI | warm CGI | CGIplus | FastCGI | typed call | 1996 |" in page
    assert page.count("2: within the server") == 1, "one line with a column for each form"
    line = next(line for line in done.stdout.splitlines() if "2: within the server" in line)
    assert len(line) <= 80 and line.split()[-1] == "183", line
    assert "see the report" not in done.stdout


def test_scenarios_and_servers_are_listed():
    done = compare("--list")
    check_text(done)
    reported = done.stdout
    assert len(re.findall(r"\(\d+ rows?\)", " ".join(reported.split()))) == 14
    for server in ("dunlin", "nginx", "apache2", "h2o", "lighttpd", "caddy", "haproxy", "merecat", "mini-httpd"):
        assert f"  {server}" in reported
    if "baseline              not installed" in reported:
        assert "cargo build --release -p baseline" in " ".join(reported.split())
    assert "cargo build --release -p baseline" in compare("--help").stdout


def test_a_busy_machine_and_wide_intervals_are_reported(tmp_path):
    results = results_of({"a": [10, 30, 11, 29, 20], "b": [10, 31, 11, 29, 21]})
    results["machine"].update(load_before=3.5, others_share=0.25, processors=2)
    (tmp_path / "results.json").write_text(json.dumps(results))
    compare("--report", tmp_path / "results.json", "--out", tmp_path / "out")
    for name in ("report.html", "report.md"):
        page = (tmp_path / "out" / name).read_text()
        assert "the load was 3.50 on 2 CPUs" in page and "other programs used 25 %" in page
        assert "2 of 2 figures have an interval of more than ± 20 %" in page


def test_figures_that_differ_much_have_a_logarithmic_scale(tmp_path):
    for name, factor in (("near", 2), ("far", 300)):
        results = results_of({"a": VALUES, "b": [value * factor for value in VALUES]})
        (tmp_path / "results.json").write_text(json.dumps(results))
        compare("--report", tmp_path / "results.json", "--out", tmp_path / name)
        (chart,) = (tmp_path / name / "charts").iterdir()
        svg = chart.read_text()
        assert ("logarithmic scale" in svg) == (name == "far"), svg
        assert "<title" in svg and "a 12.2/s" in svg, "the text alternative has the figures"
        check_page(tmp_path / name / "report.html", tmp_path / f"{name}-profiles")


def invalid(results, server, rounds, verdict="CLIENT-BOUND"):
    """Marks rounds of a server as not valid."""
    for number, run in enumerate(results["scenarios"][0]["rows"][0]["cells"][server]["rounds"]):
        if number in rounds:
            run.update(verdict=verdict, reasons=["the generator was the limit"])
    return results


def written(folder, results):
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_diff_compares_valid_rounds_only(tmp_path):
    """The rounds of a busy machine say nothing about the server."""
    whole = written(tmp_path / "whole", results_of({"x": VALUES}))
    half = [value / 2 for value in VALUES]
    none = written(tmp_path / "none", invalid(results_of({"x": half}), "x", range(11)))
    done = compare("--diff", whole, none)
    assert "worse" not in done.stdout and "not comparable  1 figure: no round of the second comparison is valid" in done.stdout
    assert "no figure can be compared" in compare("--diff", whole, none, "--fail-if-worse", code=1).stderr
    few = written(tmp_path / "few", invalid(results_of({"x": half}), "x", range(9)))
    assert "fewer than three rounds are valid" in compare("--diff", whole, few).stdout
    mixed = half[:6] + VALUES[6:]
    some = written(tmp_path / "some", invalid(results_of({"x": mixed}), "x", range(6)))
    assert "worse" not in compare("--diff", whole, some, "--fail-if-worse").stdout
    busy = results_of({"x": VALUES})
    busy["machine"].update(load_before=3.5, processors=2)
    done = compare("--diff", whole, written(tmp_path / "busy", busy))
    assert "Warning: the second comparison: the machine was busy" in " ".join(done.stdout.split())


def test_charts_have_the_rounds_of_the_table(tmp_path):
    results = invalid(results_of({"a": [1194, 1068, 1066], "b": [1360, 1361, 1362]}), "a", {1, 2})
    (scenario,) = results["scenarios"]
    (row,) = scenario["rows"]
    other = json.loads(json.dumps(row)) | {"id": "s", "title": "another row", "x": 2.0}
    scenario["rows"].append(other)
    scenario["charts"] = [{"kind": "curve", "title": "Over x", "metric": "requests_per_second", "x": "x", "logarithmic": False, "group": None}]
    results["rounds"] = 3
    written(tmp_path / "two", results)
    compare("--report", tmp_path / "two" / "results.json", "--out", tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "median of the valid rounds of 3" in page and "one of 3 rounds" in page
    (chart,) = (tmp_path / "out" / "charts").iterdir()
    svg = chart.read_text()
    heights = {float(y) for y in re.findall(r"<circle[^>]*cy=\"([\d.]+)\"", svg)}
    scenario["rows"] = [json.loads(json.dumps(one)) for one in (row, other)]
    for one in scenario["rows"]:
        one["cells"]["a"]["rounds"] = one["cells"]["a"]["rounds"][:1]
    written(tmp_path / "one", results)
    compare("--report", tmp_path / "one" / "results.json", "--out", tmp_path / "alone")
    (chart,) = (tmp_path / "alone" / "charts").iterdir()
    assert heights and heights == {float(y) for y in re.findall(r"<circle[^>]*cy=\"([\d.]+)\"", chart.read_text())}
    # A curve of one position is a bar.
    scenario["rows"] = [row]
    written(tmp_path / "single", results)
    compare("--report", tmp_path / "single" / "results.json", "--out", tmp_path / "bars")
    (chart,) = (tmp_path / "bars" / "charts").iterdir()
    assert "a 1,194/s" in chart.read_text() and "<circle" not in chart.read_text()
