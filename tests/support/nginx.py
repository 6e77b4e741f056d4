"""nginx and Dunlin on the same nginx configuration, with upstreams that record what they get."""

import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from support.http import parse, read_all
from support.objects import free_port
from support.server import DUNLIN, Server
from support.waiting import wait_until

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
PHP_FPM = next((found for name in ("php-fpm8.2", "php-fpm8.4", "php-fpm") if (found := shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin"))), None)
FILES = Path(__file__).parent.parent / "nginx"

# What upstreams of Dunlin get besides.
ADDED = {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-prefix", "forwarded", "via", "connection", "te", "x-original-method", "x-original-uri", "remote-user"}


class Recorder:
    """An upstream that answers with what it got."""

    def __init__(self, name):
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self):
                if recorder.is_closed:
                    self.close_connection = True
                    return
                length = int(self.headers.get("Content-Length", 0) or 0)
                body = self.rfile.read(length).decode("latin-1")
                if "chunked" in self.headers.get("Transfer-Encoding", ""):
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size).decode("latin-1")
                        self.rfile.readline()
                    self.rfile.readline()
                fields = {name.lower(): value for name, value in self.headers.items()}
                recorder.seen.append((self.command, self.path, fields, body))
                text = json.dumps([name, self.command, self.path, body]).encode()
                path = urlsplit(self.path).path
                status = int(found[1]) if (found := re.search(r"/status-(\d+)", path)) else 200
                if "deny" in path or "verify" in path and "authorization" not in fields:
                    status = 401
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("X-Powered-By", "recorder")
                if "/set-cookie" in path:
                    self.send_header("Set-Cookie", "a=b")
                if "/redirect" in path:
                    self.send_header("Location", f"http://{self.headers['Host']}/moved")
                if status not in (204, 304):
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD" and status not in (204, 304):
                    self.wfile.write(text)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = respond

            def log_message(self, *_):
                pass

        self.seen, self.is_closed = [], False
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self):
        """What has arrived since the last call."""
        seen, self.seen[:] = list(self.seen), []
        return seen

    def close(self):
        self.is_closed = True
        self.server.shutdown()
        self.server.server_close()


class Both:
    """nginx and Dunlin with one file."""

    def __init__(self, text, folder):
        self.folder = folder
        self.upstreams = [Recorder("one"), Recorder("two")]
        self.port = free_port()
        self.root = folder / "www" / "site"
        (folder / "temp").mkdir(exist_ok=True)
        words = {
            "PORT": self.port,
            "ROOT": self.root,
            "CONF": "/etc/nginx",
            "TMP": folder / "temp",
            "FPM": folder / "fpm.sock",
            "UP1": self.upstreams[0].port,
            "UP2": self.upstreams[1].port,
        }
        for name, value in words.items():
            text = text.replace(f"@{name}@", str(value))
        temporary = "".join(f" {kind}_temp_path {folder}/temp/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self.text = text.replace("http {", f"http {{ access_log off;{temporary}", 1)
        self.file = folder / "nginx.conf"
        self.file.write_text(self.text)
        self.fpm = self.nginx = self.dunlin = None

    def start(self):
        if "@FPM@" in self.text or "fpm.sock" in self.text:
            self._start_fpm()
        self.start_nginx()
        arguments = ["--nginx", str(self.file), "--prefix", str(self.folder), "--listen", "127.0.0.1:0", "--threads", "1"]
        self.dunlin = Server(arguments, self.folder)

    def start_nginx(self):
        switches = f"daemon off; user root; pid {self.folder}/nginx.pid; worker_processes 1;"
        self.nginx = subprocess.Popen(
            [NGINX, "-e", self.folder / "nginx.log", "-p", self.folder, "-c", self.file, "-g", switches], stderr=subprocess.DEVNULL
        )
        wait_until(lambda: self.nginx.poll() is not None or socket.socket().connect_ex(("127.0.0.1", self.port)) == 0, "nginx is ready")
        assert self.nginx.poll() is None, (self.folder / "nginx.log").read_text()

    def _start_fpm(self):
        config = self.folder / "fpm.conf"
        config.write_text(
            f"[global]\nerror_log = {self.folder}/fpm.log\n[www]\nuser = root\ngroup = root\nlisten = {self.folder}/fpm.sock\n"
            "pm = static\npm.max_children = 2\n"
        )
        self.fpm = subprocess.Popen([PHP_FPM, "-R", "-F", "-y", config], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_until(lambda: (self.folder / "fpm.sock").exists(), "PHP-FPM is ready")

    def report(self):
        """The report of the conversion, one line for each finding."""
        done = subprocess.run(
            [DUNLIN, "convert", "nginx", self.file, "--prefix", self.folder], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode in (0, 4), done.stderr
        assert "by hand" not in done.stderr, done.stderr + done.stdout
        return done.stdout, done.stderr, done.returncode

    def ask(self, port, method, path, host, fields, body):
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        if body is not None:
            head += f"Content-Length: {len(body)}\r\n"
        data = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{head}\r\n".encode("latin-1") + (body or b"")
        with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
            connection.sendall(data)
            try:
                raw = read_all(connection)
            except ConnectionResetError:
                raw = b""
        if not raw:
            return None, {}, b"", []
        status, answer, content = parse(raw, method)
        seen = [call for upstream in self.upstreams for call in upstream.take()]
        return status, answer, content, seen

    def stop(self):
        for process in (self.nginx, self.fpm):
            if process and process.poll() is None:
                process.terminate()
                process.wait(20)
        if self.dunlin:
            self.dunlin.kill()
        for upstream in self.upstreams:
            upstream.close()


def fields_of(text):
    """The names of fields that a file sets or hides."""
    names = re.findall(r"(?:add_header|hide_header)\s+\"?([A-Za-z-]+)", text)
    if re.search(r"\bexpires\b", text):
        names.append("cache-control")
    return {name.lower() for name in names}


def is_page_of_nginx(body):
    return b"<center>nginx" in body or not body.strip() or body in (b"File not found.\n", b"Access denied.\n")


def lost_fields(report):
    """Fields that the report states responses, or requests of upstreams, to lack."""
    return tuple({name.lower() for name in re.findall(pattern, report)} for pattern in (r"responses have no ([A-Za-z-]+)", r"the upstream gets no ([A-Za-z-]+)"))


def view(answer, url, names, lost=((), ())):
    """What counts of a response, and what the upstream saw."""
    status, fields, body, seen = answer
    location = fields.get("location")
    if location is not None:
        target = urlsplit(urljoin(url, location))
        own = urlsplit(url)
        # nginx names its own port, also to a client that has used another.
        host = "" if target.hostname in (own.hostname, "127.0.0.1") else target.netloc
        location = f"{host}{target.path}{'?' + target.query if target.query else ''}"
    shown = {name: joined(fields.get(name)) for name in names if name not in {"location", "x-content-type-options", *lost[0]}}
    calls = []
    for method, path, headers, content in seen:
        # HTTP/1.0 and HTTP/1.1 frame bodies in their own ways.
        left_out = ADDED | set(lost[1]) | {"content-length", "transfer-encoding", "accept-encoding", "host"}
        kept = {name: value for name, value in headers.items() if name not in left_out}
        host = re.sub(r":\d+$", "", headers.get("host", ""))
        calls.append((method, path, host, sorted(kept.items()), content))
    return {"status": status, "location": location, "fields": shown, "upstream": sorted(calls, key=str), "body": body}


def joined(value):
    """Lines of a field in one form."""
    if value is None:
        return None
    return sorted(part.strip().lower() for part in re.split(r"[,;]", value if isinstance(value, str) else ", ".join(value)) if part.strip())
