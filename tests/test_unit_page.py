"""The book's page for users of NGINX Unit: each configuration works as the page describes."""

import json
import re
import subprocess
import sys

import pytest

from support.fastcgi import PHP_CGI
from support.files import write
from support.http import post
from support.server import ROOT

pytestmark = pytest.mark.usefixtures("orderly_stop")

PAGE = (ROOT / "docs" / "src" / "from-unit.md").read_text()
CSS = "body { margin: 0 }"


def example(title):
    """The code blocks of the section with that title, by language."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"```(\w+)\n(.*?)```", section, re.S))


@pytest.fixture
def page(serve, tmp_path):
    """Serves the configuration of a section, with its files in a folder of the test's."""
    srv = tmp_path / "srv"
    for folder in ("app", "www"):
        (srv / folder).mkdir(parents=True)

    def start(title):
        text = example(title)["toml"]
        for old, new in [("/srv/app/venv/bin/python", sys.executable), ("127.0.0.1:8080", "127.0.0.1:0")]:
            text = text.replace(f'"{old}"', f'"{new}"')
        return serve(text=text.replace('"/srv', f'"{srv}'))

    start.app, start.www = srv / "app", srv / "www"
    return start


def assert_static(server, path="/static/style.css", content=CSS.encode()):
    status, fields, body = server.get(path)
    assert status == 200 and body == content
    assert fields["content-type"].startswith("text/css") and "etag" in fields


def test_django(page):
    folder = page.app
    subprocess.run([sys.executable, "-m", "django", "startproject", "project", folder], check=True)
    settings = folder / "project" / "settings.py"
    settings.write_text(settings.read_text() + f'\nSTATIC_ROOT = "{page.www}/static"\nALLOWED_HOSTS = ["*"]\n')
    subprocess.run([sys.executable, "manage.py", "collectstatic", "-v0", "--noinput"], cwd=folder, check=True)
    server = page("Django")
    status, fields, body = server.get("/admin/login/")
    assert status == 200 and b"Django administration" in body, server.log
    assert "csrftoken=" in fields["set-cookie"]
    css = "admin/css/base.css"
    assert f"/static/{css}".encode() in body
    assert_static(server, f"/static/{css}", (page.www / "static" / css).read_bytes())
    assert "max-age=3600" in server.get(f"/static/{css}")[1]["cache-control"]
    assert server.get("/nothing/")[0] == 404 and server.get("/static/nothing")[0] == 404
    # It is not there as a file.
    assert server.get("/manage.py")[0] == 404


def test_flask(page):
    write(page.app / "app.py", example("Flask")["python"])
    write(page.www / "static" / "style.css", CSS)
    server = page("Flask")
    assert server.get("/")[2].endswith(b"<h1>Flask</h1>")
    assert json.loads(post(server, "/echo", b"x" * 100_000)[2]) == {"length": 100_000}
    assert_static(server)
    assert server.get("/app.py")[0] == 404


def test_fastapi(page):
    write(page.app / "main.py", example("FastAPI")["python"])
    write(page.www / "static" / "style.css", CSS)
    server = page("FastAPI")
    assert json.loads(server.get("/items/7")[2]) == {"number": 7, "ready": True}
    assert server.get("/items/x")[0] == 422
    assert json.loads(server.get("/openapi.json")[2])["info"]["title"] == "FastAPI"
    assert_static(server)


def test_php_with_a_front_controller(page):
    assert PHP_CGI, "php-cgi is missing"
    write(page.www / "index.php", example("PHP with a front controller")["php"])
    write(page.www / "style.css", CSS)
    write(page.www / "wp-content" / "uploads" / "evil.php", "<?php echo 'run';")
    server = page("PHP with a front controller")
    for path in ("/", "/2026/05/a-post/?page=2", "/index.php"):
        status, fields, body = server.get(path)
        assert (status, json.loads(body)["path"]) == (200, path), server.log
    assert json.loads(server.get("/a?page=2")[2])["page"] == "2"
    assert_static(server, "/style.css")
    body = server.get("/wp-content/uploads/evil.php")[2]
    assert body != b"run"
