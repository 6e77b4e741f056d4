"""The measured servers: configuration, start, version, stop."""

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def core_time(core=0):
    """Seconds of work of a processor, 0 is the server's: user, nice, system, irq and softirq time."""
    fields = Path("/proc/stat").read_text().splitlines()[1 + core].split()
    return sum(int(fields[n]) for n in (1, 2, 3, 6, 7)) / os.sysconf("SC_CLK_TCK")


class Server:
    """One server, bound to one processor, with its files in a folder of its own."""

    name = ""
    version_command = []

    def __init__(self, root, folder, core=0, **variant):
        self.root, self.folder, self.core, self.variant = Path(root), Path(folder), core, variant
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        # The variant `tls` has a certificate and its key. It adds a port for TLS, and one for HTTP/2 in the clear where
        # that needs a port of its own.
        self.tls_port, self.http2_port = free_port(), self.port

    @classmethod
    def version(cls):
        if not cls.version_command or not shutil.which(cls.version_command[0]):
            return "not installed"
        done = subprocess.run(cls.version_command, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip().splitlines()[0]

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def command(self):
        raise NotImplementedError

    def environment(self):
        return os.environ

    def start(self):
        log = open(self.folder / "output.log", "w")
        self.process = subprocess.Popen(
            ["taskset", "-c", str(self.core), *self.command()],
            stdout=log,
            stderr=log,
            env=self.environment(),
            start_new_session=True,
        )
        end = time.monotonic() + 15
        while True:
            try:
                self.get("/")
                return self
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    self.stop()
                    tail = (self.folder / "output.log").read_text()[-2000:]
                    raise RuntimeError(f"{self.name} does not start: {tail}")
                time.sleep(0.01)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    def pids(self):
        """The process and all its descendants."""
        children = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += children.get(pid, [])
        return found

    def cpu(self):
        """Processor time of all threads so far, in seconds."""
        total = 0
        for pid in self.pids():
            for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                try:
                    total += int(task.read_text().split()[0])
                except OSError:
                    pass
        return total / 1e9

    def memory(self):
        """Anonymous memory of all processes, in bytes."""
        total = 0
        for pid in self.pids():
            found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
            total += int(found[1]) * 1024 if found else 0
        return total

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Baseline(Server):
    name = "baseline"
    binary = "target/dist/baseline"

    @classmethod
    def version(cls):
        return "bare epoll responder"

    def command(self):
        file = self.variant.get("file") or self.root / "1k.bin"
        copies = str(self.variant.get("copies", 1))
        return [self.binary, "--listen", f"127.0.0.1:{self.port}", "--file", str(file), "--copies", copies]


class SpawnLoop(Baseline):
    """No server: a bare loop that starts a program repeatedly, beside servers that start it for each request."""

    name = "posix_spawn loop"

    @classmethod
    def version(cls):
        return "a bare loop that starts a program and reads its output"

    def start(self):
        return self

    def get(self, path):
        done = subprocess.run([self.root / path.lstrip("/")], capture_output=True)
        return 200, done.stdout.partition(b"\n\n")[2]

    def run(self, path, seconds):
        """Returns the number of runs per second."""
        command = ["taskset", "-c", str(self.core), Baseline.binary, "--spawn", self.root / path.lstrip("/")]
        return float(subprocess.check_output([*command, "--seconds", str(seconds)]))

    def stop(self):
        pass


class Dunlin(Server):
    name = "dunlin"
    binary = "target/dist/dunlin"

    @classmethod
    def version(cls):
        return subprocess.check_output([cls.binary, "version"], text=True).strip()

    def command(self):
        log, route = "", ""
        if self.variant.get("log"):
            log = f'access_log = {{ path = "{self.folder}/access.log", format = "combined" }}'
        if self.variant.get("cache") is False:
            sendfile = "true" if self.variant.get("sendfile") else "false"
            route = f'[[site.route]]\npath = "/*"\ncache = false\nsendfile = {sendfile}\n'
        listen, tls = "", ""
        if self.variant.get("tls"):
            certificate, key = self.variant["tls"]
            listen = f'[[listen]]\naddress = "127.0.0.1:{self.tls_port}"\ntls = true\n{self.variant.get("listen", "")}\n'
            tls = f'tls = {{ certificate = "{certificate}", key = "{key}" }}\n'
        if self.variant.get("upstream"):
            scheme = "h2c" if self.variant.get("http2_upstream") else "http"
            to = f"{scheme}://127.0.0.1:{self.variant['upstream']}"
            route = f'[[site.route]]\npath = "/*"\nproxy = {{ to = "{to}", idle_connections = 256 }}\nbody_size = "1GB"\n'
        if self.variant.get("rules"):
            route = f'[[site.route]]\npath = "/*"\n{self.variant["rules"]}\n'
        if self.variant.get("counted"):
            route += '[[site.route]]\npath = "/status/*"\nstatus = true\n'
        if self.variant.get("script"):
            route = f'[[site.route]]\npath = "/s/*"\nscript = {{ {self.variant["script"]} }}\n'
        route += self.variant.get("more", "")
        text = (
            f'[server]\nthreads = {self.variant.get("threads", 1)}\n{log}\n{self.variant.get("server", "")}\n'
            f'[[listen]]\naddress = "127.0.0.1:{self.port}"\n{listen}'
            f'[[site]]\nroot = "{self.root}"\n{tls}{route}'
        )
        return [self.variant.get("binary", self.binary), "serve", "--config", self.write("dunlin.toml", text)]


class Nginx(Server):
    name = "nginx"
    version_command = ["nginx", "-v"]

    def command(self):
        cache = "open_file_cache max=10000 inactive=600s; open_file_cache_valid 600s;"
        if self.variant.get("cache") is False:
            cache = "open_file_cache off;"
        log = f"{self.folder}/access.log combined buffer=64k flush=1s" if self.variant.get("log") else "off"
        tls = ""
        if self.variant.get("tls"):
            certificate, key = self.variant["tls"]
            self.http2_port = free_port()
            tls = (
                f"listen 127.0.0.1:{self.tls_port} ssl http2 backlog=4096; listen 127.0.0.1:{self.http2_port} http2; "
                f"ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3; "
                "ssl_session_cache shared:sessions:10m; http2_max_concurrent_streams 256;"
            )
        php = ""
        if self.variant.get("php"):
            php = (
                f"location /s/ {{ fastcgi_pass unix:{self.variant['php']}; include /etc/nginx/fastcgi_params; "
                f"fastcgi_param SCRIPT_FILENAME {self.root}/$fastcgi_script_name; }}"
            )
        upstream = location = ""
        if self.variant.get("upstream"):
            upstream = f"upstream one {{ server 127.0.0.1:{self.variant['upstream']}; keepalive 256; keepalive_requests 1000000000; }}"
            location = (
                'location / { proxy_pass http://one; proxy_http_version 1.1; proxy_set_header Connection ""; '
                f"proxy_set_header Host $host; client_max_body_size 0; {self.variant.get('location', '')} }}"
            )
            self.http2_port = free_port()
            location += f" listen 127.0.0.1:{self.http2_port} http2 backlog=4096; http2_max_concurrent_streams 256;"
        sendfile = "on" if self.variant.get("sendfile", True) else "off"
        siblings = "gzip_static on;" if self.variant.get("siblings") else ""
        text = f"""worker_processes 1; daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log;
events {{ worker_connections 20000; }}
http {{ access_log {log}; sendfile {sendfile}; tcp_nodelay on; keepalive_requests 1000000000;
  keepalive_timeout 600s; {cache} client_body_temp_path {self.folder}/body;
  proxy_temp_path {self.folder}/proxy; fastcgi_temp_path {self.folder}/fastcgi;
  uwsgi_temp_path {self.folder}/uwsgi; scgi_temp_path {self.folder}/scgi; {siblings} {self.variant.get("http", "")} {upstream}
  server {{ listen 127.0.0.1:{self.port} backlog=4096; {tls} root {self.root}; {php} {location} }} }}
"""
        return ["nginx", "-c", self.write("nginx.conf", text)]


class H2o(Server):
    name = "h2o"
    version_command = ["h2o", "--version"]

    def command(self):
        tls = ""
        if self.variant.get("tls"):
            certificate, key = self.variant["tls"]
            tls = f"""listen: {{ host: 127.0.0.1, port: {self.tls_port}, ssl: {{ certificate-file: {certificate}, key-file: {key} }} }}
http2-max-concurrent-requests-per-connection: 256
"""
        siblings = "file.send-compressed: ON\n" if self.variant.get("siblings") else ""
        text = f"""num-threads: 1
http1-request-timeout: 600
max-connections: 20000
user: root
listen: {{ host: 127.0.0.1, port: {self.port} }}
{siblings}{tls}hosts:
  default:
    paths:
      "/": {{ file.dir: {self.root} }}
"""
        return ["h2o", "-m", "worker", "-c", self.write("h2o.conf", text)]


class Lighttpd(Server):
    name = "lighttpd"
    version_command = ["lighttpd", "-v"]

    def command(self):
        text = f"""server.document-root = "{self.root}"
server.port = {self.port}
server.bind = "127.0.0.1"
server.max-keep-alive-requests = 1000000000
server.max-keep-alive-idle = 600
server.max-connections = 10000
server.max-fds = 20000
"""
        if self.variant.get("cgi"):
            text += 'server.modules = ( "mod_cgi" )\n$HTTP["url"] =^ "/s/" { cgi.assign = ( "" => "" ) }\n'

        return ["lighttpd", "-D", "-f", self.write("lighttpd.conf", text)]


class Apache(Server):
    name = "apache2"
    version_command = ["apache2", "-v"]

    def command(self):
        modules = "/usr/lib/apache2/modules"
        text = f"""ServerRoot {self.folder}
ServerName localhost
Listen 127.0.0.1:{self.port}
PidFile {self.folder}/pid
ErrorLog {self.folder}/error.log
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
User www-data
Group www-data
StartServers 1
ServerLimit 1
ThreadsPerChild 64
MaxRequestWorkers 64
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 600
EnableSendfile On
DocumentRoot {self.root}
<Directory {self.root}>
  Require all granted
</Directory>
"""
        if self.variant.get("cgi"):
            text += (
                f"LoadModule alias_module {modules}/mod_alias.so\nLoadModule cgid_module {modules}/mod_cgid.so\n"
                f"ScriptSock {self.folder}/cgi.sock\nScriptAlias /s/ {self.root}/s/\n"
            )
        return ["apache2", "-DFOREGROUND", "-f", self.write("apache.conf", text)]


class Caddy(Server):
    name = "caddy"
    version_command = ["caddy", "version"]

    def environment(self):
        return {**os.environ, "GOMAXPROCS": "1", "HOME": str(self.folder)}

    def command(self):
        text = f"""{{
  admin off
  auto_https off
}}
http://127.0.0.1:{self.port} {{
  root * {self.root}
  file_server
}}
"""
        if self.variant.get("tls"):
            certificate, key = self.variant["tls"]
            text += f"""https://localhost:{self.tls_port} {{
  tls {certificate} {key}
  root * {self.root}
  file_server
}}
"""
        return ["caddy", "run", "--adapter", "caddyfile", "--config", self.write("Caddyfile", text)]


class Haproxy(Server):
    """Only as a reverse proxy: the variant `upstream` is the port of the upstream."""

    name = "haproxy"
    version_command = ["haproxy", "-v"]

    def command(self):
        self.http2_port = free_port()
        protocol = "proto h2" if self.variant.get("http2_upstream") else ""
        text = f"""global
  nbthread 1
  maxconn 4000
  tune.h2.max-concurrent-streams 256
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 60s
  {self.variant.get("options", "")}
frontend clients
  bind 127.0.0.1:{self.port} backlog 4096
  bind 127.0.0.1:{self.http2_port} proto h2 backlog 4096
  default_backend one
backend one
  server only 127.0.0.1:{self.variant.get("upstream")} {protocol} pool-max-conn 256
"""
        return ["haproxy", "-db", "-f", self.write("haproxy.cfg", text)]


class Node(Server):
    """Node's server as an upstream: responds to GET with 1 KB, after `work` microseconds of processor time, and to POST with
    the number of bytes of its body."""

    name = "node"
    version_command = ["node", "--version"]

    def command(self):
        text = """
const body = Buffer.alloc(1024, 'x'), work = BigInt(+process.argv[3] * 1000);
const spin = () => { const end = process.hrtime.bigint() + work; while (process.hrtime.bigint() < end); };
require('http').createServer((request, response) => {
  if (request.method === 'GET') { if (work) spin(); return response.end(body); }
  let size = 0;
  request.on('data', (part) => { size += part.length; });
  request.on('end', () => response.end(String(size)));
}).listen(+process.argv[2], '127.0.0.1');
"""
        return ["node", self.write("upstream.js", text), str(self.port), str(self.variant.get("work", 0))]


class Application(Server):
    """A server of Python applications."""

    def start(self):
        self.version_command = [self.program(), "--version"]
        return super().start()

    def program(self):
        return str(Path(self.variant["python"]).parent / self.name)

    def environment(self):
        return {**os.environ, "PYTHONPATH": str(self.root / "s")}


class Gunicorn(Application):
    name = "gunicorn"

    def command(self):
        return [self.program(), "-w", "1", "-b", f"127.0.0.1:{self.port}", "--keep-alive", "75", "app:application"]


class Uwsgi(Application):
    name = "uwsgi"

    def command(self):
        options = ["--http11-socket", f"127.0.0.1:{self.port}", "--so-keepalive", "--disable-logging", "--master", "--add-header", "Connection: Keep-Alive"]
        return [self.program(), *options, "--processes", "1", "--wsgi", "app:application"]


class Granian(Application):
    name = "granian"

    def command(self):
        kind = self.variant.get("interface", "wsgi")
        callable = "application" if kind == "wsgi" else "asgi"
        options = ["--interface", kind, "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        return [self.program(), *options, "--no-access-log", "--log-level", "warning", f"app:{callable}"]


ALL = {server.name: server for server in (Baseline, SpawnLoop, Dunlin, Nginx, H2o, Lighttpd, Apache, Caddy, Haproxy, Node, Gunicorn, Uwsgi, Granian)}
