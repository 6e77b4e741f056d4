"""No message, log, configuration dump or live view has a private key or another secret."""

import json
import re
import subprocess

import httpx
import pytest

from support.admin import fetch, run
from support.files import write
from support.server import DUNLIN
from support.tls import certificate, openssl
from support.upstream import Upstream, response
from support.waiting import wait_until

LISTEN = '[[listen]]\naddress = "127.0.0.1:0"\n'


def openssl_key(folder, *arguments):
    file = folder / "made.key"
    openssl(*arguments, "-out", file)
    return file.read_text()


def unusable_keys(folder, key):
    lines = key.splitlines()
    own = folder / "own.key"
    return {
        "no line breaks": (key.replace("\n", ""), "its BEGIN line has no line break"),
        "spaces": (" ".join(lines), "its BEGIN line has no line break"),
        "escaped": ("\\n".join(lines), "its line breaks are written as `\\n`"),
        "truncated": ("\n".join(lines[:-2]), "it has no END line"),
        "other end": (key.replace("END PRIVATE", "END RSA PRIVATE"), "its END line is not that of its BEGIN line"),
        "traditional": (openssl_key(folder, "pkey", "-in", own, "-traditional", "-aes256", "-passout", "pass:x"), "it is encrypted"),
        "PKCS#8": (openssl_key(folder, "pkey", "-in", own, "-aes256", "-passout", "pass:x"), "it is encrypted"),
        "Ed448": (openssl_key(folder, "genpkey", "-algorithm", "ed448"), "this kind of key is not supported"),
        "1024 bits": (openssl_key(folder, "genpkey", "-algorithm", "rsa", "-pkeyopt", "rsa_keygen_bits:1024"), "this kind of key is not"),
    }


def leaked(output, key):
    """Eight consecutive characters of the key, or their codes, that are in the output."""
    content = "".join(line for line in key.replace("\\n", "\n").splitlines() if "-----" not in line and ":" not in line)
    content = content or re.sub(r"-----[A-Z ]+-----", "", key)
    parts = [content[at : at + 8] for at in range(len(content) - 7)]
    codes = lambda part: ", ".join(str(ord(letter)) for letter in part)
    return [part for part in parts if part in output or codes(part) in output]


def test_a_key_that_cannot_be_used_is_in_no_message_of_check_start_or_renewal(tls):
    folder = tls.folder
    good = tls.own[1].read_text()
    server = tls()
    client = folder / "client.key"
    proxy = (
        f'{LISTEN}[[site]]\nroot = "{folder}"\n[[site.route]]\npath = "/*"\n'
        f'proxy = {{ to = "https://127.0.0.1:1", client_certificate = {{ certificate = "{tls.own[0]}", key = "{client}" }} }}\n'
    )
    own = f'{LISTEN}tls = true\n[[site]]\nroot = "{folder}"\ntls = {{ certificate = "{tls.own[0]}", key = "{client}" }}\n'
    authority = own.replace(str(client), str(tls.own[1])).replace(" }\n", f', client_authority = "{client}" }}\n')
    file = folder / "d.toml"
    for name, (text, expected) in unusable_keys(folder, good).items():
        client.write_text(text)
        for configuration in (own, proxy, authority):
            file.write_text(configuration)
            output = "".join(run("check", "-c", str(file))[1:])
            assert "client.key" in output and not leaked(output, text), (name, output)
            assert configuration is authority or expected in output, (name, output)
        file.write_text(own)
        start = subprocess.run([DUNLIN, "serve", "-c", file], capture_output=True, text=True, timeout=30)
        assert start.returncode == 1 and expected in start.stderr and not leaked(start.stderr, text), (name, start.stderr)
        before = server.log.count("the previous one stays in use")
        tls.own[1].write_text(text)
        wait_until(lambda: server.log.count("the previous one stays in use") > before, f"the failure of {name}")
        assert expected in server.log and not leaked(server.log, text), (name, server.log)


SECRET = "hunter2-hunter2-hunter2"
ROUTE = f"""
[[site.route]]
path = "/p/*"     # was secret = "{SECRET}"
set_fields = {{ X-Kind = "shown", X-Api-Token = "{SECRET}" }}
proxy = {{ to = ["http://127.0.0.1:1", "http://127.0.0.1:2"], sticky = {{ cookie = "shown", secret = "{SECRET}" }}, set_request_fields = {{ Authorization = "Bearer {SECRET}", X-Verify = "{SECRET}" }} }}
[[site.route]]
path = "/s/*"
script = {{ kind = "cgi", directory = ".", env = {{ DB_PASSWORD = "{SECRET}", DSN = "x:{SECRET}" }} }}
"""


@pytest.fixture
def configured(serve, site, tmp_path):
    admin = tmp_path / "admin.sock"
    text = f'[server]\nadmin = "{admin}"\nthreads = 1\n{LISTEN}[[site]]\nroot = "{site}"\n{ROUTE}'
    return serve(text=text), admin, tmp_path / "dunlin-0.toml", text


def test_the_configuration_in_use_is_reported_without_its_secrets(configured):
    _, admin, _, _ = configured
    status, _, body = fetch(admin, "/config")
    text = body.decode()
    assert status == 200 and "hunter2" not in text, text
    shown = json.loads(text)["text"]
    hidden = re.findall(r"hidden-[0-9a-f]{8}", shown)
    assert len(hidden) == 6 and len(set(hidden)) == 3, shown
    assert 'X-Kind = "shown"' in shown


def test_a_difference_shows_that_a_secret_changes_and_not_which(configured, tmp_path):
    _, admin, file, text = configured
    assert run("check", "-c", str(file), "--diff")[1] == "nothing would change\n"
    file.write_text(text.replace(f'"Bearer {SECRET}"', '"Bearer other-hunter2"').replace("DB_PASSWORD", "DB_PASS"))
    old = tmp_path / "old.toml"
    old.write_text(text)
    for arguments in ([], [str(old)]):
        code, out, error = run("check", "-c", str(file), "--diff", *arguments)
        assert code == 0 and "hunter2" not in out + error, (out, error)
        assert re.search(r'set_request_fields.Authorization: "hidden-[0-9a-f]{8}" -> "hidden-[0-9a-f]{8}"', out), out
        assert re.search(r'script.env.DB_PASSWORD: "hidden-[0-9a-f]{8}" -> unset', out), out
        changed = re.findall(r"hidden-[0-9a-f]{8}", out)
        assert len(set(changed)) == 3
    # A restarted server has another key, so that guesses cannot be tried.
    assert run("check", "-c", str(file), "--diff", str(old))[1] != run("check", "-c", str(file), "--diff", str(old))[1]


def test_an_explanation_has_no_credentials_of_fields(configured):
    _, _, file, _ = configured
    code, out, _ = run("check", "-c", str(file), "--explain", "/p/x", "--all")
    assert code == 0 and "hunter2" not in out and 'X-Kind = "shown"' in out, out


def test_secrets_of_the_urls_of_endpoints_are_not_shown(serve, site, tmp_path):
    admin = tmp_path / "admin.sock"
    route = (
        f'auth = {{ forward = "http://127.0.0.1:1/check?token={SECRET}" }}\n[[site.route]]\npath = "/h/*"\n'
        f'proxy = {{ to = "http://127.0.0.1:1", health = {{ path = "/up?access_token={SECRET}&x=shown" }} }}'
    )
    server = serve(route=route, server=f'admin = "{admin}"')
    assert server.get(f"/a.txt?password={SECRET}")[0] == 502
    log = server.logged("forward authentication at http://127.0.0.1:1/check?token=hidden-")
    assert re.search(r'method="GET" url="http://x/a.txt\?password=\S+" route="/\*" client="127.0.0.1"', log), log
    config = json.loads(fetch(admin, "/config")[2])["text"]
    file = str(tmp_path / "dunlin-0.toml")
    explained = run("check", "-c", file, "--explain", "/a.txt", "--all")[1]
    assert "hunter2" not in log + config + explained, (log, config, explained)
    assert "&x=shown" in config


@pytest.mark.parametrize(
    "line",
    [
        f'proxy = "http://user:{SECRET}@[bad"',
        f'proxy = ["http://user:{SECRET}@127.0.0.1:9"]',
        f'auth = {{ forward = "ftp://user:{SECRET}@host/check" }}',
        f'set_fields = {{ Authorization = "Bearer {SECRET}\\n" }}',
        f'script = {{ kind = "cgi", directory = ".", env = "DB_PASSWORD={SECRET}" }}',
        f'proxy = {{ to = "https://127.0.0.1:9", authority = "-----BEGIN CERTIFICATE-----\\n{SECRET}" }}',
        f'proxy = {{ to = "https://127.0.0.1:9", client_certificate = {{ certificate = "c", key = """-----BEGIN PRIVATE KEY-----\n{SECRET}""" }} }}',
        f'auth = {{ basic = """-----BEGIN PRIVATE KEY-----\n{SECRET}""" }}',
    ],
)
def test_a_message_about_a_wrong_value_has_no_secret_of_it(tmp_path, line):
    file = tmp_path / "d.toml"
    file.write_text(f'{LISTEN}[[site]]\nroot = "."\n[[site.route]]\npath = "/*"\n{line}\n')
    for arguments in (["check", "-c", file], ["check", "-c", file, "--explain", "/x"], ["serve", "-c", file]):
        done = subprocess.run([DUNLIN, *arguments], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and "d.toml:7:" in done.stderr, done.stderr
        assert "hunter2" not in done.stdout + done.stderr, done.stderr


FIELDS = [
    "Authorization", "X-Vault-Token", "Private-Token", "X-Amz-Security-Token", "Client-Cert", "Sec-WebSocket-Protocol",
    "X-Api-Key", "X_Api_Key", "Apikey", "X-Hub-Signature", "My-Password", "X-Passwd", "X-Credential", "Cookie", "X-Secret",
    "X-Auth", "X-AuthKey", "X-AccessKey", "X-Session-Id", "Ocp-Apim-Subscription-Key", "X-ARR-ClientCert", "X-Pass", "X-GitHub-OTP",
]
KEYS = ["private_token", "job%5Ftoken", "jwt", "api-key", "apiKey", "PHPSESSID", "sid", "user[password]", "X-Amz-Credential"]


def test_the_live_view_has_no_credentials(configured):
    server, admin, _, _ = configured
    watch = subprocess.Popen(
        [DUNLIN, "watch", "--admin", str(admin), "--level", "heads", "--json", "--count", "1"], stdout=subprocess.PIPE, text=True
    )
    sent = [f"{name}: {SECRET}" for name in FIELDS] + ["X-Kind: shown"]

    def seen():
        server.get("/nothing?" + "&".join(f"{key}={SECRET}" for key in KEYS), *sent)
        return watch.poll() is not None

    wait_until(seen, "the event")
    event = watch.communicate()[0]
    assert "shown" in event and "hunter2" not in event and SECRET not in server.log, event


def test_logs_and_traces_have_no_credentials_of_queries(serve, tmp_path):
    exported = []

    def collect(_, connection, request):
        exported.append(request.body.decode("latin-1"))
        return response(b"{}")

    log = tmp_path / "access.log"
    server = serve(
        server=f'access_log = {{ path = "{log}", format = "combined" }}\n'
        f'traces = {{ endpoint = "{Upstream(collect).url}/v1/traces", sample = 1.0 }}'
    )
    query = "&".join(f"{key}={SECRET}" for key in KEYS)
    server.get(f"/first?{query}", f"Referer: https://x/?{query}")
    with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
        client.get(f"/second?{query}", headers={"referer": f"https://x/?{query}"})
    wait_until(lambda: "/second" in log.read_text() and "/second" in "".join(exported), "both requests")
    shown = log.read_text() + "".join(exported)
    assert "/first" in shown and "REDACTED" in shown and "hunter2" not in shown, shown


@pytest.mark.parametrize(
    "key",
    [
        'auth = { forward = "ftp://u:hunter2@x/y" }',
        'proxy = "ftp://u:hunter2@x"',
        'proxy = "http://u:hunter2@x/y"',
        'proxy = "dns+http://u:hunter2@127.0.0.1"',
        'redirect = { to = "http://u:hunter2@x/{", status = 999 }',
        'script = { kind = "fastcgi", connect = "http://u:hunter2@x" }',
        'root = "s3://u:hunter2@"',
    ],
)
def test_no_message_of_check_has_the_password_of_a_url(tmp_path, key):
    file = write(tmp_path / "dunlin.toml", f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "/"\n[[site.route]]\npath = "/a"\n{key}\n')
    done = subprocess.run([DUNLIN, "check", "--config", file], capture_output=True, text=True)
    assert done.returncode != 0 and "hunter2" not in done.stdout + done.stderr, done.stderr
