"""`any`: conditions of access of which one must hold, as with nginx's `satisfy any`."""

import subprocess

import pytest

from support.files import lines, write
from support.server import DUNLIN
from support.upstream import Upstream, response
from test_auth import basic, passwd

pytestmark = pytest.mark.usefixtures("orderly_stop")

NOWHERE = 'allow = ["192.0.2.0/24"]'
HERE = 'allow = ["127.0.0.0/8"]'


@pytest.fixture
def users(tmp_path):
    file = tmp_path / "users"
    assert passwd(file, "ann", "a").returncode == 0
    return file


def test_one_condition_is_enough(serve, site, users, tmp_path):
    write(site / "x.txt", "x")
    auth = f'auth = {{ basic = "{users}" }}'
    log = tmp_path / "access.log"
    server = serve(
        server=f'access_log = {{ path = "{log}", format = "{{path}} {{user}} {{status}}" }}',
        route=f"any = [{{ {HERE} }}, {{ {auth} }}]",
        more=f"""
        [[site.route]]
        path = "/away/*"
        root = "{site.parent}"
        any = [{{ {NOWHERE} }}, {{ {auth} }}]
        [[site.route]]
        path = "/both/*"
        any = [{{ {NOWHERE}, {auth} }}]
        [[site.route]]
        path = "/none/*"
        any = [{{ {NOWHERE} }}, {{ deny = ["127.0.0.1"] }}]
        [[site.route]]
        path = "/ended/*"
        any = []
        """,
    )
    # From the second time on, files and verifications come from caches.
    for _ in range(3):
        assert server.get("/x.txt")[0] == 200
        status, fields, _ = server.get("/away/x")
        assert status == 401 and fields["www-authenticate"].startswith("Basic ")
        assert server.get("/away/x", basic("ann", "wrong"))[0] == 401
        assert server.get("/away/x", basic("ann", "a"))[0] == 404
        # All conditions of one entry must hold.
        assert server.get("/both/x", basic("ann", "a"))[0] == 403
        assert server.get("/none/x")[0] == 403 and server.get("/ended/x")[0] == 404
    server.stop()
    assert "/away/x ann 404" in lines(log) and "/x.txt - 200" in lines(log)


def test_conditions_of_the_route_must_hold_besides(serve, site, users):
    write(site / "x.txt", "x")
    server = serve(
        route=f'auth = {{ basic = "{users}" }}\nany = [{{ {HERE} }}, {{ {NOWHERE} }}]',
        more=f'[[site.route]]\npath = "/denied/*"\ndeny = ["127.0.0.1"]\nany = [{{ {HERE} }}]',
    )
    assert server.get("/x.txt")[0] == 401 and server.get("/x.txt", basic("ann", "a"))[0] == 200
    assert server.get("/denied/x", basic("ann", "a"))[0] == 403


def test_conditions_are_tried_in_turn_until_one_holds(serve, site, users):
    write(site / "x.txt", "x")
    answers = {"/ok": response(b"", "204 No Content", "X-User: eve", length=False), "/login": response(b"", "302 Found", "Location: /in"),
               "/no": response(b"own page", "403 Forbidden"), "/broken": response(b"", "500 Oops")}
    upstream = Upstream(lambda _, __, request: answers[request.target])
    auth = f'{{ auth = {{ basic = "{users}" }} }}'

    def forward(path):
        return f'{{ auth = {{ forward = "{upstream.url}{path}", user_field = "X-User" }} }}'

    server = serve(
        more="".join(
            f'[[site.route]]\npath = "/{name}/*"\nroot = "{site.parent}"\nany = [{", ".join(entries)}]\n'
            for name, entries in {
                "ok": [forward("/no"), forward("/broken"), forward("/ok")],
                "login": [forward("/no"), forward("/login"), auth],
                "page": [f"{{ {NOWHERE} }}", forward("/no")],
                "challenge": [forward("/no"), auth],
                "users": [forward("/login"), auth],
            }.items()
        )
    )
    assert server.get("/ok/x")[0] == 404
    assert [request.target for request in upstream.requests] == ["/no", "/broken", "/ok"]
    assert server.get("/login/x")[0] == 302 and server.get("/challenge/x")[0] == 401
    assert server.get("/page/x")[::2] == (403, b"own page")
    assert server.get("/users/x", basic("ann", "a"))[0] == 404


@pytest.mark.parametrize(
    "entry, what",
    [
        ("{}", "any: the table has no condition; write `allow`, `deny` or `auth`"),
        ('{ allow = ["x"] }', 'any: allow: "x" is not'),
        ("{ auth = false }", "any: `auth = false` is no condition"),
        ('{ auth = { basic = "u", forward = "/x" } }', "any: auth: either `basic` or `forward` decides"),
        ('{ methods = ["GET"] }', "there is no key `methods`"),
        ("7", "a table such as"),
    ],
)
def test_errors_name_the_place(tmp_path, entry, what):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\nany = [{{ allow = ["::1"] }}, {entry}]\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert done.returncode == 1 and "dunlin.toml:5:" in done.stderr and what in done.stderr, done.stderr


def test_it_is_explained(tmp_path, users):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\nany = [{{ auth = {{ basic = "users" }} }}, {{ {HERE} }}]\n')
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", "/"], capture_output=True, text=True)
    assert f": allow 127.0.0.0/8; or basic, users of {users}" in done.stdout, done.stdout + done.stderr
