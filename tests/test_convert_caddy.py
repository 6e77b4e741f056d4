"""`dunlin convert caddy` and `dunlin serve --caddy`: the same file under Caddy and under Dunlin gives the same responses."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.conversion import Pair, compare, prepare
from support.nginx import PHP_FPM
from support.server import DUNLIN, Server
from support.waiting import wait_until

CADDY = shutil.which("caddy")
FILES = Path(__file__).parent / "caddy"


class Caddy(Pair):
    option = "caddy"

    def written(self):
        file = self.folder / "Caddyfile"
        file.write_text("{\n\tadmin off\n\tauto_https off\n}\n" + self.text)
        return file

    def start_peer(self):
        environment = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
        log = (self.folder / "caddy.log").open("w")
        return subprocess.Popen([CADDY, "run", "--config", self.file, "--adapter", "caddyfile"], stdout=log, stderr=log, env=environment)

    def peer_log(self):
        return (self.folder / "caddy.log").read_text()

    def start_dunlin(self):
        """Passwords need a file of users."""
        if "basicauth" not in self.text:
            return super().start_dunlin()
        converted = self.folder / "dunlin.toml"
        done = subprocess.run([DUNLIN, "convert", "caddy", self.file, "--users", self.folder / "made-users"], capture_output=True, text=True, timeout=60, check=False)
        converted.write_text(done.stdout)
        self.report_arguments = ["--users", self.folder / "made-users"]
        return Server(["-c", str(converted), "--listen", "127.0.0.1:0", "--threads", "1"], self.folder)


def fields_of(text):
    """The names of fields that a file sets."""
    lines = re.findall(r"^\s*(?:header(?: [/@*]\S*)? )?([A-Z][A-Za-z-]+) ", text, re.M)
    return {name.lower() for name in lines} - {"content-type"} | ({"x-powered-by"} if "header_down" in text else set())


def is_page(body):
    return not body.strip() or body == b"File not found.\n" or body.startswith(b"<a href=")


@pytest.mark.skipif(not CADDY, reason="no Caddy")
@pytest.mark.parametrize("name", sorted(file.stem for file in FILES.glob("*.Caddyfile")))
def test_the_same_file_gives_the_same_responses(name, tmp_path):
    text = (FILES / f"{name}.Caddyfile").read_text()
    if "@FPM@" in text and not PHP_FPM:
        pytest.skip("no PHP-FPM")
    prepare(tmp_path, text)
    hosts = [host.replace("*", "sub") for host in re.findall(r"http://([*a-z.]+):", text)]
    compare(Caddy(text, tmp_path), text, hosts, fields_of(text), is_page)


SIMPLE = """http://a.test:8080 {
	root * @ROOT@
	redir /hello /there
	templates
	file_server
}
"""


def convert(file, *arguments):
    return subprocess.run([DUNLIN, "convert", "caddy", file, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_the_exit_status_states_whether_something_is_lost(tmp_path, site):
    file = tmp_path / "Caddyfile"
    file.write_text(SIMPLE.replace("@ROOT@", str(site)))
    done = convert(file)
    assert done.returncode == 4
    assert f"{file}:4: lost: templates: " in done.stderr
    assert done.stderr.splitlines()[-1] == "4 carried, 0 not needed here, 1 lost"
    assert "[[site]]" in done.stdout
    file.write_text(file.read_text().replace("\ttemplates\n", ""))
    assert convert(file).returncode == 0
    file.write_text("a.test {\n")
    done = convert(file)
    assert (done.returncode, done.stdout) == (1, "") and f"{file}:1: " in done.stderr
    assert convert(tmp_path / "none").returncode == 1


def test_passwords_need_a_file_of_users(tmp_path, site):
    file, users = tmp_path / "Caddyfile", tmp_path / "users"
    file.write_text("http://a.test {\n\tbasicauth {\n\t\tann JDJhJDE0JHg=\n\t}\n\tfile_server\n}\n")
    done = convert(file)
    assert done.returncode == 4 and "deny =" in done.stdout and not users.exists()
    done = convert(file, "--users", users)
    assert done.returncode == 0 and f'auth = {{ basic = "{users}"' in done.stdout
    assert users.read_text() == "ann:$2a$14$x\n" and users.stat().st_mode & 0o777 == 0o600


def test_a_served_file_is_followed_and_its_losses_are_logged(tmp_path, site):
    file = tmp_path / "Caddyfile"
    text = SIMPLE.replace("@ROOT@", str(site)).replace("http://a.test:8080", ":8080")
    file.write_text(text)
    server = Server(["--caddy", str(file), "--listen", "127.0.0.1:0"], tmp_path)
    try:
        server.logged(f"{file}:4: lost: templates: ")
        assert server.get("/hello")[1]["location"] == "/there"
        file.write_text(text.replace("/there", "/elsewhere"))
        wait_until(lambda: server.get("/hello")[1]["location"] == "/elsewhere", "the change is served", 30)
    finally:
        assert server.stop() == 0
