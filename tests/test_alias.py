"""Directories and applications at a prefix: `alias`, and `mount` of applications."""

import os
import shutil
import subprocess

import pytest

from support.files import write
from support.server import DUNLIN

pytestmark = pytest.mark.usefixtures("orderly_stop")

PHP = shutil.which("php-cgi")


def body(server, path, *fields, **more):
    return server.get(path, *fields, **more)[2].decode()


@pytest.fixture
def application(tmp_path):
    folder = tmp_path / "application"
    write(folder / "index.html", "index")
    write(folder / "a.css", "css")
    write(folder / "sub" / "index.html", "sub")
    write(folder / ".hidden", "hidden")
    return folder


def route(path, folder, more=""):
    return f'[[site.route]]\npath = "{path}"\nalias = "{folder}"\n{more}\n'


def test_an_alias_has_the_files_that_the_star_stands_for(serve, application):
    server = serve(more=route("/app/*", application))
    for _ in range(2):
        assert body(server, "/app/") == "index" and body(server, "/app/a.css") == "css"
        assert body(server, "/app/sub/") == "sub"
    assert server.get("/app")[1]["location"] == "/app/" and server.get("/app/sub")[1]["location"] == "/app/sub/"
    for path in ("/a.css", "/app/x", "/app/.hidden", "/app/%2e%2e/a.css", "/app%2Fa.css", "/appa.css"):
        assert server.get(path)[0] == 404, path


def test_a_changed_file_of_an_alias_is_sent(serve, application):
    server = serve(more=route("/app/*", application))
    assert body(server, "/app/a.css") == "css"
    write(application / "a.css", "changed")
    assert body(server, "/app/a.css") == "changed"


def test_an_alias_of_a_path_is_one_file(serve, application):
    server = serve(more=route("/style", application / "a.css"))
    assert body(server, "/style") == "css" and server.get("/style/")[0] == 404


def test_an_alias_lists_and_compresses_as_a_root_does(serve, application):
    write(application / "large.txt", "text " * 2000)
    write(application / "files" / "one.txt", "1")
    server = serve(more=route("/app/*", application, "listing = true"))
    assert 'one.txt' in body(server, "/app/files/")
    assert server.get("/app/large.txt", "Accept-Encoding: gzip")[1]["content-encoding"] == "gzip"
    assert body(server, "/app/large.txt", "Range: bytes=0-3") == "text"


def test_an_alias_with_a_list_of_files_to_try(serve, application):
    server = serve(more=route("/app/*", application, 'try = ["{path}", "/app/index.html"]'))
    assert body(server, "/app/a.css") == "css" and body(server, "/app/page/1") == "index"


def test_a_root_ends_an_alias_and_an_alias_a_root(serve, application, site):
    write(site / "app" / "other" / "b.txt", "b")
    server = serve(more=route("/app/*", application) + f'[[site.route]]\npath = "/app/other/*"\nroot = "{site}"\n')
    assert body(server, "/app/a.css") == "css" and body(server, "/app/other/b.txt") == "b"


def test_an_alias_needs_a_slash_before_the_star(tmp_path, application):
    for path, more, words in (("/app*", "", "ends with `/*`"), ("/app/*", f'root = "{application}"', "either `root` or `alias`")):
        file = tmp_path / "c.toml"
        file.write_text(f'[[site]]\nroot = "{application}"\n' + route(path, application, more))
        run = subprocess.run([DUNLIN, "check", "--config", str(file)], capture_output=True, text=True)
        assert run.returncode == 1 and words in run.stdout + run.stderr


@pytest.mark.skipif(PHP is None, reason="php-cgi is missing")
def test_scripts_and_files_of_an_application_stand_beside_each_other(serve, application):
    write(application / "index.php", '<?php echo $_SERVER["SCRIPT_NAME"], " ", $_SERVER["SCRIPT_FILENAME"], " ", $_SERVER["PATH_INFO"] ?? "";')
    write(application / "sub" / "x.php", '<?php echo "x ", $_SERVER["SCRIPT_NAME"];')
    os.remove(application / "index.html")
    server = serve(more=route("/pma/*", application, f'script = {{ kind = "fastcgi", command = ["{PHP}"] }}'))
    assert body(server, "/pma/") == f"/pma/index.php {application}/index.php "
    assert body(server, "/pma/index.php/a/b") == f"/pma/index.php {application}/index.php /a/b"
    assert body(server, "/pma/sub/x.php") == "x /pma/sub/x.php"
    assert body(server, "/pma/a.css") == "css" and server.get("/pma")[1]["location"] == "/pma/"
    assert server.get("/index.php")[0] == 404 and server.get("/pma/none.php")[0] == 404


APPLICATION = """
def application(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [f"{environ['SCRIPT_NAME']}|{environ['PATH_INFO']}".encode()]
"""


@pytest.mark.parametrize("mount, expected", [("strip", "/api|/items"), ("keep", "|/api/items")])
def test_an_application_sees_the_prefix_or_not(serve, tmp_path, mount, expected):
    write(tmp_path / "app" / "shop.py", APPLICATION)
    script = f'script = {{ kind = "wsgi", application = "shop:application", directory = "{tmp_path}/app", mount = "{mount}" }}'
    server = serve(more=f'[[site.route]]\npath = "/api/*"\n{script}\n')
    assert body(server, "/api/items") == expected


def test_a_mount_is_for_applications(tmp_path, application):
    file = tmp_path / "c.toml"
    script = f'script = {{ kind = "cgi", directory = "{application}", mount = "keep" }}'
    file.write_text(f'[[site]]\nroot = "{application}"\n[[site.route]]\npath = "/cgi/*"\n{script}\n')
    run = subprocess.run([DUNLIN, "check", "--config", str(file)], capture_output=True, text=True)
    assert run.returncode == 1 and "mount is for an application" in run.stdout + run.stderr
