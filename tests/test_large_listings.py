"""Listings of directories with more names than a page has."""

import concurrent.futures
import html
import json
import os
import re
import select
import shutil
from urllib.parse import urljoin

import pytest

from support.files import until_strong
from support.http import parse, read_all
from support.processes import rss

MB = 1024 * 1024
PAGE = 2_000
JSON = "Accept: application/json"
COUNT = 25_000
PAGES = 13


def create(directory, names):
    """Creates empty files."""
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY)
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
    os.close(fd)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A root with a directory of 25,000 files and 3 directories, 6,000 bytes together."""
    root = tmp_path_factory.mktemp("large")
    create(root / "many", (f"File {number}.txt" for number in range(COUNT)))
    for number in range(3):
        (root / "many" / f"folder {number}").mkdir()
        (root / "many" / f"File {number}.txt").write_text("x" * 1000 * (number + 1))
    (root / "small.txt").write_text("x" * 1024)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def several(site):
    """A directory with two pages."""
    create(site / "several", (f"n{number}" for number in range(PAGE + 5)))
    until_strong(site / "several")
    return site / "several"


def configuration(root, route="", server=""):
    return (
        f'[server]\nthreads = 1\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{root}"\n'
        f'[[site.route]]\npath = "/*"\nlisting = true\n{route}\n'
    )


def listed(server, path):
    """The listing as JSON."""
    status, _, body = server.get(path, JSON)
    assert status == 200, (path, body)
    return json.loads(body)


def names(page):
    return [entry["name"] for entry in page["entries"]]


def targets(fields):
    """The targets of the field Link by their relations."""
    return {relation: target for target, relation in re.findall(r'<([^>]*)>; rel="([a-z]+)"', fields.get("link", ""))}


def test_each_name_is_on_one_page(serve, large):
    server = serve(text=configuration(large))
    path, found, number = "/many/", [], 0
    while path:
        number += 1
        status, fields, body = server.get(path, JSON)
        page = json.loads(body)
        assert (status, page["page"], page["pages"], page["count"]) == (200, number, PAGES, COUNT + 3)
        assert (page["directories"], page["files"], page["size"]) == (3, COUNT, 6000)
        assert page["truncated"] and not page["limit_reached"]
        links = targets(fields)
        assert (urljoin(path, links["first"]), links["last"]) == ("/many/", f"?page={PAGES}")
        assert ("prev" in links) == (number > 1)
        found += names(page)
        path = links.get("next") and urljoin("/many/", links["next"])
    assert number == PAGES
    assert found == [f"folder {n}" for n in range(3)] + [f"File {n}.txt" for n in range(COUNT)]
    assert rss(server) < 60 * MB


def test_pages_for_people(serve, large):
    server = serve(text=configuration(large))
    status, fields, body = server.get("/many/?page=3&sort=name&order=desc")
    page = body.decode()
    # The directories come first in each order.
    rows = re.findall(r"<bdi>([^<]*)</bdi>", page)
    assert rows == [f"File {n}.txt" for n in range(COUNT + 2 - 2 * PAGE, COUNT + 2 - 3 * PAGE, -1)]
    assert "3 folders, 25,000 files, 6.0 KB" in page and page.count("Page 3 of 13") == 2
    links = {text: html.unescape(href) for href, text in re.findall(r'<a href="([^"]*)"[^>]*>(\w+)</a>', page)}
    assert links["First"] == "?sort=name&order=desc" and links["Last"] == "?sort=name&order=desc&page=13"
    assert links["Previous"] == "?sort=name&order=desc&page=2" == targets(fields)["prev"]
    assert links["Next"] == "?sort=name&order=desc&page=4" == targets(fields)["next"]
    last = server.get(f"/many/{links['Last']}")[2].decode()
    assert re.findall(r"<bdi>([^<]*)</bdi>", last) == [f"File {n}.txt" for n in range((COUNT + 3) % PAGE - 1, -1, -1)]
    # The largest files come before all that are empty.
    assert names(listed(server, "/many/?sort=size&order=desc"))[3:7] == [
        "File 2.txt", "File 1.txt", "File 0.txt", f"File {COUNT - 1}.txt"]


def test_all_names_are_filtered(serve, large):
    server = serve(text=configuration(large))
    page = listed(server, "/many/?filter=FILE+777")
    assert (page["count"], page["pages"], page["truncated"]) == (11, 1, False)
    assert names(page)[:3] == ["File 777.txt", "File 7770.txt", "File 7771.txt"]
    assert names(listed(server, "/many/?filter=file+1&page=6"))[-1] == "File 19999.txt"
    body = server.get("/many/?filter=%3Cnone%3E&sort=size")[2].decode()
    assert "None of 25,003 names matches “&lt;none&gt;”" in body
    assert 'name="filter" value="&lt;none&gt;"' in body and '<a href="?sort=size&amp;order=asc">All names</a>' in body


@pytest.mark.parametrize("path", ["/many/", "/small/"])
def test_a_page_that_does_not_exist_gives_404(serve, large, path):
    (large / "small").mkdir(exist_ok=True)
    server = serve(text=configuration(large))
    expected = "This listing has the pages 1 to 13." if path == "/many/" else "This listing has one page."
    for number in ["0", "14", "99999999999999999999", "-1", "1.5", "two", ""]:
        for accept in [JSON, "Accept: text/html"]:
            status, _, body = server.get(f"{path}?page={number}", accept)
            assert status == 404 and expected in body.decode(), number
    status, fields, body = server.get(f"{path}?page=14", method="HEAD")
    assert (status, body) == (404, b"")
    assert server.get(f"{path}?page=1")[0] == 200


def test_the_error_page_of_the_route_is_sent(serve, site):
    (site / "none.html").write_text("no such page here")
    server = serve('listing = true\nerror_pages = { "404" = "/none.html" }')
    assert server.get("/")[0] == 200
    assert server.get("/?page=2")[::2] == (404, b"no such page here")


def test_conditions_and_head(serve, large):
    server = serve(text=configuration(large))
    seen = set()
    for query, accept in [("", JSON), ("", "Accept: */*"), ("?page=2", JSON), ("?page=2", "Accept: */*")]:
        path = f"/many/{query}"
        status, fields, body = server.get(path, accept)
        tag = fields["etag"]
        seen.add(tag)
        assert status == 200 and fields["cache-control"] == "no-cache" and "accept" in fields["vary"].lower()
        head_status, head_fields, head_body = server.get(path, accept, method="HEAD")
        assert (head_status, head_body) == (200, b"")
        assert {**head_fields, "date": ""} == {**fields, "date": ""}
        status, fields, body = server.get(path, accept, f"If-None-Match: {tag}")
        assert (status, body, fields["etag"]) == (304, b"", tag) and "content-type" not in fields
        assert "link" in fields and "vary" in fields
        assert server.get(path, accept, 'If-None-Match: "x"')[0] == 200
        assert server.get(path, accept, f"If-Match: {tag}")[0] == 200
        assert server.get(path, accept, 'If-Match: "x"')[0] == 412
    assert len(seen) == 4
    server = serve(text=configuration(large, 'etag = "off"'))
    assert "etag" not in server.get("/many/")[1]


def test_a_change_of_a_name_or_a_file_is_listed_at_once(serve, several):
    server = serve("listing = true")
    before = listed(server, "/several/")
    assert (before["count"], before["pages"], before["size"]) == (PAGE + 5, 2, 0)
    # Both pages use what was read once: the total size is older than the row.
    (several / "n0").write_text("12345")
    changed = listed(server, "/several/")
    assert (changed["entries"][0]["size"], changed["size"]) == (5, 0)
    (several / "n00").write_text("123")
    added = listed(server, "/several/")
    assert names(added)[:3] == ["n0", "n00", "n1"] and (added["count"], added["size"]) == (PAGE + 6, 8)
    until_strong(several)
    assert listed(server, "/several/")["count"] == PAGE + 6
    (several / "n00").unlink()
    (several / "n0").unlink()
    assert names(listed(server, "/several/"))[0] == "n1"
    # A single page is read for each request.
    for number in range(10):
        (several / f"n{number + 1}").unlink()
    assert (listed(server, "/several/")["pages"]) == 1
    (several / "n20").write_text("1234567")
    assert listed(server, "/several/")["size"] == 7


def test_an_uncached_route_counts_anew(serve, several):
    server = serve("listing = true\ncache = false")
    assert listed(server, "/several/?page=2")["size"] == 0
    (several / "n0").write_text("12345")
    assert listed(server, "/several/?page=2")["size"] == 5


def test_a_name_that_became_a_link_to_the_outside_is_not_listed(serve, several, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (several / "target").mkdir()
    (several / "target" / "file").write_text("inside")
    (several / "aa").symlink_to("target/file")
    until_strong(several)
    server = serve("listing = true")
    assert names(listed(server, "/several/?filter=aa")) == ["aa"]
    # The directory of the link is unchanged.
    (several / "target" / "file").unlink()
    (several / "target" / "file").symlink_to(tmp_path / "secret")
    assert names(listed(server, "/several/?filter=aa")) == []


def test_the_worker_serves_files_while_it_lists(serve, large):
    server = serve(text=configuration(large))
    first = 0
    for attempt in range(5):
        # A new name in the directory makes the server read all of them again.
        create(large / "many", [f"more {attempt}"])
        listing = server.connect(60)
        listing.sendall(b"GET /many/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert len(server.get("/small.txt")[2]) == 1024
        first += not select.select([listing], [], [], 0)[0]
        assert parse(read_all(listing))[0] == 200
        listing.close()
        (large / "many" / f"more {attempt}").unlink()
    # Where a pause of the client let the listing end before.
    assert first >= 3, f"the file came first {first} times out of 5"


def test_many_requests_for_a_large_directory_share_its_contents(serve, large):
    server = serve(text=configuration(large))
    paths = [
        f"/many/?sort={sort}&order={order}&page={page}"
        for sort in ("name", "size", "modified") for order in ("asc", "desc") for page in (1, 6, PAGES)
    ]
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as executor:
        results = list(executor.map(lambda path: (path, listed(server, path)), paths))
    for path, page in results:
        assert len(page["entries"]) == ((COUNT + 3) % PAGE if page["page"] == PAGES else PAGE), path
    assert rss(server) < 80 * MB
