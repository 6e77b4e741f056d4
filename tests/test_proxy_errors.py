"""The reverse proxy: error pages in place of upstreams' error responses."""

import pytest

from support.upstream import Upstream, chunked, response

pytestmark = pytest.mark.usefixtures("orderly_stop")

PAGES = 'error_pages = { 404 = "/errors/404.html", 503 = "/errors/503.html" }'


def answer(_, __, request):
    if request.target == "/missing":
        return response(b"the application's page", "404 Not Found", "Set-Cookie: a=b", "X-Internal: 10.0.0.1", "Content-Language: de")
    if request.target == "/busy":
        return chunked(b"x" * 200_000).replace(b"200 OK", b"503 Service Unavailable\r\nRetry-After: 7", 1)
    if request.target == "/gone":
        return response(b"gone", "410 Gone")
    return response(b"fine")


@pytest.fixture
def start(serve, site):
    (site.parent / "errors").mkdir()
    for status in (404, 503):
        (site.parent / "errors" / f"{status}.html").write_text(f"page of {status}")
    more = f'[[site.route]]\npath = "/errors/*"\nroot = "{site.parent}"\n'
    upstream = Upstream(answer)
    return lambda keys: (serve(route=f'proxy = {{ to = "{upstream.url}", {keys} }}\n{PAGES}', more=more), upstream)


def test_error_pages_replace_errors_of_upstreams_if_asked(start):
    server, upstream = start("intercept_errors = true")
    status, fields, body = server.get("/missing")
    assert (status, body, fields["set-cookie"]) == (404, b"page of 404", "a=b")
    assert "x-internal" not in fields and "content-language" not in fields and "proxy-status" not in fields
    status, fields, body = server.get("/busy")
    assert (status, body, fields["retry-after"]) == (503, b"page of 503", "7")
    assert server.get("/missing", method="HEAD")[2] == b""
    assert server.get("/gone")[::2] == (410, b"gone"), "there is no page for it"
    assert server.get("/")[::2] == (200, b"fine")


def test_errors_of_upstreams_are_sent_unchanged_otherwise(start):
    server, _ = start("")
    status, fields, body = server.get("/missing")
    assert (status, body, fields["x-internal"]) == (404, b"the application's page", "10.0.0.1")
