"""WebDAV: the suite litmus, other requests, and what a route does not permit."""

import base64
import os
import re
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree

import pytest

from support.files import write
from support.http import parse
from support.http2 import Client, DATA, END_STREAM, frame, HEADERS, request as http2_request
from support.server import DUNLIN
from support.users import ordinary, only_root
from support.waiting import wait_until

D = "{DAV:}"


def request(server, method, path, body=b"", **fields):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    length = f"Content-Length: {len(body)}\r\n" if body or method in ("PUT", "MKCOL") else ""
    text = f"{method} {path} HTTP/1.1\r\nHost: x.test\r\n{lines}{length}Connection: close\r\n\r\n"
    return parse(server.exchange(text.encode() + body))


def status(server, method, path, body=b"", **fields):
    return request(server, method, path, body, **fields)[0]


def found(body):
    """The statuses of the resources, and their properties that were found."""
    resources = {}
    for response in ElementTree.fromstring(body).iter(f"{D}response"):
        properties = {}
        for propstat in response.iter(f"{D}propstat"):
            if " 200 " in propstat.find(f"{D}status").text:
                properties |= {child.tag: child for child in propstat.find(f"{D}prop")}
        whole = response.find(f"{D}status")
        resources[response.find(f"{D}href").text] = properties if whole is None else int(whole.text.split()[1])
    return resources


def lock(server, path, scope="exclusive", **fields):
    body = (
        f'<lockinfo xmlns="DAV:"><lockscope><{scope}/></lockscope><locktype><write/></locktype>'
        f"<owner>ann</owner></lockinfo>"
    )
    return request(server, "LOCK", path, body.encode(), **fields)


@pytest.mark.parametrize("confined", [False, True])
def test_litmus_passes(serve, site, tmp_path, confined):
    if not shutil.which("litmus"):
        pytest.fail("install the package litmus")
    server = serve(
        'dav = true\nbody_size = "10MiB"', f'seccomp = true\n[server.landlock]\n' if confined else ""
    )
    done = subprocess.run(
        ["litmus", "-k", f"http://127.0.0.1:{server.port}/"],
        capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )
    summaries = re.findall(r"summary for `(\w+)': of (\d+) tests run: (\d+) passed, (\d+) failed", done.stdout)
    assert {name for name, *_ in summaries} == {"basic", "copymove", "props", "locks", "http"}, done.stdout
    assert all(failed == "0" and run == passed for _, run, passed, failed in summaries), done.stdout
    assert "WARNING" not in done.stdout, done.stdout


def test_options_names_the_classes_and_methods(serve):
    server = serve("dav = true")
    code, fields, _ = request(server, "OPTIONS", "/a")
    assert (code, fields["dav"]) == (204, "1, 2")
    assert fields["allow"] == "GET, HEAD, OPTIONS, PROPFIND, PUT, DELETE, MKCOL, COPY, MOVE, PROPPATCH, LOCK, UNLOCK"
    server = serve('dav = { methods = ["PUT"] }')
    code, fields, _ = request(server, "OPTIONS", "/a")
    assert (fields["dav"], fields["allow"]) == ("1", "GET, HEAD, OPTIONS, PROPFIND, PUT")
    code, fields, _ = request(server, "MKCOL", "/a")
    assert (code, fields["allow"]) == (405, "GET, HEAD, OPTIONS, PROPFIND, PUT")
    server = serve('dav = true\nmethods = ["GET", "PROPFIND"]')
    code, fields, _ = request(server, "DELETE", "/a")
    assert (code, fields["allow"]) == (405, "GET, PROPFIND, HEAD")


def test_a_file_is_replaced_when_it_is_complete(serve, site):
    server = serve('dav = true\nbody_size = "8MiB"')
    body = os.urandom(3_000_000)
    assert status(server, "PUT", "/a", body) == 201
    assert server.get("/a")[2] == body
    (site / "a").chmod(0o640)
    connection = server.connect()
    connection.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 600_000)
    wait_until(lambda: len(list(site.iterdir())) == 2, "the new file")
    assert server.get("/a")[2] == body
    assert list(found(request(server, "PROPFIND", "/", Depth="1")[2])) == ["/", "/a"]
    connection.close()
    wait_until(lambda: [path.name for path in site.iterdir()] == ["a"], "the end of the upload")
    assert server.get("/a")[2] == body
    assert status(server, "PUT", "/a", b"new") == 204
    assert server.get("/a")[2] == b"new"
    assert (site / "a").stat().st_mode & 0o777 == 0o640
    assert status(server, "PUT", "/a", b"x", Content_Range="bytes 0-0/3") == 400
    assert status(server, "PUT", "/none/a", b"x") == 409
    assert status(server, "PUT", "/a/", b"x") == 405
    head = b"PUT /big HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\nConnection: close\r\n\r\n"
    assert parse(server.exchange(head))[0] == 413
    assert (site / "a").read_bytes() == b"new"


def test_conditions_protect_from_lost_updates(serve, site):
    server = serve("dav = true")
    write(site / "a", "1")
    time.sleep(0.1)
    tag = server.get("/a")[1]["etag"]
    assert tag.startswith('"')
    assert status(server, "PUT", "/a", b"2", If_Match='"other"') == 412
    assert status(server, "PUT", "/a", b"2", If_None_Match="*") == 412
    assert status(server, "PUT", "/b", b"2", If_Match="*") == 412
    assert found(request(server, "PROPFIND", "/a", Depth="0")[2])["/a"][f"{D}getetag"].text == tag
    assert status(server, "PUT", "/a", b"2", If=f"([{tag}])", If_Match=tag) == 204
    assert status(server, "DELETE", "/a", If=f"([{tag}])") == 412
    assert status(server, "DELETE", "/a", If=f"</b> (Not [{tag}]) (<DAV:no-lock>)") == 204


def test_propfind_depth_is_bounded(serve, site):
    for name in ("d/e/f.txt", "d/g.txt", "h.txt"):
        write(site / name, "text")
    server = serve("dav = true")
    propfind = lambda path, depth, body=b"": request(server, "PROPFIND", path, body, Depth=depth)
    assert list(found(propfind("/", "0")[2])) == ["/"]
    assert list(found(propfind("/", "1")[2])) == ["/", "/d/", "/h.txt"]
    code, fields, body = propfind("/", "infinity")
    assert code == 403 and b"propfind-finite-depth" in body
    assert status(server, "PROPFIND", "/") == 403, "the default of the field is infinity"
    assert propfind("/", "2")[0] == 400
    assert propfind("/none", "0")[0] == 404
    assert propfind("/h.txt", "infinity")[0] == 207
    for bad in (b"<a", b"<a/>", b'<!DOCTYPE a [<!ENTITY b "c">]><propfind xmlns="DAV:"><allprop/></propfind>'):
        assert propfind("/", "0", bad)[0] == 400
    assert propfind("/", "0", b" " * 70_000)[0] == 413
    server = serve("dav = { infinity = true, entries = 4 }")
    resources = found(request(server, "PROPFIND", "/", Depth="infinity")[2])
    assert list(resources) == ["/", "/d/", "/h.txt", "/d/e/"] or resources["/d/"] == 507
    assert [code for code in resources.values() if code == 507], resources


def test_a_large_collection_is_sent_in_parts(serve, site):
    for number in range(3000):
        (site / f"file-{number:04}").touch()
    server = serve("dav = true")
    body = b'<propfind xmlns="DAV:"><prop><getcontentlength/><x xmlns="n"/></prop></propfind>'
    code, fields, body = request(server, "PROPFIND", "/", body, Depth="1")
    assert (code, fields["transfer-encoding"]) == (207, "chunked")
    resources = found(body)
    assert len(resources) == 3001 and resources["/file-2999"][f"{D}getcontentlength"].text == "0"


def test_properties_follow_the_file(serve, site):
    server = serve("dav = true")
    patch = (
        b'<propertyupdate xmlns="DAV:"><set><prop><a xmlns="n" x="1"><b/>\xc3\xa9&lt;</a></prop></set></propertyupdate>'
    )
    assert status(server, "PUT", "/a", b"1") == 201
    code, _, body = request(server, "PROPPATCH", "/a", patch)
    assert code == 207 and found(body)["/a"]
    expected = ElementTree.canonicalize('<a xmlns="n" x="1"><b/>\u00e9&lt;</a>')

    def has(path):
        value = found(request(server, "PROPFIND", path, Depth="0")[2])[path].get("{n}a")
        return value is not None and ElementTree.canonicalize(ElementTree.tostring(value), rewrite_prefixes=True) == (
            ElementTree.canonicalize(expected, rewrite_prefixes=True)
        )

    assert has("/a")
    assert status(server, "PUT", "/a", b"2") == 204 and has("/a")
    assert status(server, "COPY", "/a", Destination="/b") == 201 and has("/b")
    assert status(server, "MOVE", "/a", Destination="http://x.test/c") == 201 and has("/c")
    large = patch.replace(b"<b/>", b"x" * 60_000)
    body = request(server, "PROPPATCH", "/c", large)[2]
    assert b" 507 " in body or b" 200 " in body


def test_methods_are_the_same_over_http2(serve, site):
    server = serve("dav = true")

    def over_http2(client, stream, method, path, *fields, body=b""):
        client.send(http2_request(stream, path, method, *fields, ended=not body))
        if body:
            client.send(frame(DATA, END_STREAM, stream, body))
        while True:
            kind, flags, found, payload = client.read()
            if kind in (DATA, HEADERS) and found == stream and flags & END_STREAM:
                break

    with Client(server) as client:
        over_http2(client, 1, "PUT", "/a", body=b"text")
        over_http2(client, 3, "COPY", "/a", ("destination", "/b"))
        over_http2(client, 5, "MOVE", "/a", ("destination", "/c"))
        over_http2(client, 7, "MKCOL", "/d")
    assert sorted(path.name for path in site.iterdir()) == ["b", "c", "d"]
    assert (site / "c").read_bytes() == b"text"


def test_locks_are_needed_and_end(serve, site):
    server = serve('dav = { locks = 2, lock_timeout = "1s" }')
    code, fields, body = lock(server, "/a", Timeout="Infinite")
    token = fields["lock-token"]
    assert code == 201 and (site / "a").exists() and b"<D:timeout>Second-1</D:timeout>" in body
    code, _, body = request(server, "PUT", "/a", b"1")
    assert code == 423 and b"<D:lock-token-submitted><D:href>/a</D:href>" in body
    assert status(server, "PUT", "/a", b"1", If=f"({token})") == 204
    assert lock(server, "/a", "shared")[0] == 423
    assert lock(server, "/", Depth="infinity")[0] == 423
    assert status(server, "UNLOCK", "/a", Lock_Token="<urn:other>") == 409
    assert lock(server, "/b", Timeout="Second-100")[0] == 201
    assert lock(server, "/c")[0] == 503, "there are two"
    assert not (site / "c").exists()
    time.sleep(1.1)
    assert status(server, "PUT", "/a", b"2") == 204
    assert lock(server, "/c")[0] == 201


def test_a_lock_is_that_of_its_user(serve, site, tmp_path):
    users = tmp_path / "users"
    for name in ("ann", "bob"):
        subprocess.run([DUNLIN, "passwd", users, name], input=f"{name}\n", text=True, check=True, capture_output=True)
    server = serve(f'dav = true\nauth = {{ basic = "{users}" }}')
    of = lambda name: "Basic " + base64.b64encode(f"{name}:{name}".encode()).decode()
    assert lock(server, "/a")[0] == 401
    code, fields, _ = lock(server, "/a", Authorization=of("ann"))
    assert code == 201
    token = fields["lock-token"]
    assert status(server, "PUT", "/a", b"1", If=f"({token})", Authorization=of("bob")) == 423
    assert status(server, "UNLOCK", "/a", Lock_Token=token, Authorization=of("bob")) == 403
    assert status(server, "PUT", "/a", b"1", If=f"({token})", Authorization=of("ann")) == 204


def test_locks_survive_a_reload(serve, site):
    server = serve("dav = true")
    assert lock(server, "/a")[0] == 201
    os.kill(server.pid, signal.SIGHUP)
    server.logged("reloaded")
    assert status(server, "PUT", "/a", b"1") == 423


def test_what_a_route_does_not_permit(serve, site, tmp_path):
    write(site / ".secret", "s")
    write(site / "a.txt", "a")
    write(site / "private" / "p.txt", "p")
    write(site / "d" / "x.txt", "x")
    write(tmp_path / "outside" / "o.txt", "o")
    (site / "out").symlink_to(tmp_path / "outside")
    (site / "file").symlink_to(tmp_path / "outside" / "o.txt")
    server = serve("dav = true", more='[[site.route]]\npath = "/private/*"\nallow = ["192.0.2.1"]')
    assert list(found(request(server, "PROPFIND", "/", Depth="1")[2])) == ["/", "/a.txt", "/d/"]
    for method, path, fields in [
        ("PUT", "/.new", {}),
        ("PUT", "/out/o.txt", {}),
        ("PUT", "/file", {}),
        ("PUT", "/private/n.txt", {}),
        ("MKCOL", "/.d", {}),
        ("COPY", "/a.txt", {"Destination": "/.b"}),
        ("COPY", "/a.txt", {"Destination": "/private/b"}),
        ("MOVE", "/a.txt", {"Destination": "/out/b"}),
        ("MOVE", "/a.txt", {"Destination": "/..%2fb"}),
        ("DELETE", "/private/p.txt", {}),
        ("DELETE", "/", {}),
        ("LOCK", "/.lock", {}),
    ]:
        code = lock(server, path)[0] if method == "LOCK" else status(server, method, path, **fields)
        assert code == 403, (method, path)
    for method, path, fields in [
        ("DELETE", "/.secret", {}),
        ("COPY", "/.secret", {"Destination": "/b"}),
        ("PROPFIND", "/.secret", {"Depth": "0"}),
    ]:
        assert status(server, method, path, **fields) == 404, (method, path)
    assert status(server, "COPY", "/a.txt", Destination="http://other.test/b") == 502
    assert status(server, "COPY", "/a.txt") == 400
    assert status(server, "COPY", "/d", Destination="/d/e") == 403
    assert status(server, "MOVE", "/d/x.txt", Destination="/d") == 409
    assert status(server, "MOVE", "/a.txt", Destination="/d/x.txt", Overwrite="F") == 412
    assert (tmp_path / "outside" / "o.txt").read_text() == "o" and (site / "private" / "p.txt").exists()
    assert status(server, "DELETE", "/file") in (403, 404)


def test_symlinks_are_not_followed(serve, site, tmp_path):
    write(site / "a.txt", "a")
    write(site / "private" / "p.txt", "p")
    write(site / "other" / "o.txt", "o")
    write(site / "d" / "x.txt", "x")
    write(tmp_path / "outside" / "o.txt", "o")
    for path, target in [
        ("link", "private"), ("plain", "other"), ("file", "a.txt"), ("d/link", "../private"), ("d/out", tmp_path / "outside"), ("d/file", "../private/p.txt"),
    ]:
        (site / path).symlink_to(target)
    server = serve("dav = { infinity = true }", more='[[site.route]]\npath = "/private/*"\nallow = ["192.0.2.1"]')
    for depth, wanted in [("1", ["/", "/a.txt", "/d/", "/other/"]), ("infinity", ["/", "/a.txt", "/d/", "/other/", "/d/x.txt", "/other/o.txt"])]:
        assert list(found(request(server, "PROPFIND", "/", Depth=depth)[2])) == wanted
    for path in ("/link/p.txt", "/link/", "/plain/o.txt", "/file", "/d/out/o.txt", "/d/file"):
        for method, fields in [
            ("GET", {}), ("PROPFIND", {"Depth": "0"}), ("PROPPATCH", {}), ("PUT", {}), ("DELETE", {}), ("COPY", {"Destination": "/new"}),
            ("MOVE", {"Destination": "/new"}), ("MKCOL", {}),
        ]:
            if method == "PROPPATCH":
                body = b'<D:propertyupdate xmlns:D="DAV:"><D:set><D:prop><a xmlns="x">1</a></D:prop></D:set></D:propertyupdate>'
                code = request(server, method, path, body, **fields)[0]
            else:
                code = status(server, method, path, **fields)
            assert code in (403, 404, 405), (method, path, code)
        assert lock(server, path)[0] == 403
    for method, to in [("COPY", "/link/n"), ("MOVE", "/link/n"), ("COPY", "/file"), ("COPY", "/d/out/o.txt"), ("MOVE", "/d/file")]:
        assert status(server, method, "/a.txt", Destination=to) == 403, (method, to)
    # A link would lead elsewhere at another place.
    assert status(server, "MOVE", "/d", Destination="/e") == 403
    assert status(server, "COPY", "/d", Destination="/e") == 201 and sorted(os.listdir(site / "e")) == ["x.txt"]
    # Links go with their collection, and nothing that they lead to.
    assert status(server, "DELETE", "/d") == 204 and not (site / "d").exists()
    texts = [site / "a.txt", site / "private" / "p.txt", site / "other" / "o.txt", tmp_path / "outside" / "o.txt"]
    assert [path.read_text() for path in texts] == ["a", "p", "o", "o"]
    assert not (site / "new").exists() and (site / "file").is_symlink()


def test_members_of_routes_with_conditions_stay(serve, site):
    for name in ("d/a.txt", "d/secret/s.txt"):
        write(site / name, "text")
    server = serve(
        "dav = true",
        more='[[site.route]]\npath = "/d/secret/*"\nwhen = { header = { X-Never = true } }\nallow = ["192.0.2.1"]\n'
        '[[site.route]]\npath = "/*"\nwhen = { header = { X-Note = true } }\nset_fields = { X-Noted = "1" }',
    )
    # The condition of the route does not hold for this request, but it might for one for the member.
    assert list(found(request(server, "PROPFIND", "/d/", Depth="1")[2])) == ["/d/", "/d/a.txt"]
    assert status(server, "COPY", "/d", Destination="/e") == 201 and os.listdir(site / "e") == ["a.txt"]
    assert status(server, "COPY", "/d/a.txt", Destination="/d/secret/n") == 403
    assert status(server, "MOVE", "/d", Destination="/f") == 403
    code, _, body = request(server, "DELETE", "/d")
    assert code == 207 and found(body) == {"/d/secret": 403} and (site / "d" / "secret" / "s.txt").exists()
    # Conditions that the pattern of the request shares with the member are decided.
    assert status(server, "PUT", "/n.txt", b"n", X_Note="1") == 201


def test_members_of_other_routes_stay(serve, site):
    for name in ("d/a", "d/private/p", "d/.hidden"):
        write(site / name, "text")
    server = serve("dav = true", more='[[site.route]]\npath = "/d/private/*"\nallow = ["192.0.2.1"]')
    assert status(server, "MOVE", "/d", Destination="/e") == 403
    assert status(server, "COPY", "/d", Destination="/e") == 201
    assert sorted(str(path.relative_to(site)) for path in (site / "e").rglob("*")) == ["e/a"]
    code, _, body = request(server, "DELETE", "/d")
    assert code == 207 and found(body) == {"/d/.hidden": 403, "/d/private": 403}
    assert (site / "d" / "private" / "p").exists() and not (site / "d" / "a").exists()


def test_programs_are_not_written(serve, site):
    write(site / "a.php", "<?php secret")
    write(site / "a.txt", "text")
    more = f'[[site.route]]\npath = "*.php"\nscript = {{ kind = "fastcgi", connect = "127.0.0.1:1", root = "{site}" }}'
    server = serve("dav = true", more=more)
    for method, path, to in [("COPY", "/a.txt", "/b.php"), ("MOVE", "/a.txt", "/b.php"), ("PUT", "/b.php", None)]:
        assert status(server, method, path, **({"Destination": to} if to else {})) in (403, 404), path
    assert not (site / "b.php").exists()
    assert status(server, "COPY", "/", Destination="/d") == 403
    assert status(server, "MKCOL", "/d") == 201
    assert list(found(request(server, "PROPFIND", "/", Depth="1")[2])) == ["/", "/a.txt", "/d/"]


@only_root
def test_a_directory_that_the_user_may_not_write_gets_403(serve, site, reachable):
    site.chmod(0o755)
    server = serve("dav = true", preexec=ordinary)
    assert status(server, "PUT", "/a", b"1") == 403


def check(tmp_path, route, root="."):
    file = tmp_path / "check.toml"
    file.write_text(f'[[listen]]\naddress = ":1"\n[[site]]\nroot = "{root}"\n[[site.route]]\npath = "/*"\n{route}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True, cwd=tmp_path)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "route, message",
    [
        ("dav = 1", "dav"),
        ('dav = { methods = ["GET"] }', 'dav: "GET" is not one of the methods PUT, DELETE'),
        ('dav = { methods = ["LOCK"] }', "dav: LOCK needs UNLOCK"),
        ("dav = { locks = 0 }", "dav: locks is 0; for none, write `methods` without LOCK and UNLOCK"),
        ("dav = { entries = 0 }", "dav: entries is 0"),
        ('dav = { lock_timeout = "0s" }', "dav: lock_timeout is less than a second"),
        ('dav = true\nproxy = "http://127.0.0.1:1"', "dav: it is for files, and the route has `proxy`"),
        ('dav = true\nsymlinks = "follow"', "symlinks: a route with `dav` follows none"),
    ],
)
def test_errors_name_their_place(tmp_path, route, message):
    output = check(tmp_path, route)
    assert message in output and re.search("check.toml:[678]:", output), output


def test_check_warns_of_files_that_every_client_can_change(tmp_path):
    assert "dav: every client of 0.0.0.0:1 can change the files" in check(tmp_path, "dav = true")
    assert "every client" not in check(tmp_path, 'dav = true\nallow = ["127.0.0.1"]')


def test_explain_describes_it(tmp_path):
    file = tmp_path / "explain.toml"
    file.write_text('[[listen]]\naddress = "127.0.0.1:1"\n[[site]]\nroot = "."\ndav = { methods = ["PUT"], infinity = true }\n')
    command = [DUNLIN, "check", "-c", file, "--explain", "http://x/a"]
    output = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    assert "GET, HEAD, OPTIONS, PROPFIND, PUT, infinity" in output, output
