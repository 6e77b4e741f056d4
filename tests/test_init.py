"""`dunlin init`: the configuration for what a directory holds is valid, and serves it."""

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.server import DUNLIN

FLASK = "from flask import Flask\napp = Flask(__name__)\n"
FASTAPI = "import fastapi\n\napi = fastapi.FastAPI()\n"
DJANGO = 'import os\nos.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")\nfrom django.core.management import execute_from_command_line\n'
WSGI = "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [environ['PATH_INFO'].encode()]\n"
NODE = "require('http').createServer((q, r) => r.end(q.url)).listen(4567);\n"
CGI = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nfrom cgi'\n"


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def init(folder, *arguments):
    return subprocess.run(
        [DUNLIN, "init", *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )


CASES = [
    ("an index page", {"index.html": "home"}, ["files of this directory"], ['root = "."', "listing = false"]),
    ("files alone", {"a.txt": "a"}, ["files of this directory"], ["listing = true"]),
    ("a build", {"dist/index.html": "home", "package.json": "{}"}, ["files in dist"], ['root = "dist"']),
    ("PHP", {"index.php": "<?php"}, ["serves PHP"], ['kind = "fastcgi"', "/index.php?{query}"]),
    ("pages of PHP", {"about.php": "<?php"}, ["serves PHP"], ['path = "*.php"']),
    ("WordPress", {"index.php": "<?php", "wp-load.php": ""}, ["serves WordPress"], ['kind = "fastcgi"']),
    ("Laravel", {"artisan": "", "public/index.php": "<?php"}, ["serves Laravel"], ['root = "public"']),
    ("Django", {"manage.py": DJANGO, "shop/wsgi.py": ""}, ["Django", "shop/wsgi.py"], ['application = "shop.wsgi:application"']),
    ("Flask", {"app.py": FLASK, "static/a.css": ""}, ["Flask", "app.py"], ['application = "app:app"', 'path = "/static/*"']),
    ("FastAPI", {"main.py": FASTAPI}, ["FastAPI", "main.py"], ['kind = "asgi"', 'application = "main:api"']),
    ("PSGI", {"shop.psgi": "sub {}"}, ["shop.psgi"], ['kind = "psgi"']),
    ("Node.js", {"package.json": "{}", "server.js": NODE}, ["port 4567"], ['proxy = "http://127.0.0.1:4567"']),
    ("CGI", {"cgi-bin/now": CGI, "index.html": "home"}, ["cgi-bin"], ['kind = "cgi"']),
]


@pytest.mark.parametrize("files, said, written", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_configuration_is_written_for_what_is_found(tmp_path, files, said, written):
    write(tmp_path, files)
    result = init(tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(word in result.stdout for word in said), result.stdout
    text = (tmp_path / "dunlin.toml").read_text()
    assert all(line in text for line in written), text
    checked = subprocess.run([DUNLIN, "check"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    # The lines that are commented out are valid, too.
    whole = text.replace("# host =", "host =").replace("# tls =", "tls =").replace("# user =", "user =")
    whole = whole.replace('\n[[listen]]\naddress = "127.0.0.1:8080"', "\n#")
    (tmp_path / "whole.toml").write_text(whole.replace('"www-data"', '"nobody"'))
    checked = subprocess.run(
        [DUNLIN, "check", "--config", "whole.toml"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stderr


def test_a_file_that_exists_is_never_changed(tmp_path):
    (tmp_path / "dunlin.toml").write_text("# mine\n")
    result = init(tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "dunlin.toml already exists and was not changed" in result.stderr
    assert (tmp_path / "dunlin.toml").read_text() == "# mine\n"
    result = init(tmp_path, "missing")
    assert (result.returncode, result.stderr) == (1, "dunlin: there is no directory missing\n")


def test_another_directory_is_named_in_what_follows(tmp_path):
    write(tmp_path, {"shop/index.html": "home"})
    result = init(tmp_path, "shop")
    assert "`dunlin serve -c shop/dunlin.toml`" in result.stdout
    assert (tmp_path / "shop" / "dunlin.toml").exists()


def first_lines(process, wanted):
    """The lines that the server prints, up to one with the text."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"no {wanted!r} in {lines}")


def served(folder, *arguments, path="/"):
    """The body of the response to a GET of `path`, and all that the server printed."""
    runtime = tempfile.mkdtemp(prefix="init-")  # Short, as paths of sockets have to be.
    environment = {**os.environ, "XDG_RUNTIME_DIR": runtime, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        [DUNLIN, "serve", "--listen", "127.0.0.1:0", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )
    try:
        lines = first_lines(process, "http://")
        url = urlsplit(lines[-1].strip())
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        connection.request("GET", path)
        body = connection.getresponse().read().decode()
        connection.close()
        process.terminate()
        rest, errors = process.stdout.read(), process.stderr.read()
        assert process.wait(timeout=30) == 0, errors
    finally:
        process.kill()
        shutil.rmtree(runtime)
    return body, "".join(lines) + rest, errors


@pytest.mark.parametrize(
    "files, path, body",
    [
        ({"public/index.html": "home"}, "/", "home"),
        ({"wsgi.py": WSGI}, "/page", "/page"),
        ({"wsgi.py": WSGI, "static/a.txt": "file"}, "/static/a.txt", "file"),
        ({"cgi-bin/now": CGI, "index.html": "home"}, "/cgi-bin/now", "from cgi"),
    ],
    ids=["files", "application", "static files", "cgi"],
)
def test_what_is_found_is_served(tmp_path, files, path, body):
    write(tmp_path, files)
    assert init(tmp_path).returncode == 0
    assert served(tmp_path, path=path)[0] == body


@pytest.mark.skipif(not shutil.which("php-cgi"), reason="needs php-cgi")
def test_php_is_served(tmp_path):
    write(tmp_path, {"index.php": "<?php echo 'from ' . $_SERVER['REQUEST_URI'];"})
    assert init(tmp_path).returncode == 0
    assert served(tmp_path, path="/a/b")[0] == "from /a/b"


def test_serving_a_directory_prints_its_address_and_where_to_watch_and_nothing_at_its_end(tmp_path):
    (tmp_path / "index.html").write_text("home")
    body, printed, errors = served(tmp_path, "--access-log", "off", ".")
    assert body == "home"
    first, figures, requests = printed.splitlines()
    assert first.startswith("http://127.0.0.1:")
    assert figures.startswith("figures:  dunlin top --admin ") and requests.startswith("requests: dunlin watch --admin ")
    # Warnings about the machine are allowed, but nothing of the start and of the end.
    assert " INFO " not in errors, errors


def test_serving_an_application_as_files_proposes_a_configuration(tmp_path):
    write(tmp_path, {"app.py": FLASK})
    _, printed, _ = served(tmp_path)
    assert "only files are served, not the Flask application in app.py; `dunlin init` writes a configuration for it" in printed
    _, printed, _ = served(tmp_path.parent, tmp_path.name)
    assert f"`dunlin init {tmp_path.name}`" in printed
    (tmp_path / "app.py").unlink()
    _, printed, _ = served(tmp_path)
    assert "dunlin init" not in printed
    (tmp_path / "cgi-bin").mkdir()
    assert "only files are served, not the programs in cgi-bin; `dunlin init` writes" in served(tmp_path)[1]


def test_a_missing_directory_is_named(tmp_path):
    result = subprocess.run([DUNLIN, "serve", "missing"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (1, "dunlin: there is no directory missing\n")


def test_a_package_of_node_is_read_as_json(tmp_path):
    write(tmp_path, {"package.json": json.dumps({"dependencies": {"express": "5"}, "main": "lib.js"})})
    assert "port 3000" in init(tmp_path).stdout
    write(tmp_path, {"other/package.json": "not JSON", "other/index.html": ""})
    assert "files of this directory" in init(tmp_path / "other").stdout
