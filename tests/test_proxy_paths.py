"""The reverse proxy: which paths it gets, and files before it."""

import pytest

from support.http import post
from support.upstream import Upstream, response

pytestmark = pytest.mark.usefixtures("orderly_stop")


def targets(upstream):
    return [request.target for request in upstream.requests]


def test_encoded_slashes_are_forwarded_as_they_are(serve):
    upstream = Upstream()
    server = serve(route=f'proxy = "{upstream.url}"')
    paths = ["/api/projects/group%2Fproject", "/a%2fb%20c?x=%2F", "/fetch/http:%2F%2Fa.example%2F", "/%2F"]
    assert [server.get(path)[0] for path in paths] == [200] * 4
    assert targets(upstream) == paths
    server.get("/a/../b%2Fc")
    assert targets(upstream)[-1] == "/b%2Fc"


@pytest.mark.parametrize(
    "path", ["/public/..%2Fadmin", "/public/%2e%2e%2fadmin", "/public%2F../admin", "/x%2F..%2Fadmin", "/.%2Fadmin", "/a%2F.."]
)
def test_dots_behind_encoded_slashes_are_not_forwarded(serve, path):
    upstream = Upstream()
    server = serve(route=f'proxy = {{ to = "{upstream.url}", strip = "/public" }}')
    status = server.get(path)[0]
    assert status == 404 or ".." not in "".join(targets(upstream)) and "%2" not in "".join(targets(upstream))


def test_an_encoded_slash_leads_to_no_other_route(serve):
    upstream = Upstream()
    more = (
        f'[[site.route]]\npath = "/admin/*"\nproxy = "{upstream.url}"\ndeny = ["127.0.0.1"]\n'
        '[[site.route]]\npath = "/files/*"\nroot = "/srv"\n'
    )
    server = serve(route=f'proxy = "{upstream.url}"', more=more)
    # Upstreams may take the encoded slash for a slash: the path would be that of a route with other checks.
    for path, status in [("/admin/x", 403), ("/admin%2Fx", 404), ("/admin/a%2Fb", 403), ("/files/a%2Fb", 404), ("/x%2Fadmin", 200)]:
        assert server.get(path)[0] == status, path
    assert targets(upstream) == ["/x%2Fadmin"]


def test_a_prefix_is_stripped_before_an_encoded_slash(serve):
    upstream = Upstream()
    server = serve(route=f'proxy = {{ to = "{upstream.url}", strip = "/app" }}')
    for path in ["/app/a%2Fb", "/%61pp/a%2Fb", "/app%2Fx"]:
        server.get(path)
    assert targets(upstream) == ["/a%2Fb", "/a%2Fb", "/app%2Fx"]


@pytest.fixture
def with_files(serve, site):
    """A server that sends files before it forwards requests, and its upstream."""
    (site / "style.css").write_text("body {}")
    (site / "docs").mkdir()
    (site / "docs" / "index.html").write_text("documents")
    (site / "empty").mkdir()
    upstream = Upstream(lambda _, __, request: response(f"{request.method} {request.target}".encode()))
    route = f'proxy = {{ to = "{upstream.url}" }}\ntry = ["{{path}}", "{{path}}/", "=proxy"]\nbody_size = "10MB"'
    return serve(route=route), upstream


def test_files_come_before_the_proxy(with_files):
    server, upstream = with_files
    assert server.get("/style.css")[2] == b"body {}"
    assert server.get("/docs/")[2] == b"documents"
    assert server.get("/docs")[1]["location"] == "/docs/"
    assert not upstream.requests
    for path in ["/items?page=2", "/", "/empty/", "/style.css/x", "/a%2Fb", "/.git/config"]:
        assert server.get(path)[2] == f"GET {path}".encode()


def test_other_methods_than_get_are_forwarded(with_files):
    server, upstream = with_files
    assert post(server, "/style.css", b"x" * 3_000_000)[2] == b"POST /style.css"
    assert len(upstream.requests[0].body) == 3_000_000
    assert server.get("/style.css", method="HEAD")[1]["content-type"] == "text/css; charset=utf-8"
    assert len(upstream.requests) == 1


def test_a_file_that_appears_is_sent(with_files, site):
    server, _ = with_files
    assert server.get("/new.txt")[2] == b"GET /new.txt"
    (site / "new.txt").write_text("now a file")
    assert server.get("/new.txt")[2] == b"now a file"
    (site / "new.txt").unlink()
    assert server.get("/new.txt")[2] == b"GET /new.txt"


def test_another_handler_ends_the_list_with_404(serve, site):
    upstream = Upstream()
    (site / "a.txt").write_text("a")
    server = serve(
        route=f'proxy = "{upstream.url}"\ntry = ["{{path}}", "=proxy"]', more=f'[[site.route]]\npath = "/static/*"\nroot = "{site}"\n'
    )
    assert server.get("/static/none")[0] == 404 and not upstream.requests


def test_a_list_that_ends_with_a_proxy_needs_one(serve):
    with pytest.raises(AssertionError, match='"=proxy" stands in a route without `proxy`'):
        serve(route='try = ["{path}", "=proxy"]')
