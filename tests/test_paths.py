"""Paths that try to get out, and files that are no files."""

import os
import socket
import threading

import pytest

from support.files import write


@pytest.fixture
def secret(site, tmp_path):
    write(site / "index.html", "index")
    write(site / "a" / "b.txt", "b")
    return write(tmp_path / "secret", "the secret")


@pytest.mark.parametrize(
    "path, status",
    [
        ("/../secret", 400),
        ("/a/../../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/.%2e/secret", 400),
        ("/a/%2e%2e/%2e%2e/secret", 400),
        ("/%252e%252e/secret", 404),
        ("/..%2fsecret", 404),
        ("/..%5csecret", 404),
        ("/..\\secret", 404),
        ("/%c0%ae%c0%ae/secret", 404),
        ("/%c0%ae%c0%ae%c0%afsecret", 404),
        ("/..;/secret", 404),
        ("/a%00b", 400),
        ("/a/b.txt%00.html", 400),
        ("/a%2fb.txt", 404),
        ("/" + "a/" * 2000, 404),
        ("/" + "a" * 5000, 404),
        ("/a/b.txt/", 404),
        ("/a/./b.txt", 200),
        ("//a///b.txt", 200),
        ("/x/../a/b.txt", 200),
        ("/a/%62.txt", 200),
    ],
)
@pytest.mark.parametrize("cache", ["true", "false"])
def test_no_path_leads_outside(serve, secret, path, status, cache):
    server = serve(f"cache = {cache}")
    for _ in range(2):
        got, _, body = server.get(path)
        assert got == status and b"secret" not in body


def test_hidden_files(serve, site):
    write(site / ".env", "secret")
    write(site / ".git" / "config", "secret")
    write(site / ".well-known" / "x", "known")
    server = serve(more='[[site.route]]\npath = "/.git/*"\nhidden = true\n')
    assert server.get("/.env")[0] == 404
    assert server.get("/%2eenv")[0] == 404
    assert server.get("/.git/config")[2] == b"secret", "only if requested"
    assert server.get("/.well-known/x")[2] == b"known"


def test_symlinks(serve, site, secret, tmp_path):
    (site / "out").symlink_to(secret)
    (site / "outdir").symlink_to(tmp_path)
    (site / "up").symlink_to("../secret")
    (site / "in").symlink_to("a/b.txt")
    (site / "loop").symlink_to("loop")
    server = serve(
        more='[[site.route]]\npath = "/out"\nsymlinks = "follow"\n'
        '[[site.route]]\npath = "/in"\nsymlinks = "deny"\n'
    )
    assert server.get("/outdir/secret")[0] == 403
    assert server.get("/up")[0] == 403
    assert server.get("/loop")[0] == 403
    assert server.get("/out")[2] == b"the secret", "if the route allows it"
    assert server.get("/in")[0] == 403, "where the route forbids it"
    assert serve().get("/in")[2] == b"b"


def test_a_replaced_symlink_never_leads_outside(serve, site, secret):
    link = site / "link"
    link.symlink_to("a")
    stop = threading.Event()

    def exchange():
        while not stop.is_set():
            for target in ("../", "a"):
                new = site / "new"
                new.symlink_to(target)
                new.rename(link)

    thread = threading.Thread(target=exchange)
    thread.start()
    server = serve("cache = false")
    try:
        for _ in range(2000):
            status, _, body = server.get("/link/secret")
            assert status in (403, 404, 503) and b"the secret" not in body
    finally:
        stop.set()
        thread.join()


def test_paths_that_are_not_files_are_rejected(serve, site):
    os.mkfifo(site / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(site / "socket"))
    os.mknod(site / "null", 0o20666, os.makedev(1, 3))
    write(site / "closed", "x").chmod(0)
    server = serve()
    for name in ("fifo", "socket", "null"):
        assert server.get(f"/{name}")[0] == 403, name
    if os.geteuid() != 0:
        assert server.get("/closed")[0] == 403
    listener.close()


def test_names_that_are_not_utf_8(serve, site):
    name = os.fsencode(site) + b"/\xe4\xff.txt"
    with open(name, "wb") as file:
        file.write(b"latin")
    server = serve("listing = true")
    assert server.get("/%e4%ff.txt")[2] == b"latin"
    assert b'href="./%E4%FF.txt"' in server.get("/")[2]


def test_a_directory_that_becomes_a_file(serve, site):
    write(site / "x" / "index.html", "directory")
    server = serve()
    assert server.get("/x/")[2] == b"directory"
    (site / "x" / "index.html").unlink()
    (site / "x").rmdir()
    write(site / "x", "file")
    assert server.get("/x/")[0] == 404
    assert server.get("/x")[2] == b"file"
