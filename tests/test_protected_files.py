"""The configuration, users' files and private keys are never sent to clients."""

import json
import os
import signal
import subprocess

import pytest

from support.files import settle, write
from support.server import DUNLIN, Server
from support.waiting import wait_until

USERS = "ann:$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1\n"


@pytest.fixture
def begin(tmp_path):
    """Starts a server with any arguments in the test's folder."""
    running = []

    def start(*arguments, cwd=tmp_path):
        running.append(Server([str(argument) for argument in arguments], cwd))
        return running[-1]

    yield start
    for server in running:
        server.process.kill()
        server.process.wait()
        assert "panicked" not in server.log, server.log


def configuration(folder, route="", more=""):
    file = folder / "dunlin.toml"
    file.write_text(
        f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n'
        f'[[site.route]]\npath = "/*"\n{route}\n{more}\n'
    )
    settle(file)
    return file


@pytest.mark.parametrize("route", ["", "cache = false", "listing = true", 'etag = "sha256"', 'symlinks = "follow"'])
def test_the_configuration_beneath_a_root_is_missing_to_clients_by_every_name(begin, tmp_path, route):
    file = configuration(tmp_path, route)
    write(tmp_path / "page.html", "page" * 100)
    os.link(file, tmp_path / "hard.txt")
    (tmp_path / "soft.txt").symlink_to("dunlin.toml")
    (tmp_path / "page.html.gz").symlink_to("dunlin.toml")
    server = begin("-c", file)
    for _ in range(3):
        for name in ("dunlin.toml", "hard.txt", "soft.txt", "page.html.gz"):
            for fields in ([], ["Range: bytes=0-9"], ["Accept-Encoding: gzip"]):
                status, _, body = server.get(f"/{name}", *fields)
                assert status == 404 and b"threads" not in body, (name, fields, body)
        assert server.get("/dunlin.toml", method="HEAD")[0] == 404
        status, fields, body = server.get("/page.html", "Accept-Encoding: gzip")
        assert status == 200 and b"threads" not in body
    server.logged("keep these files out of directories that are served")


@pytest.mark.parametrize("route", ["", "cache = false"])
def test_a_replaced_configuration_is_not_sent_either(begin, tmp_path, route):
    file = configuration(tmp_path, route)
    server = begin("-c", file)
    assert server.get("/dunlin.toml")[0] == 404
    new = tmp_path / "new.txt"
    new.write_text(file.read_text() + "# new\n")
    settle(new)
    # Ordinary files so far, and cached: one is linked, both names then are the configuration's.
    assert server.get("/new.txt")[0] == 200 and server.get("/new.txt")[0] == 200
    os.link(new, tmp_path / "linked.txt")
    assert server.get("/linked.txt")[0] == 200
    os.replace(new, file)
    assert server.get("/dunlin.toml")[0] == 404
    wait_until(lambda: server.get("/linked.txt")[0] == 404, "the other name of the new configuration")


def test_users_and_keys_are_not_sent_and_the_rest_is(begin, tmp_path):
    pair(tmp_path)
    write(tmp_path / "users", USERS)
    file = configuration(
        tmp_path,
        more='[[site.route]]\npath = "/private/*"\nauth = { basic = "users" }\n',
    )
    text = file.read_text().replace('root = "."', 'root = "."\ntls = { certificate = "cert.pem", key = "key.pem" }')
    file.write_text(text)
    server = begin("-c", file)
    for name in ("dunlin.toml", "users", "key.pem"):
        assert server.get(f"/{name}")[0] == 404, name
    assert server.get("/cert.pem")[0] == 200


def with_inode(folder, number):
    """A new file in the folder with this number of a file that was replaced, which the file system gives away."""
    for attempt in range(200):
        file = folder / f"new-{attempt}.html"
        file.write_text(f"new {attempt}")
        if file.stat().st_ino == number:
            return file
    pytest.skip("the file system does not give numbers of inodes away")


@pytest.mark.parametrize("route", ["", "cache = false", "listing = true"])
def test_the_number_of_a_replaced_file_is_not_protected(begin, tmp_path, route):
    pair(tmp_path)
    write(tmp_path / "users", USERS)
    users = '[[site.route]]\npath = "/private/*"\nauth = { basic = "users" }\n'
    file = configuration(tmp_path, route, users)
    file.write_text(file.read_text().replace('root = "."', 'root = "."\ntls = { certificate = "cert.pem", key = "key.pem" }'))
    server = begin("-c", file)
    for name in ("dunlin.toml", "users", "key.pem"):
        protected = tmp_path / name
        assert server.get(f"/{name}")[0] == 404
        number = protected.stat().st_ino
        other = tmp_path / f"{name}.other"
        other.write_bytes(protected.read_bytes())
        os.replace(other, protected)
        new = with_inode(tmp_path, number)
        os.link(protected, tmp_path / f"hard-{name}.txt")
        (tmp_path / f"soft-{name}.txt").symlink_to(name)
        status, _, body = server.get(f"/{new.name}")
        assert (status, body) == (200, new.read_bytes()), name
        for hidden in (name, f"hard-{name}.txt", f"soft-{name}.txt"):
            assert server.get(f"/{hidden}")[0] == 404, hidden
        if "listing" in route:
            listed = [entry["name"] for entry in json.loads(server.get("/", "Accept: application/json")[2])["entries"]]
            assert new.name in listed and name not in listed and f"hard-{name}.txt" not in listed


def pair(folder):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-subj", "/CN=x", "-addext", "subjectAltName=DNS:x", "-keyout", folder / "key.pem", "-out",
         folder / "cert.pem"],
        check=True, capture_output=True,
    )


def test_a_file_that_a_reload_makes_a_users_file_is_not_sent_from_the_cache(begin, tmp_path):
    write(tmp_path / "users", USERS)
    file = configuration(tmp_path)
    other = '[[site]]\nhost = "other.example"\nroot = "."\n[[site.route]]\npath = "/*"\nauth = { basic = "users" }\n'
    server = begin("-c", file)
    assert server.get("/users")[0] == 200 and server.get("/users")[0] == 200
    file.write_text(file.read_text() + other)
    server.process.send_signal(signal.SIGHUP)
    server.logged("reloaded")
    assert server.get("/users")[0] == 404


def test_a_listing_omits_protected_files(begin, tmp_path):
    file = configuration(tmp_path, "listing = true")
    write(tmp_path / "page.html", "page")
    server = begin("-c", file)
    _, _, body = server.get("/", "Accept: application/json")
    names = [entry["name"] for entry in json.loads(body)["entries"]]
    assert names == ["page.html"]


def test_an_error_page_and_x_sendfile_do_not_send_the_configuration(begin, tmp_path):
    script = tmp_path / "cgi" / "send.sh"
    write(script, f'#!/bin/sh\nprintf "X-Sendfile: {tmp_path}/dunlin.toml\\r\\n\\r\\n"\n')
    script.chmod(0o755)
    file = configuration(
        tmp_path,
        'error_pages = { 404 = "/dunlin.toml" }',
        '[[site.route]]\npath = "/cgi/*"\nscript = { kind = "cgi", directory = "cgi", sendfile_root = "." }',
    )
    server = begin("-c", file)
    for path in ("/none", "/cgi/send.sh"):
        status, _, body = server.get(path)
        assert status >= 400 and b"threads" not in body, (path, status, body)


def test_the_configuration_here_is_used_without_a_directory_and_never_with_one(begin, tmp_path):
    file = configuration(tmp_path, 'set_fields = { "X-By" = "the file" }')
    write(tmp_path / "page.html", "page")
    server = begin("--listen", "127.0.0.1:0")
    assert server.get("/page.html")[1]["x-by"] == "the file"
    assert "dunlin.toml" in server.process.stdout.readline().decode()
    assert server.get("/dunlin.toml")[0] == 404
    plain = begin(".", "--listen", "127.0.0.1:0")
    status, fields, _ = plain.get("/page.html")
    assert status == 200 and "x-by" not in fields
    assert plain.get("/dunlin.toml")[0] == 404
    # A later one is not sent either.
    empty = tmp_path / "empty"
    empty.mkdir()
    third = begin("--listen", "127.0.0.1:0", cwd=empty)
    assert third.get("/dunlin.toml")[0] == 404
    write(empty / "dunlin.toml", "text")
    assert third.get("/dunlin.toml")[0] == 404
    done = subprocess.run([DUNLIN, "serve", file], capture_output=True, text=True)
    assert done.returncode == 1 and f"dunlin serve -c {file}" in done.stderr
