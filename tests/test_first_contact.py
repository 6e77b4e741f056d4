"""The first configurations are short: the configuration of the first ten minutes, and a site with HTTPS by name."""

import re
import subprocess

from support.book import blocks
from support.files import write
from support.server import DUNLIN, ROOT
from support.tls import certificate

# What the example names, and where it is in the test.
PLACES = {
    "/srv/www": "www",
    "/srv/flask": "flask",
    "/srv/cgi-bin": "cgi-bin",
    "/etc/dunlin/users": "users",
    "/var/log/dunlin/access.log": "access.log",
    "/run/dunlin/admin.sock": "admin.sock",
}


def check(folder, name, *arguments):
    done = subprocess.run([DUNLIN, "check", "-c", name, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_configuration_of_the_first_ten_minutes_has_at_most_25_lines(tmp_path):
    text = (ROOT / "examples" / "ten-minutes.toml").read_text()
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 25, len(lines)
    for place, name in PLACES.items():
        assert place in text
        text = text.replace(place, name)
    certificates = certificate(tmp_path, "site", hosts=["example.com"])
    text = text.replace("/etc/dunlin/example.com.pem", str(certificates[0])).replace("/etc/dunlin/example.com.key", str(certificates[1]))
    text = text.replace("www-data", "root")
    for name in ("www/files/a.txt", "www/a.php", "cgi-bin/now", "flask/app.py"):
        write(tmp_path / name, "app = None\n").chmod(0o755)
    subprocess.run([DUNLIN, "passwd", tmp_path / "users", "ann"], input="secret\n", text=True, check=True, timeout=60)
    (tmp_path / "dunlin.toml").write_text(text)
    code, output = check(tmp_path, "dunlin.toml")
    assert code == 0 and "is fine" in output, output
    for path, response in [
        ("/files/", "listing"),
        ("/a.php", "www/a.php"),
        ("/flask/x", "the application app:app"),
        ("/node/x", "http://127.0.0.1:3000"),
        ("/cgi-bin/now", "cgi-bin/now"),
        ("/old", "302 to /new"),
    ]:
        code, output = check(tmp_path, "dunlin.toml", "--explain", f"https://example.com{path}")
        assert code == 0 and response in output.partition("\nsite ")[0], output
    assert "redirect" in check(tmp_path, "dunlin.toml", "--explain", "http://example.com/files/")[1]


def test_https_by_name_with_files_and_a_redirect_has_four_lines(tmp_path):
    [text] = [block.text for block in blocks(ROOT / "README.md") if "acme" in block.text]
    assert len(text.strip().splitlines()) == 4
    (tmp_path / "www").mkdir()
    (tmp_path / "dunlin.toml").write_text(text.replace("/srv/www", "www"))
    code, output = check(tmp_path, "dunlin.toml")
    assert code == 0 and "2 listeners" in output and "certificate for example.com" in output, output
    output = check(tmp_path, "dunlin.toml", "--explain", "http://example.com/")[1]
    assert re.search(r"redirect_https from /\*.*to port 443", output), output


def test_the_readme_installs_before_it_demonstrates():
    text = (ROOT / "README.md").read_text()
    places = [text.index(part) for part in ("## Why not nginx or Caddy?", "## Features", "## Install", "## First site", "demo/dunlin.toml", "## Measure")]
    assert places == sorted(places)
    # At most one screen of 50 lines before the features, and little more before the first thing to do.
    assert text[: text.index("## Features")].count("\n") <= 50
    assert text[: text.index("## Install")].count("\n") <= 60
