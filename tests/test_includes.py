"""A configuration in several files, and values that stand elsewhere."""

import os
import subprocess

import pytest

from support.files import write
from support.server import DUNLIN

pytestmark = pytest.mark.usefixtures("orderly_stop")

LISTEN = '[[listen]]\naddress = "127.0.0.1:0"\n'


def check(file, *arguments, **environment):
    command = [DUNLIN, "check", "--config", str(file), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    return run.returncode, run.stdout + run.stderr


def site(host, text):
    return f'[[site]]\nhost = "{host}"\nrespond = {{ body = "{text}" }}\n'


def test_included_files_add_their_tables(serve, tmp_path):
    write(tmp_path / "conf.d" / "b.toml", site("b.test", "b"))
    write(tmp_path / "conf.d" / "a.toml", 'include = "../more/*.toml"\n' + site("a.test", "a"))
    write(tmp_path / "more" / "c.toml", site("c.test", "c"))
    write(tmp_path / "conf.d" / ".hidden.toml", "broken")
    write(tmp_path / "server.toml", "[server]\nthreads = 1\n")
    text = 'include = ["conf.d/*.toml", "server.toml", "none/*.toml"]\n' + LISTEN
    server = serve(text=text)
    fetch = lambda host: server.exchange(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert [fetch(f"{name}.test")[-1:] for name in "abc"] == [b"a", b"b", b"c"]
    # A reload reads all of them again.
    write(tmp_path / "more" / "c.toml", site("c.test", "d"))
    server.process.send_signal(1)
    server.logged("reloaded")
    assert fetch("c.test")[-1:] == b"d"


@pytest.mark.parametrize(
    "files, place, what",
    [
        ({"a.toml": "[[site]]\nroute = 1"}, "a.toml:2:", "route: expected a list"),
        ({"a.toml": "[[site]\n"}, "a.toml:1:", ""),
        ({"a.toml": "[server]\n\nthreads = 2"}, "a.toml:3:", "the key `threads` is in another file, too"),
        ({"a.toml": 'include = "dunlin.toml"'}, "a.toml:1:", "includes itself"),
        ({"a.toml": 'include = "b.toml"'}, "a.toml:1:", "there is no file"),
        ({"a.toml": 'include = "b.toml"', "b.toml": 'include = "a.toml"'}, "b.toml:1:", "includes itself"),
        ({"a.toml": site("x", "1"), "b.toml": ""}, "dunlin.toml:1:", "there is no file"),
        ({"a.toml": '[[site]]\nroot = "/srv"\n[[site.route]]\npath = "/a"\nlisting = "x"'}, "a.toml:5:", "listing"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, files, place, what):
    for name, text in files.items():
        write(tmp_path / name, text)
    wanted = '["a.toml", "missing.toml"]' if "b.toml" in files and "include" not in files["a.toml"] else '"a.toml"'
    main = write_main(tmp_path, f"include = {wanted}\n[server]\nthreads = 1\n{LISTEN}")
    status, output = check(main)
    assert status == 1 and place in output and what in output, output
    assert len([line for line in output.splitlines() if line.startswith("/")]) <= 2, output


def write_main(tmp_path, text):
    write(tmp_path / "dunlin.toml", text)
    return tmp_path / "dunlin.toml"


def test_values_stand_in_the_environment_and_in_files(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("WORD", "from-the-environment")
    write(tmp_path / "secret.txt", "from-a-file\n")
    route = 'set_fields = { X-A = "{env.WORD}", X-B = "<{file.secret.txt}>" }'
    server = serve(text=f'[server]\nadmin = "admin.sock"\n{LISTEN}[[site]]\nroot = "."\n{route}\n')
    fields = server.get("/secret.txt")[1]
    assert (fields["x-a"], fields["x-b"]) == ("from-the-environment", "<from-a-file>")
    # The file is never sent, and neither value is shown.
    assert server.get("/secret.txt")[0] == 404
    shown = subprocess.run(
        ["curl", "-s", "--unix-socket", tmp_path / "admin.sock", "http://a/config"], capture_output=True, text=True
    ).stdout
    assert "{env.WORD}" in shown or "hidden-" in shown
    status, output = check(tmp_path / "dunlin-0.toml", "--explain", "http://x/a", WORD="from-the-environment")
    for text in (shown, output, server.log):
        assert "from-the-environment" not in text and "from-a-file" not in text, text


def test_a_value_that_is_not_there_is_an_error(tmp_path):
    main = write_main(tmp_path, f'{LISTEN}[[site]]\nroot = "{{env.NO_SUCH_VARIABLE}}"\n')
    status, output = check(main)
    assert status == 1 and "dunlin.toml:4:" in output and "NO_SUCH_VARIABLE is not set" in output
    main = write_main(tmp_path, f'{LISTEN}[[site]]\nroot = "{{file.none}}"\n')
    status, output = check(main)
    assert status == 1 and "none" in output and "No such file" in output


def test_no_error_shows_a_value(tmp_path):
    main = write_main(tmp_path, f'{LISTEN}[[site]]\nproxy = "{{env.UPSTREAM}}"\n')
    status, output = check(main, UPSTREAM="s3cr3t-and-no-url")
    assert status == 1 and "s3cr3t" not in output and "{env.UPSTREAM}" in output, output


def test_a_reload_keeps_sites_of_other_files(serve, tmp_path):
    write(tmp_path / "a.toml", site("a.test", "a"))
    write(tmp_path / "b.toml", site("b.test", "b"))
    server = serve(text=f'include = ["a.toml", "b.toml"]\n[server]\nadmin = "admin.sock"\n{LISTEN}')
    write(tmp_path / "b.toml", site("b.test", "c"))
    status, output = check(tmp_path / "dunlin-0.toml", "--diff")
    assert "b.test is reloaded" in output and "a.test" not in output, output


def test_quoted_forms_of_values_and_targets_are_not_shown(tmp_path):
    write(tmp_path / "bad.txt", 'pa"ss\\word9\n')
    main = write_main(tmp_path, f'{LISTEN}[[site]]\nroot = "."\n[[site.route]]\npath = "/a"\nwhen = {{ scheme = "{{file.bad.txt}}" }}\n')
    status, output = check(main)
    assert status == 1 and "word9" not in output and "{file.bad.txt}" in output, output
    write(tmp_path / "key.txt", "hunter2secret\n")
    main = write_main(tmp_path, f'{LISTEN}[[site]]\nredirect = "/x?k={{file.key.txt}}"\n')
    status, output = check(main, "--explain", "http://x/r")
    assert "hunter2secret" not in output and "302" in output, output
