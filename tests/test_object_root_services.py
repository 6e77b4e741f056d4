"""Object stores of each kind, and the places where their credentials come from."""

import base64
import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.objects import BUCKET, CountingStore, counting_store, store  # noqa: F401
from support.tls import certificate, openssl
from support.waiting import wait_until

KEY = base64.b64encode(b"a key of an account").decode()
CONTENT = os.urandom(200_000)
OBJECTS = {"site/a.txt": b"some text", "site/docs/index.html": b"the documents", "site/data.bin": CONTENT, "outside.txt": b"no"}


@pytest.fixture
def serve_root(serve):
    """Starts a server with this root and the keys of its store."""

    def start(root, keys, more=""):
        table = f"[store.{root.partition('://')[0]}]\n{keys}\n"
        return serve(
            text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n{table}[[site]]\nroot = "{root}"\n{more}\n'
        )

    return start


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The environment of the tests has no credentials."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_", "GCE_", "IDENTITY_"))]:
        monkeypatch.delenv(name)


KINDS = {
    "s3": (f"s3://{BUCKET}/site", 'region = "eu-west-1"\naccess_key = "AKID"\nsecret_key = "hush"', "AWS4-HMAC-SHA256 Credential=AKID/"),
    "gs": (f"gs://{BUCKET}/site", "anonymous = true", None),
    "gs with an HMAC key": (f"gs://{BUCKET}/site", 'access_key = "GOOG"\nsecret_key = "hush"', "AWS4-HMAC-SHA256 Credential=GOOG/"),
    "az": (f"az://{BUCKET}/site", f'access_key = "account"\nsecret_key = "{KEY}"', "SharedKey account:"),
    "https": (f"https://files.example/{BUCKET}/site", 'access_key = "user"\nsecret_key = "hush"', "Basic " + base64.b64encode(b"user:hush").decode()),
    "https without credentials": (f"https://files.example/{BUCKET}/site", "", None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_served_from_each_kind_of_store(counting_store, serve_root, kind):
    root, keys, authorization = KINDS[kind]
    counting_store.objects = dict(OBJECTS)
    server = serve_root(root, f'endpoint = "{counting_store.endpoint}"\nrevalidate = "0s"\n{keys}')
    status, fields, body = server.get("/a.txt")
    assert (status, body, fields["last-modified"]) == (200, b"some text", "Tue, 14 Nov 2023 22:13:20 GMT")
    assert server.get("/a.txt", f"If-None-Match: {fields['etag']}")[0] == 304
    assert counting_store.fields[-1]["If-None-Match"] == fields["etag"], "the store confirms what is held"
    assert server.get("/data.bin")[2] == CONTENT
    status, fields, body = server.get("/data.bin", "Range: bytes=100000-100099")
    assert (status, body) == (206, CONTENT[100_000:100_100])
    assert server.get("/docs/")[2] == b"the documents"
    assert [server.get(path)[0] for path in ["/none.txt", "/%2e%2e/outside.txt"]] == [404, 400]
    has_prefixes = not kind.startswith("https")
    assert server.get("/docs")[0] == (301 if has_prefixes else 404)
    for sent in counting_store.fields:
        if authorization is None:
            assert "Authorization" not in sent
        else:
            assert sent["Authorization"].startswith(authorization)
    assert "hush" not in server.log and KEY not in server.log


@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_directories_of_each_kind_of_store_are_listed(counting_store, serve_root, scheme):
    root, keys, _ = KINDS[scheme]
    counting_store.objects = dict(OBJECTS)
    server = serve_root(root, f'endpoint = "{counting_store.endpoint}"\n{keys}', '[[site.route]]\npath = "/"\nlisting = true\n')
    listed = json.loads(server.get("/", "Accept: application/json")[2])
    sizes = {entry["name"].rstrip("/"): entry.get("size") for entry in listed["entries"]}
    assert set(sizes) == {"a.txt", "data.bin", "docs"} and sizes["data.bin"] == len(CONTENT)


def test_a_large_object_of_a_plain_server_is_streamed_by_ranges(counting_store, serve_root):
    content = os.urandom(9_000_000)
    counting_store.objects["large.bin"] = content
    more = '[[site.route]]\npath = "/*"\ncache = false\n'
    server = serve_root(f"https://files.example/{BUCKET}", f'endpoint = "{counting_store.endpoint}"', more)
    assert server.get("/large.bin")[2] == content
    status, _, body = server.get("/large.bin", "Range: bytes=8000000-8000009")
    assert (status, body) == (206, content[8_000_000:8_000_010])
    assert counting_store.requests[-1][1] == "bytes=8000000-8000009"


def test_a_store_with_tls_needs_a_certificate_of_an_authority(tmp_path, serve_root):
    authority = certificate(tmp_path, "authority")
    running = CountingStore(tls=certificate(tmp_path, "files", issuer=authority))
    running.objects["a.txt"] = b"some text"
    root = running.endpoint + f"/{BUCKET}"
    try:
        known = serve_root(root, f'authority = "{authority[0]}"')
        assert known.get("/a.txt")[2] == b"some text"
        unknown = serve_root(root, "")
        status, fields, _ = unknown.get("/a.txt")
        assert status == 503 and "retry-after" in fields
        assert "certificate" in unknown.logged("may be stale")
    finally:
        running.close()


class MetadataService(ThreadingHTTPServer):
    """The metadata services of Amazon, Google and Azure."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Metadata)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.place = f"127.0.0.1:{self.server_address[1]}"


class _Metadata(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_PUT(self):
        self.respond("token of the session" if self.path == "/latest/api/token" else None)

    def do_GET(self):
        roles = "/latest/meta-data/iam/security-credentials/"
        amazon = {"AccessKeyId": "AKIDROLE", "SecretAccessKey": "hush", "Token": "temporary", "Expiration": "2099-01-01T00:00:00Z"}
        google = {"access_token": "ya29.hush", "expires_in": 3600, "token_type": "Bearer"}
        azure = {"access_token": "eyJ.hush", "expires_on": "4070908800", "token_type": "Bearer"}
        if self.path.startswith("/latest/") and self.headers.get("X-aws-ec2-metadata-token") != "token of the session":
            return self.respond(None)
        if self.path.startswith("/computeMetadata/") and self.headers.get("Metadata-Flavor") != "Google":
            return self.respond(None)
        if self.path.startswith("/metadata/") and self.headers.get("Metadata") != "true":
            return self.respond(None)
        known = {roles: "web", f"{roles}web": json.dumps(amazon)}
        path, _, query = self.path.partition("?")
        known["/computeMetadata/v1/instance/service-accounts/default/token"] = json.dumps(google)
        if "resource=https%3A%2F%2Fstorage.azure.com" in query:
            known["/metadata/identity/oauth2/token"] = json.dumps(azure)
        self.respond(known.get(path))

    def respond(self, text):
        self.send_response(200 if text else 404)
        self.send_header("Content-Length", str(len(text or "")))
        self.end_headers()
        self.wfile.write((text or "").encode())


@pytest.fixture
def metadata():
    running = MetadataService()
    yield running
    running.shutdown()
    running.server_close()


def get(counting_store, serve_root, scheme, keys=""):
    """Requests an object, and returns the server and the fields that the store received."""
    counting_store.objects["a.txt"] = b"some text"
    server = serve_root(f"{scheme}://{BUCKET}", f'endpoint = "{counting_store.endpoint}"\n{keys}')
    assert server.get("/a.txt")[2] == b"some text", server.log
    assert "hush" not in server.log
    return server, counting_store.fields[-1]


def test_credentials_of_s3_come_from_the_environment(counting_store, serve_root, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "temporary")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    _, fields = get(counting_store, serve_root, "s3")
    assert "Credential=AKIDENV/" in fields["Authorization"] and "/eu-north-1/s3/" in fields["Authorization"]
    assert fields["X-Amz-Security-Token"] == "temporary"
    # The table of the store has priority.
    _, fields = get(counting_store, serve_root, "s3", 'access_key = "AKIDFILE"\nsecret_key = "hush"')
    assert "Credential=AKIDFILE/" in fields["Authorization"] and "X-Amz-Security-Token" not in fields


def test_credentials_of_s3_come_from_a_file_that_a_reload_reads_again(counting_store, serve_root, tmp_path):
    def write(name):
        (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = hush\n")

    write("AKIDONE")
    server, fields = get(counting_store, serve_root, "s3", 'credentials = "credentials"')
    assert "Credential=AKIDONE/" in fields["Authorization"]
    write("AKIDTWO")
    server.process.send_signal(signal.SIGHUP)

    def is_new():
        server.get(f"/none-{len(counting_store.fields)}.txt")
        return "Credential=AKIDTWO/" in counting_store.fields[-1]["Authorization"]

    wait_until(is_new, "the new credentials are used")
    assert server.get("/a.txt")[2] == b"some text"


def test_credentials_of_s3_come_from_the_metadata_service(counting_store, serve_root, metadata, monkeypatch):
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://{metadata.place}")
    _, fields = get(counting_store, serve_root, "s3")
    assert "Credential=AKIDROLE/" in fields["Authorization"]
    assert fields["X-Amz-Security-Token"] == "temporary"


def test_a_machine_without_credentials_has_503_and_a_line_in_the_log(counting_store, serve_root, monkeypatch):
    with_none = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{with_none.server_address[1]}")
    with_none.server_close()
    server = serve_root(f"s3://{BUCKET}", f'endpoint = "{counting_store.endpoint}"')
    status, fields, _ = server.get("/a.txt")
    assert status == 503 and int(fields["retry-after"]) > 0
    assert f"object store s3://{BUCKET}: " in server.logged("may be stale")
    assert not counting_store.requests


@pytest.fixture
def account(tmp_path):
    """The file of a service account of Google, for `web@project.iam.gserviceaccount.com`."""
    key = tmp_path / "key.pem"
    openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key)
    content = {
        "type": "service_account", "private_key_id": "1", "private_key": key.read_text(),
        "client_email": "web@project.iam.gserviceaccount.com",
    }
    (tmp_path / "account.json").write_text(json.dumps(content))
    return tmp_path / "account.json"


def assert_signed_by_the_account(server, fields):
    kind, _, token = fields["Authorization"].partition(" ")
    claims = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert (kind, claims["iss"]) == ("Bearer", "web@project.iam.gserviceaccount.com")
    assert token not in server.log


def test_credentials_of_google_come_from_a_file(counting_store, serve_root, account):
    assert_signed_by_the_account(*get(counting_store, serve_root, "gs", f'credentials = "{account.name}"'))


@pytest.mark.parametrize("variable", ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS"])
def test_credentials_of_google_come_from_the_environment(counting_store, serve_root, account, monkeypatch, variable):
    monkeypatch.setenv(variable, str(account))
    assert_signed_by_the_account(*get(counting_store, serve_root, "gs"))


def test_credentials_of_google_come_from_the_metadata_service(counting_store, serve_root, metadata, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_HOST", metadata.place)
    _, fields = get(counting_store, serve_root, "gs")
    assert fields["Authorization"] == "Bearer ya29.hush"


def test_credentials_of_azure_come_from_the_environment(counting_store, serve_root, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    server, fields = get(counting_store, serve_root, "az")
    assert fields["Authorization"].startswith("SharedKey account:") and KEY not in server.log


def test_credentials_of_azure_come_from_the_metadata_service(counting_store, serve_root, metadata, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{metadata.place}/metadata/identity/oauth2/token")
    _, fields = get(counting_store, serve_root, "az")
    assert fields["Authorization"] == "Bearer eyJ.hush"
