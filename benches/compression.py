"""The rows of compression: responses that are made for one request, and the response cache.

What makes the responses has processor 1, with the load generator: the processor time of the server is the figure to compare, at
the size of the coded bodies."""

import json
import re
import shutil
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path

ROWS = ["compress-php", "compress-json", "compress-plain", "compress-first-byte", "compress-cached"]
TYPES = "gzip_types text/plain text/css application/json application/javascript;"
PAGE, JSON = 79 * 1024, 10 * 1024


def page(size):
    """A page of that size: the text of the book, as a blog would have it."""
    files = sorted(Path("docs/src").glob("[f-s]*.md"))
    text = "\n\n".join(file.read_text() for file in files)
    blocks = (re.sub(r"\s+", " ", block.replace("&", "&amp;").replace("<", "&lt;")) for block in text.split("\n\n"))
    body = ""
    for number, block in enumerate(blocks):
        body += f'<article id="post-{number}" class="post type-post status-publish hentry category-{number % 7}">\n<div class="entry-content">\n'
        body += f'<p class="has-text-align-left">{block}</p>\n</div>\n<footer class="entry-meta"><a href="/posts/{number}/" rel="bookmark">{number}</a></footer>\n</article>\n'
        if len(body.encode()) > size:
            break
    return f"<!DOCTYPE html><html><head><title>Blog</title></head><body>\n{body}".encode()[:size]


def rows(size, random):
    """JSON of about that size, as an interface would send it."""
    found = []
    while len(text := json.dumps({"items": found}).encode()) < size:
        number = random.randrange(10**6)
        found.append({
            "id": number, "name": f"item {number % 977}", "price": number / 100, "in_stock": number % 3 > 0, "tags": ["new", "sale"][: number % 3],
            "url": f"https://shop.example/items/{number}", "updated": f"2026-0{number % 9 + 1}-1{number % 8}T10:{number % 60:02}:00Z",
        })
    return text


def decoded(coding, body):
    if coding == "identity":
        return body
    program = {"gzip": "gzip", "zstd": "zstd", "br": "brotli"}[coding]
    return subprocess.run([program, "-dc"], input=body, capture_output=True, check=True).stdout


class Rows:
    """The rows, for `Bench`."""

    def coded(self, port, path, coding):
        """The response with this coding, without its head."""
        command = ["curl", "-s", "-H", f"Accept-Encoding: {coding}", f"http://127.0.0.1:{port}{path}"]
        return subprocess.run(command, capture_output=True, check=True).stdout

    def code_race(self, title, variants, path, plain, connections=16):
        """Measures variants `(server, options, coding)` at a path, with the sizes of their bodies. Returns both by label."""
        running, sizes = {}, {}
        try:
            for label, (name, variant, coding) in variants.items():
                running[label] = self.start(name, **variant)
                body = self.coded(running[label].port, path, coding)
                if decoded(coding, body) != plain:
                    raise RuntimeError(f"{label} sends a wrong response")
            load = lambda label, server: self.wrk(server, path, connections, fields=[f"Accept-Encoding: {variants[label][2]}"])
            for label, server in running.items():
                load(label, server)
                # By now, what is sent again and again has its final form.
                sizes[label] = len(self.coded(server.port, path, variants[label][2]))
            result = self.rounds(running, load)
        finally:
            for server in running.values():
                server.stop()
        self.table(title, result)
        print("\n" + ", ".join(f"{label}: {size:,} bytes" for label, size in sizes.items()))
        return result, sizes

    def against(self, what, result, sizes, other, limit):
        """Compares the cheapest variant of Dunlin whose bodies are no larger than those of `other`, within 1 %."""
        fit = [label for label in result if label.startswith("dunlin") and sizes[label] <= sizes[other] * 1.01]
        if not fit:
            print(f"\n{what}: no variant has bodies of {sizes[other]:,} bytes or less")
            return
        best = min(fit, key=lambda label: result[label]["cpu_us"])
        ratio = result[best]["cpu_us"] / result[other]["cpu_us"]
        self.assess(f"{what}, {best} against {other}", ratio, ratio <= limit, f"≤ {limit:.2f}")

    def variants(self, own, nginx):
        """Variants with compression: of Dunlin by coding, and of nginx by level. `nginx(options)` has its options."""
        found = {f"dunlin, {coding}": ("dunlin", own, coding) for coding in ("gzip", "zstd", "br", "identity")}
        for level in (1, 5):
            found[f"nginx, gzip {level}"] = ("nginx", nginx(f"gzip on; gzip_comp_level {level}; {TYPES}"), "gzip")
        found["nginx, identity"] = ("nginx", nginx(""), "identity")
        return found

    def compress_php(self):
        folder = self.scripts_folder()
        plain = page(PAGE)
        (folder / "page.html").write_bytes(plain)
        (folder / "page.php").write_text("<?php header('Content-Type: text/html; charset=utf-8'); readfile(__DIR__ . '/page.html');")
        socket_path = self.folder / "compression.sock"
        pool = self.folder / "compression.conf"
        pool.write_text(
            f"[global]\nerror_log = {self.folder}/fpm.log\ndaemonize = no\n[www]\nuser = www-data\ngroup = www-data\n"
            f"listen = {socket_path}\nlisten.mode = 0666\nlisten.backlog = 511\npm = static\npm.max_children = 2\n"
        )
        fpm = shutil.which("php-fpm8.2") or shutil.which("php-fpm")
        manager = subprocess.Popen(["taskset", "-c", "1", fpm, "-F", "-R", "-y", pool], stderr=subprocess.DEVNULL)
        try:
            while not socket_path.exists():
                time.sleep(0.01)
            own = {"script": f'kind = "fastcgi", connect = ["unix:{socket_path}"], directory = "{folder}"', "server": "compress_share = 100"}
            variants = self.variants(own, lambda options: {"php": socket_path, "http": options})
            result, sizes = self.code_race("a page of PHP, 79 KB, 16 connections", variants, "/s/page.php", plain)
            for level, limit in ((1, 1.0), (5, 1.0)):
                self.against("CPU of a page of PHP", result, sizes, f"nginx, gzip {level}", limit)
            ratio = result["dunlin, zstd"]["cpu_us"] / result["nginx, gzip 1"]["cpu_us"]
            self.assess("CPU of a page of PHP with zstd against nginx, gzip 1", ratio, ratio <= 0.7, "≤ 0.70")
        finally:
            manager.terminate()
            manager.wait()

    def compress_json(self):
        plain = rows(JSON, self.random)
        (self.root / "list.json").write_bytes(plain)
        origin = self.start("dunlin", core=1, rules="compress = false")
        try:
            own = {"upstream": origin.port, "server": "compress_share = 100"}
            variants = self.variants(own, lambda options: {"upstream": origin.port, "http": options})
            result, sizes = self.code_race("JSON of a proxy, 10 KB, 16 connections", variants, "/list.json", plain)
            gzip_only = {label: value for label, value in result.items() if label in ("dunlin, gzip", "nginx, gzip 1")}
            self.against("CPU of JSON with gzip", gzip_only, sizes, "nginx, gzip 1", 1.0)
        finally:
            origin.stop()

    def compress_plain(self):
        """What compression costs where nothing is compressed: the type excludes it, or the client does."""
        (self.root / "small.html").write_bytes(page(1024))
        origin = self.start("dunlin", core=1, rules="compress = false")
        try:
            for path, text in (("/1k.bin", "another type"), ("/small.html", "a client without Accept-Encoding")):
                to = f'proxy = {{ to = "http://127.0.0.1:{origin.port}", idle_connections = 256 }}'
                variants = {name: ("dunlin", {"rules": f"{to}\n{more}"}) for name, more in (("off", 'compress = false\nunaccepted_coding = "pass"'), ("on", ""))}
                fields = ["Accept-Encoding: gzip, deflate, br, zstd"] if path == "/1k.bin" else []
                r = self.race(f"a proxied response that is not compressed, 1 KB, {text}", [], path, 32, variants, fields=fields)
                ratio = r["on"]["cpu_us"] / r["off"]["cpu_us"]
                self.assess(f"CPU with compression on against off, {text}", ratio, ratio <= 1.02, "≤ 1.02")
        finally:
            origin.stop()

    def compress_first_byte(self):
        """The time until the first part of a page arrives, whose second part does not come."""
        part = page(PAGE)[:4096]

        def serve(listener):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=respond, args=(connection,), daemon=True).start()

        def respond(connection):
            with connection:
                while request := connection.recv(65536):
                    # The first request, which shows that the server has started, gets all of the page.
                    end = b"" if request.startswith(b"GET /x") else b"0\r\n\r\n"
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%s" % (len(part), part, end))

        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        server = self.start("dunlin", upstream=listener.getsockname()[1])
        times = {"identity": [], "gzip": [], "zstd": [], "br": []}
        try:
            for _ in range(100 * self.options.rounds):
                for coding, taken in times.items():
                    taken.append(self.first_part(server, coding))
        finally:
            server.stop()
        medians = {coding: statistics.median(taken) for coding, taken in times.items()}
        print("\n### first part of a streamed page, ms\n\n" + ", ".join(f"{coding}: {value:.3f}" for coding, value in medians.items()))
        self.results["first part of a streamed page"] = medians
        for coding in ("gzip", "zstd", "br"):
            more = medians[coding] - medians["identity"]
            self.assess(f"ms until the first part with {coding}, more than plain", more, more <= 1, "≤ 1")

    def first_part(self, server, coding):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            began = time.perf_counter()
            connection.sendall(f"GET /x HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n".encode())
            data = b""
            # The end of the first chunk, after the head.
            while not (data.endswith(b"\r\n") and data.count(b"\r\n\r\n") and len(data.partition(b"\r\n\r\n")[2]) > 100):
                data += connection.recv(65536)
            return (time.perf_counter() - began) * 1000

    def compress_cached(self):
        """A stored page with its coded form, against the same page as a file with that."""
        plain = page(PAGE)
        (self.root / "page.html").write_bytes(plain)
        origin = self.start("dunlin", core=1, rules='cache_control = "max-age=86400"\ncompress = false')
        try:
            rules = f'proxy = "http://127.0.0.1:{origin.port}"\ncache = {{ responses = true }}'
            for coding in ("gzip", "zstd"):
                variants = {"file": ("dunlin", {}, coding), "stored response": ("dunlin", {"rules": rules}, coding)}
                result, _ = self.code_race(f"a cached page and the same page as a file, 79 KB, {coding}", variants, "/page.html", plain, 32)
                ratio = result["stored response"]["cpu_us"] / result["file"]["cpu_us"]
                self.assess(f"CPU of a cached page against a file, {coding}", ratio, ratio <= 1.1, "≤ 1.10")
        finally:
            origin.stop()
