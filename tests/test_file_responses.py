"""Conditions, ranges, media types and error pages of files."""

import gzip

import pytest

from support.files import write

PAST = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize("cache", ["true", "false"])
def test_a_date_field_with_two_lines_is_ignored(serve, site, cache):
    write(site / "a.txt", "0123456789")
    server = serve(f"cache = {cache}")
    date = server.get("/a.txt")[1]["last-modified"]
    for fields, expected in [
        ([f"If-Modified-Since: {date}"], 304),
        ([f"If-Modified-Since: {date}", f"If-Modified-Since: {date}"], 200),
        ([f"If-Modified-Since: {date}", f"If-Modified-Since: {PAST}"], 200),
        ([f"If-Modified-Since: {date}, {date}"], 200),
        ([f"If-Unmodified-Since: {PAST}"], 412),
        ([f"If-Unmodified-Since: {PAST}", f"If-Unmodified-Since: {PAST}"], 200),
        (["Range: bytes=0-1", f"If-Range: {date}"], 206),
        (["Range: bytes=0-1", f"If-Range: {date}", f"If-Range: {date}"], 200),
        # RFC 9110 makes no exception for a date in the future.
        (["If-Modified-Since: Sat, 06 Nov 2094 08:49:37 GMT"], 304),
    ]:
        assert server.get("/a.txt", *fields)[0] == expected, fields


def test_a_suffix_range_of_an_empty_file_is_satisfiable(serve, site):
    write(site / "empty", "")
    server = serve()
    for value, expected in [("bytes=-5", 200), ("bytes=-5,0-", 200), ("bytes=-0", 416), ("bytes=0-", 416)]:
        assert server.get("/empty", f"Range: {value}")[0] == expected, value


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_error_pages_for_406_412_and_416(serve, site, method):
    write(site / "a.txt", "0123456789")
    for status in (406, 412, 416):
        write(site / f"{status}.html", f"the page of {status}")
    pages = ", ".join(f'"{status}" = "/{status}.html"' for status in (406, 412, 416))
    for server in (serve(f"error_pages = {{ {pages} }}"), serve()):
        has_pages = server.get("/a.txt", "If-Match: \"x\"")[2] == b"the page of 412"
        for _ in range(2):
            for field, status in [
                ("Accept-Encoding: identity;q=0", 406),
                ('If-Match: "x"', 412),
                ("Range: bytes=10-", 416),
            ]:
                # A range is of a GET alone.
                if (method, status) == ("HEAD", 416):
                    continue
                got, fields, body = server.get("/a.txt", field, method=method)
                assert got == status
                page = b"the page of %d" % status
                if method == "HEAD":
                    assert body == b""
                else:
                    assert (body == page) == has_pages
                assert fields["content-type"] == "text/html; charset=utf-8"
                if status == 406:
                    assert fields["vary"] == "Accept-Encoding"
                if status == 412:
                    assert fields["etag"]
                if status == 416:
                    assert fields["content-range"] == "bytes */10"
    assert not has_pages


@pytest.mark.parametrize(
    "name, expected",
    [
        ("a.xml", "application/xml"),
        ("a.svg", "image/svg+xml"),
        ("a.xhtml", "application/xhtml+xml"),
        ("a.html", "text/html; charset=utf-8"),
        ("a.obj", "model/obj"),
        ("README", "text/plain; charset=utf-8"),
        ("LICENSE", "text/plain; charset=utf-8"),
        ("a.go", "text/x-go; charset=utf-8"),
        ("a.ndjson", "application/x-ndjson"),
    ],
)
def test_media_types(serve, site, name, expected):
    write(site / name, "x")
    assert serve().get(f"/{name}")[1]["content-type"] == expected


@pytest.mark.parametrize("cache", ["true", "false"])
def test_svgz_is_sent_as_svg_in_gzip(serve, site, cache):
    content = gzip.compress(b"<svg/>" * 100)
    write(site / "a.svgz", content)
    write(site / "a.svgz.gz", "never")
    server = serve(f"cache = {cache}")
    for accept in ([], ["Accept-Encoding: gzip"], ["Accept-Encoding: br, zstd"]):
        for _ in range(2):
            _, fields, body = server.get("/a.svgz", *accept)
            assert (fields["content-type"], fields["content-encoding"]) == ("image/svg+xml", "gzip")
            assert body == content and "vary" not in fields
