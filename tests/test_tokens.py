"""`auth = { jwt = ... }`: JSON Web Tokens, their keys in files and at URLs, and their claims."""

import base64
import hashlib
import hmac
import json
import signal
import subprocess
import threading
import time

import pytest

from support.files import lines, write
from support.server import DUNLIN
from support.tls import certificate, context, openssl
from support.upstream import Upstream, response
from support.waiting import wait_until
from test_auth import passwd

pytestmark = pytest.mark.usefixtures("orderly_stop")


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def integers(der):
    """The two integers of a signature of ECDSA."""
    at, found = (3 if der[1] == 0x81 else 2), []
    while at < len(der):
        length = der[at + 1]
        found.append(int.from_bytes(der[at + 2 : at + 2 + length], "big"))
        at += 2 + length
    return found


class Issuer:
    """Signs tokens by OpenSSL; `jwk` is its public key."""

    def __init__(self, folder, kind, kid=None):
        self.kind, self.kid = kind, kid
        self.key = folder / f"{kind}-{kid}.key"
        options = {"RS256": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "ES256": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "EdDSA": ["ed25519"]}
        openssl("genpkey", "-algorithm", *options[kind], "-out", self.key)
        self.public = folder / f"{kind}-{kid}.pub"
        openssl("pkey", "-in", self.key, "-pubout", "-out", self.public)
        der = folder / "key.der"
        openssl("pkey", "-pubin", "-in", self.public, "-outform", "DER", "-out", der)
        raw = der.read_bytes()
        if kind == "EdDSA":
            self.jwk = {"kty": "OKP", "crv": "Ed25519", "x": encode(raw[-32:])}
        elif kind == "ES256":
            self.jwk = {"kty": "EC", "crv": "P-256", "x": encode(raw[-64:-32]), "y": encode(raw[-32:])}
        else:
            modulus = openssl("rsa", "-pubin", "-in", self.public, "-noout", "-modulus").strip().partition("=")[2]
            self.jwk = {"kty": "RSA", "n": encode(bytes.fromhex(modulus)), "e": "AQAB"}
        if kid:
            self.jwk |= {"kid": kid, "use": "sig", "alg": kind}

    def token(self, claims=None, **header):
        claims = {"exp": int(time.time()) + 600, "sub": "ann"} | (claims or {})
        header = {"alg": self.kind, **({"kid": self.kid} if self.kid else {}), **header}
        message = f"{encode(json.dumps(header).encode())}.{encode(json.dumps(claims).encode())}"
        file = self.key.with_suffix(".message")
        file.write_text(message)
        how = ["pkeyutl", "-sign", "-inkey", self.key, "-rawin", "-in", file]
        if self.kind != "EdDSA":
            how = ["dgst", "-sha256", "-sign", self.key, file]
        signature = subprocess.run(["openssl", *map(str, how)], check=True, capture_output=True).stdout
        if self.kind == "ES256":
            signature = b"".join(number.to_bytes(32, "big") for number in integers(signature))
        return f"{message}.{encode(signature)}"


def bearer(token):
    return f"Authorization: Bearer {token}"


def symmetric(secret, claims, alg="HS256"):
    message = f"{encode(json.dumps({'alg': alg}).encode())}.{encode(json.dumps(claims).encode())}"
    return f"{message}.{encode(hmac.new(secret, message.encode(), hashlib.sha256).digest())}"


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
def test_a_token_signed_by_the_key_of_the_file_is_accepted(serve, site, tmp_path, kind):
    write(site / "x.txt", "x")
    issuer, other = Issuer(tmp_path, kind), Issuer(tmp_path, kind, "other")
    log = tmp_path / "access.log"
    server = serve(
        route=f'auth = {{ jwt = {{ key_file = "{issuer.public}" }} }}',
        server=f'access_log = {{ path = "{log}", format = "{{user}} {{status}}" }}\nerror_log = {{ level = "info" }}',
    )
    status, fields, _ = server.get("/x.txt")
    assert (status, fields["www-authenticate"]) == (401, "Bearer")
    good = issuer.token()
    for _ in range(2):
        assert server.get("/x.txt", bearer(good))[0] == 200
        assert server.get("/x.txt", f"authorization: bEARER  {good} ")[0] == 200
    for wrong in [other.token(), good[:-4] + "AAAA", issuer.token({"exp": 1}), issuer.token({"nbf": int(time.time()) + 600}),
                  issuer.token({"exp": None}), issuer.token({"sub": 7}), issuer.token({"sub": "a\nb"}), issuer.token(crit=["x"]),
                  issuer.token(alg="none"), issuer.token(alg="none").rpartition(".")[0] + ".", "x"]:
        status, fields, _ = server.get("/x.txt", bearer(wrong))
        assert status == 401 and fields["www-authenticate"].startswith('Bearer error="invalid_token", error_description="'), wrong
    # The public key is no secret with which tokens could be signed.
    forged = symmetric(issuer.public.read_bytes(), {"exp": time.time() + 60, "sub": "eve"})
    assert server.get("/x.txt", bearer(forged))[0] == 401
    assert server.get("/x.txt", bearer(good), bearer(good))[0] == 401
    assert server.get("/x.txt", bearer(""))[1]["www-authenticate"] == "Bearer"
    assert server.get("/x.txt", "Authorization: Basic YTpi")[0] == 401
    server.stop()
    assert "ann 200" in lines(log) and good not in server.log and "the token has expired" in server.log


def test_issuer_audience_and_claims_decide(serve, tmp_path):
    issuer = Issuer(tmp_path, "ES256")
    upstream = Upstream()
    server = serve(
        route=f'proxy = "{upstream.url}"',
        more=f"""
        [[site.route]]
        path = "/in/*"
        [site.route.auth]
        realm = "api"
        [site.route.auth.jwt]
        key_file = "{issuer.public}"
        issuer = ["https://a.test", "https://b.test"]
        audience = "us"
        algorithms = ["ES256"]
        required = ["exp", "scope"]
        claims = {{ X-Scope = "scope", X-Roles = "realm_access.roles", X-Mail = "mail" }}
        """,
    )
    whole = {"iss": "https://b.test", "aud": ["them", "us"], "scope": "read write", "realm_access": {"roles": ["a", "b"]}}
    spoofed = ["X-Scope: evil", "X_Scope: evil", "X.Scope: evil", "x-roles: evil", "X-Mail: evil", "Remote-User: evil", "Remote_User: evil"]
    assert server.get("/in/x", bearer(issuer.token(whole)), *spoofed)[0] == 200
    got = upstream.requests[-1]
    assert {name: got.fields.get(name) for name in ("x-scope", "x-roles", "x-mail", "remote-user")} == {
        "x-scope": "read write", "x-roles": "a,b", "x-mail": None, "remote-user": "ann",
    }
    assert b"evil" not in got.head
    assert server.get("/out", *spoofed)[0] == 200 and b"evil" not in upstream.requests[-1].head
    for change, why in [({"iss": "https://c.test"}, "issuer"), ({"aud": "them"}, "audience"), ({"aud": None}, "audience"), ({"scope": "a\rb"}, "claim")]:
        status, fields, _ = server.get("/in/x", bearer(issuer.token(whole | change)))
        assert status == 401 and why in fields["www-authenticate"], change
        assert fields["www-authenticate"].startswith('Bearer realm="api", error="invalid_token"')
    without = {name: value for name, value in whole.items() if name != "scope"}
    assert server.get("/in/x", bearer(issuer.token(without)))[0] == 401


def test_cookies_and_parameters_have_tokens_where_they_are_named(serve, site, tmp_path):
    write(site / "x.txt", "x")
    issuer = Issuer(tmp_path, "EdDSA")
    log = tmp_path / "access.log"
    key = f'key_file = "{issuer.public}"'
    server = serve(
        route=f'auth = {{ jwt = {{ {key}, cookie = "session", query = "t" }} }}',
        server=f'access_log = {{ path = "{log}", format = "{{target}} {{status}}" }}',
        more=f'[[site.route]]\npath = "/header/*"\nroot = "{site.parent}"\nauth = {{ jwt = {{ {key} }} }}',
    )
    token, old = issuer.token(), issuer.token({"exp": 1})
    assert server.get("/x.txt", f"Cookie: a=b; session={token}; sessions=x")[0] == 200
    assert server.get("/x.txt", "Cookie: a=b", f"Cookie: session={token}")[0] == 200
    assert server.get("/x.txt", f"Cookie: session={old}")[0] == 401
    assert server.get(f"/x.txt?a=b&t={token}")[0] == 200
    assert server.get(f"/x.txt?a=b&T={token}")[0] == 401
    # The field decides if it is there, then the cookie.
    assert server.get(f"/x.txt?t={token}", bearer(old))[0] == 401
    assert server.get(f"/x.txt?t={token}", f"Cookie: session={old}")[0] == 401
    assert server.get("/x.txt", f"Cookie: session={token}", "Authorization: Basic YTpi")[0] == 200
    assert server.get(f"/header/x?t={token}", f"Cookie: session={token}")[0] == 401
    server.stop()
    assert token.encode() not in log.read_bytes() and "/x.txt?a=b&t=REDACTED 200" in lines(log)


def test_a_symmetric_key_needs_its_algorithm(serve, site, tmp_path):
    write(site / "x.txt", "x")
    secret = b"s" * 64
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [{"kty": "oct", "k": encode(secret)}]}))
    server = serve(
        route=f'auth = {{ jwt = {{ key_file = "{file}", algorithms = ["HS256"] }} }}',
        more=f'[[site.route]]\npath = "/none/*"\nauth = {{ jwt = {{ key_file = "{file}" }} }}',
    )
    token = symmetric(secret, {"exp": time.time() + 60, "sub": "ann"})
    assert server.get("/x.txt", bearer(token))[0] == 200 and server.get("/none/x", bearer(token))[0] == 401
    assert server.get("/x.txt", bearer(symmetric(b"t" * 64, {"exp": time.time() + 60})))[0] == 401
    # The file with the key is not sent.
    server = serve(more=f'[[site.route]]\npath = "/k/*"\nroot = "{tmp_path}"\n[[site.route]]\npath = "/keys.json"\nroot = "{tmp_path}"\n'
                   f'[[site.route]]\npath = "/a/*"\nauth = {{ jwt = {{ key_file = "{file}", algorithms = ["HS256"] }} }}')
    assert server.get("/keys.json")[0] in (403, 404)


def test_a_changed_file_is_followed_and_a_broken_one_changes_nothing(serve, site, tmp_path):
    write(site / "x.txt", "x")
    first, second = Issuer(tmp_path, "ES256", "1"), Issuer(tmp_path, "ES256", "2")
    file = tmp_path / "keys.json"

    def store(*issuers):
        new = tmp_path / "new.json"
        new.write_text(json.dumps({"keys": [issuer.jwk for issuer in issuers]}))
        new.rename(file)

    store(first)
    server = serve(route=f'auth = {{ jwt = {{ key_file = "{file}" }} }}')

    def status(issuer):
        return server.get("/x.txt", bearer(issuer.token()))[0]

    assert (status(first), status(second)) == (200, 401)
    store(first, second)
    wait_until(lambda: status(second) == 200, "the second key in force")
    assert status(first) == 200
    store(second)
    wait_until(lambda: status(first) == 401, "the first key out of force")
    file.write_text("{")
    time.sleep(1.2)
    assert status(second) == 200
    server.logged("not JSON, in line 1; the previous keys stay in use")
    file.unlink()
    time.sleep(1.2)
    assert status(second) == 200


class KeyServer(Upstream):
    """Publishes keys: `issuers` may change, and `failure` is a response in their place."""

    def __init__(self, *issuers, tls=None):
        self.issuers, self.failure, self.hold = list(issuers), None, None
        super().__init__(self.keys, tls=tls)

    def keys(self, *_):
        if self.hold:
            self.hold.wait(10)
        body = json.dumps({"keys": [issuer.jwk for issuer in self.issuers]}).encode()
        return self.failure or response(body, "200 OK", "Content-Type: application/json")


def test_keys_are_fetched_once_and_again_for_an_unknown_key(serve, site, tmp_path):
    write(site / "x.txt", "x")
    first, second = Issuer(tmp_path, "ES256", "1"), Issuer(tmp_path, "RS256", "2")
    published = KeyServer(first)
    server = serve(route=f'auth = {{ jwt = {{ jwks = "{published.url}/keys" }} }}')
    published.hold = threading.Event()
    statuses = []
    token = first.token()
    clients = [threading.Thread(target=lambda: statuses.append(server.get("/x.txt", bearer(token))[0])) for _ in range(8)]
    [client.start() for client in clients]
    wait_until(lambda: published.requests, "a request for the keys")
    time.sleep(0.2)
    published.hold.set()
    [client.join() for client in clients]
    assert statuses == [200] * 8 and len(published.requests) == 1
    assert published.requests[0].target == "/keys" and "authorization" not in published.requests[0].fields
    # A minute has not passed.
    published.issuers.append(second)
    assert server.get("/x.txt", bearer(second.token()))[0] == 401 and len(published.requests) == 1
    assert server.get("/x.txt", bearer(token))[0] == 200


def test_a_reload_keeps_keys_that_were_fetched(serve, site, tmp_path):
    write(site / "x.txt", "x")
    issuer = Issuer(tmp_path, "ES256", "1")
    published = KeyServer(issuer)
    server = serve(route=f'auth = {{ jwt = {{ jwks = "{published.url}/keys" }} }}')
    assert server.get("/x.txt", bearer(issuer.token()))[0] == 200
    published.failure = response(b"", "500 Oops")
    file = tmp_path / "dunlin-0.toml"
    file.write_text(file.read_text() + 'set_fields = { X-New = "1" }\n')
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "x-new" in server.get("/x.txt")[1], "the new configuration in force")
    assert server.get("/x.txt", bearer(issuer.token()))[0] == 200 and len(published.requests) == 1


def test_without_keys_requests_get_503_until_they_are_there(serve, site, tmp_path):
    write(site / "x.txt", "x")
    issuer = Issuer(tmp_path, "ES256", "1")
    published = KeyServer(issuer)
    published.failure = response(b"", "500 Oops")
    server = serve(route=f'auth = {{ jwt = {{ jwks = "{published.url}/keys?token=SECRET" }} }}')
    status, fields, _ = server.get("/x.txt", bearer(issuer.token()))
    assert (status, fields["retry-after"]) == (503, "5") and server.get("/x.txt")[0] == 401
    log = server.logged("its response has status 500; there are no keys, so that requests with tokens get 503")
    assert "SECRET" not in log
    for failure in [response(b"x" * (1 << 20) + b"x"), response(b"{"), response(json.dumps({"keys": [{"kty": "oct", "k": encode(b"s" * 64)}]}).encode())]:
        published.failure = failure
        time.sleep(0.1)
    published.failure = None
    assert server.get("/x.txt", bearer(issuer.token()))[0] == 503 and len(published.requests) == 1
    wait_until(lambda: server.get("/x.txt", bearer(issuer.token()))[0] == 200, "keys in force")
    assert len(published.requests) == 2


@pytest.mark.parametrize("failure", [
    response(b"x" * (1 << 20) + b"x"), response(b"{"), response(b"[]"), response(b'{"keys":[]}'), b"",
    response(json.dumps({"keys": [{"kty": "oct", "k": encode(b"s" * 64), "kid": "1"}]}).encode()),
])  # fmt: skip
def test_hostile_key_sets_are_no_keys(serve, site, failure):
    published = KeyServer()
    published.failure = failure
    if not failure:
        published.answer = lambda *_: None
    server = serve(route=f'auth = {{ jwt = {{ jwks = "{published.url}/keys" }} }}')
    token = symmetric(b"s" * 64, {"exp": time.time() + 60, "sub": "eve"})
    assert server.get("/x", bearer(token))[0] in (401, 503)
    server.logged("there are no keys, so that requests with tokens get 503")


def test_keys_come_by_https_from_servers_that_are_trusted(serve, site, tmp_path):
    import ssl

    write(site / "x.txt", "x")
    issuer = Issuer(tmp_path, "ES256", "1")
    pair = certificate(tmp_path, "id")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*map(str, pair))
    published = KeyServer(issuer, tls=made)
    assert context(pair[0])
    jwks = f'jwks = "{published.url.replace("127.0.0.1", "localhost")}/keys"'
    server = serve(route=f'auth = {{ jwt = {{ {jwks}, authority = "{pair[0]}" }} }}')
    assert server.get("/x.txt", bearer(issuer.token()))[0] == 200
    server = serve(route=f"auth = {{ jwt = {{ {jwks} }} }}")
    assert server.get("/x.txt", bearer(issuer.token()))[0] == 503


def test_tokens_or_networks(serve, site, tmp_path):
    write(site / "x.txt", "x")
    issuer = Issuer(tmp_path, "ES256")
    jwt = f'{{ auth = {{ jwt = {{ key_file = "{issuer.public}" }} }} }}'
    users = tmp_path / "users"
    assert passwd(users, "ann", "a").returncode == 0
    server = serve(route=f'any = [{{ allow = ["192.0.2.1"] }}, {jwt}, {{ auth = {{ basic = "{users}" }} }}]')
    assert server.get("/x.txt", bearer(issuer.token()))[0] == 200
    head = server.exchange(b"GET /x.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").decode()
    assert " 401 " in head and "WWW-Authenticate: Bearer\r\n" in head and 'WWW-Authenticate: Basic realm="Restricted"' in head


@pytest.mark.parametrize(
    "table, what",
    [
        ("{}", "jwt: write key_file = "),
        ('{ key_file = "k", jwks = "https://a.test/" }', "either `key_file` or `jwks` has the keys"),
        ('{ jwks = "ftp://a.test/" }', "is not an http or https URL"),
        ('{ jwks = "http://a.test/" }', "jwks needs an https URL"),
        ('{ jwks = "https://a.test/", algorithms = ["HS256"] }', "need a `key_file`"),
        ('{ key_file = "k", algorithms = ["HS256", "RS256"] }', "cannot stand with others"),
        ('{ key_file = "k", algorithms = ["none"] }', "`none` is not one of"),
        ('{ key_file = "k", algorithms = [] }', "the list of `algorithms` is empty"),
        ('{ key_file = "k", timeout = "1s" }', "timeout does nothing without `jwks`"),
        ('{ key_file = "k", issuer = [] }', "the list of `issuer` is empty"),
        ('{ key_file = "k", cookie = "a b" }', '"a b" is not a name'),
        ('{ key_file = "k", query = "a&b" }', '"a&b" is not the name of a parameter'),
        ('{ key_file = "k", claims = { Cookie = "sub" } }', "claims: Cookie has another meaning"),
        ('{ key_file = "k", claims = { X-A = "" } }', "the name of the claim is empty"),
        ('{ key_file = "none" }', "auth: none: No such file"),
        ('{ key_file = "certificate" }', "it has a certificate; `openssl x509"),
        ('{ key_file = "private" }', "it has a private key; `openssl pkey"),
        ('{ key_file = "text" }', "neither a public key in PEM form"),
    ],
)
def test_errors_name_the_place(tmp_path, table, what):
    (tmp_path / "text").write_text("S3cret")
    if 'key_file = "private"' in table or 'key_file = "certificate"' in table:
        made, key = certificate(tmp_path, "own")
        made.rename(tmp_path / "certificate")
        key.rename(tmp_path / "private")
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\nauth = {{ jwt = {table} }}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True, cwd=tmp_path)
    errors = done.stderr.replace(f"{tmp_path}/", "")
    assert done.returncode == 1 and "dunlin.toml:5:" in errors and what in errors, errors
    assert "S3cret" not in errors


def test_they_are_explained(tmp_path):
    issuer = Issuer(tmp_path, "ES256")
    file = tmp_path / "dunlin.toml"
    keys = 'issuer = "https://a.test", audience = ["b", "c"], cookie = "s", claims = { X-A = "a" }'
    file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\nauth = {{ jwt = {{ key_file = "{issuer.public}", {keys} }} }}\n')
    done = subprocess.run([DUNLIN, "check", "-c", file, "--explain", "/"], capture_output=True, text=True)
    expected = f"tokens with keys of {issuer.public}; issuer https://a.test; audience b or c; cookie s; X-A from a"
    assert expected in done.stdout, done.stdout + done.stderr
