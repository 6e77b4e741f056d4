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


DECISIONS = """
[map.kind]
from = "{query.k}"
values = { "a" = "first", "*" = "other" }
[map.label]
from = "{map.kind}"
values = { "first" = "1st", "*" = "nth" }
[map.place]
from = "{path}"
values = { "/placed/x*" = "/moved/x", "*" = "/moved/rest" }
[[listen]]
address = "127.0.0.1:0"
[[site]]
root = "SITE"
set_fields = { X-Kind = "{map.label}" }
[[site.route]]
path = ["/exact", "/list/*"]
respond = { body = "e" }
[[site.route]]
regex = '^/user/(?<name>[a-z]+)$'
redirect = "/u/{name}?k={map.kind}"
[[site.route]]
regex = '^/user/'
respond = { status = 410 }
[[site.route]]
path = "/user/ann"
respond = { body = "ann" }
[[site.route]]
path = "/when/*"
when = { header = { X-Beta = true } }
respond = { body = "beta" }
[[site.route]]
path = "/tried/*"
try = ["{path}", "/other{path}", "/folder/a.txt"]
[[site.route]]
path = "/old/*"
rewrite = "/exact?from={rest}"
[[site.route]]
path = "/placed/*"
redirect = "{map.place}"
[[site.route]]
path = "/any/*"
any = [{ allow = ["192.0.2.0/24"] }, { deny = ["198.51.100.0/24"] }]
[[site.route]]
path = "/cors/*"
cors = { origins = ["https://a.test"] }
[[site.route]]
path = "/close"
close = true
[[site.route]]
path = "/plain/*"
compress = false
[[site.route]]
path = "/signed/*"
signed = { secret = "0123456789abcdef0123456789abcdef" }
[[site.route]]
path = "/texts/*"
substitute = { "http:" = "https:" }
ssi = true
set_fields = { X-Lost = { value = "1", status = [404] } }
[[site.route]]
path = "/alias/*"
alias = "SITE/folder"
[[site.route]]
path = "/dav/*"
dav = true
"""


@pytest.mark.parametrize(
    "target, lines",
    [
        # Which route, and why.
        ("/exact", [r"route     /exact, /list/\* \(FILE:\d+\) is the path", "response  200 with 1 bytes of text"]),
        ("/list/x", [r"route     /exact, /list/\* \(FILE:\d+\) matches"]),
        ("/user/bob", [r"route     ~ \^/user/\(\?<name>\[a-z\]\+\)\$ \(FILE:\d+\) is the first regular expression that matches", r"response  30\d to /u/bob\?k=other"]),
        ("/user/bob?k=a", [r"response  30\d to /u/bob\?k=first"]),
        ("/user/b0b", [r"route     ~ \^/user/ \(FILE:\d+\) is the first", "response  410 "]),
        ("/user/ann", ["route     .* is the first", "route     /user/ann .* is the path", "response  200 "]),
        ("/when/x", [r"route     /when/\* .*header.* applies if its conditions hold"]),
        # Files in turn, values of maps, rewriting.
        ("/tried/x", ["tried     .*/tried/x", "tried     .*/other/tried/x", "response  from the route of /folder/a.txt:", "response  the file .*/folder/a.txt"]),
        ("/exact?k=a", ['map       kind = "first"', 'map       label = "1st"']),
        ("/placed/xy", ['map       place = "/moved/x"', r"response  30\d to /moved/x"]),
        ("/old/a", ["setting   rewrite from .*", "response  from the route of /exact:", "response  200 "]),
        # Access and the end of connections.
        ("/any/x", [r"setting   any from /any/\* \(FILE:\d+\): .*192\.0\.2\.0/24.*198\.51\.100\.0/24"]),
        ("/cors/x", [r"setting   cors from /cors/\* \(FILE:\d+\): .*https://a\.test"]),
        ("/close", ["setting   close from .*: true", "response  none: the connection is closed"]),
        ("/signed/x", [r"setting   signed from /signed/\* \(FILE:\d+\): "]),
        # Responses.
        ("/plain/x", [r"setting   compress from /plain/\* \(FILE:\d+\): off"]),
        ("/texts/x", ["setting   substitute from .*: .*http:.*https:", "setting   ssi from .*: ", 'setting   set_fields from .*X-Lost = "1" for 404']),
        ("/alias/a.txt", ["setting   root from /alias/.*/folder$", "setting   alias from .*: at /alias", "response  the file .*/folder/a.txt"]),
        ("/dav/x", ["setting   dav from .*: "]),
    ],
)
def test_each_decision_appears(tmp_path, target, lines):
    site, file = tmp_path / "site", tmp_path / "dunlin-0.toml"
    write(site / "folder" / "a.txt", "a")
    file.write_text(DECISIONS.replace("SITE", str(site)))
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", target], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in lines:
        assert re.search("^" + line.replace("FILE", re.escape(str(file))), done.stdout, re.M), f"{line}\n{done.stdout}"
    assert done.stdout.startswith("response  "), f"the response comes first\n{done.stdout}"


def test_what_does_not_match_does_not_appear(tmp_path):
    site, file = tmp_path / "site", tmp_path / "dunlin-0.toml"
    write(site / "folder" / "a.txt", "a")
    file.write_text(DECISIONS.replace("SITE", str(site)))
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", "/folder/a.txt"], capture_output=True, text=True)
    assert not re.search("^(route|tried)", done.stdout, re.M) or "/when/" not in done.stdout, done.stdout
    assert 'map       place' not in done.stdout and 'map       label = "nth"' in done.stdout, done.stdout
