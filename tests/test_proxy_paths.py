"""The reverse proxy: which paths it gets, and files before it."""

import subprocess

import pytest

from support.http import post
from support.server import DUNLIN
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


def test_the_path_of_an_upstream_replaces_the_prefix(serve):
    def answer(upstream, connection, request):
        if request.target.startswith("/base/go"):
            return response(b"", "302 Found", "Location: /base/there?x", "Set-Cookie: a=b; Path=/base/; HttpOnly")
        if request.target.startswith("/base/abs"):
            return response(b"", "302 Found", f"Location: {upstream.url}/base/x", "Content-Location: http://other.test/base/")
        return response(request.target.encode())

    upstream = Upstream(answer)
    entry = lambda path, proxy: f'[[site.route]]\npath = "{path}"\nproxy = {proxy}\n'
    server = serve(
        more=entry("/app/*", f'"{upstream.url}/base/"')
        + entry("/one", f'"{upstream.url}/base/two"')
        + entry("/slash", f'"{upstream.url}/base/"')
        + entry("/plain/*", f'{{ to = "{upstream.url}/base", rewrite_location = false }}')
        + entry("/cut/*", f'{{ to = "{upstream.url}", strip = "/cut" }}')
        + entry("/*", f'"{upstream.url}/root/"')
    )
    target = lambda path: server.get(path)[2].decode()
    assert target("/app/x%20y/z?q=1") == "/base/x%20y/z?q=1" and target("/app/") == "/base/"
    assert target("/one") == "/base/two" and target("/slash") == "/base/" and target("/other?a") == "/root/other?a" and target("/cut/x") == "/x"
    fields = server.get("/app/go")[1]
    assert (fields["location"], fields["set-cookie"]) == ("/app/there?x", "a=b; Path=/app/; HttpOnly")
    fields = server.get("/app/abs")[1]
    assert (fields["location"], fields["content-location"]) == ("/app/x", "http://other.test/base/")
    assert server.get("/plain/go")[1]["location"] == "/base/there?x"


def test_paths_of_upstreams_that_cannot_replace_a_prefix_are_errors(tmp_path):
    for route, what in (
        ('path = "*.php"\nproxy = "http://a/b"', "must end with `/*`"),
        ('path = ["/a/*", "/b/*"]\nproxy = "http://a/b"', "one pattern"),
        ('path = "/a/*"\nproxy = ["http://a/b", "http://c/d"]', "the same path"),
        ('path = "/a/*"\nproxy = "http://a/../b"', "is not a path"),
    ):
        file = tmp_path / "check.toml"
        file.write_text(f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "."\n[[site.route]]\n{route}\n')
        run = subprocess.run([DUNLIN, "check", "--config", str(file)], capture_output=True, text=True)
        assert run.returncode == 1 and what in run.stderr + run.stdout, (route, run.stderr)
