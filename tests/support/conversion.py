"""Another server and Dunlin on the same configuration, with upstreams that record what they get."""

import re
import socket
import subprocess
from pathlib import Path

from support.files import write
from support.nginx import PHP_FPM, Both, Recorder, view
from support.objects import free_port
from support.server import DUNLIN, Server
from support.waiting import wait_until

PHP = b"<?php header('X-Powered-By: php'); echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'], ' ', $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['HTTP_AUTHORIZATION'] ?? '';"
CGI = b"#!/bin/sh\necho Content-Type: text/plain\necho\necho $SCRIPT_NAME $PATH_INFO $QUERY_STRING $REQUEST_METHOD\n"
SITE = {
    "index.html": b"home",
    "about/index.html": b"about",
    "a.txt": b"text",
    "a b.txt": b"blank",
    "style.css": b"a{}",
    "app.js": b"1;",
    "logo.png": b"png",
    "favicon.ico": b"ico",
    "robots.txt": b"robots",
    "404.html": b"lost page",
    "50x.html": b"broken page",
    "backup.sql": b"sql",
    "old.bak": b"bak",
    "config.ini": b"ini",
    "page.html": b"page",
    "empty/keep": b"",
    ".well-known/acme-challenge/token": b"token",
    "assets/app.css": b"b{}",
    "assets/app.abc123.js": b"2;",
    "static/a.css": b"c{}",
    "static/deep/b.txt": b"deep",
    "media/m.txt": b"media",
    "private/index.html": b"private",
    "private/open/index.html": b"open",
    "intranet/index.html": b"intranet",
    "uploads/photo.png": b"photo",
    "docs/readme.html": b"readme",
    "docs/index.html": b"docs",
    "cache/page.html": b"cached page",
    "public/index.html": b"public",
    "public/main.css": b"main",
    "vendor/lib.txt": b"lib",
}
PHP_SITE = {name: PHP for name in ("index.php", "info.php", "remote.php", "wp-login.php", "xmlrpc.php", "public/index.php", "uploads/evil.php", "app/index.php")}
# What paths of a file are about, at their boundaries and beyond.
USUAL = {
    "/", "/?a=b", "/none", "/none/", "/none?x=1&y=2", "/about", "/about/", "/empty/", "/a%2etxt", "/a.txt?x=%20", "/none.css", "/none.php", "/index.php?x=1",
    "/user/ann", "/user/ANN", "/blog/2024/05/title", "/go/x%20y", "/docs", "/%C3%A9", "/status-404", "/status-500", "/api/status-503", "/docs/readme.html?p=1",
    "/page", "/page/", "/x/y/z.html", "/assets/app.123.css", "/.htaccess", "/user/ann/edit?q=1",
}  # fmt: skip


class Pair(Both):
    """A server and Dunlin with one file. Subclasses start the server."""

    option = ""
    report_arguments = ()

    def __init__(self, text, folder):
        self.folder = folder
        self.upstreams = [Recorder("one"), Recorder("two")]
        self.port = free_port()
        self.root = folder / "www" / "site"
        self.fpm = self.peer = self.nginx = self.dunlin = None
        self.words = {
            "PORT": self.port,
            "ROOT": self.root,
            "TMP": folder,
            "FPM": folder / "fpm.sock",
            "UP1": self.upstreams[0].port,
            "UP2": self.upstreams[1].port,
        }
        self.text = self.filled(text)
        self.file = self.written()

    def filled(self, text):
        for name, value in self.words.items():
            text = text.replace(f"@{name}@", str(value))
        return text

    def start(self):
        if "fpm.sock" in self.text:
            self.start_fpm()
        self.peer = self.start_peer()
        wait_until(lambda: self.peer.poll() is not None or socket.socket().connect_ex(("127.0.0.1", self.port)) == 0, "the peer is ready", 30)
        assert self.peer.poll() is None, self.peer_log()
        self.dunlin = self.start_dunlin()

    def start_dunlin(self):
        return Server([f"--{self.option}", str(self.file), "--listen", "127.0.0.1:0", "--threads", "1"], self.folder)

    def start_fpm(self):
        config = self.folder / "fpm.conf"
        config.write_text(
            f"[global]\nerror_log = {self.folder}/fpm.log\n[www]\nuser = root\ngroup = root\nlisten = {self.folder}/fpm.sock\n"
            "listen.mode = 0666\npm = static\npm.max_children = 2\n"
        )
        self.fpm = subprocess.Popen([PHP_FPM, "-R", "-F", "-y", config], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_until(lambda: (self.folder / "fpm.sock").exists(), "PHP-FPM is ready")

    def report(self):
        done = subprocess.run([DUNLIN, "convert", self.option, self.file, *self.report_arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (0, 4), done.stderr
        assert "by hand" not in done.stderr, done.stderr + done.stdout
        return done.stdout, done.stderr, done.returncode

    def stop(self):
        if self.peer and self.peer.poll() is None:
            self.peer.terminate()
            self.peer.wait(20)
        super().stop()


def prepare(folder, text):
    """Makes the files of a site, and a file of users with ann:secret."""
    for name, content in (SITE | (PHP_SITE if ".php" in text or "php_" in text or "fpm" in text.lower() else {})).items():
        write(folder / "www" / "site" / name, content)
    script = write(folder / "www" / "cgi" / "hello.cgi", CGI)
    Path(script or folder / "www" / "cgi" / "hello.cgi").chmod(0o755)
    write(folder / "www" / "other" / "index.html", b"other")
    write(folder / "www" / "other" / "o.txt", b"o")
    made = subprocess.run(["openssl", "passwd", "-apr1", "secret"], capture_output=True, text=True, check=True)
    (folder / "www" / "users").write_text(f"ann:{made.stdout.strip()}\n")


def paths_of(text):
    """Paths that a file names, with others beside and beneath them."""
    found = set(USUAL) | {f"/{name.replace(' ', '%20')}" for name in SITE}
    if "php" in text:
        found |= {f"/{name}" for name in PHP_SITE}
    text = re.sub(r"@[A-Z0-9]+@\S*|https?://\S+|^\s*#.*$", "", text, flags=re.M)
    for path in re.findall(r"(?<![\w.:])\^?(/?[A-Za-z][A-Za-z0-9_./-]*)", text):
        plain = "/" + path.strip("/")
        if len(plain) < 30 and plain.count("/") < 5 and (path.startswith("/") or re.search(rf"\^/?{re.escape(path)}", text)):
            found |= {plain, f"{plain}/", f"{plain}x", f"{plain}/a.txt", f"{plain}/a/b?x=1&y=2", f"{plain}/style.css", f"{plain}/a%20b", f"{plain}/12"}
    for word in re.findall(r"\(([A-Za-z|]+)\)", text):
        found |= {f"/x.{name}" for name in word.split("|")} | {f"/{name}/x" for name in word.split("|")}
    return sorted(found)


def requests_of(text, hosts):
    """Requests derived from a file: method, path, host, fields, body."""
    hosts = hosts or ["any.test"]
    for path in paths_of(text):
        yield "GET", path, hosts[0], (), None
    for host in [*hosts[1:], "other.test"]:
        for path in ("/", "/a.txt", "/none?x=1", "/about", "/about/"):
            yield "GET", path, host, (), None
    for path in paths_of(text)[::3]:
        yield "HEAD", path, hosts[0], (), None
        yield "GET", path, hosts[0], (("User-Agent", "BadBot/1.0"), ("Cookie", "a=1; session=x"), ("Referer", "http://spam.test/")), None
    for path in paths_of(text)[::4]:
        yield "POST", path, hosts[0], (("Content-Type", "text/plain"),), b"body"
        yield "DELETE", path, hosts[0], (), None
        yield "GET", path, hosts[0], (("Authorization", "Basic YW5uOnNlY3JldA=="), ("X-Api-Key", "k"), ("Accept", "text/html")), None


def expected_differences(text):
    """`# differs: METHOD PATH: text of the report`: what a file's comments permit."""
    return [(re.compile(pattern), what.strip()) for pattern, what in re.findall(r"^\s*# differs: (\S+ \S+): (.*)$", text, re.M)]


# Methods other than GET and HEAD have other statuses where there are files.
METHODS = {(404, 405), (403, 405), (404, 403), (404, 308), (301, 308), (405, 308), (301, 405), (302, 405), (405, 404), (200, 405), (405, 200), (200, 308), (308, 405)}


def is_stated(path, theirs, ours, report):
    """Whether the report states what is different."""
    plain = path.split("?")[0]
    statuses = theirs["status"], ours["status"]
    is_redirect = ours["status"] == 301 and (ours["location"] or "").split("?")[0] == f"{plain}/"
    return (
        ("hosts that no site has get 421" in report and ours["status"] == 421)
        or ("redirects to directories have status 301" in report and statuses == (308, 301) and theirs["location"] == ours["location"])
        or ("without an index file gets 403" in report and statuses == (404, 403) and plain.endswith("/"))
        or ("the path without it is redirected" in report and is_redirect)
        or ("begin with a dot get 404" in report and "/." in plain and not plain.startswith("/.well-known"))
        or ("with a slash behind its name" in report and re.search(r"\.\w+/$", plain))
    )


def differences(both, text, hosts, names, is_page, report):
    """What is different between the server and Dunlin, and the number of requests."""
    permitted = expected_differences(text)
    found, count = [], 0
    # Fields of other servers that the report states.
    lost = ((), ("x-forwarded-server",) if "X-Forwarded-Server" in report else ())
    for method, path, host, fields, body in requests_of(text, hosts):
        if path == "/a%2etxt" and "normal form" in report:
            continue
        if any(pattern.fullmatch(f"{method} {path}") for pattern, _ in permitted):
            continue
        count += 1
        url = f"http://{host}{path}"
        theirs = view(both.ask(both.port, method, path, host, fields, body), url, names, lost)
        ours = view(both.ask(both.dunlin.port, method, path, host, fields, body), url, names, lost)
        if method not in ("GET", "HEAD") and (theirs["status"], ours["status"]) in METHODS:
            continue
        if is_stated(path, theirs, ours, report):
            continue
        pages = theirs.pop("body"), ours.pop("body")
        if theirs["status"] is not None and (theirs["status"] >= 300 or method == "HEAD") and is_page(pages[0]) or b"Index of" in pages[0]:
            # Pages of errors and of directories have forms of their own.
            pages = None
            theirs["fields"] = ours["fields"] = {}
        if theirs["status"] is not None and theirs["status"] >= 300:
            # Fields of errors are those of the report.
            theirs["fields"] = ours["fields"] = {}
        if theirs != ours or pages and pages[0] != pages[1]:
            found.append(f"{method} {path} Host: {host} {dict(fields)}\n  theirs {theirs} {pages and pages[0][:200]}\n  ours   {ours} {pages and pages[1][:200]}")
    return found, count


def compare(both, text, hosts, names, is_page):
    """Asserts that the file gives the same responses, except for what its comments and the report state."""
    try:
        both.start()
        toml, report, _ = both.report()
        for _, what in expected_differences(text):
            assert what in report, f"the report does not state: {what}\n{report}"
        found, count = differences(both, text, hosts, names, is_page, report)
        print(f"{count} requests, {len(found)} differences")
        assert not found, f"{len(found)} of {count} are different:\n" + "\n".join(found[:40]) + f"\n{toml}"
    finally:
        both.stop()
