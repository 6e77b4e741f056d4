"""The book's pages for users of other servers: each configuration works as the page describes."""

import re
import stat
import subprocess

import pytest

from support.fastcgi import PHP_CGI
from support.files import write
from support.http import parse
from support.server import DUNLIN, ROOT

pytestmark = pytest.mark.usefixtures("orderly_stop")

PHP = b"<?php echo 'php:', $_GET['a'] ?? '';"
CGI = '#!/bin/sh\nprintf "Content-Type: text/plain\\r\\n\\r\\ncgi:$PATH_INFO"\n'


def program(file, text=CGI):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def fetch(server, path, *fields, host="example.com"):
    head = "".join(f"{field}\r\n" for field in fields)
    return parse(server.exchange(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{head}\r\n".encode()))


@pytest.fixture
def page(serve, tmp_path):
    """Serves the configuration of a page, with `/srv` in a directory of the test."""
    srv = tmp_path / "srv"
    for name in ("www", "web", "log", "cgi-bin", "plus", "rte"):
        (srv / name).mkdir(parents=True)

    def start(name, **replaced):
        text = (ROOT / "docs" / "src" / f"from-{name}.md").read_text()
        [config] = re.findall(r"```toml\n(.*?)```", text, re.S)
        for old, new in {'"/srv': f'"{srv}', '":80"': '"127.0.0.1:0"', **replaced}.items():
            assert old in config, old
            config = config.replace(old, new)
        return serve(text=config)

    start.srv = srv
    return start


# Routes that connect to PHP-FPM in the page use processes of the server here.
FPM = {'connect = "unix:/run/php/php8.2-fpm.sock"': 'command = ["php-cgi"]'}


@pytest.mark.skipif(not PHP_CGI, reason="no php-cgi")
def test_nginx(page):
    write(page.srv / "www" / "index.php", PHP)
    write(page.srv / "www" / "404.html", b"lost")
    write(page.srv / "www" / "assets" / "a.css", b"a{}")
    server = page("nginx", **FPM)
    assert fetch(server, "/?a=1")[::2] == (200, b"php:1")
    # `try_files` with /index.php?$args.
    assert fetch(server, "/blog/entry?a=2")[::2] == (200, b"php:2")
    status, fields, _ = fetch(server, "/assets/a.css", host="www.example.com")
    assert status == 200 and fields["cache-control"] == "public" and "expires" in fields
    assert fetch(server, "/old")[1]["location"] == "/new"
    assert fetch(server, "/", host="other.example")[0] == 421


def test_apache(page):
    users = page.srv / "users.htpasswd"
    made = subprocess.run(["htpasswd", "-nbm", "me", "secret"], capture_output=True, text=True, check=True)
    users.write_text(made.stdout)
    program(page.srv / "cgi-bin" / "a")
    write(page.srv / "www" / "private" / "a.txt", b"private")
    write(page.srv / "www" / "404.html", b"lost")
    server = page("apache")
    assert fetch(server, "/cgi-bin/a/b")[::2] == (200, b"cgi:/b")
    status, fields, _ = fetch(server, "/private/a.txt")
    assert status == 401 and 'realm="Members"' in fields["www-authenticate"]
    # me:secret
    assert fetch(server, "/private/a.txt", "Authorization: Basic bWU6c2VjcmV0")[::2] == (200, b"private")
    status, fields, _ = fetch(server, "/old")
    assert (status, fields["location"]) == (301, "/new")
    assert fetch(server, "/none")[::2] == (404, b"lost")


@pytest.mark.skipif(not PHP_CGI, reason="no php-cgi")
def test_caddy(page):
    write(page.srv / "www" / "index.php", PHP)
    write(page.srv / "www" / "assets" / "a.css", b"a{}")
    # Without a reachable authority there is no certificate; the routes without TLS are tested.
    server = page("caddy", **FPM, **{
        '":443"': '"127.0.0.1:0"',
        'acme = { contact = "admin@example.com" }': 'acme = { directory = "https://127.0.0.1:1/", contact = "admin@example.com" }',
    })
    status, fields, _ = fetch(server, "/page?a=1")
    assert (status, fields["location"]) == (308, "https://example.com/page?a=1")


@pytest.mark.skipif(not PHP_CGI, reason="no php-cgi")
def test_lighttpd(page):
    program(page.srv / "cgi-bin" / "a")
    write(page.srv / "www" / "index.php", PHP)
    write(page.srv / "www" / "files" / "a.txt", b"text")
    server = page("lighttpd")
    assert fetch(server, "/?a=1")[::2] == (200, b"php:1")
    assert fetch(server, "/cgi-bin/a/b")[::2] == (200, b"cgi:/b")
    assert b"a.txt" in fetch(server, "/files/")[2]
    assert fetch(server, "/old")[0] == 301


def test_thttpd(page):
    program(page.srv / "cgi-bin" / "a")
    write(page.srv / "www" / "a.gif", b"GIF89a" * 100)
    # Another user has no access to the test's directory.
    server = page("thttpd", **{'user = "www-data"\n': ""})
    assert fetch(server, "/cgi-bin/a/b")[::2] == (200, b"cgi:/b")
    assert fetch(server, "/a.gif")[2] == b"GIF89a" * 100
    assert (page.srv / "log" / "access.log").exists()


def test_wasd(page):
    program(page.srv / "cgi-bin" / "a")
    (page.srv / "rte" / "b.py").write_text("print('Content-Type: text/plain\\n\\nrte')\n")
    write(page.srv / "web" / "downloads" / "a.bin", b"file")
    write(page.srv / "web" / "private" / "a.txt", b"private")
    server = page("wasd")
    assert fetch(server, "/cgi-bin/a/b")[::2] == (200, b"cgi:/b")
    assert fetch(server, "/rte/b.py")[2].strip() == b"rte"
    assert fetch(server, "/downloads/a.bin")[::2] == (200, b"file")
    assert fetch(server, "/private/a.txt")[::2] == (200, b"private")


@pytest.mark.parametrize("name", ["nginx", "apache", "caddy", "lighttpd", "thttpd", "wasd"])
def test_the_tables_name_keys_that_exist(name):
    """Every key in the second column of a table is in the schema, or a known value or command."""
    text = (ROOT / "docs" / "src" / f"from-{name}.md").read_text()
    schema = subprocess.check_output([DUNLIN, "check", "--schema"], text=True)
    keys = set(re.findall(r'"([a-z0-9_]+)": \{', schema)) | set(re.findall(r'"([a-z0-9_]+)"', schema))
    for row in re.findall(r"^\| `.*$", text, re.M):
        cell = re.split(r"(?<!\\)\|", row)[2]
        for word in re.findall(r"`([a-z][a-z0-9_]*)`", cell):
            assert word in keys, f"from-{name}.md: there is no key {word}"
