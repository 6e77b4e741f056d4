"""Links: signatures as nginx's `secure_link_md5` has them and by HMAC, and the pages that link (`referer`)."""

import base64
import contextlib
import getpass
import hashlib
import hmac
import shutil
import socket
import subprocess
import time

import pytest

from support.acme import free_port
from support.files import lines, write
from support.http import read_all
from support.server import DUNLIN
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

SECRET = "Opensesame123"


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signature(text, secret=SECRET):
    return encode(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest())


def later():
    return int(time.time()) + 600


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "links.key"
    file.write_text(SECRET + "\n")
    return f'secret = "{{file.{file}}}"'


def test_hmac(serve, site, secret, tmp_path):
    write(site / "d/a b.txt", "x")
    write(site / "d/index.html", "index")
    log = tmp_path / "access.log"
    server = serve(
        more=f'[[site.route]]\npath = "/d/*"\nsigned = {{ {secret}, expires = "e" }}',
        server=f'access_log = {{ path = "{log}", format = "{{target}} {{status}}" }}',
    )
    end = later()
    good = signature(f"{end} /d/a b.txt")
    for _ in range(3):
        # The path is signed, not how it is written.
        for path in ("/d/a%20b.txt", "/d/%61%20b.txt", "/d/./a%20b.txt"):
            assert server.get(f"{path}?e={end}&signature={good}")[::2] == (200, b"x")
        assert server.get(f"/d/a%20b.txt?signature={good}%3D&e={end}")[0] == 403
        assert server.get(f"/d/a%20b.txt?signature={good}=&e={end}&more=1")[0] == 200
        assert server.get(f"/d/a%20b.txt?e={end}&signature={good}", method="HEAD")[0] == 200
    wrong = [
        "", f"?e={end}", f"?signature={good}", f"?e={end + 1}&signature={good}", f"?e=0{end}&signature={good}", f"?e={end}&signature={good[:-1]}",
        f"?e={end}&signature={good}x", f"?e={end}&signature={signature(f'{end} /d/other')}", f"?e={end}&signature={signature(f'{end} /d/a b.txt', 'x')}",
        f"?e={end}&signature=x&signature={good}", f"?e=x&signature={signature('x /d/a b.txt')}", f"?E={end}&signature={good}",
    ]
    assert [server.get(f"/d/a%20b.txt{query}")[0] for query in wrong] == [403] * len(wrong)
    assert server.get(f"/d/a%20b.txt?e=1&signature={signature('1 /d/a b.txt')}")[0] == 410
    assert server.get(f"/d/a%20b.txt?e=1&signature={good}")[0] == 403
    # The index of a directory belongs to the link of the directory.
    assert server.get(f"/d/?e={end}&signature={signature(f'{end} /d/')}")[2] == b"index"
    server.stop()
    assert good.encode() not in log.read_bytes() and f"/d/a%20b.txt?e={end}&signature=REDACTED 200" in lines(log)
    assert SECRET not in server.log


def test_links_of_nginx_stay_valid(serve, site):
    # secure_link $arg_md5,$arg_expires; secure_link_md5 "$secure_link_expires$uri$remote_addr secret";
    write(site / "s/link", "x")
    table = 'secret = "secret", algorithm = "md5", signature = "md5", expires = "expires", text = "{expires}{path}{client} {secret}"'
    server = serve(more=f'[[site.route]]\npath = "/s/*"\nsigned = {{ {table} }}')
    # That of the documentation of nginx.
    assert server.get("/s/link?md5=_e4Nc3iduzkWRm01TBBNYw&expires=2147483647")[::2] == (200, b"x")
    assert server.get("/s/link?md5=_e4Nc3iduzkWRm01TBBNYw==&expires=2147483647")[0] == 200
    assert server.get("/s/link?md5=_e4Nc3iduzkWRm01TBBNYg&expires=2147483647")[0] == 403
    old = encode(hashlib.md5(b"1/s/link127.0.0.1 secret").digest())
    assert server.get(f"/s/link?md5={old}&expires=1")[0] == 410


def test_a_link_without_expiry_and_for_a_host(serve, site, secret):
    write(site / "x.txt", "x")
    server = serve(route=f'signed = {{ {secret}, signature = "s", text = "{{host}}|{{client}}|{{path}}" }}')
    assert server.get(f"/x.txt?s={signature('x|127.0.0.1|/x.txt')}")[0] == 200
    assert server.get(f"/x.txt?s={signature('y|127.0.0.1|/x.txt')}")[0] == 403


def test_a_rewritten_or_inner_path_has_the_signature_of_the_link(serve, site, secret):
    write(site / "real.txt", "x")
    server = serve(
        more=f'[[site.route]]\npath = "/link/*"\nrewrite = "/{{rest}}"\n[[site.route]]\npath = "/real.txt"\nsigned = {{ {secret} }}\n'
        '[[site.route]]\npath = "/try/*"\ntry = ["/real.txt"]'
    )
    for path in ("/link/real.txt", "/try/x", "/real.txt"):
        assert server.get(path)[0] == 403
        assert server.get(f"{path}?signature={signature(path)}")[::2] == (200, b"x"), path
    assert server.get(f"/try/x?signature={signature('/real.txt')}")[0] == 403


@pytest.mark.parametrize(
    "table, what",
    [
        ('{ expires = "e" }', "lacks the key `secret`"),
        ('{ secret = "" }', "the secret is empty"),
        ('{ secret = "S3cret", signature = "a b" }', '"a b" is not the name of a parameter'),
        ('{ secret = "S3cret", signature = "e", expires = "e" }', "cannot be both `signature` and `expires`"),
        ('{ secret = "S3cret", text = "{client}" }', "text: it lacks {path}"),
        ('{ secret = "S3cret", expires = "e", text = "{path}" }', "text: it lacks {expires}"),
        ('{ secret = "S3cret", text = "{path}{expires}" }', "there is no placeholder {expires}"),
        ('{ secret = "S3cret", text = "{path} {secret}" }', "there is no placeholder {secret}"),
        ('{ secret = "S3cret", algorithm = "md5", text = "{path} S3cret" }', "text: it lacks {secret}"),
        ('{ secret = "S3cret", text = "$uri" }', "{path}"),
        ('{ secret = "S3cret", algorithm = "sha1" }', "`sha1` is not one of `hmac-sha256`, `md5`"),
    ],
)
def test_errors_name_the_place(tmp_path, table, what):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\nsigned = {table}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert done.returncode == 1 and "dunlin.toml:5:" in done.stderr and what in done.stderr, done.stderr
    assert "S3cret" not in done.stderr


def test_it_is_explained_and_compared_without_the_secret(tmp_path, secret):
    file, before = tmp_path / "dunlin.toml", tmp_path / "before.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\nsigned = {{ {secret}, expires = "e" }}\n')
    before.write_text(file.read_text().replace(secret, 'secret = "OtherSecret1"'))
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", "/"], capture_output=True, text=True)
    assert 'hmac-sha256 in signature, until e, of "{expires} {path}"' in done.stdout, done.stdout + done.stderr
    assert SECRET not in done.stdout
    done = subprocess.run([DUNLIN, "check", "-c", file, "--diff", before], capture_output=True, text=True)
    assert "signed" in done.stdout + done.stderr and SECRET not in done.stdout + done.stderr and "OtherSecret1" not in done.stdout + done.stderr


def test_pages_that_link_decide(serve, site):
    write(site / "x.png", "x")
    server = serve(
        text=f"""
        [[listen]]
        address = "127.0.0.1:0"
        [[site]]
        host = ["x", "*.x.test"]
        root = "{site}"
        [[site.route]]
        path = "*.png"
        when = {{ not = {{ referer = ["none", "blocked", "server_names", "*.friend.test", "page.test/gallery/"] }} }}
        respond = {{ status = 403 }}
        """
    )
    for referer, status in [
        (None, 200), ("----:------", 200), ("http://x/a", 200), ("https://www.x.test:8443/", 200), ("https://a.friend.test", 200),
        ("http://page.test/gallery/1", 200), ("http://page.test/other", 403), ("http://friend.test/", 403), ("https://evil.test/?x", 403),
        ("https://evil.test/http://x/", 403), ("https://x.evil.test/", 403), ("https://x@evil.test/", 403), ("HTTPS://X/", 200),
    ]:  # fmt: skip
        fields = [f"Referer: {referer}"] if referer is not None else []
        for _ in range(2):
            assert server.get("/x.png", *fields)[0] == status, referer


@pytest.mark.parametrize("value", ['"https://a.test/"', '"a.test:80"', '"a b"', '""', "[]", '"/x"'])
def test_errors_of_pages_name_the_place(tmp_path, value):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n[[site.route]]\nwhen = {{ referer = {value} }}\nclose = true\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
    assert done.returncode == 1 and "dunlin.toml:6:" in done.stderr and "referer" in done.stderr, done.stderr


@pytest.mark.skipif(not shutil.which("nginx", path="/usr/sbin:/usr/bin"), reason="nginx is not installed")
def test_every_link_has_the_status_of_nginx(serve, site, tmp_path):
    for name in ("link", "a b", "d/link"):
        write(site / "s" / name, "x")
    port = free_port()
    (tmp_path / "nginx.conf").write_text(
        f"""daemon off; user {getpass.getuser()}; worker_processes 1; pid {tmp_path}/nginx.pid; error_log {tmp_path}/nginx.log; events {{}}
        http {{ access_log off; client_body_temp_path {tmp_path}/b; proxy_temp_path {tmp_path}/p; fastcgi_temp_path {tmp_path}/f;
        uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/c;
        server {{ listen 127.0.0.1:{port}; root {site};
          location /s/ {{
            secure_link $arg_md5,$arg_expires;
            secure_link_md5 "$secure_link_expires$uri$remote_addr secret";
            if ($secure_link = "") {{ return 403; }}
            if ($secure_link = "0") {{ return 410; }}
          }} }} }}"""
    )
    table = 'secret = "secret", algorithm = "md5", signature = "md5", expires = "expires", text = "{expires}{path}{client} {secret}"'
    server = serve(more=f'[[site.route]]\npath = "/s/*"\nsigned = {{ {table} }}')
    nginx = subprocess.Popen([shutil.which("nginx", path="/usr/sbin:/usr/bin"), "-p", tmp_path, "-c", tmp_path / "nginx.conf"])

    def status_of_nginx(target):
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            return int(read_all(connection).split()[1])

    def listens():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True

    try:
        wait_until(listens, "nginx listens")
        end, seen = later(), set()
        for path, raw in [("/s/link", "/s/link"), ("/s/a b", "/s/a%20b"), ("/s/d/link", "/s/d/link"), ("/s/link", "/s/./d/../link"), ("/s/none", "/s/none")]:
            for expires in (str(end), f"0{end}", "1", "0", "-1", "", "x", "1x"):
                right = encode(hashlib.md5(f"{expires}{path}127.0.0.1 secret".encode()).digest())
                for given in (right, right + "==", right[:-1], right + "A", right[:-2] + "AA", "", "!"):
                    target = f"{raw}?md5={given}&expires={expires}"
                    statuses = status_of_nginx(target), server.get(target)[0]
                    assert statuses[0] == statuses[1], (target, statuses)
                    seen.add(statuses[0])
        assert seen == {200, 403, 404, 410}
    finally:
        nginx.terminate()
        nginx.wait(10)
