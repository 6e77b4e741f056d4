"""`dunlin check` finds errors that prevent a start, and warns about those that would appear later."""

import base64
import grp
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from support.files import write
from support.server import DUNLIN, Server
from support.waiting import wait_until

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
LISTEN = '[[listen]]\naddress = "127.0.0.1:0"\n'
PLACE = "[[site]]\nroot = \".\"\n"


def check(folder, text, *arguments):
    file = folder / "dunlin.toml"
    file.write_text(text)
    done = subprocess.run([DUNLIN, "check", "-c", file, *arguments], capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout + done.stderr.replace(f"{folder}/", "")


def warned(folder, text):
    """The warnings: the configuration is fine otherwise."""
    code, output = check(folder, text)
    assert code == 0 and "is fine" in output, output
    return "".join(line + "\n" for line in output.splitlines() if ": warning: " in line)


def certificate(folder, names="DNS:localhost", days="2"):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         days, "-subj", "/CN=example.com", "-addext", f"subjectAltName={names}", "-keyout", folder / "key.pem",
         "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )


def test_a_file_without_flaws_has_no_warnings(tmp_path):
    code, output = check(tmp_path, LISTEN + PLACE, "--strict")
    assert code == 0 and "warning" not in output and "1 listener, 1 site" in output


def test_check_and_start_reject_a_listener_with_tls_and_no_certificate(tmp_path):
    text = LISTEN + "tls = true\n" + PLACE
    code, output = check(tmp_path, text)
    assert code == 1 and output.startswith("dunlin.toml:3:7: a listener uses TLS, but no site has a certificate")
    done = subprocess.run([DUNLIN, "serve", "-c", tmp_path / "dunlin.toml"], capture_output=True, text=True)
    assert done.returncode == 1 and "dunlin.toml:3:7" in done.stderr


@pytest.mark.parametrize(
    "names, host, uncovered",
    [
        ("DNS:localhost", '"example.com"', "example.com"),
        ("DNS:example.com", '["example.com", "www.example.com"]', "www.example.com"),
        ("DNS:*.example.com", '["a.example.com", "example.com"]', "example.com"),
        ("DNS:*.example.com", '"a.b.example.com"', "a.b.example.com"),
        ("DNS:a.example.com", '"*.example.com"', "*.example.com"),
        ("DNS:*.example.com,DNS:example.com", '["*.example.com", "b.example.com", "example.com"]', None),
        ("DNS:Example.COM", '"EXAMPLE.com"', None),
        ("IP:127.0.0.1", '"127.0.0.1"', None),
    ],
)
def test_a_certificate_that_does_not_cover_a_host_is_warned_of(tmp_path, names, host, uncovered):
    certificate(tmp_path, names)
    text = f'{LISTEN}tls = true\n[[site]]\nhost = {host}\nroot = "."\ntls = {{ certificate = "cert.pem", key = "key.pem" }}\n'
    output = warned(tmp_path, text)
    if uncovered is None:
        assert output == ""
    else:
        assert output.startswith("dunlin.toml:7:7: warning: tls: certificate cert.pem: it does not cover " + uncovered + ";")


@pytest.mark.parametrize(
    "proxy, what",
    [
        ('"unix:/no-such.sock"', "proxy: there is no socket /no-such.sock; requests get 502"),
        ('["http://127.0.0.1:9", "unix:/no-such.sock"]', "proxy: there is no socket /no-such.sock"),
        ('{ to = [{ url = "unix:/nowhere/at/all.sock", weight = 2 }] }', "proxy: there is no directory /nowhere/at"),
    ],
)
def test_missing_sockets_of_upstreams_are_warnings(tmp_path, proxy, what):
    output = warned(tmp_path, f'{LISTEN}{PLACE}[[site.route]]\npath = "/*"\nproxy = {proxy}\n')
    assert output.count(what) == 1 and "dunlin.toml:7:" in output, output


@pytest.mark.parametrize(
    "script, what",
    [
        ('kind = "fastcgi", command = ["no-such-cgi"]', "no program no-such-cgi in PATH"),
        ('kind = "fastcgi", command = ["./php-cgi"]', "command: php-cgi: No such file"),
        ('kind = "wsgi", application = "app:application", interpreter = "venv/bin/python"', "interpreter: venv/bin/python: No such"),
        ('kind = "wsgi", application = "nomodule:app"', "no module nomodule in "),
        ('kind = "asgi", application = "package.nomodule:app"', "no module package.nomodule in "),
        ('kind = "psgi", application = "none.psgi"', "no file none.psgi"),
        ('kind = "rte", directory = ".", interpreter = "./python3"', "interpreter: python3: No such"),
        ('kind = "fastcgi", root = ".", connect = ["unix:/nowhere/at/all.sock"]', "no directory /nowhere/at"),
        ('kind = "scgi", connect = "unix:/no-such.sock"', "no socket /no-such.sock"),
        ('kind = "wsgi", application = "app:application", interpreter = "./app.py"', "is not executable; chmod +x"),
    ],
)
def test_missing_files_of_scripts_are_warnings(tmp_path, script, what):
    write(tmp_path / "app.py", "application = None\n")
    write(tmp_path / "package" / "__init__.py", "")
    text = f'{LISTEN}{PLACE}[[site.route]]\npath = "/*"\nscript = {{ {script} }}\n'
    output = warned(tmp_path, text)
    assert what in output and "dunlin.toml:7:" in output, output


@pytest.mark.parametrize(
    "script",
    [
        'kind = "wsgi", application = "app:application"',
        'kind = "wsgi", application = "package.app:application"',
        'kind = "asgi", application = "json:dumps"',
        'kind = "psgi", application = "app.psgi"',
        'kind = "wsgi", application = "elsewhere:app", env = { PYTHONPATH = "LIB" }',
        'kind = "fastcgi", command = ["sh"]',
    ],
)
def test_existing_files_of_scripts_are_no_warnings(tmp_path, script):
    for name in ("app.py", "app.psgi", "package/__init__.py", "package/app.py", "lib/elsewhere.py"):
        write(tmp_path / name, "")
    script = script.replace("LIB", str(tmp_path / "lib"))
    text = f'{LISTEN}{PLACE}[[site.route]]\npath = "/*"\nscript = {{ {script} }}\n'
    output = [line for line in warned(tmp_path, text).splitlines() if "run as root" not in line]
    assert output == []


@pytest.mark.parametrize(
    "listen, expected",
    [
        ('address = "127.0.0.1:8443"\ntls = true', True),
        ('address = "127.0.0.1:443"', True),
        ('address = "127.0.0.1:443"\ntls = true', False),
        ('address = "127.0.0.1:8443"\ntls = true\n[[listen]]\naddress = ":80"', False),
    ],
)
def test_certificates_that_cannot_be_obtained_are_warned_of(tmp_path, listen, expected):
    text = f'[server]\nstate = "state"\n[[listen]]\n{listen}\n[[site]]\nhost = "example.com"\nroot = "."\ntls = {{ acme = {{}} }}\n'
    code, output = check(tmp_path, text)
    assert ("warning: acme: the authority connects to port" in output) == expected, output


ROUTE = '[[site.route]]\npath = "/*"\n'


@pytest.mark.parametrize(
    "line, what",
    [
        ("body_size = 10", "these are 10 bytes"),
        ('body_size = "10"', "these are 10 bytes"),
        ("body_size = 0", "0 sets no limit"),
        ('body_size = "10B"', None),
        ('body_size = "10MB"', None),
        ('body_size = "1TiB"', None),
        ('body_size = "unlimited"', None),
        ("body_size = 1000000", None),
        ('redirect = "/x"', "redirect: an endless loop"),
        ('redirect = "/x{path}"', "redirect: an endless loop"),
        ('redirect = "https://example.com{path}"', None),
        ('redirect = "http://www.example.com{path}"', None),
        ('redirect = "http://{host}/x"', "redirect: an endless loop"),
        ('proxy = "http://127.0.0.1:1"\ncompress = true', None),
        ('proxy = "http://127.0.0.1:1"\ncompress = false', None),
        ('proxy = "http://127.0.0.1:1"', None),
        ('proxy = "unix:/no-such.sock"', "there is no socket /no-such.sock"),
    ],
)
def test_settings_that_are_hardly_meant_are_warned_of(tmp_path, line, what):
    output = warned(tmp_path, LISTEN + PLACE + ROUTE + line + "\n")
    assert what in output and re.search(r"^dunlin.toml:[78]:", output) if what else output == "", output


def test_a_certificate_without_a_listener_for_it_is_warned_of(tmp_path):
    certificate(tmp_path)
    text = LISTEN + PLACE + 'tls = { certificate = "cert.pem", key = "key.pem" }\n'
    assert "dunlin.toml:5:7: warning: tls: it is not used, as no listener has TLS" in warned(tmp_path, text)
    assert "it is not used" not in warned(tmp_path, text.replace(LISTEN, LISTEN + "tls = true\n"))


@pytest.mark.parametrize(
    "text, place, what",
    [
        ('[server]\nuser = "nobodyy"\n' + LISTEN + PLACE, "2:8", 'there is no user "nobodyy"'),
        ('[server]\ngroup = "nogroupp"\n' + LISTEN + PLACE, "2:9", 'there is no group "nogroupp"'),
        ('[server]\naccess_log = "/no/such/log"\n' + LISTEN + PLACE, "2:14", "access_log: there is no directory /no/such;"),
        (LISTEN + '[[site]]\nhost = "m\u00fcnchen.test"\nroot = "."\n', "4:8", 'as clients send it, "xn--mnchen-3ya.test"'),
        (LISTEN + '[[site]]\nhost = "*.m\u00fcnchen.test"\nroot = "."\n', "4:8", '"*.xn--mnchen-3ya.test"'),
        ('[[listen]]\naddress = "[fe80::1%eth0]:80"\n' + PLACE, "2:11", "names an interface, which has to be a number"),
        (LISTEN.encode() + b'[[site]]\nroot = "\xff"\n', "4:9", "not UTF-8"),
    ],
)
def test_errors_name_their_place_and_the_remedy(tmp_path, text, place, what):
    file = tmp_path / "dunlin.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and f"dunlin.toml:{place}: " in done.stderr and what in done.stderr, done.stderr


def test_a_missing_error_page_is_named(tmp_path):
    text = f'{LISTEN}{PLACE}[[site.route]]\npath = "/*"\nerror_pages = {{ 404 = "/missing.html", 500 = "/there.html" }}\n'
    write(tmp_path / "there.html", "")
    assert "dunlin.toml:7:23: warning: error_pages: there is no file missing.html" in warned(tmp_path, text)
    assert "there.html" not in warned(tmp_path, text)


@pytest.mark.parametrize(
    "address, more, expected",
    [
        (":8080", "", True),
        ("192.0.2.1:8080", "", True),
        ("127.0.0.1:8080", "", False),
        (":8080", 'allow = ["127.0.0.1"]', False),
        (":8080", 'auth = { forward = "http://127.0.0.1:1/" }', False),
        ("unix:status.sock", "", False),
    ],
)
def test_a_public_status_page_is_a_warning(tmp_path, address, more, expected):
    text = f'[[listen]]\naddress = "{address}"\n{PLACE}[[site.route]]\npath = "/status/*"\nstatus = true\n{more}\n'
    assert ("warning: status: the server's status is open" in warned(tmp_path, text)) == expected


def test_proxies_that_anyone_can_pretend_to_be_are_warned_of(tmp_path):
    text = LISTEN + "proxy_protocol = true\n" + PLACE
    assert "dunlin.toml:2:11: warning: proxy_protocol without trusted_proxies" in warned(tmp_path, text)
    assert warned(tmp_path, '[server]\ntrusted_proxies = ["127.0.0.1"]\n' + text) == ""


def test_warnings_fail_only_with_strict(tmp_path):
    text = LISTEN + "proxy_protocol = true\n" + PLACE
    assert check(tmp_path, text)[0] == 0 and check(tmp_path, text, "--strict")[0] == 1


@pytest.mark.parametrize("key", ['access_log = "PATH/access.log"', 'admin = "PATH/admin.sock"', 'pid_file = "PATH/pid"'])
def test_a_folder_that_systemd_makes_may_be_missing_and_others_may_not(tmp_path, key):
    for folder, expected in (("/run/dunlin-of-a-test", 0), ("/var/log/dunlin-of-a-test", 0), ("/nowhere/log", 1)):
        code, output = check(tmp_path, f"[server]\n{key.replace('PATH', folder)}\n{LISTEN}{PLACE}")
        assert code == expected and folder in output, output
        assert ("systemd makes it" in output) == (expected == 0)


def test_a_start_logs_the_same_warnings(serve, tmp_path):
    server = serve(text=LISTEN + 'proxy_protocol = true\n[server]\nthreads = 1\n' + PLACE)
    assert "proxy_protocol without trusted_proxies" in server.logged("WARN")


@root
def test_scripts_of_root_are_warned_of(tmp_path):
    write(tmp_path / "cgi" / "x", "")
    script = '[[site.route]]\npath = "/cgi/*"\nscript = { kind = "cgi", directory = "cgi" }\n'
    text = f"{LISTEN}{PLACE}{script}"
    assert "dunlin.toml:7:10: warning: scripts run as root" in warned(tmp_path, text)
    assert "run as root" not in check(tmp_path, '[server]\nuser = "nobody"\n' + text)[1]
    assert "run as root" not in check(tmp_path, text.replace('"cgi" }', '"cgi", user = "nobody" }'))[1]


@pytest.fixture
def public():
    """A folder that other users can reach, which pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="dunlin-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def with_users(folder, user="nobody"):
    done = subprocess.run(
        [DUNLIN, "passwd", "--algorithm", "sha512", folder / "users", "ann"], input=b"a", capture_output=True
    )
    assert done.returncode == 0
    write(folder / "site" / "x.txt", "x")
    return (
        f'[server]\nthreads = 1\nuser = "{user}"\n{LISTEN}[[site]]\nroot = "site"\n'
        f'[[site.route]]\npath = "/*"\nauth = {{ basic = "users" }}\n'
    )


@root
def test_users_that_the_server_cannot_read_as_its_user_stop_check_and_start(public):
    text = with_users(public)
    group = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
    for how in (
        lambda: os.chmod(public / "users", 0o640),
        lambda: os.chmod(public, 0o700),
    ):
        os.chmod(public, 0o755)
        os.chmod(public / "users", 0o644)
        how()
        code, output = check(public, text)
        assert code == 1 and "dunlin.toml:10:18: auth: users: user nobody cannot read it" in output, output
        assert f"chgrp {group} users" in output and "chmod 640" in output
        done = subprocess.run([DUNLIN, "serve", "-c", public / "dunlin.toml"], capture_output=True, text=True)
        assert done.returncode == 1 and "user nobody cannot read it" in done.stderr


@root
def test_users_of_the_servers_group_are_read_and_followed(public):
    nobody = pwd.getpwnam("nobody")
    text = with_users(public)
    os.chown(public / "users", 0, nobody.pw_gid)
    code, output = check(public, text)
    assert code == 0, output
    server = Server(["-c", str(public / "dunlin.toml")], public)
    try:
        def login(word):
            word = base64.b64encode(f"ann:{word}".encode()).decode()
            return server.get("/x.txt", f"Authorization: Basic {word}")[0]

        assert login("a") == 200 and login("b") == 401
        subprocess.run([DUNLIN, "passwd", "--algorithm", "sha512", public / "users", "ann"], input=b"b", check=True,
                       capture_output=True)
        wait_until(lambda: login("b") == 200, "the new password")
        assert login("a") == 401
        assert (public / "users").stat().st_gid == nobody.pw_gid
    finally:
        server.stop()


@root
def test_in_a_chroot_only_files_inside_must_be_accessible(public):
    jail = public / "jail"
    jail.mkdir()
    text = with_users(jail).replace('user = "nobody"', f'user = "nobody"\nchroot = "{jail}"')
    os.chmod(jail / "users", 0o644)
    os.chmod(public, 0o700)
    code, output = check(jail, text)
    assert code == 0, output
    os.chmod(jail / "users", 0o640)
    code, output = check(jail, text)
    assert code == 1 and "user nobody cannot read it" in output


@root
def test_keys_and_logs_that_the_user_cannot_reopen_are_warnings(public):
    certificate(public)
    os.chmod(public / "key.pem", 0o600)
    (public / "log").mkdir()
    write(public / "site" / "x.txt", "x")
    text = (
        f'[server]\nuser = "nobody"\naccess_log = "log/access.log"\n{LISTEN}tls = true\n[[site]]\nroot = "site"\n'
        f'tls = {{ certificate = "cert.pem", key = "key.pem" }}\n'
    )
    output = warned(public, text)
    assert "tls: key.pem: user nobody cannot read it" in output and "cert.pem: user" not in output
    assert "log: user nobody cannot create files there" in output
    nobody = pwd.getpwnam("nobody")
    os.chown(public / "key.pem", -1, nobody.pw_gid)
    os.chmod(public / "key.pem", 0o640)
    os.chown(public / "log", nobody.pw_uid, -1)
    assert warned(public, text) == ""


@root
def test_a_check_by_another_user_evaluates_the_modes(public):
    text = with_users(public)
    (public / "dunlin.toml").write_text(text)
    for mode, expected in ((0o640, 1), (0o644, 0)):
        # The file is read by one user, and is not for the server's.
        os.chown(public / "users", pwd.getpwnam("daemon").pw_uid, 0)
        os.chmod(public / "users", mode)
        program = public / "dunlin"
        shutil.copy(DUNLIN, program)
        done = subprocess.run([program, "check", "-c", public / "dunlin.toml"], user="daemon", group="daemon",
                              extra_groups=[], capture_output=True, text=True)
        assert done.returncode == expected, done.stdout + done.stderr
        assert ("user nobody cannot read it" in done.stderr) == (expected == 1)


def test_check_leaves_no_files_behind(tmp_path):
    text = (
        '[server]\nadmin = "admin.sock"\npid_file = "pid"\naccess_log = "access.log"\nstate = "state"\n'
        'error_log = { path = "error.log" }\n[[listen]]\naddress = "unix:site.sock"\n[[listen]]\naddress = "127.0.0.1:443"\n'
        'tls = true\n[[site]]\nhost = "example.com"\nroot = "."\ntls = { acme = {} }\n'
    )
    assert check(tmp_path, text)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dunlin.toml"]


def test_pages_of_statuses_that_no_route_has(tmp_path):
    write(tmp_path / "page.html", "page")
    pages = '{ 400 = "/page.html", 413 = "/page.html", 431 = "/page.html" }'
    text = f'{LISTEN}{PLACE}[[site.route]]\npath = "/*"\nerror_pages = {pages}\n'
    found = warned(tmp_path, text)
    assert "the page of status 400 is never used" in found and "the page of status 431 is never used" in found
    assert "413" not in found
    proxy = 'proxy = { to = "http://127.0.0.1:1", intercept_errors = true }\n'
    assert "never used" not in warned(tmp_path, text + proxy)
