"""Fields of the endpoint of forward authentication for handlers and clients: `copy_to_request`, `copy_to_response`."""

import subprocess

import pytest

from support.files import write
from support.http2 import Client, request
from support.server import DUNLIN
from support.upstream import Upstream, response

pytestmark = pytest.mark.usefixtures("orderly_stop")

COPIED = 'copy_to_request = ["Remote-User", "X-Groups", "X-Mail"]'


@pytest.fixture
def endpoint():
    """Allows requests whose cookie is not `no`, with fields."""

    def answer(_, __, asked):
        if asked.fields.get("cookie") == "no":
            return response(b"denied", "403 Forbidden", "X-Groups: denied", "Set-Cookie: c=denied")
        return response(
            b"", "200 OK", "Remote-User: ann", "X-Groups: staff", "X-Groups: admin", "X-Other: o", "Set-Cookie: a=1", "Set-Cookie: b=2",
            "X-Session: new",
        )

    return Upstream(answer)


def spoofed(name):
    return [f"{name}: evil", f"{name.replace('-', '_')}: evil", f"{name.replace('-', '.')}: evil", f"{name.lower()}: evil"]


def test_upstreams_get_the_fields_of_the_endpoint_and_none_of_the_client(serve, endpoint):
    upstream = Upstream()
    server = serve(
        route=f'proxy = "{upstream.url}"',
        more=f'[[site.route]]\npath = "/in/*"\nauth = {{ forward = "{endpoint.url}", {COPIED} }}',
    )
    fields = [line for name in ("Remote-User", "X-Groups", "X-Mail", "X-Free") for line in spoofed(name)]
    assert server.get("/in/x", *fields)[0] == 200
    got = upstream.requests[-1]
    assert got.fields["remote-user"] == "ann" and got.fields["x-groups"] == "staff, admin"
    assert "x-free" in got.fields and "x-mail" not in got.fields and "x-other" not in got.fields
    assert "evil" not in " ".join(value for name, value in got.fields.items() if "free" not in name)
    # A client cannot set them on other routes either.
    assert server.get("/out", *fields)[0] == 200
    got = upstream.requests[-1]
    assert "evil" not in " ".join(value for name, value in got.fields.items() if "free" not in name)
    # A trailer field would be merged by some.
    client = Client(server)
    client.send(request(1, "/in/y", "GET", ("x-groups", "evil"), ("x_groups", "evil")))
    client.body(1)
    assert upstream.requests[-1].fields["x-groups"] == "staff, admin" and b"evil" not in upstream.requests[-1].head


def test_scripts_get_them_as_variables(cgi, endpoint):
    server = cgi(
        {"env": 'printf "Content-Type: text/plain\\n\\n"; env | sort'},
        route=f'auth = {{ forward = "{endpoint.url}", {COPIED} }}',
    )
    for _ in range(3):
        body = server.get("/cgi-bin/env", *spoofed("X-Groups"), *spoofed("X-Mail"))[2].decode()
        assert "HTTP_X_GROUPS=staff, admin\n" in body and "REMOTE_USER=ann\n" in body
        assert "evil" not in body and "HTTP_X_MAIL" not in body and "HTTP_REMOTE_USER" not in body


def test_applications_get_them(serve, endpoint, tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    write(
        folder / "app.py",
        "def app(environ, start):\n"
        "    start('200 OK', [('Content-Type', 'text/plain')])\n"
        "    return [repr({k: v for k, v in environ.items() if 'GROUPS' in k or 'MAIL' in k}).encode()]\n",
    )
    server = serve(
        route=f'auth = {{ forward = "{endpoint.url}", {COPIED} }}\n'
        f'script = {{ kind = "wsgi", application = "app:app", directory = "{folder}" }}'
    )
    assert server.get("/x", *spoofed("X-Groups"), *spoofed("X-Mail"))[2] == b"{'HTTP_X_GROUPS': 'staff, admin'}"


def test_the_client_gets_fields_of_an_endpoint_that_allows(serve, site, endpoint):
    write(site / "x.txt", "x")
    upstream = Upstream(lambda *_: response(b"u", "200 OK", "Set-Cookie: own=1", "X-Session: old", "X-Session: older"))
    copied = 'copy_to_response = ["Set-Cookie", "X-Session", "X-Missing"]'
    server = serve(
        route=f'auth = {{ forward = "{endpoint.url}", {copied} }}',
        more=f'[[site.route]]\npath = "/up"\nproxy = "{upstream.url}"',
    )
    for path, cookies in [("/x.txt", ["a=1", "b=2"]), ("/up", ["own=1", "a=1", "b=2"]), ("/missing", ["a=1", "b=2"])]:
        for _ in range(2):
            head = server.exchange(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()).partition(b"\r\n\r\n")[0].decode()
            lines = head.split("\r\n")
            assert [line for line in lines if line.startswith("Set-Cookie: ")] == [f"Set-Cookie: {one}" for one in cookies], path
            assert [line for line in lines if line.startswith("X-Session")] == ["X-Session: new"] and "X-Other" not in head
    # The endpoint decides on the index of a directory, too.
    write(site / "index.html", "index")
    head = server.exchange(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").partition(b"\r\n\r\n")[0]
    assert head.count(b"Set-Cookie: ") == 2 and head.count(b"X-Session: ") == 1
    # A rejection is the endpoint's own response.
    status, fields, body = server.get("/x.txt", "Cookie: no")
    assert (status, fields["set-cookie"], body) == (403, "c=denied", b"denied")


def test_responses_for_one_user_are_not_cached_for_others(serve):
    endpoint = Upstream(lambda _, __, asked: response(b"", "200 OK", f"X-Groups: {asked.fields['cookie']}"))
    upstream = Upstream(lambda _, __, asked: response(asked.fields["x-groups"].encode(), "200 OK", "Cache-Control: max-age=60"))
    server = serve(
        route=f'auth = {{ forward = "{endpoint.url}", copy_to_request = ["X-Groups"] }}\nproxy = "{upstream.url}"\ncache = {{ responses = true }}'
    )
    assert [server.get("/x", f"Cookie: {name}")[2] for name in ("a", "b", "a")] == [b"a", b"b", b"a"]


def test_a_cache_selects_by_the_fields_of_the_endpoint(serve):
    endpoint = Upstream(lambda _, __, asked: response(b"", "200 OK", f"X-Groups: {asked.fields['cookie']}"))
    shared = ["Cache-Control: public, max-age=60", "Vary: X-Groups"]
    upstream = Upstream(lambda _, __, asked: response(asked.fields["x-groups"].encode(), "200 OK", *shared))
    server = serve(
        route=f'auth = {{ forward = "{endpoint.url}", copy_to_request = ["X-Groups"] }}\nproxy = "{upstream.url}"\ncache = {{ responses = true }}'
    )
    bodies = [server.get("/x", f"Cookie: {name}", "X-Groups: b")[2] for name in ("a", "b", "a", "b")]
    assert bodies == [b"a", b"b", b"a", b"b"] and len(upstream.requests) == 2


@pytest.mark.parametrize(
    "keys, what",
    [
        ('copy_to_request = ["Cookie"]', "copy_to_request: Cookie has another meaning"),
        ('copy_to_request = ["Authorization"]', "copy_to_request: Authorization has another meaning"),
        ('copy_to_request = ["X_User"]', 'copy_to_request: "X_User" is not a field name'),
        ('copy_to_request = ["X-Forwarded-For"]', "copy_to_request: X-Forwarded-For has another meaning"),
        ('copy_to_request = ["Remote-User"], user_field = "X-User"', "copy_to_request: Remote-User has the user"),
        ('copy_to_response = ["Content-Length"]', "copy_to_response: Content-Length is the server's to send"),
    ],
)
def test_errors_name_the_place(tmp_path, keys, what):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\nauth = {{ forward = "/x", {keys} }}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert done.returncode == 1 and "dunlin.toml:5:" in done.stderr and what in done.stderr, done.stderr


def test_they_are_explained(tmp_path):
    file = tmp_path / "dunlin.toml"
    keys = 'copy_to_request = ["X-A"], copy_to_response = ["Set-Cookie"]'
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\nauth = {{ forward = "/x", {keys} }}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", "/"], capture_output=True, text=True)
    assert "; to the request X-A; to the response Set-Cookie" in done.stdout, done.stdout
    file.write_text(file.read_text().replace('forward = "/x"', 'basic = "users"'))
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert "copy_to_request does nothing without `forward`" in done.stderr
