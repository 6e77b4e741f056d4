"""`dunlin convert apache` and `dunlin serve --apache`: the same file under Apache and under Dunlin gives the same responses."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.conversion import Pair, compare, prepare
from support.nginx import PHP_FPM
from support.server import DUNLIN, Server
from support.waiting import wait_until

APACHE = shutil.which("apache2", path=os.environ.get("PATH", "") + ":/usr/sbin")
FILES = Path(__file__).parent / "apache"
MODULES = """mpm_event authn_core authn_file authz_core authz_host authz_user auth_basic access_compat alias dir mime rewrite headers expires env setenvif
proxy proxy_http proxy_fcgi proxy_balancer slotmem_shm lbmethod_byrequests cgid autoindex deflate filter negotiation"""


class Apache(Pair):
    option = "apache"

    def written(self):
        text, _, rules = self.text.partition("# htaccess:\n")
        if rules:
            (self.root / ".htaccess").write_text("".join(re.sub("^# ?", "", line) for line in rules.splitlines(keepends=True)))
        modules = "".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in MODULES.split())
        folder = self.folder
        head = (
            f"{modules}ServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile {folder}/apache.pid\nListen 127.0.0.1:{self.port}\nUser www-data\n"
            f"Group www-data\nTypesConfig /etc/mime.types\nErrorLog {folder}/apache.log\nScriptSock {folder}/cgid.sock\nAcceptPathInfo Off\n"
        )
        file = folder / "apache.conf"
        file.write_text(head + text)
        return file

    def start_peer(self):
        return subprocess.Popen([APACHE, "-D", "FOREGROUND", "-f", self.file], stderr=subprocess.DEVNULL)

    def peer_log(self):
        return (self.folder / "apache.log").read_text()


def fields_of(text):
    """The names of fields that a file sets."""
    names = re.findall(r"^#?\s*Header (?:always |onsuccess )?(?:set|append|add) ([A-Za-z-]+)", text, re.M)
    if "ExpiresActive" in text:
        names.append("cache-control")
    return {name.lower() for name in names}


def is_page(body):
    return b"<!DOCTYPE HTML PUBLIC" in body or not body.strip() or body == b"File not found.\n"


@pytest.mark.skipif(not APACHE, reason="no Apache")
@pytest.mark.parametrize("name", sorted(file.stem for file in FILES.glob("*.conf")))
def test_the_same_file_gives_the_same_responses(name, reachable):
    text = (FILES / f"{name}.conf").read_text()
    if "@FPM@" in text and not PHP_FPM:
        pytest.skip("no PHP-FPM")
    prepare(reachable, text)
    names = [name for names in re.findall(r"Server(?:Name|Alias) (.+)", text) for name in names.split()]
    hosts = [name.replace("*", "sub") for name in names]
    compare(Apache(text, reachable), text, hosts, fields_of(text), is_page)


SIMPLE = """DocumentRoot @ROOT@
Redirect /hello /there
RewriteMap names txt:/names
"""


def convert(file, *arguments):
    return subprocess.run([DUNLIN, "convert", "apache", file, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_the_exit_status_states_whether_something_is_lost(tmp_path, site):
    file = tmp_path / "site.conf"
    file.write_text(SIMPLE.replace("@ROOT@", str(site)))
    done = convert(file)
    assert done.returncode == 4
    assert f"{file}:3: lost: RewriteMap: " in done.stderr
    assert done.stderr.splitlines()[-1] == "2 carried, 0 not needed here, 1 lost"
    assert "[[site]]" in done.stdout
    file.write_text(file.read_text().replace("RewriteMap names txt:/names", ""))
    assert convert(file).returncode == 0
    file.write_text("<Directory />\n")
    done = convert(file)
    assert (done.returncode, done.stdout) == (1, "") and f"{file}:1: " in done.stderr
    assert convert(tmp_path / "none").returncode == 1


def test_a_htaccess_file_is_converted_with_its_document_root(tmp_path, site):
    (site / "sub").mkdir()
    file = site / "sub" / ".htaccess"
    file.write_text("RewriteEngine On\nRewriteRule ^a/(.*)$ b/$1 [L]\nOptions +Indexes\n")
    done = convert(file, "--root", site)
    assert done.returncode == 0, done.stderr
    assert f'root = "{site}"' in done.stdout
    assert 'path = "/sub/a/*"\nrewrite = "/sub/b/{rest}"' in done.stdout
    result = tmp_path / "dunlin.toml"
    result.write_text(done.stdout)
    subprocess.run([DUNLIN, "check", "-c", result], check=True, capture_output=True)


def test_a_served_file_is_followed_and_its_losses_are_logged(tmp_path, site):
    file = tmp_path / "site.conf"
    file.write_text(SIMPLE.replace("@ROOT@", str(site)))
    server = Server(["--apache", str(file), "--listen", "127.0.0.1:0"], tmp_path)
    try:
        server.logged(f"{file}:3: lost: RewriteMap: ")
        assert server.get("/hello")[1]["location"] == "/there"
        file.write_text(SIMPLE.replace("@ROOT@", str(site)).replace("/there", "/elsewhere"))
        wait_until(lambda: server.get("/hello")[1]["location"] == "/elsewhere", "the change is served", 30)
    finally:
        assert server.stop() == 0
