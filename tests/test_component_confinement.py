"""Components within a server that has dropped its privileges."""

import os
import shutil

import pytest

from support.components import EXAMPLES, built, has_target, program
from support.confinement import begin, place  # noqa: F401
from support.http import post
from support.users import only_root
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(not has_target(), reason="rustup target add wasm32-wasip2")


def configuration(place, confined, more=""):
    (place / "site").mkdir(exist_ok=True)
    (place / "app").mkdir(exist_ok=True)
    (place / "data").mkdir(exist_ok=True)
    (place / "data" / "a").write_text("content")
    if not (place / "app" / "web.wasm").exists():
        shutil.copy(built("web"), place / "app" / "web.wasm")
        program(place / "app" / "cgi.wasm", EXAMPLES / "cgi.rs")
    file = place / "dunlin.toml"
    file.write_text(f"""
[server]
threads = 1
state = "{place}/state"
{confined}
[[listen]]
address = "127.0.0.1:0"
[[site]]
root = "{place}/site"
[[site.route]]
path = "/web/*"
script = {{ kind = "component", file = "{place}/app/web.wasm", files = [{{ path = "{place}/data", as = "/data" }}] }}
[[site.route]]
path = "/cgi/*"
script = {{ kind = "component", file = "{place}/app/cgi.wasm" }}
{more}
""")
    return file


CONFINED = 'no_new_privs = true\nseccomp = true\n[server.landlock]\n'
CGI = '[[site.route]]\npath = "/bin/*"\nscript = { kind = "cgi", directory = "PLACE/site" }\n'


@pytest.mark.parametrize("user", ["", pytest.param('user = "nobody"\n', marks=only_root)])
@pytest.mark.parametrize("more", ["", CGI], ids=["alone", "beside scripts"])
def test_a_confined_server_compiles_loads_and_runs_components(begin, place, user, more):  # noqa: F811
    file = configuration(place, user + CONFINED, more.replace("PLACE", str(place)))
    server = begin(file)
    assert server.get("/web/hello")[2] == b"Hello\n"
    assert server.get("/web/file?/data/a")[2] == b"content"
    assert server.get("/web/file?/etc/passwd")[2].startswith(b"error")
    assert b'"payload":"a"' in post(server, "/cgi/x", b"payload=a")[2]
    assert server.get("/web/trap")[0] == 502
    fields = dict(line.split(":\t", 1) for line in open(f"/proc/{server.pid}/status") if ":\t" in line)
    assert fields["Seccomp"].strip() == "2" and fields["NoNewPrivs"].strip() == "1"
    # A changed component is compiled by a process that the confined server starts.
    before = set(os.listdir(place / "state" / "components"))
    shutil.copy(built("service"), place / "app" / "next")
    (place / "app" / "next").rename(place / "app" / "web.wasm")
    wait_until(lambda: server.get("/web/error")[0] == 502, "the other component", 60)
    assert server.get("/web/hello")[2] == b"Hello\n"
    assert len(set(os.listdir(place / "state" / "components")) - before) == 2
    assert server.stop() == 0
