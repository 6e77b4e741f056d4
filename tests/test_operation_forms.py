"""The operation of scripting/component in each of its forms: every one gives the same response."""

import json
import subprocess

import pytest

from support.components import EXAMPLES, STATE, has_target, program, typed
from support.http import post
from support.server import ROOT

pytestmark = pytest.mark.usefixtures("orderly_stop")
needs_target = pytest.mark.skipif(not has_target(), reason="rustup target add wasm32-wasip2")

SOURCES = ROOT / "scripting" / "component"
# What a form encodes, and what it means.
PAYLOADS = {
    "payload=" + "a" * 534: "a" * 534,
    "payload=a+b%20c%22%5C%0A%C3%A4&other=1": "a b c\"\\\nä",
    "other=1&payload=%zz%4": "%zz%4",
    "": "",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("operation")
    for form in ("cgi", "cgiplus", "fastcgi"):
        (folder / form).mkdir()
        options = ["-O", "--edition", "2024", "-D", "warnings", "-o", folder / form / "operation"]
        subprocess.run(["rustc", *options, SOURCES / f"{form}.rs"], check=True, timeout=120)
    return folder


@pytest.mark.parametrize("kind", ["cgi", "warm", "cgiplus", "fastcgi", pytest.param("component", marks=needs_target)])
def test_the_operation_gives_the_same_response_in_every_form(serve, programs, kind):
    where = {
        "cgi": f'directory = "{programs}/cgi"',
        "warm": f'directory = "{programs}/cgi"',
        "cgiplus": f'directory = "{programs}/cgiplus", processes = 1',
        "fastcgi": f'command = ["{programs}/fastcgi/operation"], processes = 1',
        "component": f'file = "{programs}/operation.wasm"',
    }[kind]
    if kind == "component":
        program(programs / "operation.wasm", EXAMPLES / "cgi.rs")
    server = serve(server=f'state = "{STATE}"', route=f'script = {{ kind = "{kind}", {where} }}')
    for _ in range(2):
        for body, payload in PAYLOADS.items():
            status, fields, reply = post(server, "/operation", body.encode())
            assert (status, fields["content-type"]) == (200, "application/json")
            reply = json.loads(reply)
            assert sorted(reply) == ["payload", "start", "stop"] and reply["payload"] == payload
            assert 0 <= reply["stop"] - reply["start"] < 10_000_000


@needs_target
def test_the_operation_builds_as_a_component(tmp_path):
    """The CGI program without a change, and with typed calls."""
    options = ["-O", "--edition", "2024", "--target", "wasm32-wasip2", "-o", tmp_path / "cgi.wasm"]
    subprocess.run(["rustc", *options, SOURCES / "cgi.rs"], check=True, timeout=120)
    for component, export in ((tmp_path / "cgi.wasm", b"wasi:cli/run@0.2"), (typed(), b"example:report/echo")):
        content = component.read_bytes()
        # The header of a component, not of a module.
        assert content[:8] == b"\0asm\x0d\0\x01\0" and export in content
