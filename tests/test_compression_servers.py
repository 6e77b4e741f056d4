"""Which responses of an upstream Dunlin compresses, beside nginx (gzip) and Caddy (zstd, gzip) before the same upstream."""

import contextlib
import functools
import os
import shutil
import socket
import subprocess
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from support.objects import free_port
from support.upstream import Upstream
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
CADDY = shutil.which("caddy")

TYPES = [
    "text/html", "text/html; charset=utf-8", "TEXT/HTML", "text/plain", "text/css", "text/event-stream", "text/x-unknown", "application/json",
    "application/javascript", "application/ld+json", "application/xhtml+xml", "application/xml", "application/wasm", "image/svg+xml", "font/ttf",
    "image/png", "image/x-icon", "font/woff2", "application/octet-stream", "application/zip", "video/mp4", "",
]
SIZES = [0, 100, 300, 600, 20_000, 300_000]
STATUSES = [200, 201, 202, 203, 204, 206, 207, 301, 304, 400, 403, 404, 410, 500, 503]
METHODS = ["GET", "HEAD", "POST"]
FIELDS = [
    "Cache-Control: no-transform", "Cache-Control: public, max-age=5", "Content-Encoding: br", "Content-Encoding: identity", "Content-Digest: sha-256=:AAAA:",
    'ETag: "strong"', 'ETag: W/"weak"', "Last-Modified: Tue, 01 Jan 2019 00:00:00 GMT", "Vary: Origin", "Vary: Accept-Encoding", "Vary: *",
    "Set-Cookie: a=b", "Accept-Ranges: bytes", "Content-Disposition: attachment", "Expires: Tue, 01 Jan 2019 00:00:00 GMT", "X-Accel-Buffering: no",
]
ACCEPTED = [
    "", "gzip", "gzip, deflate, br", "gzip;q=0", "*", "*;q=0", "identity", "gzip;q=0.5, identity", "gzip;q=0.001", "x-gzip", "GZIP", "deflate", "gzip;q=2",
    "zstd, gzip", "zstd;q=0.5, gzip", "identity;q=0, gzip",
]
BASE = {"type": "text/html", "size": 20_000, "status": 200, "method": "GET", "field": "", "accept": "gzip", "chunked": False}


def cases():
    """Each axis by itself, and pairs of those that depend on each other."""
    axes = {"type": TYPES, "size": SIZES, "status": STATUSES, "method": METHODS, "field": FIELDS, "accept": ACCEPTED, "chunked": [True]}
    found = [BASE | {axis: value} for axis, values in axes.items() for value in values]
    for one, other in (("status", "method"), ("method", "field"), ("type", "chunked"), ("size", "chunked"), ("size", "method"), ("field", "accept")):
        found += [BASE | {one: first, other: second} for first in axes[one] for second in axes[other]]
    unique = {tuple(case.items()): case for case in found}
    # No server may send content with these.
    return [case for case in unique.values() if not (case["status"] in (204, 304) and case["chunked"])]


@functools.cache
def content(size, field):
    body = (b"the same words again and again " * (size // 31 + 1))[:size]
    if field == "Content-Encoding: br":
        return subprocess.run(["brotli", "-c"], input=body, capture_output=True, check=True).stdout
    return body


def answer(_, __, request):
    """The response that the query describes."""
    case = {name: values[0] for name, values in parse_qs(urlsplit(request.target).query, keep_blank_values=True).items()}
    status, size = int(case["status"]), int(case["size"])
    fields = [f"Content-Type: {case['type']}"] * bool(case["type"]) + [case["field"]] * bool(case["field"])
    if status == 206:
        fields.append(f"Content-Range: bytes 0-{size - 1}/{size * 2}")
    if status == 301:
        fields.append("Location: /other")
    body = content(size, case["field"])
    if status in (204, 304):
        body = b""
    elif case["chunked"] == "True":
        fields.append("Transfer-Encoding: chunked")
        body = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    else:
        fields.append(f"Content-Length: {len(body)}")
    head = "".join(f"{field}\r\n" for field in [f"HTTP/1.1 {status} Some", *fields, ""])
    return head.encode() + (b"" if request.method == "HEAD" else body)


class Other:
    """A server other than Dunlin, before an upstream."""

    def __init__(self, command, port, folder):
        self.port = port
        log = (folder / "output.log").open("w")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "HOME": str(folder)})
        wait_until(self.is_open, f"{command[0]} listens", 20)

    def is_open(self):
        with contextlib.suppress(OSError):
            self.connect().close()
            return True

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=15)

    def stop(self):
        self.process.kill()
        self.process.wait()


def nginx(upstream, folder):
    types = " ".join(sorted({kind.split(";")[0].lower() for kind in TYPES if is_text(kind)} - {"text/html"}))
    port = free_port()
    (folder / "nginx.conf").write_text(f"""
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  gzip on; gzip_proxied any; gzip_vary on; gzip_min_length 256; gzip_types {types};
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {upstream.url}; proxy_http_version 1.1; }} }} }}
""")
    return Other([NGINX, "-c", folder / "nginx.conf"], port, folder)


def caddy(upstream, folder):
    port = free_port()
    (folder / "Caddyfile").write_text(f"""
{{
  admin off
  auto_https off
}}
http://:{port} {{
  bind 127.0.0.1
  encode zstd gzip
  reverse_proxy {upstream.authority}
}}
""")
    return Other([CADDY, "run", "--config", folder / "Caddyfile"], port, folder)


def is_text(kind):
    return not any(part in kind for part in ("png", "woff2", "octet", "zip", "mp4", "event-stream")) and kind != ""


def decision(server, case):
    """The coding of the response, its entity tag, and whether `Vary` names the field."""
    query = "&".join(f"{name}={quote(str(value))}" for name, value in case.items() if name not in ("method", "accept"))
    accept = f"Accept-Encoding: {case['accept']}\r\n" if case["accept"] else ""
    body = "Content-Length: 0\r\n" if case["method"] == "POST" else ""
    with server.connect() as connection:
        connection.sendall(f"{case['method']} /?{query} HTTP/1.1\r\nHost: x\r\n{accept}{body}Connection: close\r\n\r\n".encode())
        data = b""
        while part := connection.recv(1 << 16):
            data += part
    head = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    assert f" {case['status']}" in head[0], (case, head)
    fields = {}
    for line in head[1:]:
        name, _, value = line.partition(": ")
        fields.setdefault(name.lower(), []).append(value)
    coding = ", ".join(fields.get("content-encoding", ["identity"]))
    vary = ", ".join(fields.get("vary", [])).lower()
    return coding, fields.get("etag", [None])[0], "accept-encoding" in vary or "*" in vary


def is_coded_already(case):
    return case["field"] == "Content-Encoding: br"


# Why Dunlin decides otherwise than a server: the server, the cases, and the reason.
REASONS = [
    ("nginx", lambda case: case["status"] not in (200, 403, 404), "nginx compresses responses with 200, 403 and 404 only"),
    ("nginx", lambda case: case["method"] == "HEAD", "nginx does not give HEAD the fields of GET (RFC 9110 §9.3.2)"),
    ("nginx", lambda case: case["accept"] in ("*", "x-gzip"), "nginx looks for gzip by that name only (RFC 9110 §8.4.1.3, §12.5.3)"),
    ("nginx", lambda case: "zstd" in case["accept"], "nginx has no zstd"),
    ("caddy", lambda case: case["accept"] in ("*", "x-gzip"), "Caddy looks for gzip by that name only (RFC 9110 §8.4.1.3, §12.5.3)"),
    ("caddy", lambda case: case["accept"] == "gzip;q=2", "Caddy takes a malformed weight for one"),
    ("caddy", lambda case: case["size"] == 300, "Caddy compresses from 512 bytes on, and Dunlin from 256 as for files"),
    ("caddy", lambda case: case["status"] in (206, 301), "Caddy compresses parts, whose ranges are those of the other bytes, and redirects"),
    ("caddy", lambda case: case["field"] == 'ETag: "strong"', "Caddy 2.6 keeps strong tags of other bytes (RFC 9110 §8.8.1)"),
    ("caddy", lambda case: case["type"] == "text/event-stream", "Caddy compresses event streams; Dunlin with `compress_events`"),
    ("caddy", lambda case: case["type"] == "", "Caddy guesses types"),
    ("caddy", lambda case: case["type"] in CADDY_HAS_NOT, "Caddy's list does not have the type"),
    *((name, lambda case: case["accept"] == "gzip;q=0.5, identity", f"{name} ignores the order of weights (RFC 9110 §12.5.3)") for name in ("nginx", "caddy")),
    *((name, lambda case: "no-transform" in case["field"], f"{name} ignores no-transform (RFC 9111 §5.2.2.6)") for name in ("nginx", "caddy")),
    *((name, lambda case: "Digest" in case["field"], f"{name} keeps a digest of other bytes (RFC 9530 §2)") for name in ("nginx", "caddy")),
    *((name, is_coded_already, f"{name} sends a coding that the client does not accept") for name in ("nginx", "caddy")),
]
# Whether a server compresses a short body without a stated length depends on what it has read when it begins.
TIMING = [(name, lambda case: case["size"] < 600 and case["chunked"], f"{name} may know the length of a short chunked body") for name in ("nginx", "caddy")]
CADDY_HAS_NOT = {"TEXT/HTML", "application/ld+json", "application/xml", "application/wasm", "font/ttf", "image/x-icon"}


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_the_same_responses_are_compressed(serve, tmp_path, name):
    if not {"nginx": NGINX, "caddy": CADDY}[name]:
        pytest.skip(f"there is no {name} here")
    upstream = Upstream(answer)
    own = serve(route=f'proxy = "{upstream.url}"\ncompress = ["zstd", "gzip"]')
    other = {"nginx": nginx, "caddy": caddy}[name](upstream, tmp_path)
    used, unexplained = set(), []
    try:
        for case in cases():
            (coding, tag, varies), theirs = decision(own, case), decision(other, case)
            assert coding in ("identity", "br") or varies, case
            if (coding, tag) == theirs[:2]:
                continue
            reasons = {reason for server, applies, reason in REASONS + TIMING if server == name and applies(case)}
            used |= reasons
            if not reasons:
                unexplained.append(({axis: value for axis, value in case.items() if value != BASE[axis]}, coding, tag, theirs))
    finally:
        other.stop()
    assert not unexplained, unexplained
    assert used >= {reason for server, _, reason in REASONS if server == name}
