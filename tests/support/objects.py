"""Object stores for tests: gofakes3, and versitygw where it is installed; and a store that counts requests and responds slowly."""

import hashlib
import hmac
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote
from xml.sax.saxutils import escape

import pytest
from support.waiting import wait_until

BUCKET = "pages"
ACCESS_KEY, SECRET_KEY, REGION = "AKIDEXAMPLE", "topsecretvalue", "us-east-1"


def program(name):
    """The path of a program that Go has installed, or of the system."""
    folder = Path(os.environ.get("GOBIN", Path.home() / "go" / "bin"))
    found = shutil.which(name) or (str(folder / name) if (folder / name).exists() else None)
    if not found:
        pytest.skip(f"{name} is not installed (./test installs it)")
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Store:
    """An S3 store on a port of its own. It can be stopped, and started again with what it had."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.process = None
        self.start()

    def command(self):
        return [
            program("gofakes3"), "-host", f"127.0.0.1:{self.port}", "-backend", "bolt",
            "-bolt.db", str(self.folder / "store.db"), "-initialbucket", BUCKET, "-quiet",
        ]

    environment = None

    def start(self):
        self.process = subprocess.Popen(
            self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment,
        )
        wait_until(self.responds, "the store responds")

    def responds(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            assert self.process.poll() is None, "the store ended"
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def proceed(self):
        self.process.send_signal(signal.SIGCONT)

    def request(self, method, key, body=None, fields=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        path = quote(f"/{BUCKET}/{key}", safe="/-_.~")
        signed = signature(method, path, f"127.0.0.1:{self.port}", body or b"")
        connection.request(method, path, body, {**signed, **dict(fields)})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        assert response.status < 300, (method, key, response.status, content)
        response.content = content
        return response

    def put(self, key, content, **fields):
        if isinstance(content, str):
            content = content.encode()
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        self.request("PUT", key, content, named)

    def get(self, key):
        return self.request("GET", key).content

    def delete(self, key):
        self.request("DELETE", key)

    def keys(self, prefix):
        """The keys of all objects that begin so."""
        found = re.findall("<Key>(.*?)</Key>", self.request("GET", "").content.decode())
        return [key for key in found if key.startswith(prefix)]

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def table(self, more=""):
        return (
            f'[store.s3]\nendpoint = "{self.endpoint}"\nregion = "{REGION}"\n'
            f'access_key = "{ACCESS_KEY}"\nsecret_key = "{SECRET_KEY}"\n{more}\n'
        )


class Versity(Store):
    """versitygw, which checks signatures."""

    def command(self):
        (self.folder / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
        (self.folder / "metadata").mkdir(exist_ok=True)
        return [
            program("versitygw"), "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", f"127.0.0.1:{self.port}", "--quiet",
            "posix", "--sidecar", str(self.folder / "metadata"), str(self.folder / "objects"),
        ]


def signature(method, path, host, body):
    """The fields that sign a request without a query (Signature Version 4 of AWS)."""
    digest = hashlib.sha256(body).hexdigest()
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    names = "host;x-amz-content-sha256;x-amz-date"
    canonical = f"{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n\n{names}\n{digest}"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{SECRET_KEY}".encode()
    for part in [*scope.split("/"), text]:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    credential = f"Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {
        "X-Amz-Content-Sha256": digest, "X-Amz-Date": now, "Authorization": f"AWS4-HMAC-SHA256 {credential}",
    }


class CountingStore(ThreadingHTTPServer):
    """A store with one bucket, which counts its requests, and delays heads and parts of bodies.

    It has the interfaces of S3, Google Cloud Storage and Azure as far as the server needs them, and is a plain HTTP server.
    """

    daemon_threads = True
    request_queue_size = 2048

    def __init__(self, tls=None):
        self.objects = {}
        self.requests = []
        self.fields = []
        self.scheme = "https" if tls else "http"
        self.head_delay = 0.0
        self.part_delay = 0.0
        self.refuse = None
        self.cuts = 0
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*map(str, tls))
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    @property
    def endpoint(self):
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    table = Store.table

    def handle_error(self, *_):
        """A client that ends a connection is no error."""

    def gets(self, key):
        with self.lock:
            return [request for request in self.requests if request[0] == key]

    def cut(self):
        """Has the bodies of requests that have come end after their first part."""
        self.cuts += 1

    def close(self):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path, _, query = self.path.partition("?")
        key = unquote(path).removeprefix("/").partition("/")[2]
        store = self.server
        self.cuts = store.cuts
        with store.lock:
            store.requests.append((key or query, self.headers.get("Range"), time.monotonic()))
            store.fields.append(self.headers)
        time.sleep(store.head_delay)
        if store.refuse:
            return self.respond(*store.refuse)
        if not key and ("list-type=2" in query or "comp=list" in query):
            return self.respond(200, listing(store.objects, query).encode())
        content = store.objects.get(key)
        if content is None:
            return self.respond(404, b"<Error><Code>NoSuchKey</Code></Error>")
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        if self.headers.get("If-None-Match") == tag:
            return self.respond(304, b"", tag)
        if self.headers.get("If-Match") not in (None, tag):
            return self.respond(412, b"")
        wanted = self.headers.get("Range")
        if not wanted:
            return self.respond(200, content, tag)
        first, last = wanted.removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last), len(content) - 1)
        return self.respond(206, content[first : last + 1], tag, f"bytes {first}-{last}/{len(content)}")

    def respond(self, status, body, tag=None, content_range=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT")
        if tag:
            self.send_header("ETag", tag)
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        parts = [body[at : at + 65536] for at in range(0, len(body), 65536)]
        try:
            for number, part in enumerate(parts):
                if number and self.server.cuts != self.cuts:
                    self.close_connection = True
                    return
                self.wfile.write(part)
                if self.server.part_delay:
                    time.sleep(self.server.part_delay)
        except OSError:
            pass


def listing(objects, query):
    """A page of a listing, as S3 or Azure have it."""
    prefix = parse_qs(query).get("prefix", [""])[0]
    names = sorted(key.removeprefix(prefix) for key in objects if key.startswith(prefix) and key != prefix)
    files = [name for name in names if "/" not in name]
    folders = sorted({name.partition("/")[0] for name in names if "/" in name})
    if "comp=list" in query:
        date = "<Last-Modified>Tue, 14 Nov 2023 22:13:20 GMT</Last-Modified>"
        blobs = [
            f"<Blob><Name>{escape(prefix + name)}</Name><Properties>{date}<Content-Length>{len(objects[prefix + name])}</Content-Length>"
            "<Content-Type>text/plain</Content-Type><Etag>x</Etag></Properties></Blob>"
            for name in files
        ]
        blobs += [f"<BlobPrefix><Name>{escape(prefix + name)}/</Name></BlobPrefix>" for name in folders]
        return f"<EnumerationResults><Blobs>{''.join(blobs)}</Blobs></EnumerationResults>"
    contents = [
        f"<Contents><Key>{escape(prefix + name)}</Key><Size>{len(objects[prefix + name])}</Size>"
        "<LastModified>2023-11-14T22:13:20.000Z</LastModified><ETag>x</ETag></Contents>"
        for name in files
    ]
    contents += [f"<CommonPrefixes><Prefix>{escape(prefix + name)}/</Prefix></CommonPrefixes>" for name in folders]
    # The names of prefixes are between those of objects.
    contents.sort(key=lambda entry: re.search("<(?:Key|Prefix)>([^<]*)", entry)[1])
    fields = parse_qs(query)
    begin = int(fields.get("continuation-token", ["0"])[0])
    end = begin + int(fields.get("max-keys", ["1000"])[0])
    more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(contents) else ""
    return f"<ListBucketResult>{''.join(contents[begin:end])}{more}</ListBucketResult>"


def running_store(kind, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    running = kind(folder)
    yield running
    running.proceed()
    running.kill()


@pytest.fixture
def store(tmp_path):
    """An S3 store."""
    yield from running_store(Store, tmp_path)


@pytest.fixture(params=[Store, Versity], ids=["gofakes3", "versitygw"])
def each_store(request, tmp_path):
    """S3 stores of different programs."""
    yield from running_store(request.param, tmp_path)


@pytest.fixture
def counting_store():
    running = CountingStore()
    yield running
    running.close()


@pytest.fixture
def serve_objects(serve):
    """Starts a server whose files are in a store: `serve_objects(store, route="...", more="...")`."""

    def start(store, route="", server="", table="", prefix="", more=""):
        text = (
            f'[server]\nthreads = 1\nadmin = "admin.sock"\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\n'
            f'{store.table(table)}\n[[site]]\nroot = "s3://{BUCKET}{prefix}"\n'
            + (f'[[site.route]]\npath = "/*"\n{route}\n' if route else "")
            + more
        )
        return serve(text=text)

    return start
