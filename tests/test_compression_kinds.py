"""`compress` means the same on every kind of route, and `dunlin check --explain` shows it."""

import gzip
import re
import subprocess

import pytest

from support.components import STATE, has_target, program
from support.files import write
from support.kinds import KINDS, Programs
from support.objects import counting_store  # noqa: F401
from support.server import DUNLIN
from support.upstream import Upstream, response

pytestmark = pytest.mark.usefixtures("orderly_stop")

LONG = b"hello " * 1000
FIXED = f'respond = {{ body = "{LONG.decode()}" }}'
COMPONENT = 'fn main() { print!("Content-Type: text/plain\\n\\n{}", "hello ".repeat(1000)); }'
# By setting: what a client that accepts all codings gets, and one that accepts gzip.
SETTINGS = {"": ("zstd", "gzip"), 'compress = ["gzip"]': ("gzip", "gzip"), "compress = false": (None, None)}


def assert_compressed(serve, route, path, server="", more="", body=LONG):
    """Checks responses with each setting; `route(setting)` is the text of the route."""
    for setting, (best, of_gzip) in SETTINGS.items():
        running = serve(server=server, more=route(setting) + more)
        for accepted, expected in (("gzip, br, zstd", best), ("gzip", of_gzip), ("identity", None)):
            status, fields, content = running.get(path, f"Accept-Encoding: {accepted}")
            assert (status, fields.get("content-encoding")) == (200, expected), (setting, accepted)
            assert ("vary" in fields) == (best is not None), (setting, fields)
            if body and expected in (None, "gzip"):
                assert (gzip.decompress(content) if expected else content) == body
        head = running.get(path, "Accept-Encoding: gzip", method="HEAD")
        assert head[0] != 200 or head[1].get("content-encoding") == of_gzip, setting
        assert_explained(running, path, best)


def assert_explained(running, path, best):
    file = running.process.args[running.process.args.index("--config") + 1]
    done = subprocess.run([DUNLIN, "check", "--config", file, "--explain", path], capture_output=True, text=True, check=True)
    line = re.search(r"^coding    (.*)$", done.stdout, re.M)[1]
    assert line.startswith(best or "none: `compress` is false"), done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_scripts(serve, tmp_path, kind):
    programs = Programs(tmp_path / "programs")
    assert_compressed(serve, lambda setting: programs.route(kind, route=setting), f"{programs.path(kind)}?long")


@pytest.mark.skipif(not has_target(), reason="rustup target add wasm32-wasip2")
def test_components(serve, tmp_path):
    file = program(tmp_path / "long.wasm", COMPONENT)
    route = lambda setting: f'[[site.route]]\npath = "/app/*"\n{setting}\nscript = {{ kind = "component", file = "{file}" }}\n'
    assert_compressed(serve, route, "/app/", server=f'state = "{STATE}"')


def test_proxies(serve):
    fields = ["Content-Type: text/plain", f"Content-Length: {len(LONG)}"]
    upstream = Upstream(lambda _, __, request: response(b"" if request.method == "HEAD" else LONG, "200 OK", *fields, length=False))
    route = lambda setting: f'[[site.route]]\npath = "/*"\n{setting}\nproxy = "{upstream.url}"\n'
    assert_compressed(serve, route, "/")


@pytest.mark.parametrize("rules", [FIXED, FIXED.replace("body", "template"), "status = true"], ids=["body", "template", "status"])
def test_responses_of_the_server(serve, rules):
    body = None if rules == "status = true" else LONG
    assert_compressed(serve, lambda setting: f'[[site.route]]\npath = "/r/*"\n{setting}\n{rules}\n', "/r/", body=body)


def test_files(serve, site):
    write(site / "long.txt", LONG.decode())
    assert_compressed(serve, lambda setting: f'[[site.route]]\npath = "/*"\nprecompressed = false\n{setting}\n', "/long.txt")


def test_changed_bodies_of_files(serve, site):
    write(site / "changed.html", LONG.decode().replace("hello", "goodbye"))
    rules = 'precompressed = false\nsubstitute = [{ from = "goodbye", to = "hello" }]'
    assert_compressed(serve, lambda setting: f'[[site.route]]\npath = "/*"\n{setting}\n{rules}\n', "/changed.html")


def test_object_stores(serve, counting_store):  # noqa: F811
    counting_store.objects["long.txt"] = LONG
    table, root = counting_store.table(""), "s3://bucket"
    for setting, (best, _) in SETTINGS.items():
        text = f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n{table}\n[[site]]\nroot = "{root}"\n{setting}\n'
        running = serve(text=text)
        fields = {}
        for _ in range(3):
            fields = running.get("/long.txt", "Accept-Encoding: gzip, br, zstd")[1]
        assert fields.get("content-encoding") == best, setting


def test_listings(serve, site):
    for number in range(100):
        write(site / "many" / f"file-{number}.txt", "x")
    for setting, (best, of_gzip) in SETTINGS.items():
        running = serve(more=f'[[site.route]]\npath = "/many/*"\nlisting = true\n{setting}\n')
        for accepted, expected in (("gzip, br, zstd", best), ("gzip", of_gzip)):
            assert running.get("/many/", f"Accept-Encoding: {accepted}")[1].get("content-encoding") == expected
