"""Instructions per request of ten fixed workloads, of two builds: the same on every machine, whatever else it does.

A server runs under callgrind twice for each workload, for some requests and for more of them. The difference is theirs."""

import re
import shutil
import signal
import subprocess
import sys

import servers

# The share by which a workload may have more.
MOST = 1.03
# Requests of the two runs.
FEW, MANY = 1_000, 5_000


class Unsupported(Exception):
    """The server responds with an error under valgrind."""


class Counted(servers.Dunlin):
    """The server under callgrind."""

    def command(self):
        valgrind = ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={self.folder}/counts.%p"]
        return [*valgrind, *super().command()]

    def instructions(self):
        """Ends the server. Returns the number of its instructions."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        text = (self.folder / f"counts.{self.process.pid}").read_text()
        return int(re.search(r"^(?:totals|summary): (\d+)", text, re.M)[1])


class Rows:
    """What the row `versions` adds, for `Bench`."""

    def instruction_cases(self, upstream):
        """The variant of the configuration and the options of h2load by workload."""
        pair = {"tls": self.certificate()}
        (self.root / "page.html").write_bytes(b"<p>A line of a page.</p>\n" * 400)
        h1 = lambda path="/1k.bin", *more: ["--h1", "-c", 8, *more, path]
        return {
            "1 KB": ({}, h1()),
            "64 KB": ({}, h1("/64k.bin")),
            "a page in gzip": ({}, h1("/page.html", "-H", "accept-encoding: gzip")),
            "a redirect": ({"rules": 'redirect = "/1k.bin"'}, h1()),
            "1 KB, access log": ({"log": True}, h1()),
            "1 KB over TLS": (pair, h1()),
            "HTTP/2, 1 KB": ({}, ["-c", 4, "-m", 32, "/1k.bin"]),
            "HTTP/2 over TLS, 64 KB": (pair, ["-c", 4, "-m", 8, "/64k.bin"]),
            "proxy, 1 KB": ({"upstream": upstream.port}, h1()),
            "proxy, a page in gzip": ({"upstream": upstream.port}, h1("/page.html", "-H", "accept-encoding: gzip")),
        }

    def count_instructions(self, before):
        """Compares the instructions per request of two builds, and names the workloads that have more."""
        if not shutil.which("valgrind"):
            print("\nvalgrind is missing: instructions are not counted", file=sys.stderr)
            return
        upstream = self.start("dunlin", core=1, binary=before, rules="compress = false")
        print("\n### instructions per request\n\n| | before | after | ratio |\n| --- | ---: | ---: | ---: |")
        found = {}
        try:
            for title, (variant, load) in self.instruction_cases(upstream).items():
                try:
                    counts = [self.instructions_each(binary, variant, load) for binary in (before, self.options.dunlin)]
                except Unsupported:
                    print(f"| {title} | – | – | – | (the server responds with an error under this valgrind)", flush=True)
                    continue
                found[title] = counts[1] / counts[0]
                print(f"| {title} | {counts[0]:,.0f} | {counts[1]:,.0f} | {found[title]:.3f} |", flush=True)
        finally:
            upstream.stop()
        self.results["instructions per request, after against before"] = found
        for title, ratio in found.items():
            if ratio > MOST:
                self.assess(f"instructions, {title}", ratio, False, f"≤ {MOST}")

    def instructions_each(self, binary, variant, load):
        """Returns the instructions of one request."""
        few, many = (self.instructions_of(binary, variant, load, count) for count in (FEW, MANY))
        return (many - few) / (MANY - FEW)

    def instructions_of(self, binary, variant, load, count):
        """Returns the instructions of a server that has that many requests."""
        self.serial += 1
        server = Counted(self.root, self.folder / f"counted-{self.serial}", binary=binary, **variant).start()
        try:
            *options, path = map(str, load)
            base = f"https://127.0.0.1:{server.tls_port}" if "tls" in variant else f"http://127.0.0.1:{server.http2_port}"
            command = ["taskset", "-c", "1", "h2load", "-n", str(count), *options, base + path]
            done = subprocess.run(command, capture_output=True, text=True)
            if f" {count} succeeded, 0 failed" not in done.stdout:
                raise RuntimeError(f"h2load: {done.stdout[-500:]}{done.stderr[-500:]}")
            # valgrind before 3.20 has no openat2, without which the server opens no file.
            if not re.search(rf"status codes: .*\b{count} (?:2|3)xx", done.stdout):
                raise Unsupported(done.stdout)
            return server.instructions()
        finally:
            server.stop()
