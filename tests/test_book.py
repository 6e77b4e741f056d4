"""The book as a whole: its contents, links and generated pages, and that mdbook can build it."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from support.book import EVERY_PAGE, SOURCE
from support.server import DUNLIN, ROOT


def prose(page):
    """The text of a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)


def links(page):
    """The targets of links and images."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    yield from re.findall(r"\]\(([^)\s]+)\)", text)
    yield from re.findall(r'<img src="([^"]+)"', text)


def anchors(page):
    """The anchors of the headings of a page, as mdbook and GitHub make them."""
    found = {}
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.M):
        heading = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        n = found[anchor] = found.get(anchor, -1) + 1
        yield f"{anchor}-{n}" if n else anchor


def broken(page):
    """The links of a page that lead nowhere."""
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or anchor and anchor not in anchors(target):
            yield link


def test_links_lead_to_pages_and_headings_that_exist():
    found = {str(page.relative_to(ROOT)): list(broken(page)) for page in EVERY_PAGE}
    assert not {page: links for page, links in found.items() if links}


def test_a_broken_link_is_found(tmp_path):
    page, other = tmp_path / "a.md", tmp_path / "b.md"
    other.write_text("# Title, and `more`\n\n## [Linked](x.md)\n\n## Twice\n\n## Twice\n")
    page.write_text(
        "[good](b.md) [good](b.md#title-and-more) [good](b.md#linked) [good](b.md#twice-1) [good](https://example.com/)\n"
        "[bad](c.md) [bad](b.md#none) [bad](#none)\n\n```\n[ignored](d.md)\n```\n"
    )
    assert list(broken(page)) == ["c.md", "b.md#none", "#none"]


def test_the_summary_has_every_page_once():
    listed = re.findall(r"\]\((\S+)\)", (SOURCE / "SUMMARY.md").read_text())
    pages = {str(page.relative_to(SOURCE)) for page in SOURCE.rglob("*.md")} - {"SUMMARY.md"}
    assert len(listed) == len(set(listed)) and set(listed) == pages


def test_each_page_has_one_title_and_no_heading_without_text():
    for page in EVERY_PAGE:
        text = prose(page)
        if page.name != "SUMMARY.md":
            assert len(re.findall(r"^# ", text, re.M)) == 1, page
        assert not re.search(r"^#+\s*$", text, re.M), page


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generated.py", "--check"],
        env=os.environ | {"DUNLIN": DUNLIN}, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_a_status_that_is_not_explained_is_found(tmp_path):
    code = "import status_codes as s; s.STATUSES.pop(421); s.page()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "docs", capture_output=True, text=True)
    assert "does not explain [421]" in done.stderr


def test_results_in_the_readme_are_those_of_the_page_on_benchmarks():
    table = re.search(r"^\| measured side by side.*?\n\n", (ROOT / "README.md").read_text(), re.S | re.M)[0]
    rows = [line.split("|")[2] for line in table.strip().splitlines()[2:]]
    results = re.findall(r"[\d.]+(?:–[\d.]+)?(?: (?:ms|bytes|KB))?", " ".join(rows))
    assert len(rows) <= 8 and len(results) >= len(rows)
    page = (SOURCE / "figures.md").read_text()
    assert not [result for result in results if not re.search(rf"(?<![\d.]){re.escape(result)}(?![\d.])", page)]


@pytest.mark.skipif(not shutil.which("mdbook"), reason="mdbook is not installed")
def test_mdbook_builds_the_book_with_search(tmp_path):
    done = subprocess.run(["mdbook", "build", "--dest-dir", tmp_path, ROOT / "docs"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "ERROR" not in done.stderr, done.stderr
    assert (tmp_path / "index.html").exists() and list(tmp_path.glob("searchindex*"))


def test_the_rows_of_the_benchmarks_are_listed():
    listed = (ROOT / "benches" / "figures.py").read_text().partition("Rows: ")[2].partition(", or all")[0].split()
    section = (ROOT / "docs" / "src" / "figures.md").read_text().partition("## Repeat them")[2].partition("\n## ")[0]
    cells = re.findall(r"^\|([^|]+)\|", section, re.M)
    assert sorted(re.findall(r"`([a-z0-9-]+)`", " ".join(cells))) == sorted(listed)
