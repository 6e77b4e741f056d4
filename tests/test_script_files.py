"""Script lookup: one program for a prefix, scripts by extension, index programs, and log messages
about scripts that cannot run."""

import json
import os
import subprocess

import pytest

from support.files import write
from support.scripts import script
from support.server import DUNLIN

pytestmark = pytest.mark.usefixtures("orderly_stop")

ENVIRONMENT = """#!/bin/sh
printf 'Content-Type: text/plain\\n\\n%s|%s|%s' "$SCRIPT_NAME" "$PATH_INFO" "$SCRIPT_FILENAME"
"""


@pytest.fixture(params=["cgi", "warm"])
def kind(request):
    return request.param


def route(path, settings):
    return f'[[site.route]]\npath = "{path}"\n{settings}\n'


def test_one_program_serves_a_prefix(serve, tmp_path, kind):
    program = script(tmp_path / "lib", "backend", ENVIRONMENT)
    link = tmp_path / "link"
    link.symlink_to(program)
    server = serve(
        more=route("/git/*", f'script = {{ kind = "{kind}", file = "{program}" }}')
        + route("/git/*/receive", 'set_fields = { X-Inner = "1" }')
        + route("/link/*", f'script = {{ kind = "{kind}", file = "{link}" }}')
        + route("/one", f'script = {{ kind = "{kind}", file = "{program}" }}')
        + route("/relative/*", f'script = {{ kind = "{kind}", file = "lib/backend" }}')
    )
    reported = lambda path: server.get(path)[2].decode()
    assert reported("/git/") == f"/git|/|{program}"
    assert reported("/git/r/big.git/info/refs?x") == f"/git|/r/big.git/info/refs|{program}"
    assert reported("/git/backend") == f"/git|/backend|{program}"
    assert server.get("/git/a/receive")[1]["x-inner"] == "1"
    assert reported("/git/a/receive") == f"/git|/a/receive|{program}"
    assert reported("/link/x") == f"/link|/x|{link}"
    assert reported("/one") == f"/one||{program}"
    assert reported("/relative/x") == f"/relative|/x|{program}"


def test_one_persistent_program_serves_a_prefix(serve, tmp_path):
    text = """#!/usr/bin/python3
import cgiplus
for request in cgiplus.requests():
    request.write("Content-Type: text/plain\\n\\n" + request.variables["SCRIPT_NAME"] + "|" + request.variables["PATH_INFO"])
"""
    program = script(tmp_path / "lib", "stays", text)
    server = serve(more=route("/s/*", f'script = {{ kind = "cgiplus", file = "{program}" }}'))
    assert server.get("/s/a/b")[::2] == (200, b"/s|/a/b")


def test_git_serves_a_repository_by_its_program(serve, tmp_path, kind):
    backend = "/usr/lib/git-core/git-http-backend"
    assert os.path.exists(backend), "git is missing"
    git = lambda *words: subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", *words], check=True, cwd=tmp_path
    )
    git("init", "-q", "work")
    write(tmp_path / "work/a.txt", "content")
    git("-C", "work", "add", "a.txt")
    git("-C", "work", "commit", "-qm", "first")
    git("clone", "-q", "--bare", "work", "repos/r.git")
    settings = f'env = {{ GIT_PROJECT_ROOT = "{tmp_path}/repos", GIT_HTTP_EXPORT_ALL = "1" }}'
    server = serve(more=route("/git/*", f'script = {{ kind = "{kind}", file = "{backend}", {settings} }}'))
    git("clone", "-q", f"{server.url}/git/r.git", "copy")
    assert (tmp_path / "copy/a.txt").read_text() == "content"


@pytest.mark.parametrize("named", ["alone", "with a root"])
def test_scripts_among_files_are_found_by_extension(serve, tmp_path, site, kind, named):
    for name in ["x.cgi", "d/x.cgi", "d/UP.CGI"]:
        script(site, name, ENVIRONMENT)
    write(site / "d/page.html", "page")
    write(site / "d/plain.cgi", "#!/bin/sh\nsecret")
    script(site, "d/tool", "secret")
    write(site / "d/.hidden.cgi", "secret")
    write(site / "e/f", "file")
    own = f', root = "{site}"' if named == "with a root" else ""
    server = serve(route=f'script = {{ kind = "{kind}", extensions = ["cgi"]{own} }}')
    reported = lambda path: server.get(path)[::2]
    assert reported("/x.cgi") == (200, f"/x.cgi||{site}/x.cgi".encode())
    assert reported("/d/x.cgi/pi/y?q") == (200, f"/d/x.cgi|/pi/y|{site}/d/x.cgi".encode())
    assert reported("/d/x.cgi/") == (200, f"/d/x.cgi|/|{site}/d/x.cgi".encode())
    assert reported("/d/%78.cgi") == (200, f"/d/x.cgi||{site}/d/x.cgi".encode())
    assert reported("/d/UP.CGI") == (200, f"/d/UP.CGI||{site}/d/UP.CGI".encode())
    assert reported("/d/page.html") == (200, b"page")
    # A file that is not executable is neither run nor sent.
    status, body = reported("/d/plain.cgi")
    assert status == 403 and b"secret" not in body
    server.logged(f"{site}/d/plain.cgi")
    # An executable of another name is a file.
    assert reported("/d/tool")[0] == 200
    assert reported("/d/page.html/x.cgi")[0] == 404
    assert reported("/d/.hidden.cgi")[0] == 404
    assert reported("/none.cgi")[0] == 404
    status, fields, _ = server.get("/d")
    assert (status, fields["location"]) == (301, "/d/")
    # Other methods than GET and HEAD are for scripts.
    assert server.get("/x.cgi", method="POST")[0] == 200
    assert server.get("/d/page.html", method="POST")[0] == 405


def test_an_index_program_serves_its_directory(serve, tmp_path, kind):
    directory = tmp_path / "bin"
    script(directory, "gitweb.cgi", ENVIRONMENT)
    script(directory, "sub/gitweb.cgi", ENVIRONMENT)
    write(directory / "page/index.html", "not a program")
    server = serve(
        more=route("/gitweb/*", f'index = ["gitweb.cgi"]\nscript = {{ kind = "{kind}", directory = "{directory}" }}')
        + route("/plain/*", f'script = {{ kind = "{kind}", directory = "{directory}" }}')
    )
    assert server.get("/gitweb/")[::2] == (200, f"/gitweb/gitweb.cgi||{directory}/gitweb.cgi".encode())
    assert server.get("/gitweb/?a=b")[0] == 200
    assert server.get("/gitweb/sub/")[::2] == (200, f"/gitweb/sub/gitweb.cgi||{directory}/sub/gitweb.cgi".encode())
    status, fields, _ = server.get("/gitweb/sub?a=b")
    assert (status, fields["location"]) == (301, "/gitweb/sub/?a=b")
    assert server.get("/gitweb/page/")[0] == 404
    assert server.get("/gitweb/page")[0] == 404
    assert server.get("/plain/")[0] == 404
    assert server.get("/plain/page/")[0] == 404


def test_the_index_of_scripts_by_extension(serve, site, kind):
    script(site, "d/index.cgi", ENVIRONMENT)
    write(site / "e/index.html", "page")
    server = serve(route=f'script = {{ kind = "{kind}", extensions = [".cgi"] }}')
    assert server.get("/d/")[2] == f"/d/index.cgi||{site}/d/index.cgi".encode()
    assert server.get("/e/")[2] == b"page"


REJECTED = {
    "plain": ("text", 0o644, 403, "it is not executable"),
    "crlf": ("#!/bin/sh\r\necho\r\n", 0o755, 500, '\\"/bin/sh\\\\r\\"'),
    "missing": ("#!/usr/bin/nope\n", 0o755, 500, "its interpreter /usr/bin/nope does not exist"),
    "nothing": ("echo\n", 0o755, 500, "no first line"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_the_log_has_the_reason_why_a_script_does_not_run(serve, tmp_path, kind, name):
    text, mode, expected, reason = REJECTED[name]
    path = write(tmp_path / "bin" / name, text)
    path.chmod(mode)
    server = serve(
        server='error_log = { format = "json" }',
        more=route("/b/*", f'script = {{ kind = "{kind}", directory = "{tmp_path}/bin" }}'),
    )
    assert server.get(f"/b/{name}")[0] == expected
    server.stop()
    lines = [line for line in server.log.splitlines() if "was not run" in line]
    assert len(lines) == 1 and reason in lines[0], server.log
    assert json.loads(lines[0])["script"] == str(path) if "script" in json.loads(lines[0]) else str(path) in lines[0]


def test_the_log_names_a_symlink_and_the_key_for_it(serve, tmp_path, kind):
    outside = script(tmp_path / "outside", "real.cgi", ENVIRONMENT)
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "link.cgi").symlink_to(outside)
    (directory / "folder").symlink_to(outside.parent)
    script(directory, "own.cgi", ENVIRONMENT)
    (directory / "near.cgi").symlink_to("own.cgi")
    rules = f'script = {{ kind = "{kind}", directory = "{directory}" }}'
    server = serve(
        more=route("/b/*", rules)
        + route("/follow/*", f'symlinks = "follow"\n{rules}')
        + route("/deny/*", f'symlinks = "deny"\n{rules}')
    )
    assert server.get("/b/link.cgi")[0] == 403
    # A warning at the start names the file, too, but not the value.
    log = server.logged("symlinks = ")
    assert f"{directory}/link.cgi" in log
    assert 'symlinks = \\"follow\\"' in log or 'symlinks = "follow"' in log
    assert server.get("/b/folder/real.cgi")[0] == 403
    server.logged(f"{directory}/folder")
    assert server.get("/b/near.cgi")[0] == 200
    assert server.get("/follow/link.cgi")[0] == 200
    assert server.get("/deny/near.cgi")[0] == 403
    server.logged("deny")


def check(tmp_path, script, more=""):
    file = tmp_path / "check.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n[[site.route]]\npath = "/x/*"\nscript = {{ {script} }}\n{more}')
    done = subprocess.run([DUNLIN, "check", "--config", file], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_check_finds_mistakes_about_the_file_of_a_script(tmp_path):
    program = script(tmp_path, "program", ENVIRONMENT)
    write(tmp_path / "text", "text")
    assert check(tmp_path, f'kind = "cgi", file = "{program}"')[0] == 0
    assert check(tmp_path, 'kind = "cgi", extensions = ["cgi"]')[0] == 0
    for settings, reason in [
        (f'kind = "cgi", directory = "{program}"', "`file` names a single program"),
        ('kind = "cgi", file = "none"', "No such file"),
        ('kind = "cgi", file = "text"', "not executable"),
        ('kind = "cgi", file = "."', "it is a directory"),
        ('kind = "cgi", file = ""', "file is empty"),
        ('kind = "cgi", file = "program", directory = "."', "no `directory` or `root`"),
        ('kind = "cgi", file = "program", extensions = ["cgi"]', "`extensions` belongs to"),
        ('kind = "cgi"', "needs `directory`, `file` or `extensions`"),
        ('kind = "fastcgi", file = "program"', "`file` belongs to"),
    ]:
        status, text = check(tmp_path, settings)
        assert status == 1 and reason in text, (settings, text)


def test_a_reload_keeps_the_workers_of_unchanged_scripts(serve, site, tmp_path):
    (tmp_path / "app.py").write_text(
        "import os\ndef application(environ, start_response):\n"
        "    start_response('200 OK', [])\n    return [b'%d' % os.getpid()]\n"
    )
    first = route("/a/*", 'script = { kind = "wsgi", application = "app:application", processes = 1 }')
    second = route("/b/*", 'script = { kind = "wsgi", application = "app:application", processes = 1 }')
    server = serve(more=first + second)
    a, b = server.get("/a/")[2], server.get("/b/")[2]
    assert a != b
    file = tmp_path / "dunlin-0.toml"
    file.write_text(file.read_text().replace(second, second.replace("processes = 1", "processes = 2")))
    server.process.send_signal(1)
    server.logged("reloaded")
    assert server.get("/a/")[2] == a
    assert server.get("/b/")[2] != b


LIBRARY_USERS = {
    "python.py": """#!/usr/bin/python3
import os, cgiplus
for request in cgiplus.requests():
    request.write("Content-Type: text/plain\\n\\nhello " + os.environ.get("PYTHONPATH", "").split(":")[0])
""",
}


def test_cgiplus_programs_find_their_library(serve, tmp_path):
    directory = tmp_path / "bin"
    examples = os.path.join(os.path.dirname(__file__), "../scripting/cgiplus/examples")
    script(directory, "python.py", LIBRARY_USERS["python.py"])
    script(directory, "echo.pl", open(f"{examples}/echo.pl").read())
    php = open(f"{examples}/echo.php").read().replace("__DIR__ . '/Cgiplus.php'", "getenv('CGIPLUS_LIB') . '/Cgiplus.php'")
    script(directory, "echo.php", php)
    server = serve(
        more=route("/p/*", f'script = {{ kind = "cgiplus", directory = "{directory}" }}')
        + route("/own/*", f'script = {{ kind = "cgiplus", directory = "{directory}", env = {{ PYTHONPATH = "/mine" }} }}')
    )
    assert server.get("/p/python.py")[0] == 200
    assert server.get("/own/python.py")[::2] == (200, b"hello /mine")
    assert server.get("/p/echo.pl")[0] == 200
    assert server.get("/p/echo.php")[0] == 200


def test_a_cgiplus_program_that_cannot_be_run_is_named(serve, tmp_path):
    write(tmp_path / "bin/plain.py", "import cgiplus\n")
    path = write(tmp_path / "bin/nothing.py", "import cgiplus\n")
    path.chmod(0o755)
    server = serve(more=route("/p/*", f'script = {{ kind = "cgiplus", directory = "{tmp_path}/bin" }}'))
    assert server.get("/p/plain.py")[0] == 403
    server.logged("chmod +x")
    assert server.get("/p/nothing.py")[0] in (500, 502, 503)
    server.logged("no first line")
    server.logged(str(path))
