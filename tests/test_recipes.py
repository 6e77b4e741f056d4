"""The recipes of the book: each configuration works, and its commands print what the page shows."""

import getpass
import subprocess
import sys
from pathlib import Path

import pytest

from support.files import write
from support.http import parse
from support.recipes import PAGES, Recipe
from support.scripts import script
from support.tls import certificate
from support.waiting import wait_until

PHP_FPM = next(iter(sorted(Path("/usr/sbin").glob("php-fpm*"))), None)
WSGI = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]
"""


@pytest.fixture
def recipe(tmp_path):
    """Opens a recipe: `recipe("static-site")`."""
    opened = []

    def begin(name):
        opened.append(Recipe(name, tmp_path))
        return opened[-1]

    yield begin
    for page in opened:
        page.stop()


def fetch(server, path, *fields, host="example.com", method="GET"):
    head = "".join(f"{field}\r\n" for field in fields)
    data = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{head}\r\n"
    return parse(server.exchange(data.encode()), method)


def start_php_fpm(page):
    """PHP-FPM at the socket that Debian's package has."""
    assert PHP_FPM, "php-fpm is missing"
    socket, settings = page.folder / "run" / "php" / "php8.2-fpm.sock", page.folder / "fpm.conf"
    settings.write_text(
        f"[global]\nerror_log = {page.folder}/fpm.log\ndaemonize = no\n[www]\nuser = {getpass.getuser()}\n"
        f"listen = {socket}\npm = static\npm.max_children = 1\n"
    )
    page.companion(PHP_FPM, "-R", "-y", settings)
    wait_until(socket.exists, "php-fpm listens")


def test_static_site(recipe):
    page = recipe("static-site")
    write(page.srv / "www" / "index.html", "<h1>Home</h1>\n")
    write(page.srv / "www" / "docs" / "index.html", "<h1>Documents</h1>\n")
    write(page.srv / "www" / "about.html", "<h1>About</h1>\n")
    write(page.srv / "www" / "404.html", "<h1>No such page</h1>\n")
    write(page.srv / "www" / "assets" / "site.css", "body { margin: 0 }\n" * 100)
    write(page.srv / "www" / ".env", "SECRET=1\n")
    page.start()
    page.follow()


def test_single_page_application(recipe):
    page = recipe("single-page-application")
    write(page.srv / "app" / "dist" / "index.html", '<div id="root"></div>\n')
    write(page.srv / "app" / "dist" / "assets" / "main.3f2a.js", "start()\n")
    page.start()
    page.follow()
    write(page.srv / "api" / "api.py", WSGI)
    server = page.start(1)
    assert server.get("/orders/17")[2] == b'<div id="root"></div>\n'
    assert server.get("/api/orders")[2] == b"/orders"


def test_wordpress(recipe):
    page = recipe("wordpress")
    start_php_fpm(page)
    root = page.srv / "wordpress"
    write(root / "index.php", "<?php echo 'index.php: ', $_SERVER['REQUEST_URI'], ', replytocom=', $_GET['replytocom'] ?? '', \"\\n\";")
    write(root / "wp-admin" / "index.php", "<?php echo \"wp-admin/index.php\\n\";")
    write(root / "wp-login.php", "<?php echo 'log in ', $_SERVER['HTTP_AUTHORIZATION'] ?? '';")
    write(root / "xmlrpc.php", "<?php echo 'xmlrpc';")
    write(root / "wp-content" / "themes" / "main" / "style.css", "body { margin: 0 }")
    write(root / "wp-content" / "uploads" / "shell.php", "<?php echo 'run';")
    write(root / "wp-content" / "uploads" / "a.jpg", b"\xff\xd8\xff")
    server = page.start()
    page.follow()
    host = "blog.example.com"
    assert fetch(server, "/wp-login.php", "Authorization: Basic YTpi", host=host)[2] == b"log in Basic YTpi"
    status, fields, body = fetch(server, "/wp-content/uploads/a.jpg", host=host)
    assert (status, body, fields["content-type"]) == (200, b"\xff\xd8\xff", "image/jpeg") and "expires" in fields
    statuses = [fetch(server, "/wp-login.php", host=host)[0] for _ in range(10)]
    assert statuses[-1] == 429, statuses


def test_laravel_and_symfony(recipe):
    page = recipe("laravel-symfony")
    public, storage = page.srv / "app" / "public", page.srv / "app" / "storage" / "app" / "public"
    write(public / "index.php", "<?php echo \"{$_SERVER['REQUEST_METHOD']} {$_SERVER['REQUEST_URI']} page=\", $_GET['page'] ?? '', ' env=', getenv('APP_ENV'), \"\\n\";")
    write(public / "build" / "app-3f2a.css", "body { margin: 0 }")
    write(storage / "picture.txt", "a picture\n")
    write(storage / "upload.php", "<?php echo 'run';")
    write(page.srv / "app" / ".env", "APP_KEY=secret")
    (public / "storage").symlink_to(storage)
    server = page.start()
    page.follow()
    assert fetch(server, "/../.env")[0] in (400, 404)
    assert fetch(server, "/build/missing.css")[0] == 404


def test_django(recipe):
    page = recipe("django")
    folder = page.srv / "app"
    page.venv(folder)
    subprocess.run([sys.executable, "-m", "django", "startproject", "project", folder], check=True)
    settings = folder / "project" / "settings.py"
    settings.write_text(f"{settings.read_text()}\n{page.block('python')}")
    write(page.srv / "www" / "media" / "a.txt", "upload")
    server = page.start()
    page.follow()
    status, fields, body = fetch(server, "/admin/login/")
    assert status == 200 and b"Django administration" in body and "csrftoken=" in fields["set-cookie"], server.log
    status, fields, body = fetch(server, "/media/a.txt")
    assert (status, body, fields["content-security-policy"]) == (200, b"upload", "sandbox")
    assert fetch(server, "/", host="other.example")[0] == 421


def test_flask(recipe):
    page = recipe("flask")
    page.venv(page.srv / "app")
    write(page.srv / "app" / "app.py", page.block("python"))
    write(page.srv / "app" / "static" / "style.css", "body { margin: 0 }")
    page.start()
    page.follow()


def test_fastapi(recipe):
    page = recipe("fastapi")
    page.venv(page.srv / "app")
    write(page.srv / "app" / "main.py", page.block("python"))
    write(page.srv / "www" / "static" / "style.css", "body { margin: 0 }")
    server = page.start()
    page.follow()
    assert fetch(server, "/static/style.css")[2] == b"body { margin: 0 }"


@pytest.mark.skipif(subprocess.call(["perl", "-MMojolicious", "-e1"], stderr=subprocess.DEVNULL), reason="no Mojolicious")
def test_perl(recipe):
    page = recipe("perl")
    write(page.srv / "app" / "app.pl", page.block("perl"))
    write(page.srv / "app" / "app.psgi", page.block("perl", 1))
    write(page.srv / "app" / "public" / "assets" / "style.css", "body { margin: 0 }")
    page.start()
    page.follow()
    server = page.start(replace={"app.pl": "app.psgi"})
    assert fetch(server, "/a/b")[2] == b"PSGI /a/b\n"


def make_repository(page):
    """A repository with one commit."""
    page.run([
        "git init -q -b main work", "cd work", "echo hello > README", "git add README", "git commit -q -m 'First commit'",
        f"git clone -q --bare . {page.srv}/git/project.git",
    ])


def test_git(recipe):
    page = recipe("git")
    (page.etc / "users").write_text("")
    page.start()
    (page.home / ".git-credentials").write_text(f"http://ann:secret@127.0.0.1:{page.server.port}\n")
    page.follow()


def test_gitweb_and_cgit(recipe):
    page = recipe("gitweb")
    make_repository(page)
    (page.etc / "gitweb.conf").write_text(f'$projectroot = "{page.srv}/git";\n')
    page.start(replace={"/etc/gitweb.conf": page.etc / "gitweb.conf"})
    page.follow(0)
    (page.etc / "cgitrc").write_text(f"virtual-root=/\ncss=/cgit.css\nlogo=/cgit.png\nscan-path={page.srv}/git\n")
    page.start(1, replace={"/etc/cgitrc": page.etc / "cgitrc"})
    page.follow(1)


def test_virtual_hosts(recipe):
    page = recipe("virtual-hosts")
    for name in ("example", "shop", "wildcard"):
        write(page.srv / "www" / name / "index.html", f"{name}\n")
    script(page.srv / "cgi-bin", "show", "printf 'Content-Type: text/plain\\n\\ncart\\n'")
    page.start()
    page.follow(0)
    page.follow(1)
    page.start(1)
    page.follow(2)


def test_www_redirect(recipe):
    page = recipe("www-redirect")
    certificate(page.etc, "example", ("example.com", "www.example.com"))
    write(page.srv / "www" / "index.html", "home\n")
    page.start()
    page.write_client_settings(f'cacert = "{page.etc}/example.pem"')
    page.follow()


def test_basic_auth(recipe):
    page = recipe("basic-auth")
    write(page.srv / "www" / "private" / "report.txt", "report\n")
    write(page.srv / "www" / "private" / "logo.txt", "logo\n")
    page.configure()
    page.follow(0)
    server = page.start()
    page.follow(1)
    status, fields, _ = fetch(server, "/private")
    assert (status, fields["location"]) == (301, "/private/")


def test_rate_limits(recipe):
    page = recipe("rate-limits")
    text = "printf 'Content-Type: text/plain\\n\\nlist\\n'"
    script(page.srv / "cgi-bin", "login", text)
    script(page.srv / "cgi-bin", "list", text)
    page.start()
    page.follow()


def test_every_recipe_is_listed_and_tested():
    tests, book = Path(__file__).read_text(), PAGES.parent
    names = [page.stem for page in PAGES.glob("*.md")]
    assert names
    for name in names:
        assert f'recipe("{name}")' in tests, f"no test of {name}"
        for page in ("SUMMARY.md", "recipes.md"):
            assert f"(recipes/{name}.md)" in (book / page).read_text(), f"{page} does not list {name}"
