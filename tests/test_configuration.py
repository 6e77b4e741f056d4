"""The configuration: valid settings, and messages about invalid ones."""

import json
import re
import re
import subprocess
from pathlib import Path

import pytest

from support.book import PAGES, blocks
from support.files import write
from support.server import DUNLIN, ROOT
from support.tls import certificate

GOOD = """[server]
threads = 2
access_log = { path = "access.log", format = "combined" }

[[listen]]
address = "127.0.0.1:8080"

[[site]]
host = ["example.com", "*.example.com"]
root = "www"

[[site.route]]
path = "/big/*"
cache = { file = "64KB" }
"""


def check(tmp_path, text, *arguments):
    file = tmp_path / "dunlin.toml"
    file.write_text(text)
    (tmp_path / "www").mkdir(exist_ok=True)
    (tmp_path / "users").touch()
    done = subprocess.run(
        [DUNLIN, "check", "--config", str(file), *arguments], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr.replace(str(tmp_path) + "/", "")


def test_a_good_file_is_fine(tmp_path):
    code, text = check(tmp_path, GOOD)
    assert code == 0 and text.endswith("is fine: 1 listener, 1 site, 1 route\n")


def test_the_admin_socket_is_not_counted_among_the_listeners(tmp_path):
    code, text = check(tmp_path, GOOD.replace("threads = 2", 'threads = 2\nadmin = "admin.sock"'))
    assert code == 0 and text.endswith("is fine: 1 listener, 1 site, 1 route\n")


@pytest.mark.parametrize(
    "old, new, place, what",
    [
        ("threads = 2", "thread = 2", "2:1", "did you mean `threads`?"),
        ("threads = 2", 'threads = "2"', "2:11", "expected a whole number"),
        ("threads = 2", "threads = 0", "2:11", "less than 1"),
        ('format = "combined"', 'format = "combind"', "3:46", "combined"),
        ('format = "combined"', 'format = "{stats}"', "3:46", "status"),
        ('format = "combined"', 'fromat = "json"', "3:37", "did you mean `format`?"),
        ("127.0.0.1:8080", "127.0.0.1", "6:11", "is not an address"),
        ('["example.com", "*.example.com"]', '"http://x"', "9:8", "is not a host"),
        ('root = "www"', 'root = "none"', "10:8", "there is no directory"),
        ('"/big/*"', '"big/*"', "13:8", "begins neither"),
        ('"/big/*"', '"/big/*/*"', "13:8", "more than one"),
        ('"64KB"', '"64XB"', "14:18", "is not a size"),
        ('cache = { file = "64KB" }', "cach = true", "14:1", "did you mean `cache`?"),
        ('cache = { file = "64KB" }', 'expires = "5"', "14:11", "has no unit"),
        ('cache = { file = "64KB" }', 'etag = "md5"', "14:8", "sha256"),
        ('cache = { file = "64KB" }', 'set_fields = { "A B" = "c" }', "14:16", "is not a field name"),
        ('cache = { file = "64KB" }', 'set_fields = { A = "c\\r\\nd" }', "14:20", "control character"),
        ('cache = { file = "64KB" }', 'set_fields = { Date = "c" }', "14:16", "the server's"),
        ('cache = { file = "64KB" }', 'redirect = { to = "{pth}" }', "14:19", "no placeholder"),
        ('cache = { file = "64KB" }', 'redirect = { to = "/", status = 200 }', "14:33", "not one of 301"),
        ('cache = { file = "64KB" }', 'error_pages = { "200" = "/x" }', "14:17", "400 to 599"),
        ('cache = { file = "64KB" }', 'records = { format = "variable", control = 2 }', "14:44", "vfc"),
        ('cache = { file = "64KB" }', 'velocity = { bandwidth = "1KB/s" }', "14:1", "there is no key"),
        ("[[site]]", "[[site]", "8:", ""),
    ],
)
def test_an_error_is_one_line_with_its_location(tmp_path, old, new, place, what):
    code, text = check(tmp_path, GOOD.replace(old, new))
    assert code == 1
    line = text.strip().splitlines()[0]
    assert line.startswith(f"dunlin.toml:{place}"), text
    assert what in line, text
    assert len(text.strip().splitlines()) == 1


def test_all_errors_are_reported_at_once(tmp_path):
    text = GOOD.replace("127.0.0.1:8080", "x").replace('"/big/*"', '"big"').replace("threads = 2", "threads = 0")
    code, output = check(tmp_path, text)
    assert code == 1 and len(output.strip().splitlines()) == 3


def test_the_settings_of_a_url_are_explained(tmp_path):
    code, text = check(tmp_path, GOOD, "--explain", "http://a.example.com/big/x")
    assert code == 0
    assert "site      example.com" in text and "cache from /big/* (" in text and ":13)" in text
    code, text = check(tmp_path, GOOD, "--explain", "http://other/")
    assert "421" in text
    code, text = check(tmp_path, GOOD, "--explain", "nonsense")
    assert code == 2


def test_the_schema_and_the_book_have_every_key(tmp_path):
    schema = json.loads(subprocess.check_output([DUNLIN, "check", "--schema"]))
    book = (ROOT / "docs" / "src" / "configuration.md").read_text()
    keys = set()

    def collect(node):
        if isinstance(node, dict):
            keys.update(node.get("properties", {}))
            for value in node.values():
                collect(value)
        elif isinstance(node, list):
            for value in node:
                collect(value)

    collect(schema)
    assert len(keys) > 60
    tables = {"server", "listen", "site", "store"}
    # A key of a small table is in the example of that table.
    missing = [key for key in keys - tables if not re.search(rf"`{re.escape(key)}`|[{{,] ?{re.escape(key)} = ", book)]
    assert not missing, f"the book lacks {missing}"
    made = subprocess.check_output([ROOT / "docs" / "options.py"], text=True)
    assert made == book, "run docs/options.py > docs/src/configuration.md"


def examples():
    for page in PAGES:
        if page.name == "configuration.md":
            continue
        for n, block in enumerate(block for block in blocks(page) if block.language == "toml"):
            yield pytest.param(block.text, id=f"{page.name}-{n}")


@pytest.mark.parametrize("text", list(examples()))
def test_every_example_of_the_book_is_accepted(tmp_path, text):
    # The directories of the examples are created beneath the test's own.
    for path in re.findall(r'"/(srv[^"]*)"', text):
        if Path(path).suffix:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            # The start of a component, which is checked.
            (tmp_path / path).write_bytes(b"\0asm\x0d\0\1\0" if path.endswith(".wasm") else b"")
        else:
            (tmp_path / path).mkdir(parents=True, exist_ok=True)
    text = text.replace('"/srv', f'"{tmp_path}/srv')
    for name in set(re.findall(r'"([\w-]+)\.pem"', text)):
        certificate(tmp_path, name, hosts=("example.com", "*.example.com"))
    code, output = check(tmp_path, text)
    assert code == 0, output


def test_every_table_of_the_reference_has_an_example_that_is_accepted(tmp_path):
    page = (ROOT / "docs" / "src" / "configuration.md").read_text()
    tables = re.split(r"^## ", page, flags=re.M)[1:]
    assert len(tables) > 40
    for table in tables:
        [text] = re.findall(r"^```toml\n(.*?)^```$", table, re.M | re.S)
        if "[[site]]" not in text:
            site = '[[site]]\nroot = "."\n'
            text = site + text if "[[site.route]]" in text else text + site
        if "[[listen]]" not in text:
            text = text.replace("[[site]]", '[[listen]]\naddress = ":80"\n[[site]]', 1)
        _, output = check(tmp_path, text)
        # What an example names does not exist here.
        missing = ("No such file", "there is no directory", "no site has a certificate", "there is no user", "warning", "is fine", "scripts ", "certificate ", "user ", "limits: ")
        wrong = [line for line in output.splitlines() if not any(part in line for part in missing)]
        assert not wrong, (text, wrong)


def run(*arguments, **options):
    return subprocess.run([DUNLIN, *arguments], capture_output=True, text=True, timeout=20, **options)


def test_the_command_line(tmp_path):
    assert run("version").stdout.startswith("dunlin ")
    assert run("serve", "--no-such-option").returncode == 2
    assert run("serve", "dir", "--config", "file").returncode == 2
    for arguments in (["--help"], ["serve", "--help"], ["check", "--help"]):
        assert "Examples:" in run(*arguments).stdout
    done = run("check", cwd=tmp_path)
    assert done.returncode == 1 and "dunlin.toml" in done.stderr


def test_start_up_errors_are_one_line_that_helps(serve, site, tmp_path):
    write(site / "a", "x")
    server = serve()
    address = f"127.0.0.1:{server.port}"
    for arguments, output in [
        ([str(site), "--listen", address], "choose another port"),
        ([str(tmp_path / "none")], "there is no directory"),
        ([str(site), "--listen", "192.0.2.77:8080"], "does not have that address"),
        ([str(site), "--access-log", str(tmp_path / "none" / "log")], "there is no directory"),
        (["--config", str(tmp_path / "none.toml")], "No such file"),
    ]:
        done = run("serve", *arguments)
        assert done.returncode == 1 and output in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_the_demonstration_is_served(serve):
    server = serve(
        text=(ROOT / "demo" / "dunlin.toml").read_text().replace("127.0.0.1:8080", "127.0.0.1:0").replace('root = "www"', f'root = "{ROOT}/demo/www"').replace('directory = "', f'directory = "{ROOT}/demo/')
    )
    assert b"<h1>Dunlin</h1>" in server.get("/")[2]
    assert server.get("/records/notes.var")[2].startswith(b"A file of variable-length records.\n")
    assert b"planets.csv" in server.get("/files/")[2]
    status, fields, body = server.get("/scripts/seen.sh/a?b")
    assert status == 200 and b"PATH_INFO=/a" in body and "script;dur=" in fields["server-timing"]
    assert server.get("/none")[0] == 404 and b"tide" in server.get("/none")[2]
    assert server.get("/dunlin.toml")[0] == 404
