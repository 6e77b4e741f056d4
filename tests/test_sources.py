"""The source of a script is never sent, whichever route, name or file leads to it."""

import gzip
import os
import subprocess

import httpx
import pytest

from support.fastcgi import PHP_CGI, php_route
from support.files import write
from support.objects import free_port
from support.scripts import script
from support.server import DUNLIN
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

SECRET = "secret-of-the-script"
CGI = f"#!/bin/sh\n# {SECRET}\nprintf 'Content-Type: text/plain\\n\\nran'\n"
PHP = f"<?php // {SECRET}\necho 'ran ', $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['SCRIPT_NAME'];\n"


def fetch(server, path):
    """Requests the path in every way, several times, so that caches are used: statuses and bodies."""
    responses = set()
    for _ in range(3):
        responses.add(server.get(path)[::2])
        responses.add(server.get(path, "Range: bytes=0-99")[::2])
        responses.add(server.get(path, "Accept-Encoding: gzip")[::2])
        assert SECRET.encode() not in server.get(path, method="HEAD")[2]
    with httpx.Client(http1=False, http2=True) as client:
        for _ in range(2):
            response = client.get(server.url + path)
            responses.add((response.status_code, response.content))
    return responses


def never_shown(server, *paths, statuses=(404,)):
    for path in paths:
        for status, body in fetch(server, path):
            assert SECRET.encode() not in body and status in statuses, (path, status, body)


@pytest.mark.parametrize("cache", ["", "cache = false"])
def test_a_file_that_a_route_runs_is_not_sent_by_another_with_the_same_directory(serve, site, cache):
    script(site, "hello.sh", CGI)
    write(site / "index.html", "front")
    write(site / "hello.sh.gz", gzip.compress(CGI.encode()))
    server = serve(
        route=f"listing = true\n{cache}",
        more=f'[[site.route]]\npath = "/cgi-bin/*"\nscript = {{ kind = "cgi", directory = "{site}" }}',
    )
    assert server.get("/cgi-bin/hello.sh")[::2] == (200, b"ran")
    assert server.get("/")[::2] == (200, b"front")
    never_shown(server, "/hello.sh", "//hello.sh", "/%68ello.sh", "/x/../hello.sh")
    assert server.get("/hello.sh.gz")[0] == 404
    log = server.logged("serve_source = true")
    assert log.count("serve_source") == 1 and '"/*"' in log and '"/cgi-bin/*"' in log


@pytest.mark.parametrize("kind", ["cgi", "warm", "cgiplus"])
def test_everything_in_a_directory_of_scripts_beneath_a_root_is_theirs(serve, site, kind):
    directory = site / "cgi-bin"
    script(directory, "hello.sh", CGI)
    script(directory, "sub/deep.sh", CGI)
    write(directory / "library.sh", f"# {SECRET}")
    server = serve(
        route="listing = true",
        more=f'[[site.route]]\npath = "/run/*"\nscript = {{ kind = "{kind}", directory = "{directory}" }}',
    )
    never_shown(server, "/cgi-bin/hello.sh", "/cgi-bin/sub/deep.sh", "/cgi-bin/library.sh")


def test_symlinks_hard_names_and_other_roots_do_not_help(serve, site, tmp_path):
    directory = tmp_path / "cgi-bin"
    script(directory, "hello.sh", CGI)
    os.symlink(directory / "hello.sh", site / "link.txt")
    os.symlink(directory, site / "folder")
    os.symlink(tmp_path, site / "up")
    server = serve(
        route='symlinks = "follow"',
        more=f"""
        [[site.route]]
        path = "/run/*"
        script = {{ kind = "cgi", directory = "{directory}" }}
        [[site.route]]
        path = "/all/*"
        root = "{tmp_path.parent}"
        try = ["/{tmp_path.name}/cgi-bin/hello.sh", "/{tmp_path.name}/{{rest}}"]
        """,
    )
    assert server.get("/run/hello.sh")[2] == b"ran"
    never_shown(server, "/link.txt", "/folder/hello.sh", "/up/cgi-bin/hello.sh", "/all/cgi-bin/hello.sh", "/all/x")


def test_a_file_made_executable_is_not_sent_any_more(serve, site):
    path = write(site / "tool", f"#!/bin/sh\n# {SECRET}\n")
    server = serve(
        route="listing = true",
        more=f'[[site.route]]\npath = "/run/*"\nscript = {{ kind = "cgi", directory = "{site}" }}',
    )
    assert server.get("/tool")[0] == 200
    path.chmod(0o755)
    wait_until(lambda: server.get("/tool")[0] == 404, "the change is seen")
    never_shown(server, "/tool")


def test_a_route_may_send_sources(serve, site):
    script(site, "hello.sh", CGI)
    server = serve(
        more=f"""
        [[site.route]]
        path = "/cgi-bin/*"
        script = {{ kind = "cgi", directory = "{site}" }}
        [[site.route]]
        path = "/source/*"
        serve_source = true
        try = ["/{{rest}}", "=404"]
        """,
    )
    assert SECRET.encode() in server.get("/source/hello.sh")[2]
    never_shown(server, "/hello.sh")


def test_an_error_page_an_index_and_a_redirect_of_a_script_do_not_show_sources(serve, site, tmp_path):
    directory = tmp_path / "cgi-bin"
    script(directory, "hello.sh", CGI)
    script(directory, "accel", "printf 'X-Accel-Redirect: /data/hello.sh\\nContent-Type: text/plain\\n\\n'")
    script(directory, "sendfile", f"printf 'X-Sendfile: {directory}/hello.sh\\nContent-Type: text/plain\\n\\n'")
    server = serve(
        route='error_pages = { 404 = "/data/hello.sh" }',
        more=f"""
        [[site.route]]
        path = "/run/*"
        script = {{ kind = "cgi", directory = "{directory}", sendfile_root = "{directory}" }}
        [[site.route]]
        path = "/data/*"
        root = "{tmp_path}"
        try = ["/cgi-bin/{{rest}}"]
        index = ["hello.sh"]
        """,
    )
    never_shown(server, "/none", "/data/hello.sh", "/data/", "/run/accel", "/run/sendfile")


@pytest.mark.parametrize(
    "kind, files, application",
    [
        ("wsgi", {"app.py": "def application(e, s):\n    s('200 OK', [('Content-Type', 'text/plain')])\n    return [b'ran']\n"}, "app:application"),
        ("psgi", {"main": "sub { [200, ['Content-Type' => 'text/plain'], ['ran']] };\n", "lib/My.pm": "1;\n"}, "main"),
    ],
)
def test_modules_of_an_application_are_not_sent_but_its_assets_are(serve, tmp_path, site, kind, files, application):
    home = tmp_path / "home"
    for name, text in files.items():
        write(home / name, f"# {SECRET}\n{text}")
    write(home / "static" / "style.css", "a{}")
    write(home / "static" / "page.html", "page")
    server = serve(
        more=f"""
        [[site.route]]
        path = "/app/*"
        script = {{ kind = "{kind}", directory = "{home}", application = "{application}", processes = 1 }}
        [[site.route]]
        path = "/static/*"
        root = "{home}"
        [[site.route]]
        path = "/files/*"
        root = "{home}"
        try = ["/{{rest}}"]
        """,
    )
    assert server.get("/app/")[::2] == (200, b"ran")
    assert server.get("/static/style.css")[::2] == (200, b"a{}")
    assert server.get("/files/static/page.html")[::2] == (200, b"page")
    never_shown(server, *(f"/files/{name}" for name in files))
    if kind == "wsgi":
        cached = next(home.glob("__pycache__/*.pyc"), None)
        assert cached is None or server.get(f"/files/__pycache__/{cached.name}")[0] == 404


def test_php_beneath_the_root_of_another_route(serve, site, tmp_path):
    assert PHP_CGI, "php-cgi is missing"
    write(site / "index.php", PHP)
    write(site / "lib" / "x.PHP", PHP)
    write(site / "lib" / "style.css", "a{}")
    write(site / "index.php.gz", gzip.compress(PHP.encode()))
    write(site / "lib" / "x.PHP.br", PHP)
    os.symlink("../index.php", site / "lib" / "text.txt")
    server = serve(
        route=php_route(site),
        more=f"""
        [[site.route]]
        path = "/static/*"
        root = "{site}"
        try = ["/{{rest}}"]
        [[site.route]]
        path = "/lib/*"
        root = "{tmp_path}/site"
        """,
    )
    assert server.get("/index.php")[2].startswith(b"ran")
    assert server.get("/lib/style.css")[::2] == (200, b"a{}")
    never_shown(server, "/lib/x.PHP", "/static/lib/x.PHP", "/static/lib/text.txt", "/lib/x.PHP.br")
    # Without links that lead out of the route's own root it is not even looked at.
    never_shown(server, "/lib/text.txt", statuses=(403, 404))
    assert server.get("/index.php.gz")[0] == 404
    # An index and a candidate of `try` are run by the route that runs them.
    assert server.get("/static/index.php")[2] == b"ran GET /index.php"


def test_an_index_is_run_by_its_route_although_the_scripts_are_elsewhere(serve, site, tmp_path):
    scripts = tmp_path / "scripts"
    write(site / "index.php", SECRET)
    write(site / "sub" / "index.php", SECRET)
    write(scripts / "index.php", PHP)
    server = serve(
        route='index = ["index.php"]',
        more=f'[[site.route]]\npath = "*.php"\nroot = "{scripts}"\n{php_route(scripts)}\n',
    )
    assert server.get("/")[2].startswith(b"ran")
    never_shown(server, "/sub/", "/sub/index.php")


@pytest.mark.parametrize("route", ["", 'try = ["{path}", "/index.php?{query}"]', 'try = ["{path}", "/front.php?a=1", "=404"]'])
def test_an_index_is_run_by_a_worker_although_no_extension_is_stated(serve, site, route):
    site_files = {"index.php": f"<?php // {SECRET}", "front.php": f"<?php // {SECRET}", "blog/index.php": f"<?php // {SECRET}"}
    for path, content in site_files.items():
        write(site / path, content)
    script = f'script = {{ kind = "fastcgi", connect = "127.0.0.1:{free_port()}" }}'
    server = serve(route=f'index = ["index.php", "index.html"]\n{route}', more=f'[[site.route]]\npath = "*.php"\n{script}\n')
    # No worker listens there.
    for path in ("/", "/blog/", "/index.php", "/front.php", "/?a=b"):
        status, _, body = server.get(path)
        assert status == 502 and SECRET.encode() not in body, path
    if "front" in route:
        assert server.get("/none")[0] == 502
    else:
        assert server.get("/none")[0] == (502 if route else 404)


def test_the_front_controller_of_the_book_runs_for_missing_uploads(serve, site):
    write(site / "index.php", PHP)
    write(site / "wp-content" / "uploads" / "here.jpg", "image")
    (site / "wp-content" / "uploads" / "2024").mkdir()
    server = serve(
        route=f'{php_route(site)}\ntry = ["{{path}}", "{{path}}/", "/index.php"]',
        more=f'[[site.route]]\npath = "/wp-content/uploads/*"\nroot = "{site}"',
    )
    assert server.get("/wp-content/uploads/here.jpg")[::2] == (200, b"image")
    for path in ("/wp-content/uploads/missing.jpg", "/wp-content/uploads/2024/", "/wp-content/uploads/2024", "/a/b"):
        assert fetch(server, path) == {(200, b"ran GET /index.php")}, path
    assert server.get("/wp-content/uploads/missing.jpg", method="POST")[2] == b"ran POST /index.php"
    assert server.get("/wp-content/uploads/here.jpg", method="POST")[0] == 405


def test_an_index_is_run_by_the_route_of_its_own_path(serve, site):
    write(site / "index.php", PHP)
    write(site / "plain" / "index.html", "plain")
    write(site / "sub" / "index.php", PHP)
    server = serve(
        route='index = ["index.php", "index.html"]',
        more=f'[[site.route]]\npath = "*.php"\n{php_route(site)}',
    )
    assert server.get("/")[2] == b"ran GET /index.php"
    assert server.get("/", "Content-Length: 0", method="POST")[2] == b"ran POST /index.php"
    assert server.get("/sub/?x")[2] == b"ran GET /sub/index.php"
    assert server.get("/plain/")[2] == b"plain"
    assert server.get("/sub")[1]["location"] == "/sub/"


def test_a_compressed_sibling_that_is_a_link_to_a_script_is_not_sent(serve, site, tmp_path):
    directory = site / "cgi-bin"
    script(directory, "hello.sh", CGI)
    write(site / "page.html", "page " * 100)
    os.symlink("cgi-bin/hello.sh", site / "page.html.gz")
    server = serve(
        route="listing = true",
        more=f'[[site.route]]\npath = "/run/*"\nscript = {{ kind = "cgi", directory = "{directory}" }}',
    )
    for _ in range(3):
        status, _, body = server.get("/page.html", "Accept-Encoding: gzip")
        assert status == 200 and SECRET.encode() not in body


def check(tmp_path, site, routes):
    file = tmp_path / "check.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\n{routes}\n')
    run = subprocess.run([DUNLIN, "check", "--config", str(file)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


def route(path, rest):
    return f'[[site.route]]\npath = "{path}"\n{rest}\n'


def test_check_warns_of_scripts_in_directories_that_are_served_and_the_reverse(tmp_path, site):
    for name in ("cgi-bin", "static"):
        (site / name).mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.symlink(site / "cgi-bin", tmp_path / "link")
    (elsewhere / "app.py").write_text("")

    def cgi(directory, kind="cgi"):
        return route("/run/*", f'script = {{ kind = "{kind}", directory = "{directory}" }}')

    for directory in (site, site / "cgi-bin", tmp_path / "link"):
        text = check(tmp_path, site, cgi(directory))
        assert "warning: " in text and "check.toml:7:" in text and '"/*"' in text, text
    text = check(tmp_path, site, cgi(tmp_path))
    assert "warning: " in text and "is inside the directory" in text, text
    wsgi = 'script = {{ kind = "wsgi", directory = "{}", application = "app:application" }}'
    (site / "app.py").write_text("")
    assert "warning: " in check(tmp_path, site, route("/app/*", wsgi.format(site)))
    for routes in (
        cgi(elsewhere),
        route("/app/*", wsgi.format(elsewhere)),
        # Its own files are sent by one route only, beneath a directory of their own.
        route("/*", wsgi.format(site)) + route("/static/*", f'root = "{site}"'),
        route("/*", f'script = {{ kind = "fastcgi", command = ["php-cgi"], root = "{site}" }}'),
        route("/*", "serve_source = true") + cgi(site),
    ):
        assert "served by route" not in check(tmp_path, site, routes)


def test_check_warns_of_methods_that_files_do_not_have(tmp_path, site):
    assert "do not take POST" in check(tmp_path, site, route("/*", 'methods = ["GET", "POST"]'))
    assert "do not take" not in check(tmp_path, site, route("/*", 'methods = ["GET"]'))
    assert "do not take" not in check(tmp_path, site, route("/x", 'methods = ["POST"]\nrespond = { body = "x" }'))
