"""HTTP/3 against HTTP/2 over TLS, and against other servers, in a network namespace whose packets have at most 1,500 bytes."""

import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import servers
from link import SERVER, Link

ROWS = ["http3-1k", "http3-body", "http3-handshakes", "http3-idle", "http3-loss", "http3-beside"]

CLONE_NEWNET = 0x40000000
BODY = 100 << 20


def small_packets(done=[]):
    """Moves this process to a namespace of its own, once."""
    if not done:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            sys.exit("figures: the rows of HTTP/3 need root, for a network namespace")
        subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
        done.append(True)


class Rows:
    def http3_load(self, server, protocol, path, *options):
        """One run of the generator: requests per second, and time of the server's processor per request."""
        own = ["--insecure", "--json", "-", *options, f"https://localhost:{server.tls_port}{path}"]
        command = ["taskset", "-c", "1", servers.Dunlin.binary, "load", f"--{protocol}", *map(str, own)]
        before = servers.core_time()
        done = subprocess.run(command, capture_output=True, text=True)
        used = servers.core_time() - before
        try:
            outcome = json.loads(done.stdout)
        except ValueError:
            outcome = {"errors": 1}
        if outcome["errors"] or set(outcome["status"]) != {"200"}:
            print(f"    {server.name}: not counted: {done.stdout[-300:]}{done.stderr[-300:]}", file=sys.stderr)
            return None
        return outcome["requests_per_second"], used / outcome["requests"] * 1e6

    def http3_race(self, title, protocols, path, *options):
        """Measures pairs of a server and a protocol. Returns processor time per request by the name of the pair."""
        small_packets()
        certificate = self.certificate()
        used = {f"{name}, {protocol}": protocol for name, protocol in protocols}
        variants = {f"{name}, {protocol}": (name, {"tls": certificate}) for name, protocol in protocols}
        check = lambda _, server: self.verify(server, "/1k.bin")
        run = lambda label, server: self.http3_load(server, used[label], path, *options)
        return {label: measured["cpu_us"] for label, measured in self.compete(title, variants, check, run).items()}

    def http3_1k(self):
        for connections, streams, most in ((4, 32, 2.2), (64, 64, 2.5), (16, 1, 2.5)):
            pairs = [("dunlin", "http3"), ("dunlin", "http2"), ("caddy", "http3")]
            title = f"1 KB, {connections} connections of {streams} streams"
            options = ["-c", connections, "--streams", streams, "-d", f"{self.options.seconds}s", "--verify"]
            cpu = self.http3_race(f"HTTP/3, {title}", pairs, "/1k.bin", *options)
            own = cpu["dunlin, http3"]
            ratio = own / cpu["dunlin, http2"]
            self.assess(f"CPU against HTTP/2 over TLS, {title}", ratio, ratio <= most, f"≤ {most}")
            if "caddy, http3" in cpu:
                ratio = own / cpu["caddy, http3"]
                self.assess(f"CPU against Caddy, {title}", ratio, ratio <= 0.10, "≤ 0.10")

    def http3_body(self):
        file = self.root / "100m.bin"
        if not file.exists():
            file.write_bytes(self.random.randbytes(BODY))
            past = time.time() - 3600
            os.utime(file, (past, past))
        pairs = [("dunlin", "http3"), ("dunlin", "http2")]
        cpu = self.http3_race("HTTP/3, bodies of 100 MB, one after the other", pairs, "/100m.bin", "-c", 1, "-n", 8, "--timeout", "60s")
        ratio = cpu["dunlin, http3"] / cpu["dunlin, http2"]
        self.assess("CPU per byte of a body of 100 MB against HTTP/2 over TLS", ratio, ratio <= 2.5, "≤ 2.5")

    def http3_handshakes(self):
        """Each connection has one request. All of a run begin before the first has a ticket, so that no session is resumed."""
        at_once, runs = 64, 12

        def run(_, subject):
            taken = [self.http3_load(*subject, "/0.bin", "-c", at_once, "-n", at_once) for _ in range(runs)]
            if None in taken:
                return None
            return tuple(statistics.mean(values) for values in zip(*taken))

        small_packets()
        server = self.start("dunlin", tls=self.certificate())
        try:
            subjects = {protocol: (server, protocol) for protocol in ("http3", "http2")}
            result = self.rounds(subjects, run)
        finally:
            server.stop()
        self.table("HTTP/3, full handshakes with a request each", result)
        ratio = result["http2"]["cpu_us"] / result["http3"]["cpu_us"]
        self.assess("full handshakes per CPU second against TLS 1.3 over TCP", ratio, ratio >= 0.6, "≥ 0.6")

    def http3_idle(self):
        small_packets()
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        server = self.start("dunlin", tls=self.certificate(), server="connections_per_address = 100000\nconnections = 100000\n[server.http1]\nidle_timeout = \"200s\"")
        command = [servers.Dunlin.binary, "load", "--http3", "--insecure", "-c", 500, "--think", "200s", "--timeout", "200s",
                   "-d", "150s", "--quiet", f"https://localhost:{server.tls_port}/1k.bin"]
        loads = []

        def more():
            loads.append(subprocess.Popen(["taskset", "-c", "1", *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(1.5)

        try:
            # The first connections include allocations that later ones share.
            more()
            before = server.memory()
            for _ in range(10_000 // 500):
                more()
            time.sleep(2)
            each = (server.memory() - before) / 10_000
        finally:
            for load in loads:
                load.kill()
                load.wait()
            server.stop()
        print(f"\n### HTTP/3, 10,000 idle connections\n\n{each:,.0f} bytes of memory each")
        self.assess("bytes of an idle connection, HTTP/3", each, each <= 12 * 1024, "≤ 12 KB")

    def http3_loss(self):
        """Goodput over a path of 100 ms that loses one of 100 packets."""
        (self.root / "1m.bin").write_bytes(self.random.randbytes(1 << 20))
        link = Link(0.05, 0.01)
        pair = self.certificate()
        text = f'[server]\nthreads = 1\n[[listen]]\naddress = "{SERVER}:8443"\ntls = true\n[[site]]\nroot = "{self.root}"\ntls = {{ certificate = "{pair[0]}", key = "{pair[1]}" }}\n'
        file = self.folder / "loss.toml"
        file.write_text(text)
        server = subprocess.Popen(link.inside("server", [servers.Dunlin.binary, "serve", "--config", file]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        rates = {"http3": [], "http2": []}
        try:
            server.stdout.readline()
            for _ in range(self.options.rounds):
                for protocol, measured in rates.items():
                    command = [servers.Dunlin.binary, "load", f"--{protocol}", "--insecure", "--i-own-this-host", "-c", 4, "-n", 40,
                               "--timeout", "60s", "--json", "-", f"https://{SERVER}:8443/1m.bin"]
                    done = subprocess.run(link.inside("client", command), capture_output=True, text=True)
                    outcome = json.loads(done.stdout)
                    if not outcome["errors"]:
                        measured.append(outcome["requests_per_second"])
        finally:
            server.kill()
            server.wait()
            link.close()
        print("\n### HTTP/3, 1 MB bodies over 100 ms and 1 % of loss, 4 connections\n\n| protocol | MB/s | range |\n| --- | ---: | --- |")
        for protocol, measured in rates.items():
            print(f"| {protocol} | {statistics.median(measured):.2f} | {min(measured):.2f}–{max(measured):.2f} |")
        self.results["http3-loss"] = rates
        ratio = statistics.median(rates["http3"]) / statistics.median(rates["http2"])
        self.assess("goodput with 100 ms and 1 % loss against HTTP/2 over TLS", ratio, ratio >= 1, "≥ 1.0")

    def http3_beside(self):
        """HTTP/1 and HTTP/2 of a server that has HTTP/3, against one that has not."""
        small_packets()
        pair = self.certificate()
        variants = {"with": ("dunlin", {"tls": pair}), "without": ("dunlin", {"tls": pair, "listen": "http3 = false"})}
        check = lambda _, server: self.verify(server, "/1k.bin")
        for kind, command, pattern in (
            ("HTTP/1.1", lambda s: ["wrk", "-t1", "-c32", f"-d{self.options.seconds}s", f"http://127.0.0.1:{s.port}/1k.bin"], r"(\d+) requests in"),
            ("HTTP/1.1 over TLS", lambda s: ["wrk", "-t1", "-c32", f"-d{self.options.seconds}s", f"https://127.0.0.1:{s.tls_port}/1k.bin"], r"(\d+) requests in"),
            ("HTTP/2 over TLS", lambda s: ["h2load", "-n", 200_000, "-c", 16, "-m", 32, f"https://127.0.0.1:{s.tls_port}/1k.bin"], r"(\d+) succeeded, 0 failed"),
        ):
            result = self.compete(f"{kind} with and without HTTP/3, 1 KB", variants, check, lambda _, s: self.counted(s, command(s), pattern))
            ratio = result["without"]["cpu_us"] / result["with"]["cpu_us"]
            self.assess(f"requests per CPU second with HTTP/3 against without, {kind}", ratio, ratio >= 0.99, "≥ 0.99")
