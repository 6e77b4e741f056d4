"""Recipes of applications against the configurations for nginx that they are made of: the requests that these are about get the same
responses, and the applications the same requests."""

import pytest

from support.files import write
from support.nginx import NGINX, PHP_FPM, Both, view
from support.recipes import Recipe
from support.server import ROOT

ORIGINALS = ROOT / "tests" / "originals"
PHP = b"<?php echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'], ' ', $_SERVER['REQUEST_METHOD'], ' ', file_get_contents('php://input');"

pytestmark = [pytest.mark.skipif(not NGINX, reason="no nginx"), pytest.mark.skipif(not PHP_FPM, reason="no PHP-FPM")]


class Pair(Both):
    """nginx with an original, and Dunlin with the recipe; both have the same files and applications."""

    def __init__(self, name, root, tmp_path, files, upstreams):
        self.page = Recipe(name, tmp_path)
        (tmp_path / "original").mkdir()
        files_root = self.page.srv / root
        super().__init__((ORIGINALS / f"{name}.conf").read_text().replace("@ROOT@", str(files_root)), tmp_path / "original")
        for path, content in files.items():
            write(files_root / path, content)
        self.replaced = {url: f"http://127.0.0.1:{self.upstreams[number].port}" for url, number in upstreams.items()}
        self.replaced = {url.replace("@SRV@", str(self.page.srv)): port for url, port in self.replaced.items()}

    def start(self):
        self._start_fpm()
        self.start_nginx()
        text = self.page.block("toml")
        if "php8.2-fpm.sock" in text:
            self.replaced[f"{self.page.folder}/run/php/php8.2-fpm.sock"] = self.folder / "fpm.sock"
        self.dunlin = self.page.start(replace=self.replaced)

    def stop(self):
        super().stop()
        self.page.stop()


@pytest.fixture
def pair(tmp_path):
    started = []

    def start(name, root, files, upstreams=(), shown=()):
        made = Pair(name, root, tmp_path, files, dict(upstreams))
        started.append(made)
        made.page.shown = {old: str(made.page.srv / new) for old, new in dict(shown).items()}
        made.start()
        return made

    yield start
    for made in started:
        made.stop()


def routes(pair):
    return pair.page.block("toml").count("[[site.route]]")


def same(pair, host, requests, names=("cache-control", "access-control-allow-origin", "set-cookie"), change=lambda shown: shown):
    """Asserts that the requests get the same: each is a path, or a method, a path, fields and a body."""
    found = []
    for request in requests:
        method, path, fields, body = request if isinstance(request, tuple) else ("GET", request, (), None)
        url, shown = f"http://{host}{path}", []
        for port in (pair.port, pair.dunlin.port):
            answer = view(pair.ask(port, method, path, host, fields, body), url, names)
            if answer["status"] >= 300:
                # Pages of errors and redirects are those of each server.
                answer["body"] = None
            shown.append(change(answer))
        if shown[0] != shown[1]:
            found.append(f"{method} {path}\n  nginx  {shown[0]}\n  dunlin {shown[1]}")
    assert not found, "\n".join(found)


def test_discourse(pair):
    files = {
        "robots.txt": "robots", "assets/application.js": "1", "assets/fonts/a.woff2": "font", "assets/a.WOFF": "font", "plugins/poll/a.css": "a{}", "plugins/poll/assets/i.ico": "icon",
        "images/emoji/twitter/a.png": "emoji", "uploads/default/1X/a.png": "picture", "uploads/default/1X/a.JPG": "picture", "uploads/default/1X/report.pdf": "report",
        "uploads/default/optimized/1X/a.xyz": "small", "uploads/default/_optimized/1X/a": "small", "uploads/stylesheet-cache/a.css": "a{}", "backups/default/b.tar.gz": "backup",
    }
    both = pair("discourse", "discourse/public", files, {"http://127.0.0.1:3000": 0, "https://avatars.discourse.org": 1})
    assert routes(both) == 6
    host = "talk.example.com"
    paths = [f"/{name}" for name in files] + [
        "/", "/latest", "/t/topic/17?page=2", "/favicon.ico", "/srv/status", "/assets/none.js", "/plugins/none", "/images/emoji/none.png", "/uploads/default/none.png",
        "/uploads/default/none.pdf", "/uploads/short-url/a1.jpeg", "/uploads/status-404", "/uploads/default/optimized/none", "/uploads/stylesheet-cache/none.css", "/admin/backups/b.tar.gz",
        "/admin/plugins", "/downloads/robots.txt", "/downloads/none", "/backups/none", "/message-bus/1a2b/poll?dlp=t", "/redirect/x", "/status-500", "/set-cookie", "/u/a%20b", "/assets",
    ]
    posts = [("POST", "/posts", (("Content-Type", "application/json"), ("Cookie", "_t=1"), ("X-CSRF-Token", "x")), b"{}"), ("PUT", "/t/1", (), b"title=a"), ("DELETE", "/session/a", (), None)]
    same(both, host, paths + posts)
    # A field whose value depends on the request is for all statuses: the only difference.
    same(both, host, ["/assets/none.woff2"], names=("cache-control", "set-cookie"))

    def calls(port, path, *fields):
        """The calls of the application for three requests, and the responses."""
        answers = [both.ask(port, "GET", path, host, fields, None) for _ in range(3)]
        return len([call for answer in answers for call in answer[3]]), [(answer[0], "set-cookie" in answer[1], answer[2]) for answer in answers]

    for path in ("/user_avatar/a/45/1.png", "/letter_avatar/a/45.png", "/stylesheets/set-cookie.css", "/highlight-js/a.js", "/favicon/proxied?a", "/user_avatar/status-404", "/letter_avatar_proxy/v2/a.png",
                 "/letter_avatar_proxy/set-cookie"):
        theirs, ours = (calls(port, path) for port in (both.port, both.dunlin.port))
        assert theirs == ours and ours[0] == 1 and not any(cookie for _, cookie, _ in ours[1]), path
    # What the server of avatars gets of a client.
    personal = (("Cookie", "a=b"), ("User-Agent", "me"), ("Referer", "http://x/"), ("Authorization", "Bearer x"), ("Accept-Language", "de"))
    for port in (both.port, both.dunlin.port):
        [(method, target, fields, body)] = both.ask(port, "GET", f"/letter_avatar_proxy/v2/{port}.png", host, personal, None)[3]
        assert (method, target, body) == ("GET", f"/v2/{port}.png", "")
        assert not {"cookie", "user-agent", "referer", "authorization", "accept-language", "x-forwarded-for"} & fields.keys() and "talk" not in fields["host"], fields


def test_gitlab(pair):
    files = {f"{status}.html": f"page {status}" for status in (404, 422, 500, 502, 503)}
    both = pair("gitlab", "gitlab/public", files, {"unix:@SRV@/gitlab/sockets/workhorse": 0})
    assert routes(both) == 1
    host = "gitlab.example.com"
    requests = [
        "/", "/users/sign_in", "/group/project.git/info/refs?service=git-upload-pack", "/-/metrics", "/redirect/x", "/status-404", "/status-500", "/422.html", "/502.html", "/set-cookie",
        ("POST", "/group/project.git/git-receive-pack", (("Content-Type", "application/x-git-receive-pack-request"),), b"x" * 3_000_000),
        ("PUT", "/api/v4/projects/1?private_token=a", (("Private-Token", "b"),), b"name=c"), ("DELETE", "/api/v4/projects/1", (), None), ("HEAD", "/", (), None),
    ]
    same(both, host, requests)
    both.upstreams[0].close()
    for port in (both.port, both.dunlin.port):
        assert both.ask(port, "GET", "/", host, (), None)[::2] == (502, b"page 502")


def test_jenkins(pair):
    files = {"userContent/notes.txt": "notes", "userContent/a b.html": "<p>", "secrets/master.key": "key", "config.xml": "<x/>"}
    both = pair("jenkins", "jenkins", files, {"http://127.0.0.1:8080": 0})
    assert routes(both) == 2
    requests = [
        "/", "/job/a%20b/1/console?x=1", "/static/0a1b2c3d/css/style.css", "/static/0A1B2C3D/scripts/a.js?v=1", "/static/0a1b2c3/css/style.css", "/static/0a1b2c3d/", "/userContent/notes.txt",
        "/userContent/a%20b.html", "/userContent/", "/userContent/none/*view*/", "/secrets/master.key", "/config.xml", "/redirect/x", "/status-404", "/set-cookie",
        ("POST", "/job/a/build", (("Jenkins-Crumb", "x"), ("Content-Type", "application/xml")), b"<x/>"), ("HEAD", "/userContent/notes.txt", (), None), ("HEAD", "/job/a/", (), None),
    ]

    def without_double_slash(shown):
        # The rule for files that are not there forwards `//userContent/…`.
        shown["upstream"] = [(method, path.replace("//", "/"), *rest) for method, path, *rest in shown["upstream"]]
        shown["body"] = shown["body"] and shown["body"].replace(b'"//', b'"/')
        return shown

    same(both, "jenkins.example.com", requests, change=without_double_slash)


def test_phpbb(pair):
    programs = ["index.php", "app.php", "viewtopic.php", "adm/index.php", "ext/phpbb/run.php", "install/app.php", "install/index.php"]
    texts = [
        "styles/a.css", "robots.txt", "files/secret.txt", "cache/a.txt", "config/a.yml", "includes/a.txt", "store/a.txt", "vendor/a.txt", "images/avatars/upload/a.png", "images/a.png",
        "phpbb/a.txt", "ext/phpbb/a.txt", "ext/phpbbx/a.txt", "styles/phpbb/a.txt", "styles/text/phpbb/a.txt", "styles/phpbbx/a.txt", "text/phpbb/a.txt", "docs/index.html", "install/a.css", "install/config/a.txt",
        ".git/config", ".svn/entries",
    ]
    both = pair("phpbb", "phpbb", {name: PHP for name in programs} | {name: "text" for name in texts})
    assert routes(both) == 2
    paths = [f"/{name}" for name in programs + texts] + [
        "/", "/?x=1", "/viewtopic.php?t=3&p=4#a", "/help/faq", "/help/faq?x=1", "/none.php?x=1", "/adm/", "/docs/", "/docs", "/ext/none", "/post-1/title", "/install/", "/install/index.php?x=1", "/config", "/common.phpx", "/none.css", "/a%20b",
    ]
    same(both, "forum.example.com", [path.partition("#")[0] for path in paths] + [("POST", "/posting.php?mode=post", (), b"a=b"), ("POST", "/viewtopic.php", (), b"a=b"), ("POST", "/ucp/login", (), b"a=b")])
    same(both, "www.forum.example.com", ["/", "/viewtopic.php?t=3", "/a%20b?x=%20"])
    # What the rules are for, and the original does not reach.
    assert both.ask(both.dunlin.port, "GET", "/install/none?x=1", "forum.example.com", (), None)[2].startswith(b"/install/app.php /install/none?x=1 x=1")
    write(both.page.srv / "phpbb" / "includes" / "functions.php", PHP)
    assert both.ask(both.dunlin.port, "GET", "/includes/functions.php", "forum.example.com", (), None)[0] == 404


def test_grafana(pair):
    both = pair("grafana", "www", {"index.html": "home"}, {"http://127.0.0.1:3000": 0, "http://127.0.0.1:8123": 1})
    assert routes(both) == 1
    requests = ["/", "/d/abc/dashboard?orgId=1&from=now-6h", "/api/live/list", "/public/build/a.js", "/redirect/x", "/status-404", "/set-cookie", ("POST", "/api/ds/query", (("X-Grafana-Org-Id", "1"),), b"{}")]
    same(both, "grafana.example.com", requests)
    same(both, "home.example.com", ["/", "/api/states", "/auth/authorize?response_type=code", ("POST", "/api/webhook/x", (), b"{}")])
    beneath = ["/grafana/", "/grafana/d/abc?orgId=1", "/grafana/api/live/list", "/grafana/set-cookie", ("POST", "/grafana/api/ds/query", (), b"{}")]
    same(both, "example.com", ["/", *beneath])


def test_phpmyadmin(pair):
    programs = ["phpmyadmin/index.php", "phpmyadmin/js/messages.php", "phpmyadmin/libraries/a.php", "roundcube/public_html/index.php"]
    texts = ["phpmyadmin/themes/a.css", "phpmyadmin/templates/a.twig", "phpmyadmin/favicon.ico", "roundcube/public_html/skins/a.css", "roundcube/config/c.inc"]
    shown = {"/usr/share/phpmyadmin": "tools/phpmyadmin", "/var/lib/roundcube": "tools/roundcube"}
    both = pair("phpmyadmin", "tools", {name: PHP for name in programs} | {name: "text" for name in texts}, shown=shown)
    assert routes(both) == 3
    paths = [
        "/phpmyadmin", "/phpmyadmin/", "/phpmyadmin/?db=a", "/phpmyadmin/index.php?route=/sql", "/phpmyadmin/js/messages.php", "/phpmyadmin/themes/a.css", "/phpmyadmin/favicon.ico", "/phpmyadmin/none",
        "/phpmyadmin/none.php", "/phpmyadmin/libraries/a.php", "/phpmyadmin/templates/a.twig", "/roundcube", "/roundcube/", "/roundcube/?_task=login", "/roundcube/index.php", "/roundcube/skins/a.css",
        "/roundcube/none.php", "/roundcube/config/c.inc", "/roundcube/..%2fconfig/c.inc",
    ]
    same(both, "tools.example.com", [*paths, ("POST", "/phpmyadmin/index.php", (), b"pma_username=a"), ("POST", "/roundcube/?_task=login", (), b"_user=a")])
