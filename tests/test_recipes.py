"""The recipes of the book: each configuration works, and its commands print what the page shows."""

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import connect
from werkzeug.security import generate_password_hash

from support.acme import Authority, free_port
from support.admin import pid_of
from support.dns import A, NameServer
from support.files import lines, write
from support.name_server import KnotServer
from support.objects import store  # noqa: F401
from support.http import parse
from support.recipes import PAGES, Recipe
from support.scripts import script
from support.systemd import Manager
from support.tls import certificate
from support.upstream import Upstream, response
from support.waiting import wait_until

LOGROTATE = shutil.which("logrotate", path="/usr/sbin:/usr/bin")
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


def test_object_storage(recipe, store):
    page = recipe("object-storage")
    for key, text in {"index.html": "<h1>Home</h1>\n", "about.html": "<h1>About</h1>\n", "404.html": "<h1>No such page</h1>\n"}.items():
        store.put(f"site/{key}", text)
    write(page.etc / "credentials", page.block("ini"))
    page.start(replace={"http://127.0.0.1:9000": store.endpoint})
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


def test_nextcloud(recipe):
    page = recipe("nextcloud")
    start_php_fpm(page)
    root = page.srv / "nextcloud"
    show = "<?php echo basename(__FILE__), ': ', $_SERVER['REQUEST_URI'], \"\\n\";"
    for name in ("index.php", "remote.php", "console.php", "lib/base.php", "apps/x/other.php"):
        write(root / name, show)
    write(root / "core" / "app.js", "1")
    write(root / "config" / "config.php", "<?php echo 'secret';")
    write(root / "apps" / "x" / "font.woff2", "f")
    server = page.start()
    page.follow()
    get = lambda path, *fields: fetch(server, path, *fields, host="cloud.example.com")
    # What the rules for nginx name, with the responses that it gives.
    location = lambda path, *fields: (get(path, *fields)[0], get(path, *fields)[1].get("location"))
    assert location("/", "User-Agent: DavClnt/1") == (302, "/remote.php/webdav/")
    assert location("/remote/dav") == (301, "/remote.php/remote/dav")
    assert location("/.well-known/carddav") == (301, "/remote.php/dav/")
    assert location("/.well-known/webfinger?resource=a") == (301, "/index.php/.well-known/webfinger?resource=a")
    assert get("/")[2] == b"index.php: /\n" and get("/remote.php/dav/files/a")[2] == b"remote.php: /remote.php/dav/files/a\n"
    for path in ("/lib/base.php", "/data/x", "/tests", "/console.php", "/occ", "/.htaccess", "/db_structure.xml"):
        assert get(path)[0] == 404, path
    assert get("/apps/x/other.php")[2] == b"index.php: /apps/x/other.php\n"
    assert get("/core/app.js")[1]["cache-control"] == "public, max-age=15778463"
    assert get("/apps/x/font.woff2")[1]["cache-control"] == "max-age=604800"
    assert get("/core/missing.js")[2] == b"index.php: /core/missing.js\n"
    assert get("/")[1]["x-robots-tag"] == "noindex, nofollow" == get("/core/app.js")[1]["x-robots-tag"]


def test_matomo(recipe):
    page = recipe("matomo")
    start_php_fpm(page)
    root = page.srv / "matomo"
    for name in ("index.php", "matomo.php", "core/x.php", "config/config.ini.php", "js/index.php"):
        write(root / name, "<?php echo basename(__FILE__), ': ', $_SERVER['QUERY_STRING'], \"\\n\";")
    for name in ("plugins/Login/logo.png", "plugins/Login/plugin.json", "js/container_a1_preview.js", "matomo.js", "README.md", "tmp/a.png"):
        write(root / name, "x")
    server = page.start()
    page.follow()
    get = lambda path: fetch(server, path, host="stats.example.com")
    for path, status in {"/": 200, "/index.php": 200, "/js/": 200, "/core/x.php": 403, "/INDEX.PHP": 403, "/tmp/a.png": 403, "/.htaccess": 404, "/none": 404}.items():
        assert get(path)[0] == status, path
    assert get("/README.md")[1]["content-type"].startswith("text/plain") and "max-age=3600" in get("/matomo.js")[1]["cache-control"]


def test_mastodon(recipe):
    page = recipe("mastodon")
    rails = Upstream(lambda _, __, request: response(f"rails: {request.target}\n".encode()))
    streaming = Upstream(lambda _, __, request: response(f"streaming: {request.target}\n".encode()))
    root = page.srv / "mastodon" / "public"
    for name in ("packs/common.js", "sw.js", "system/a.png", "500.html"):
        write(root / name, name)
    ports = {"http://127.0.0.1:3000": rails.url, "http://127.0.0.1:4000": streaming.url}
    server = page.start(replace=ports)
    page.follow()
    get = lambda path: fetch(server, path, host="social.example.com")
    assert get("/sw.js")[1]["cache-control"] == "public, max-age=604800, must-revalidate"
    fields = get("/system/a.png")[1]
    assert fields["cache-control"].endswith("immutable") and fields["content-security-policy"].startswith("default-src 'none'")
    assert get("/system/missing")[0] == 404
    rails.stop()
    assert get("/down")[::2] == (502, b"500.html")


def application(name):
    """Stands for an application: its responses have the targets of requests."""
    return Upstream(lambda _, __, request: response(f"{name}: {request.target}\n".encode()))


def test_discourse(recipe):
    def rails(_, __, request):
        if request.target.endswith("report.pdf"):
            source, target = request.fields["x-accel-mapping"].split("=")
            assert request.fields["x-sendfile-type"] == "X-Accel-Redirect"
            file = f"{source}uploads/default/original/1X/report.pdf"
            return response(b"", "200 OK", f"X-Accel-Redirect: {file.replace(source, target)}")
        return response(f"rails: {request.target}\n".encode())

    page = recipe("discourse")
    root = page.srv / "discourse" / "public"
    write(root / "assets" / "application.js", "1")
    write(root / "uploads" / "default" / "original" / "1X" / "report.pdf", "the report\n")
    page.start(replace={"http://127.0.0.1:3000": Upstream(rails).url, "https://avatars.discourse.org": application("avatars").url})
    page.follow()


def test_gitlab(recipe):
    page = recipe("gitlab")
    gitlab = application("gitlab")
    write(page.srv / "gitlab" / "public" / "502.html", "GitLab does not respond")
    server = page.start(replace={f"unix:{page.srv}/gitlab/sockets/workhorse": gitlab.url})
    page.follow()
    gitlab.stop()
    assert fetch(server, "/", host="gitlab.example.com")[::2] == (502, b"GitLab does not respond")


def test_jenkins(recipe):
    page = recipe("jenkins")
    write(page.srv / "jenkins" / "userContent" / "notes.txt", "notes of the team\n")
    write(page.srv / "jenkins" / "secrets" / "master.key", "key")
    server = page.start(replace={"http://127.0.0.1:8080": application("jenkins").url})
    page.follow()
    for path in ("/secrets/master.key", "/userContent/..%2fsecrets/master.key", "/userContent/../secrets/master.key"):
        assert b"key\n" not in fetch(server, path, host="jenkins.example.com")[2].replace(b"master.key", b"")


def test_grafana_and_home_assistant(recipe):
    page = recipe("grafana")
    grafana, home = application("grafana"), application("home")
    upgrade = lambda *_: response(b"", "101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", length=False)
    server = page.start(replace={"http://127.0.0.1:3000": grafana.url, "http://127.0.0.1:8123": home.url})
    page.follow()
    grafana.answer = home.answer = upgrade
    for host, path in [("grafana.example.com", "/api/live/ws"), ("example.com", "/grafana/api/live/ws"), ("home.example.com", "/api/websocket")]:
        with server.connect() as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 101 "), host


SHOW = "<?php echo $_SERVER['SCRIPT_NAME'], '?', $_SERVER['QUERY_STRING'], \"\\n\";"


def test_phpbb(recipe):
    page = recipe("phpbb")
    start_php_fpm(page)
    for name in ("app.php", "viewtopic.php", "config.php", "install/app.php"):
        write(page.srv / "phpbb" / name, SHOW)
    page.start()
    page.follow()


def test_phpmyadmin_and_roundcube(recipe):
    page = recipe("phpmyadmin")
    start_php_fpm(page)
    page.shown = {"/usr/share/phpmyadmin": f"{page.srv}/pma", "/var/lib/roundcube": f"{page.srv}/roundcube"}
    for name in ("pma/index.php", "pma/libraries/a.php", "roundcube/public_html/index.php"):
        write(page.srv / name, SHOW)
    page.start()
    page.follow()


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
    with connect(f"ws://127.0.0.1:{server.port}/chat/tea") as client:
        client.send("hello")
        assert client.recv() == "tea: hello"


def test_nodejs(recipe):
    page = recipe("nodejs")
    port = free_port()
    write(page.srv / "app" / "server.js", page.block("js").replace("3000", str(port)))
    write(page.srv / "www" / "static" / "style.css", "body { margin: 0 }\n")
    page.companion("node", str(page.srv / "app" / "server.js"))
    server = page.start(replace={"3000": port})
    wait_until(lambda: fetch(server, "/")[0] == 200, "the application")
    page.follow(0)
    write(page.srv / "app" / "public" / "favicon.svg", '<svg xmlns="http://www.w3.org/2000/svg"/>\n')
    page.start(2, replace={"3000": port})
    page.follow(1)


@pytest.mark.skipif(not shutil.which("go"), reason="no Go")
def test_containers(recipe):
    page = recipe("containers")
    source, port = page.srv / "app" / "main.go", free_port()
    write(source, page.block("go"))
    write(page.srv / "www" / "static" / "style.css", "body { margin: 0 }\n")
    program = page.folder / "app"
    subprocess.run(["go", "build", "-o", program, source], check=True, env={**os.environ, "GO111MODULE": "off", "GOFLAGS": ""})
    page.companion(str(program), f"127.0.0.1:{port}")
    server = page.start(replace={"3000": port})
    wait_until(lambda: fetch(server, "/")[0] == 200, "the application")
    page.follow()
    # The service has two containers, of which one has ended.
    names = NameServer()
    names.records[("app", A)] = ["127.0.0.1", "127.0.0.77"]
    admin = f'[server]\nresolver = ["{names.address}"]\nadmin = "{page.folder}/admin.sock"\n[[listen]]'
    server = page.start(1, replace={"3000": port, "[[listen]]": admin})
    assert fetch(server, "/a")[2] == b"GET /a from 127.0.0.1\n"
    assert {fetch(server, "/")[0] for _ in range(50)} == {200}
    server.logged(f"http://127.0.0.77:{port}")


def test_websocket(recipe):
    page = recipe("websocket")
    port = free_port()
    write(page.srv / "app" / "chat.py", page.block("python"))
    write(page.srv / "www" / "index.html", "<h1>Chat</h1>\n")
    page.companion(sys.executable, str(page.srv / "app" / "chat.py"), str(port))
    server = page.start(replace={"3000": port})
    wait_until(lambda: fetch(server, "/chat")[0] != 502, "the application")
    page.follow()
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(f"ws://127.0.0.1:{server.port}/chat")) for _ in range(20)]
        clients[0].send("hello")
        assert [client.recv() for client in clients] == ["hello"] * 20
        assert fetch(server, "/chat")[0] == 503, "a client has a limit"


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


def test_lets_encrypt(recipe, tmp_path):
    page = recipe("lets-encrypt")
    authority = Authority(tmp_path)
    try:
        page.fixed["443"] = free_port()
        page.known.append("the authority connects to port 443")
        authority.start(tls=page.fixed["443"])
        write(page.srv / "www" / "index.html", "home\n")
        contact = 'contact = "admin@example.com"'
        server = page.start(replace={contact: f'{contact}, directory = "{authority.directory}", authority = "{authority.trust}"'})
        server.logged("certificate was obtained")
        (page.etc / "root.pem").write_text(authority.root())
        page.write_client_settings(f'cacert = "{page.etc}/root.pem"')
        # The server requests the time of renewal after the certificate, and reads the file of it within a second.
        wait_until(lambda: list((page.folder / "var/lib/dunlin").rglob("*.renewal")), "the time of renewal")
        wait_until(lambda: page.run(["curl https://example.com/"]) == ["home\n"], "the certificate in use")
        page.follow()
    finally:
        authority.close()


def test_wildcard_certificate(recipe, tmp_path):
    page = recipe("wildcard-certificate")
    page.fixed["443"] = free_port()
    knot = KnotServer(tmp_path / "knot", "example.com", page.block("text", 1))
    authority = Authority(tmp_path)
    try:
        authority.resolver = knot.address
        authority.start()
        page.known.append("the authority connects to port 443")
        write(page.srv / "www" / "index.html", "home\n")
        (page.etc / "acme.secret").write_text(re.search("secret: (.*)", page.block("text", 1))[1] + "\n")
        contact = 'contact = "admin@example.com"'
        server = page.start(replace={
            "[server]": f'[server]\nresolver = ["{knot.address}"]',
            contact: f'{contact}\ndirectory = "{authority.directory}"\nauthority = "{authority.trust}"',
            'server = "192.0.2.53"': f'server = "{knot.address}", nameservers = ["{knot.address}"]',
        })
        server.logged("certificate was obtained")
        (page.etc / "root.pem").write_text(authority.root())
        page.write_client_settings(f'cacert = "{page.etc}/root.pem"')
        wait_until(lambda: list((page.folder / "var/lib/dunlin").rglob("*.renewal")), "the time of renewal")
        wait_until(lambda: page.run(["curl https://example.com/"]) == ["home\n"], "the certificate in use")
        page.follow()
    finally:
        authority.close()
        knot.close()


def write_who(page):
    file = write(page.srv / "cgi-bin" / "who", page.block("sh"))
    file.chmod(0o755)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_behind_nginx(recipe):
    page = recipe("behind-a-proxy")
    write_who(page)
    certificate(page.etc, "example", ("example.com",))
    # The client's address.
    page.shown["203.0.113.7"] = "127.0.0.2"
    page.start()
    port, folder = free_port(), page.folder / "nginx"
    folder.mkdir()
    site = page.block("nginx").replace("listen 443", f"listen 127.0.0.1:{port}").replace("127.0.0.1:8080", f"127.0.0.1:{page.ports['8080']}")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"user {getpass.getuser()}; daemon off; pid {folder}/pid; error_log stderr; events {{}}\nhttp {{ access_log off; {temporary}\n{site} }}"
    )
    page.companion("nginx", "-e", "stderr", "-c", folder / "nginx.conf")
    wait_until(lambda: listens(port), "nginx listens")
    page.ports["443"] = port
    page.write_client_settings(f'cacert = "{page.etc}/example.pem"', "interface = 127.0.0.2")
    page.follow(0)
    log = page.folder / "var/log/dunlin/access.log"
    wait_until(lambda: log.exists() and "127.0.0.2 GET /who 200" in log.read_text(), "the address in the log")
    page.follow(1)


def test_behind_a_tcp_proxy(recipe):
    page = recipe("behind-a-proxy")
    write_who(page)
    certificate(page.etc, "example", ("example.com",))
    page.shown["203.0.113.7"] = "127.0.0.2"
    page.start(1)
    port, file = free_port(), page.folder / "haproxy.cfg"
    file.write_text(page.block("haproxy").replace("bind :443", f"bind 127.0.0.1:{port}").replace("127.0.0.1:8443", f"127.0.0.1:{page.ports['8443']}"))
    page.companion("haproxy", "-db", "-f", file)
    wait_until(lambda: listens(port), "HAProxy listens")
    page.ports["443"] = port
    page.write_client_settings(f'cacert = "{page.etc}/example.pem"', "interface = 127.0.0.2")
    page.follow(2)


RELEASE = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"version {}\\n"]
"""


def test_systemd(recipe):
    page = recipe("systemd")
    page.venv(page.srv / "app")
    write(page.srv / "app" / "app.py", WSGI.replace("def app(", "def application("))
    write(page.srv / "www" / "index.html", "home\n")
    page.fixed["80"] = free_port()
    page.configure()
    page.check()
    manager = Manager(page.folder / "notify")
    with socket.create_server(("127.0.0.1", page.fixed["80"])) as listener:
        page.companions.append(manager.start(page.etc / "dunlin.toml", listener))
    assert manager.next() == {"READY": "1"}
    page.ports = page.fixed
    page.write_client_settings()
    assert page.run(["curl http://example.com/", "curl http://example.com/app/x"]) == ["home\n", "/x"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_the_drop_in_of_systemd(recipe):
    page = recipe("systemd")
    unit, drop_in = page.folder / "dunlin.service", page.folder / "dunlin.service.d" / "local.conf"
    unit.write_text(f"[Service]\nType=notify\nExecStart={page.programs}/dunlin serve -c {page.etc}/dunlin.toml\n")
    drop_in.parent.mkdir()
    [settings] = [text for kind, text in page.blocks if kind == "ini"]
    drop_in.write_text(settings)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, cwd=page.folder)
    assert done.returncode == 0 and "dunlin" not in done.stderr, done.stderr


def test_deploy(recipe):
    page = recipe("deploy")
    for number in (1, 2, 3):
        folder = page.srv / "releases" / str(number)
        write(folder / "app.py", RELEASE.format(number) if number < 3 else "import no_such_module\n")
        write(folder / "public" / "static" / "version.txt", f"{number}\n")
    (page.srv / "current").symlink_to("releases/1")
    server = page.start()
    statuses, done = [], threading.Event()

    def visit():
        while not done.is_set():
            statuses.append(fetch(server, "/")[0])

    visitor = threading.Thread(target=visit)
    visitor.start()
    try:
        for number in range(3):
            page.follow(number)
    finally:
        done.set()
        visitor.join()
    assert statuses and set(statuses) == {200}, server.log
    page.follow(3)
    # The server that took over.
    wait_until(lambda: server.process.poll() is not None, "the end of the old process")
    os.kill(pid_of(page.folder / "run/dunlin/admin.sock"), signal.SIGTERM)


def test_log_rotation(recipe):
    page = recipe("log-rotation")
    server = page.start()
    folder = page.folder / "var/log/dunlin"
    page.follow(0)
    wait_until(lambda: "/before" in "".join(lines(folder / "access.log")), "the line of the first request")
    page.follow(1)
    wait_until(lambda: "/after" in "".join(lines(folder / "access.log")), "the line in the new file")
    page.follow(2)
    if LOGROTATE:
        [settings] = [text for kind, text in page.blocks if kind == "text"]
        (page.etc / "logrotate").write_text(page.beneath(settings))
        subprocess.run([LOGROTATE, "-f", "-s", page.etc / "state", page.etc / "logrotate"], check=True)
        fetch(server, "/rotated")
        wait_until(lambda: "/rotated" in "".join(lines(folder / "access.log")), "the line after the rotation")
        assert "/after" in (folder / "access.log.1").read_text()


def test_cgi(recipe):
    page = recipe("cgi")
    write(page.srv / "cgi-bin" / "hello", page.block("sh"))
    page.start()
    page.follow()
    page.start(replace={'kind = "cgi"': 'kind = "warm"'})
    page.follow()


def test_error_pages(recipe):
    page = recipe("error-pages")
    write(page.srv / "errors" / "404.html", "<h1>Not here</h1>\n")
    write(page.srv / "errors" / "503.html", "<h1>Back soon</h1>\n")
    write(page.srv / "errors" / "404.json", '{"error": "not found"}\n')
    write(page.srv / "errors" / "500.json", '{"error": "internal"}\n')
    write(page.srv / "errors" / "500.html", "<h1>Our mistake</h1>\n")
    script(page.srv / "cgi-bin", "broken", "exit 1")
    page.start()
    page.follow(0)
    page.start(1)
    page.follow(1)


def test_prometheus(recipe):
    page = recipe("prometheus")
    # The site has a certificate for its metric only.
    page.known = [*page.known, "no listener has TLS"]
    certificate(page.etc, "example", ("example.com",))
    server = page.start(replace={'root = "': f'tls = {{ certificate = "{page.etc}/example.pem", key = "{page.etc}/example.key" }}\nroot = "'})
    write(page.srv / "www" / "index.html", "home\n")
    page.follow(0)
    wait_until(lambda: b'_count{http_request_method="GET"' in fetch(server, "/status/metrics")[2], "the request in the metrics")
    page.follow(1)
    page.follow(2)
    text = fetch(server, "/status/metrics")[2].decode()
    known = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    queries = re.findall(r"^\|.*\| `(.*)` \|$", (PAGES / "prometheus.md").read_text(), re.M)
    named = {name for query in queries for name in re.findall(r"\b(?:http_server|dunlin)_[a-z_]+", query)}
    assert len(queries) >= 5 and named and named <= known, named - known
    labels = {label for query in queries for label in re.findall(r"(?:\{|, )([a-z_]+)(?:=|\))", query)} - {"le"}
    assert labels and all(f"{label}=" in text for label in labels), labels


def test_downloads(recipe):
    page = recipe("downloads")
    write(page.srv / "www" / "downloads" / "image.iso", os.urandom(1_500_000))
    page.start()
    began = time.monotonic()
    page.follow()
    # 2 MB by 1 MB/s, without what may be sent at once.
    assert time.monotonic() - began > 1.7


def test_protected_downloads(recipe):
    page = recipe("protected-downloads")
    write(page.srv / "app" / "shop.py", page.block("python"))
    write(page.srv / "files" / "members" / "book.pdf", "the book\n")
    page.start()
    page.follow()


def test_security_headers(recipe):
    page = recipe("security-headers")
    write(page.srv / "www" / "fonts" / "a.woff2", b"wOF2")
    write(page.srv / "www" / "embed" / "map.html", "map")
    script(page.srv / "cgi-bin", "list", "printf 'Status: 204\\n\\n'")
    server = page.start()
    page.follow()
    assert "server" not in fetch(server, "/fonts/a.woff2")[1]


def test_signed_links(recipe):
    page = recipe("signed-links")
    write(page.srv / "www" / "downloads" / "report.txt", "report\n")
    write(page.srv / "www" / "downloads" / "other.txt", "other\n")
    write(page.etc / "link.py", page.block("python"))
    page.follow(0)
    page.start()
    page.follow(1)


def test_tokens(recipe):
    page = recipe("tokens")
    script(page.srv / "cgi-bin", "who", 'printf "Content-Type: text/plain\\n\\n$REMOTE_USER $HTTP_X_ROLES\\n"')
    page.follow(0)
    page.run([page.block("sh")])
    page.start()
    page.follow(1)


def test_hotlinks(recipe):
    page = recipe("hotlinks")
    write(page.srv / "www" / "cat.png", "cat\n")
    page.start()
    page.follow()


def test_login_page(recipe):
    page = recipe("login-page")
    page.venv(page.srv / "login")
    write(page.srv / "login" / "login.py", page.block("python"))
    write(page.srv / "login" / "settings.py", f"SECRET_KEY = 'key'\nUSERS = {{'ann': {generate_password_hash('secret', 'pbkdf2:sha256:1000')!r}}}\n")
    write(page.srv / "www" / "report.txt", "the report\n")
    script(page.srv / "cgi-bin", "who", 'printf "Content-Type: text/plain\\n\\n$REMOTE_USER\\n"')
    server = page.start()
    page.follow()
    assert {fetch(server, "/report.txt")[0] for _ in range(12)} == {302}
    assert [fetch(server, "/login/")[0] for _ in range(12)][-1] == 429


def test_client_certificates(recipe):
    page = recipe("client-certificates")
    certificate(page.etc, "server", ("internal.example.com",))
    write(page.srv / "www" / "index.html", "internal\n")
    script(page.srv / "cgi-bin", "who", 'printf "Content-Type: text/plain\\n\\n$SSL_CLIENT_S_DN\\n"')
    page.follow(0)
    page.start()
    page.write_client_settings(f'cacert = "{page.etc}/server.pem"')
    page.follow(1)


def test_every_recipe_is_listed_and_tested():
    tests, book = Path(__file__).read_text(), PAGES.parent
    names = [page.stem for page in PAGES.glob("*.md")]
    assert names
    for name in names:
        assert f'recipe("{name}")' in tests, f"no test of {name}"
        for page in ("SUMMARY.md", "recipes.md"):
            assert f"(recipes/{name}.md)" in (book / page).read_text(), f"{page} does not list {name}"
