"""`dunlin check --explain` names the response that the server sends."""

import os
import re
import subprocess

import pytest

from support.files import write
from support.server import DUNLIN

ROUTES = """
[[site.route]]
path = "/spa/*"
try = ["{path}", "{path}/", "/spa/app.html"]
[[site.route]]
path = "/other/*"
try = ["{path}", "/moved/index.html"]
[[site.route]]
path = "/gone/*"
try = ["{path}", "=410"]
[[site.route]]
path = "/moved/*"
redirect = { to = "/spa/{rest}?{query}", status = 307 }
[[site.route]]
path = "/fixed"
respond = { body = "fixed", status = 202 }
[[site.route]]
path = "/status/*"
status = true
[[site.route]]
path = "/programs/*"
script = { kind = "cgi", directory = "SITE/programs" }
[[site.route]]
path = "/list/*"
listing = true
"""

PHP = """
[[site.route]]
path = "/php/*"
script = { kind = "fastcgi", command = ["php-cgi"], root = "SITE/php" }
try = ["{path}", "/php/index.php?{query}"]
[[site.route]]
path = "/app/*"
script = { kind = "fastcgi", command = ["php-cgi"], directory = "SITE/php" }
try = ["{path}", "/app/index.php?{query}"]
"""


@pytest.mark.parametrize(
    "path, expected",
    [
        # `root` wants the whole path, which has /php/ twice then.
        ("/php/a-page", '404: there is no script "php/a-page" in '),
        ("/app/a-page", "the script {site}/php/index.php"),
        ("/app/index.php", "the script {site}/php/index.php"),
        ("/programs/none", '404: there is no script "none" in '),
        ("/programs/plain", "403: it is not executable"),
        ("/programs/run", "the script {site}/programs/run"),
    ],
)
def test_the_script_of_a_path_is_looked_for(tmp_path, path, expected):
    site = tmp_path / "site"
    write(site / "php" / "index.php", "<?php")
    write(site / "programs" / "plain", "#!/bin/sh")
    write(site / "programs" / "run", "#!/bin/sh").chmod(0o755)
    file = tmp_path / "d.toml"
    text = f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\n{PHP}'
    text += '[[site.route]]\npath = "/programs/*"\nscript = { kind = "cgi", directory = "SITE/programs" }\n'
    file.write_text(text.replace("SITE", str(site)))
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "response  " + expected.replace("{site}", str(site)) in done.stdout, done.stdout


TARGETS = {
    "/page.html": 200,
    "/none": 404,
    "/spa/none": 200,
    "/spa/folder": 301,
    "/spa/folder/": 200,
    "/other/none?a=b": 307,
    "/gone/none": 410,
    "/moved/x": 307,
    "/fixed": 202,
    "/status": 301,
    "/folder": 301,
    "/empty/": 403,
    "/list/": 200,
    "/.hidden": 404,
    "/outside.html": 403,
    "/socket": 403,
    "/linked.sh": 404,
    "/own.toml": 404,
}


@pytest.fixture
def config(tmp_path):
    return tmp_path / "dunlin-0.toml"


@pytest.fixture
def server(serve, site, config):
    for name in ("page.html", "spa/app.html", "spa/folder/index.html", "folder/index.html", "list/a", ".hidden"):
        write(site / name, name)
    (site / "empty").mkdir()
    (site / "outside.html").symlink_to("/etc/passwd")
    os.mkfifo(site / "socket")
    write(site / "programs/run.sh", "#!/bin/sh\n")
    (site / "programs/run.sh").chmod(0o755)
    (site / "linked.sh").symlink_to("programs/run.sh")
    server = serve(more=ROUTES.replace("SITE", str(site)))
    (site / "own.toml").hardlink_to(config)
    return server


@pytest.mark.parametrize("target", TARGETS)
def test_the_explained_response_is_the_one_that_is_sent(server, config, target):
    status, fields, _ = server.get(target)
    done = subprocess.run(
        [DUNLIN, "check", "--config", config, "--explain", target], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    response = [line for line in done.stdout.splitlines() if line.startswith("response  ")][-1].removeprefix("response  ")
    explained = re.match(r"\d{3}\b", response)
    assert status == TARGETS[target]
    assert int(explained[0] if explained else 200) == status, done.stdout
    if "location" in fields:
        assert response.endswith(f" to {fields['location']}"), done.stdout
