#!/usr/bin/env python3
"""Measures the figures of the README side by side on this machine.

    benches/figures.py ROW... [--rounds 5] [--seconds 2] [--json FILE]

Rows: keepalive-1k random-1k pipeline-10 sizes churn cache-off large-site crawl few-connections access-log idle-memory
first-byte scaling checks response-cache metrics leaders routes proxy-small proxy-http2 proxy-large proxy-upload proxy-latency slowloris
http2 tls handshakes cgi cgiplus component compress-php compress-json compress-plain compress-first-byte compress-cached php
wsgi load http3-1k http3-body http3-handshakes http3-idle http3-loss http3-beside, or all; versions compares two builds of Dunlin. The server has
processor 0, the load processor 1; rounds are interleaved in a random order; medians are printed. A run during which the host
of a virtual machine gave its processors to other guests is repeated. The responses are compared with the files before the
first run. A run with an error does not count.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import components
import compression
import crawl
import http3
import idle
import leaders
import proxies
import routes
import servers
import versions

SIZES = {"0": 0, "1k": 1024, "16k": 16384, "64k": 65536, "4m": 4 << 20}
OTHERS = ["nginx", "h2o", "lighttpd", "apache2", "caddy"]


# The share of processor time that the host may give to other guests before a run is repeated.
MAX_STOLEN = 0.02
# The number of runs until the least disturbed one counts.
TRIES = 5


def stolen():
    """Seconds that the host has given to other guests, of all processors."""
    return int(Path("/proc/stat").read_text().split(None, 9)[8]) / os.sysconf("SC_CLK_TCK")


class Bench(leaders.Rows, proxies.Rows, components.Rows, compression.Rows, http3.Rows, routes.Rows, versions.Rows):
    def __init__(self, options):
        self.options = options
        self.folder = Path(tempfile.mkdtemp(prefix="figures-"))
        os.chmod(self.folder, 0o755)
        self.root = self.folder / "site"
        self.root.mkdir()
        self.random = random.Random(options.seed)
        for name, size in SIZES.items():
            (self.root / f"{name}.bin").write_bytes(self.random.randbytes(size))
        (self.root / "many").mkdir()
        for n in range(1000):
            (self.root / "many" / f"{n}.bin").write_bytes(self.random.randbytes(1024))
        past = time.time() - 3600
        for file in self.root.rglob("*.bin"):
            os.utime(file, (past, past))
        self.results = {}
        self.serial = 0
        self.disturbed = 0

    def start(self, name, **variant):
        self.serial += 1
        server = servers.ALL[name](self.root, self.folder / f"{name}-{self.serial}", **variant)
        return server.start()

    def verify(self, server, path):
        status, body = server.get(path)
        expected = (self.root / path.lstrip("/")).read_bytes()
        if status != 200 or hashlib.sha256(body).digest() != hashlib.sha256(expected).digest():
            raise RuntimeError(f"{server.name} sends a wrong response to {path}: {status}")

    def wrk(self, server, path, connections, script=None, fields=(), cpu=None):
        """One run: requests per second, and processor time of the server per request in microseconds.

        `cpu` reads a clock of processor time in seconds; without it, the time of the server's threads counts."""
        cpu = cpu or server.cpu
        command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{self.options.seconds}s"]
        for field in fields:
            command += ["-H", field]
        if script:
            command += ["-s", str(script)]
        before = cpu()
        out = subprocess.run(
            [*command, f"http://127.0.0.1:{server.port}{path}"], capture_output=True, text=True
        ).stdout
        used = cpu() - before
        if "Socket errors" in out or "Non-2xx" in out or "requests in" not in out:
            print(f"    {server.name}: not counted: {out.strip().splitlines()[-3:]}", file=sys.stderr)
            return None
        requests = int(re.search(r"(\d+) requests in", out)[1])
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
        return rate, used / requests * 1e6

    def rounds(self, subjects, run):
        """Runs every server in each round, in a random order. Returns medians by name."""
        samples = {name: [] for name in subjects}
        for _ in range(self.options.rounds):
            order = list(subjects)
            self.random.shuffle(order)
            for name in order:
                sample = self.undisturbed(lambda: run(name, subjects[name]))
                if sample:
                    samples[name].append(sample)
        return {
            name: {
                "rate": statistics.median(s[0] for s in taken),
                "cpu_us": statistics.median(s[1] for s in taken),
                "cpu_min": min(s[1] for s in taken),
                "cpu_max": max(s[1] for s in taken),
                "runs": len(taken),
            }
            for name, taken in samples.items()
            if taken
        }

    def undisturbed(self, run):
        """Repeats a run while other guests of the host took processor time during it. Returns the least disturbed run."""
        least = None
        for _ in range(TRIES):
            before, began = stolen(), time.monotonic()
            sample = run()
            share = (stolen() - before) / (time.monotonic() - began)
            self.disturbed += share > MAX_STOLEN
            if sample and (least is None or share < least[0]):
                least = share, sample
            if share <= MAX_STOLEN:
                break
        return least and least[1]

    def race(self, title, names, path, connections, variants=None, **load):
        """Measures servers with wrk, all at one path."""
        variants = variants or {name: (name, {}) for name in names}
        call = {key: load[key] for key in ("script", "fields") if key in load}
        check = lambda _, server: self.verify(server, load.get("check", path))
        return self.compete(title, variants, check, lambda _, server: self.wrk(server, path, connections, **call))

    def compete(self, title, variants, check, run):
        """Starts the servers, checks their responses, measures each in turn, and prints the table."""
        running = {}
        try:
            for label, (name, variant) in variants.items():
                try:
                    running[label] = self.start(name, **variant)
                except (RuntimeError, OSError) as error:
                    print(f"    {label}: {error}", file=sys.stderr)
                    continue
                check(label, running[label])
            for label, server in running.items():
                run(label, server)
            result = self.rounds(running, run)
        finally:
            for server in running.values():
                server.stop()
        self.table(title, result)
        return result

    def table(self, title, result, whose="server", what="server"):
        print(f"\n### {title}\n\n| {whose} | requests/s | {what} CPU µs/request | range |")
        print("| --- | ---: | ---: | --- |")
        for name, r in sorted(result.items(), key=lambda item: item[1]["cpu_us"]):
            span = f"{r['cpu_min']:.2f}–{r['cpu_max']:.2f}"
            print(f"| {name} | {r['rate']:,.0f} | {r['cpu_us']:.2f} | {span} ({r['runs']} runs) |")
        sys.stdout.flush()
        self.results[title] = result

    def assess(self, what, value, good, target):
        print(f"\n{what}: **{value:.3f}** ({'reached' if good else 'SHORT OF'} {target})")
        self.results.setdefault("assessed", {})[what] = {"value": value, "good": good, "target": target}

    # -- rows ---------------------------------------------------------------------------------

    def keepalive_1k(self):
        r = self.race("1 KB, 32 connections kept", ["baseline", "dunlin", *OTHERS], "/1k.bin", 32)
        if "baseline" in r:
            ratio = r["dunlin"]["cpu_us"] / r["baseline"]["cpu_us"]
            self.assess("CPU against the baseline", ratio, ratio <= 1.10, "≤ 1.10")
        ratio = r["dunlin"]["cpu_us"] / r["nginx"]["cpu_us"]
        self.assess("CPU against nginx", ratio, ratio <= 0.75, "≤ 0.75")
        ratio = r["dunlin"]["rate"] / r["nginx"]["rate"]
        self.assess("requests/s against nginx", ratio, ratio >= 1.25, "≥ 1.25")

    def random_1k(self):
        """One file of 1 KB against 1,000 of them, and the same for the baseline, which shows the cost of cache misses.

        The client does the same work in both cases: with less of it, the server would have other pauses."""
        def script(name, path):
            file = self.folder / f"{name}.lua"
            file.write_text(
                f'math.randomseed({self.options.seed}) request = function() local n = math.random(0, 999) '
                f'return wrk.format("GET", {path}) end\n'
            )
            return file

        one, many = script("one", '"/many/0.bin?" .. n'), script("many", '"/many/" .. n .. ".bin?0"')
        running = {
            "dunlin": self.start("dunlin"),
            "baseline": self.start("baseline"),
            "baseline, copies": self.start("baseline", copies=1000),
        }
        kinds = {
            "dunlin, one file": (running["dunlin"], one),
            "dunlin, 1,000 files": (running["dunlin"], many),
            "baseline, one response": (running["baseline"], one),
            "baseline, 1,000 copies of it": (running["baseline, copies"], many),
        }
        try:
            self.verify(running["dunlin"], "/many/7.bin")
            for server, lua in kinds.values():
                self.wrk(server, "/", 32, script=lua)
            r = self.rounds(kinds, lambda _, kind: self.wrk(kind[0], "/", 32, script=kind[1]))
        finally:
            for server in running.values():
                server.stop()
        self.table("1 KB, 1,000 files at random against one file", r)
        ratio = r["dunlin, 1,000 files"]["cpu_us"] / r["dunlin, one file"]["cpu_us"]
        self.assess("CPU, 1,000 files against one", ratio, ratio <= 1.05, "≤ 1.05")
        baseline = r["baseline, 1,000 copies of it"]["cpu_us"] / r["baseline, one response"]["cpu_us"]
        self.assess("the same relative to the baseline", ratio / baseline, ratio / baseline <= 1.05, "≤ 1.05")

    def ten_at_once(self):
        """A script that makes wrk send ten requests at once."""
        lua = self.folder / "pipeline.lua"
        lua.write_text(
            'init = function(args) local r = {} for i = 1, 10 do r[i] = wrk.format("GET", "/1k.bin") end '
            'req = table.concat(r) end request = function() return req end\n'
        )
        return lua

    def pipeline_10(self):
        lua = self.ten_at_once()
        names = ["baseline", "dunlin", "h2o", "nginx", "lighttpd"]
        r = self.race("10 pipelined requests, 1 KB, 32 connections", names, "/1k.bin", 32, script=lua)
        ratio = r["h2o"]["cpu_us"] / r["dunlin"]["cpu_us"]
        self.assess("requests per CPU second against H2O, pipelined", ratio, ratio >= 4, "≥ 4")

    def sizes(self):
        for size in ("0", "16k", "64k", "4m"):
            for connections in (1, 10):
                title = f"{size}, {connections} connection{'s' * (connections > 1)}"
                r = self.race(title, ["dunlin", *OTHERS], f"/{size}.bin", connections)
                best = min(v["cpu_us"] for name, v in r.items() if name != "dunlin")
                ratio = best / r["dunlin"]["cpu_us"]
                what = f"requests per CPU second against the best other, {title}"
                self.assess(what, ratio, ratio >= 1, "≥ 1")

    def churn(self):
        close = {"fields": ["Connection: close"]}
        r = self.race("a connection for each request, 1 KB", ["dunlin", "nginx"], "/1k.bin", 32, **close)
        ratio = r["nginx"]["cpu_us"] / r["dunlin"]["cpu_us"]
        self.assess("requests per CPU second against nginx, new connections", ratio, ratio >= 1, "≥ 1")

    def cache_off(self):
        """Against nginx with the same setting (sendfile, or a copy of the file), and against H2O."""
        ways = {"copied": False, "sendfile": True}
        variants = {
            f"{name}, {way}": (name, {"cache": False, "sendfile": sendfile})
            for name in ("dunlin", "nginx")
            for way, sendfile in ways.items()
        }
        variants["h2o"] = ("h2o", {})
        (self.root / "11k.bin").write_bytes(self.random.randbytes(11 * 1024))
        os.utime(self.root / "11k.bin", (time.time() - 3600,) * 2)
        for path in ("/1k.bin", "/11k.bin", "/64k.bin"):
            run = lambda _, server: self.wrk(server, path, 32, cpu=servers.core_time)
            check = lambda _, server: self.verify(server, path)
            r = self.compete(f"cache off, {path}, 32 connections", variants, check, run)
            least = min(r[f"dunlin, {way}"]["cpu_us"] for way in ways)
            ratio = least / r["h2o"]["cpu_us"]
            self.assess(f"CPU against H2O, cache off, {path}", ratio, ratio <= 1, "≤ 1")
            for way in ways:
                ratio = r[f"nginx, {way}"]["cpu_us"] / r[f"dunlin, {way}"]["cpu_us"]
                what = f"requests per CPU second against nginx, cache off, {path}, {way}"
                self.assess(what, ratio, ratio >= 1, "≥ 1")

    def documents(self, count=20_000):
        """HTML documents of the Rust toolchain's own documentation: their paths in the root, and their size in bytes."""
        sysroot = Path(subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip())
        source = sysroot / "share/doc/rust/html"
        pages = sorted(path.relative_to(source) for path in source.rglob("*.html"))
        if len(pages) < count:
            raise RuntimeError(f"{source} has {len(pages)} documents, {count} are needed: rustup component add rust-docs")
        paths, size, past = [], 0, time.time() - 3600
        for page in self.random.sample(pages, count):
            target = self.root / "doc" / page
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / page, target)
            os.utime(target, (past, past))
            size += target.stat().st_size
            paths.append(f"/doc/{page}")
        for path in (self.root / "doc").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        return paths, size

    def by_zipf(self, name, paths):
        """A script that makes wrk request these paths by Zipf's law, the first one most."""
        weights = [1 / rank for rank in range(1, len(paths) + 1)]
        return self.sequence(name, self.random.choices(paths, weights, k=400_000))

    def sequence(self, name, paths):
        """A script that makes wrk request these paths in this order, again and again."""
        listed, lua = self.folder / f"{name}.txt", self.folder / f"{name}.lua"
        listed.write_text("\n".join(paths) + "\n")
        lua.write_text(
            "local requests, next = {}, 0\n"
            f'function init(args) for path in io.lines("{listed}") do requests[#requests + 1] = wrk.format("GET", path) end end\n'
            "function request() next = next % #requests + 1 return requests[next] end\n"
        )
        return lua

    def large_site(self):
        """A site that is larger than the cache: uniform and Zipf popularity, caches of a half, a quarter and a sixteenth."""
        paths, size = self.documents()
        print(f"\n{len(paths):,} documents, {size / 1e6:,.0f} MB; all time of the server's core counts, softirq included")
        loads = {
            "uniform": self.sequence("uniform", self.random.choices(paths, k=400_000)),
            "Zipf 1.0": self.by_zipf("zipf", paths),
        }
        variants = {"h2o": ("h2o", {}), "nginx": ("nginx", {"cache": False}), "dunlin, cache off": ("dunlin", {"cache": False})}
        for part in (2, 4, 16):
            server = f"cache = {{ size = {size // part} }}"
            variants[f"dunlin, 1/{part} cached"] = ("dunlin", {"server": server})
        def run_warm(server, script):
            # The kernel may have evicted documents from the page cache.
            for path in paths:
                (self.root / path.lstrip("/")).read_bytes()
            return self.wrk(server, "/", 32, script=script, cpu=servers.core_time)

        for load, script in loads.items():
            run = lambda _, server: run_warm(server, script)
            check = lambda _, server: self.verify(server, paths[0])
            r = self.compete(f"large site, {load}, 32 connections", variants, check, run)
            for part in (2, 4, 16):
                own = r[f"dunlin, 1/{part} cached"]["cpu_us"]
                most = 1.0 if load == "uniform" else 0.85
                ratio = own / r["h2o"]["cpu_us"]
                self.assess(f"CPU against H2O, {load}, 1/{part} cached", ratio, ratio <= most, f"≤ {most}")
                if load == "uniform":
                    ratio = own / r["dunlin, cache off"]["cpu_us"]
                    self.assess(f"CPU against no cache, 1/{part} cached", ratio, ratio <= 1.02, "≤ 1.02")

    def crawl(self):
        crawl.run(self)

    def few_connections(self):
        """1 KB over 1, 2, 4 and 8 connections: the server sleeps between requests."""
        for connections in (1, 2, 4, 8):
            title = f"1 KB, {connections} connection{'s' * (connections > 1)}"
            run = lambda _, server: self.wrk(server, "/1k.bin", connections, cpu=servers.core_time)
            check = lambda _, server: self.verify(server, "/1k.bin")
            r = self.compete(title, {name: (name, {}) for name in ("dunlin", "nginx", "h2o")}, check, run)
            ratio = r["dunlin"]["rate"] / r["nginx"]["rate"]
            self.assess(f"requests/s against nginx, {title}", ratio, ratio >= 1, "≥ 1")

    def access_log(self):
        variants = {
            "dunlin, log off": ("dunlin", {}),
            "dunlin, log on": ("dunlin", {"log": True}),
            "nginx, log off": ("nginx", {}),
            "nginx, log on": ("nginx", {"log": True}),
        }
        r = self.race("access log, 1 KB, 32 connections", [], "/1k.bin", 32, variants)
        ratio = 1 - r["dunlin, log off"]["cpu_us"] / r["dunlin, log on"]["cpu_us"]
        self.assess("loss of requests per CPU second by the log", ratio, ratio <= 0.08, "≤ 0.08")
        ratio = 1 - r["dunlin, log on"]["rate"] / r["dunlin, log off"]["rate"]
        self.assess("loss of requests/s by the log", ratio, ratio <= 0.08, "≤ 0.08")

    def idle_memory(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        targets = {"HTTP/1.1": ("≤ 1.2 KB", 1229), "HTTP/1.1 over TLS": ("≤ 8 KB", 8192)}
        for kind in ("HTTP/1.1", "HTTP/2", "HTTP/1.1 over TLS", "HTTP/2 over TLS"):
            print(f"\n### 10,000 idle connections, {kind}\n\n| server | bytes of memory each |\n| --- | ---: |")
            for name in ("dunlin", "nginx", "h2o"):
                each = self.idle_bytes(name, kind, 10_000)
                print(f"| {name} | {each:,.0f} |", flush=True)
                self.results[f"idle memory, {kind}, {name}"] = each
                if name == "dunlin" and kind in targets:
                    target, bound = targets[kind]
                    self.assess(f"bytes of an idle connection, {kind}", each, each <= bound, target)

    def idle_bytes(self, name, kind, count):
        """Memory per idle connection, of `count` connections that have received one response."""
        server = self.start(name, tls=self.certificate())
        held = []
        try:
            self.verify(server, "/1k.bin")
            # The first connections include allocations that later ones share.
            for n in range(300):
                held.append(idle.connect(server, kind, n))
            time.sleep(1.5)
            before = server.memory()
            for n in range(count):
                held.append(idle.connect(server, kind, n))
            time.sleep(2)
            return (server.memory() - before) / count
        finally:
            for connection in held:
                connection.close()
            server.stop()

    def first_byte(self):
        times = []
        for _ in range(20):
            server = servers.Dunlin(self.root, self.folder / f"start-{len(times)}")
            command = server.command()
            began = time.perf_counter()
            server.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            while True:
                try:
                    with socket.create_connection(("127.0.0.1", server.port)) as connection:
                        connection.sendall(b"GET /1k.bin HTTP/1.1\r\nHost: x\r\n\r\n")
                        connection.recv(1)
                    break
                except ConnectionRefusedError:
                    pass
            times.append((time.perf_counter() - began) * 1000)
            server.stop()
        median = statistics.median(times)
        print(f"\n### start to first byte\n\nmedian {median:.1f} ms, worst {max(times):.1f} ms of {len(times)}")
        self.assess("milliseconds from start to first byte", median, median <= 20, "≤ 20")

    def scaling(self):
        """Futex calls while two workers serve: contention on a lock would appear as waiting."""
        server = self.start("dunlin", threads=2)
        try:
            for task in Path(f"/proc/{server.process.pid}/task").iterdir():
                subprocess.run(["taskset", "-p", "-c", "0,1", task.name], capture_output=True)
            trace = subprocess.Popen(
                ["strace", "-f", "-c", "-p", str(server.process.pid)], stderr=subprocess.PIPE, text=True
            )
            time.sleep(0.5)
            load = ["wrk", "-t1", "-c64", "-d3s", f"http://127.0.0.1:{server.port}/1k.bin"]
            out = subprocess.run(load, capture_output=True, text=True).stdout
            trace.send_signal(2)
            calls = trace.communicate()[1]
            requests = int(re.search(r"(\d+) requests in", out)[1])
            futex = sum(int(m) for m in re.findall(r"(\d+)\s+(?:\d+\s+)?futex$", calls, re.M))
            print(f"\n### two workers, system calls while {requests:,} requests were served\n\n```\n{calls.strip()}\n```")
            self.assess("futex calls per request", futex / requests, futex / requests < 0.001, "< 0.001")
        finally:
            server.stop()


    # -- checks and telemetry ----------------------------------------------------------------

    def checks(self):
        users = self.folder / "users"
        made = subprocess.run(
            [servers.Dunlin.binary, "passwd", str(users), "ann"], input="secret", text=True, capture_output=True
        )
        if made.returncode:
            raise RuntimeError(made.stderr)
        os.chmod(users, 0o644)
        rules = (
            f'allow = ["127.0.0.0/8"]\nmethods = ["GET", "HEAD"]\nauth = {{ basic = "{users}" }}\n'
            'limit = [{ requests = "100000000/s", burst = 100000000 }]\nbody_size = "1MB"\n'
            'throttle = { max_concurrent = 10000, bandwidth = "100GB/s" }\n'
        )
        variants = {
            "no checks": ("dunlin", {}),
            "all checks": ("dunlin", {"rules": rules, "server": "connections_per_address = 10000"}),
        }
        fields = ["Authorization: Basic YW5uOnNlY3JldA=="]
        check = lambda _, server: None
        run = lambda _, server: self.wrk(server, "/1k.bin", 32, fields=fields)
        r = self.compete("checks that allow every request, 1 KB, 32 connections", variants, check, run)
        self.overhead("all checks", r["no checks"], r["all checks"], 0.95)

    def response_cache(self):
        origin = self.start("dunlin", rules='cache_control = "max-age=86400"')
        try:
            rules = f'proxy = "http://127.0.0.1:{origin.port}"\ncache = {{ responses = true }}'
            variants = {"file": ("dunlin", {}), "stored response": ("dunlin", {"rules": rules})}
            for size in ("1k", "16k"):
                r = self.race(f"a cached file and a stored response, {size}, 32 connections", [], f"/{size}.bin", 32, variants)
                ratio = r["stored response"]["cpu_us"] / r["file"]["cpu_us"]
                self.assess(f"CPU of a stored response against a file, {size}", ratio, ratio <= 1.15, "≤ 1.15")
        finally:
            origin.stop()

    def metrics(self):
        variants = {"off": ("dunlin", {}), "phases and metrics": ("dunlin", {"counted": True})}
        r = self.race("phases and metrics, 1 KB, 32 connections", [], "/1k.bin", 32, variants)
        self.overhead("phases and metrics", r["off"], r["phases and metrics"], 0.99)

    def overhead(self, what, without, having, least):
        ratio = having["rate"] / without["rate"]
        self.assess(f"{what}: requests/s against none", ratio, ratio >= least, f"≥ {least}")
        ratio = without["cpu_us"] / having["cpu_us"]
        self.assess(f"{what}: requests per CPU second against none", ratio, ratio >= least, f"≥ {least}")

    def slowloris(self):
        """A client with 500 requests a second, alone and beside 5,000 connections that never complete their heads.

        The slow clients have a processor of their own, and the client shares the server's, so that it waits for the server only."""
        print("\n### 500 requests a second beside slow clients\n")
        samples = {}
        for _ in range(self.options.rounds):
            for name in self.random.sample(["dunlin", "nginx"], 2):
                server = self.start(name)
                try:
                    self.verify(server, "/1k.bin")
                    for count in (0, 5000):
                        samples.setdefault((name, count), []).append(self.beside_slow_clients(server, count))
                finally:
                    server.stop()
        print("| server | slow connections | failed requests | p50, ms | p99, ms |\n| --- | ---: | ---: | ---: | ---: |")
        p99 = {}
        for (name, count), taken in sorted(samples.items()):
            failed, half, most = (sum(s[0] for s in taken), *(statistics.median(s[n] for s in taken) for n in (1, 2)))
            p99[name, count] = most
            print(f"| {name} | {count} | {failed} | {half:.3f} | {most:.3f} |", flush=True)
        failed = sum(sample[0] for sample in samples["dunlin", 5000])
        self.assess("failed requests beside 5,000 slow clients", failed, failed == 0, "0")
        ratio = p99["dunlin", 5000] / p99["dunlin", 0]
        self.assess("p99 beside 5,000 slow clients against alone", ratio, ratio <= 2, "≤ 2")
        ratio = p99["dunlin", 5000] / p99["nginx", 5000]
        self.assess("p99 beside 5,000 slow clients against nginx's", ratio, ratio <= 1, "≤ 1")

    def beside_slow_clients(self, server, count):
        """Failed requests, and the median and the 99th percentile of the response times in ms."""
        url = f"http://127.0.0.1:{server.port}/1k.bin"
        slow = None
        if count:
            command = ["slowhttptest", "-c", str(count), "-H", "-i", "5", "-r", "2500", "-t", "GET", "-u", url, "-l", "25"]
            slow = subprocess.Popen(["taskset", "-c", "1", *command], stdout=subprocess.DEVNULL)
            self.await_open(server, count)
        try:
            load = [servers.Dunlin.binary, "load", "--rate", "500", "-c", "10", "-d", "4s", "--json", "-", url]
            done = subprocess.run(["taskset", "-c", "0", *load], capture_output=True, text=True)
        finally:
            if slow:
                slow.terminate()
                slow.wait()
        result = json.loads(done.stdout)
        latency = result["latency_ms"]
        return result["errors"], latency["p50"], latency["p99"]

    def open(self, server):
        """The number of open connections of the server."""
        listed = ["ss", "-Htn", "state", "established", f"( sport = :{server.port} )"]
        return len(subprocess.check_output(listed).splitlines())

    def await_open(self, server, count):
        end = time.monotonic() + 15
        while self.open(server) < count:
            if time.monotonic() > end:
                raise RuntimeError(f"{server.name} has {self.open(server)} of {count} slow clients")
            time.sleep(0.2)

    # -- TLS and HTTP/2 -----------------------------------------------------------------------

    def certificate(self):
        pair = self.folder / "certificate.pem", self.folder / "key.pem"
        if not pair[0].exists():
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                 "-subj", "/CN=localhost", "-keyout", pair[1], "-out", pair[0]], check=True, capture_output=True,
            )
            os.chmod(pair[1], 0o644)
        return pair

    def counted(self, server, command, pattern):
        """One run of a load generator with a fixed number of requests: requests per second, and processor time per request."""
        before, began = server.cpu(), time.monotonic()
        done = subprocess.run(["taskset", "-c", "1", *map(str, command)], capture_output=True, text=True)
        seconds, cpu = time.monotonic() - began, server.cpu() - before
        found = re.search(pattern, done.stdout + done.stderr)
        if not found or re.search(r"[1-9]\d* (failed|errored)", done.stdout):
            print(f"    {server.name}: not counted: {done.stdout[-300:]}", file=sys.stderr)
            return None
        count = int(found[1])
        return count / seconds, cpu / count * 1e6

    def encrypted_race(self, title, command, pattern):
        pair = self.certificate()
        variants = {name: (name, {"tls": pair}) for name in ("dunlin", "nginx", "h2o")}
        check = lambda _, server: self.verify(server, "/1k.bin")
        result = self.compete(title, variants, check, lambda _, server: self.counted(server, command(server), pattern))
        best = min(result["nginx"]["cpu_us"], result["h2o"]["cpu_us"])
        return result, result["dunlin"]["cpu_us"] / best

    def h2load(self, title, scheme, path, count, connections, streams):
        def command(server):
            port = server.tls_port if scheme == "https" else server.http2_port
            return ["h2load", "-n", count, "-c", connections, "-m", streams, f"{scheme}://127.0.0.1:{port}{path}"]

        return self.encrypted_race(title, command, r"(\d+) succeeded, 0 failed")

    def http2(self):
        r, _ = self.h2load("HTTP/2 in the clear, 1 KB, 16 connections of 32 streams", "http", "/1k.bin", 300_000, 16, 32)
        own = r["dunlin"]["cpu_us"]
        self.assess("CPU against H2O, HTTP/2", own / r["h2o"]["cpu_us"], own / r["h2o"]["cpu_us"] <= 0.70, "≤ 0.70")
        self.assess("CPU against nginx, HTTP/2", own / r["nginx"]["cpu_us"], own / r["nginx"]["cpu_us"] <= 0.15, "≤ 0.15")

    def tls(self):
        r, _ = self.h2load("HTTP/2 over TLS, 1 KB, 16 connections of 32 streams", "https", "/1k.bin", 200_000, 16, 32)
        own = r["dunlin"]["cpu_us"]
        self.assess("CPU against H2O, HTTP/2 over TLS", own / r["h2o"]["cpu_us"], own / r["h2o"]["cpu_us"] <= 0.85, "≤ 0.85")
        self.assess("CPU against nginx, HTTP/2 over TLS", own / r["nginx"]["cpu_us"], own / r["nginx"]["cpu_us"] <= 0.25, "≤ 0.25")
        for path, count in (("/64k.bin", 20_000), ("/4m.bin", 600)):
            _, ratio = self.h2load(f"HTTP/2 over TLS, {path}, 8 connections of 4 streams", "https", path, count, 8, 4)
            self.assess(f"bytes per CPU second against the better, {path}", 1 / ratio, ratio <= 1, "≥ 1")
        wrk = lambda server: ["wrk", "-t1", "-c32", f"-d{self.options.seconds}s", f"https://127.0.0.1:{server.tls_port}/1k.bin"]
        _, ratio = self.encrypted_race("HTTP/1.1 over TLS, 1 KB, 32 connections kept", wrk, r"(\d+) requests in")
        self.assess("CPU against the better, HTTP/1.1 over TLS", ratio, ratio <= 0.90, "≤ 0.90")

    def handshakes(self):
        for kind, option in (("full", "-new"), ("resumed", "-reuse")):
            command = lambda server: ["openssl", "s_time", "-connect", f"127.0.0.1:{server.tls_port}", option,
                                      "-www", "/0.bin", "-time", self.options.seconds]
            _, ratio = self.encrypted_race(f"{kind} handshakes, TLS 1.3, P-256, each with a request", command, r"(\d+) connections in \d+ real")
            self.assess(f"{kind} handshakes per CPU second against the better", 1 / ratio, ratio <= 1, "≥ 1")

    # -- scripts: the server and its scripts on one processor ------------------------------------

    def scripts_folder(self):
        folder = self.root / "s"
        if not folder.exists():
            folder.mkdir()
            programs = {
                "hello.py": "#!/usr/bin/python3\nprint('Content-Type: text/plain\\n\\nhello')\n",
                "hello.pl": "#!/usr/bin/perl\nuse strict; use warnings;\nprint \"Content-Type: text/plain\\n\\nhello\\n\";\n",
                "hello.php": "<?php header('Content-Type: text/plain'); echo \"hello\\n\";\n",
                "app.py": "def application(environ, start_response):\n"
                "    start_response('200 OK', [('Content-Type', 'text/plain'), ('Content-Length', '6')])\n"
                "    return [b'hello\\n']\n\n"
                "async def asgi(scope, receive, send):\n"
                "    if scope['type'] != 'http':\n        raise NotImplementedError\n"
                "    fields = [(b'content-type', b'text/plain'), (b'content-length', b'6')]\n"
                "    await send({'type': 'http.response.start', 'status': 200, 'headers': fields})\n"
                "    await send({'type': 'http.response.body', 'body': b'hello\\n'})\n",
            }
            for name, text in programs.items():
                (folder / name).write_text(text)
                (folder / name).chmod(0o755)
            source = folder / "hello.c"
            source.write_text('#include <stdio.h>\nint main(void) { puts("Content-Type: text/plain\\n\\nhello"); return 0; }\n')
            subprocess.run(["cc", "-O2", "-o", folder / "hello", source], check=True)
        return folder

    def script_race(self, title, variants, paths, connections):
        """Like `race`, with a path for each server, where the body of every response is `hello`."""
        def check(label, server):
            status, body = server.get(paths[label])
            if (status, body.strip()) != (200, b"hello"):
                raise RuntimeError(f"{label} sends a wrong response: {status} {body[:80]}")

        def run(label, server):
            if isinstance(server, servers.SpawnLoop):
                rate = server.run(paths[label], self.options.seconds)
                return rate, 1e6 / rate
            return self.wrk(server, paths[label], connections)

        return {label: r["rate"] for label, r in self.compete(title, variants, check, run).items()}

    def cgi(self):
        folder = self.scripts_folder()
        wanted = {"hello": (1, 2.5, 1.5, 3.5), "hello.py": (1, 20, 0, 0), "hello.pl": (0, 3, 0, 0)}
        for name, (plain, warm, plain_apache, warm_apache) in wanted.items():
            kinds = {kind: ("dunlin", {"script": f'kind = "{kind}", directory = "{folder}"'}) for kind in ("cgi", "warm")}
            variants = {"dunlin, cgi": kinds["cgi"], "dunlin, warm": kinds["warm"],
                        "lighttpd": ("lighttpd", {"cgi": True}), "apache2": ("apache2", {"cgi": True})}
            if name == "hello":
                variants["posix_spawn loop"] = ("posix_spawn loop", {})
            rate = self.script_race(f"CGI, {name}, 4 connections", variants, dict.fromkeys(variants, f"/s/{name}"), 4)
            if "posix_spawn loop" in rate:
                ratio = rate["posix_spawn loop"] / rate["dunlin, cgi"]
                self.assess(f"time of {name}, cgi, against a bare posix_spawn loop", ratio, ratio <= 1.15, "≤ 1.15")
            for kind, other, target in (("cgi", "lighttpd", plain), ("warm", "lighttpd", warm),
                                        ("cgi", "apache2", plain_apache), ("warm", "apache2", warm_apache)):
                if target and other in rate:
                    ratio = rate[f"dunlin, {kind}"] / rate[other]
                    self.assess(f"requests/s, {name}, {kind} against {other}", ratio, ratio >= target, f"≥ {target}")

    def php(self):
        folder = self.scripts_folder()
        socket_path = self.folder / "php.sock"
        pool = self.folder / "fpm.conf"
        pool.write_text(
            f"[global]\nerror_log = {self.folder}/fpm.log\ndaemonize = no\n[www]\nuser = www-data\ngroup = www-data\n"
            f"listen = {socket_path}\nlisten.mode = 0666\npm = static\npm.max_children = 2\n"
        )
        fpm = shutil.which("php-fpm8.2") or shutil.which("php-fpm")
        manager = subprocess.Popen(["taskset", "-c", "0", fpm, "-F", "-R", "-y", pool], stderr=subprocess.DEVNULL)
        try:
            while not socket_path.exists():
                time.sleep(0.01)
            own = f'kind = "fastcgi", command = ["php-cgi"], directory = "{folder}", processes = 2, min_processes = 2'
            variants = {"dunlin, php-cgi": ("dunlin", {"script": own}), "nginx + php-fpm": ("nginx", {"php": socket_path})}
            rate = self.script_race("PHP, 2 workers, 16 connections", variants, dict.fromkeys(variants, "/s/hello.php"), 16)
        finally:
            manager.terminate()
            manager.wait()
        ratio = rate["dunlin, php-cgi"] / rate["nginx + php-fpm"]
        self.assess("requests/s, PHP, against nginx + php-fpm", ratio, ratio >= 1, "≥ 1")

    def build_programs(self, folder, library):
        """Builds the program for CGIplus as `plus`, and for FastCGI; returns the path of the latter."""
        text = (
            '#include <string.h>\n#include <stdlib.h>\n#ifdef PLUS\n#include <stdio.h>\n#include "cgiplus.h"\n'
            '#define NEXT cgiplus_next()\n#define QUERY cgiplus_variable("QUERY_STRING")\n#else\n#include <fcgi_stdio.h>\n'
            '#define NEXT (FCGI_Accept() >= 0)\n#define QUERY getenv("QUERY_STRING")\n#endif\n'
            "int main(void) {\n    static char line[1024];\n    memset(line, 'x', 1024);\n    while (NEXT) {\n"
            '        long size = atol(QUERY);\n        printf("Content-Type: text/plain\\r\\n\\r\\n");\n'
            "        for (; size > 0; size -= 1024) fwrite(line, 1, size < 1024 ? size : 1024, stdout);\n    }\n    return 0;\n}\n"
        )
        source = folder / "size.c"
        source.write_text(text)
        plus, fast = folder / "plus", folder / "fast"
        subprocess.run(["cc", "-O2", "-DPLUS", f"-I{library}", "-o", plus, source, library / "cgiplus.c"], check=True)
        subprocess.run(["cc", "-O2", "-o", fast, source, "-lfcgi"], check=True)
        return fast

    def cgiplus(self):
        """A program that sends as many bytes as the query states, by CGIplus and by FastCGI."""
        folder, library = self.scripts_folder(), Path("scripting/cgiplus")
        fast = self.build_programs(folder, library)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.folder / "fast.sock"))
        os.chmod(self.folder / "fast.sock", 0o777)
        listener.listen(1024)
        worker = subprocess.Popen(["taskset", "-c", "0", fast], stdin=listener)
        running = {}
        try:
            running["dunlin, CGIplus"] = self.start("dunlin", script=f'kind = "cgiplus", directory = "{folder}"')
            running["nginx, FastCGI"] = self.start("nginx", php=self.folder / "fast.sock")
            for size in (0, 16384, 65536):
                path = f"/s/plus?{size}"
                for name, server in running.items():
                    if server.get(path) != (200, b"x" * size):
                        raise RuntimeError(f"{name} sends a wrong response")
                    self.wrk(server, path, 32)
                r = self.rounds(running, lambda _, server: self.wrk(server, path, 32))
                self.table(f"a persistent program, {size} bytes, 32 connections", r)
                if size == 0:
                    rate = r["dunlin, CGIplus"]["rate"]
                    self.assess("requests/s by CGIplus, header only", rate, rate >= 50_000, "≥ 50,000")
                ratio = r["dunlin, CGIplus"]["rate"] / r["nginx, FastCGI"]["rate"]
                self.assess(f"requests/s against nginx with FastCGI, {size} bytes", ratio, ratio >= 2, "≥ 2")
        finally:
            for server in running.values():
                server.stop()
            worker.kill()
            worker.wait()

    def wsgi(self):
        """Needs gunicorn, uwsgi and granian beside the interpreter that --python names."""
        folder = self.scripts_folder()
        python = self.options.python
        for kind, callable, others in (("wsgi", "application", ("gunicorn", "uwsgi", "granian")), ("asgi", "asgi", ("granian",))):
            own = f'kind = "{kind}", application = "app:{callable}", directory = "{folder}", interpreter = "{python}", processes = 1'
            variants = {"dunlin": ("dunlin", {"script": own})}
            variants |= {name: (name, {"python": python, "interface": kind}) for name in others}
            paths = dict.fromkeys(variants, "/s/")
            rate = self.script_race(f"{kind.upper()} hello, one process, 32 connections", variants, paths, 32)
            for name in rate.keys() - {"dunlin"}:
                ratio = rate["dunlin"] / rate[name]
                self.assess(f"requests/s, {kind}, against {name}", ratio, ratio >= 1, "≥ 1")


    def load(self):
        """The cost of a request for load generators, against a bare responder."""
        verified = "bodies verified"
        for size, connections, pipeline, least, least_verified in (
            ("1k", 32, 1, 1.1, 1), ("1k", 32, 10, 2, None), ("1k", 128, 10, 2, None), ("64k", 10, 1, 1, None), ("4m", 10, 1, 1, None)
        ):
            server = self.start("baseline", file=self.root / f"{size}.bin")
            url = f"http://127.0.0.1:{server.port}/{size}.bin"
            own = [servers.Dunlin.binary, "load", "-c", connections, "--pipeline", pipeline, "-d", f"{self.options.seconds}s", "--json", "-", url]
            script = ["-s", self.ten_at_once()] if pipeline > 1 else []
            kinds = {
                "dunlin": (own, r'"requests_per_second": ([\d.]+)'),
                "wrk": (["wrk", "-t1", f"-c{connections}", f"-d{self.options.seconds}s", *script, url], r"Requests/sec:\s+([\d.]+)"),
            }
            if least_verified:
                kinds[verified] = ([*own, f"--verify={self.root}"], kinds["dunlin"][1])
            bare = [servers.Baseline.binary, "--load", url, "--connections", connections, "--pipeline", pipeline, "--seconds", self.options.seconds]
            if size == "1k":
                kinds["bare client"] = (bare, r"([\d.]+)")
            try:
                r = self.rounds(kinds, lambda _, kind: self.generated(*kind))
            finally:
                server.stop()
            title = f"{size}, {connections} connections" + f", {pipeline} requests at once" * (pipeline > 1)
            self.table(f"Load: {title}", r, whose="generator", what="client")
            for name, aim in (("dunlin", least), (verified, least_verified), ("bare client", None)):
                if name not in r:
                    continue
                ratio, cpu = r[name]["rate"] / r["wrk"]["rate"], r["wrk"]["cpu_us"] / r[name]["cpu_us"]
                what = f"load, {title}, {name}, against wrk: requests per CPU second {cpu:.3f}, requests/s"
                if aim:
                    self.assess(what, ratio, ratio >= aim, f"≥ {aim}")
                else:
                    print(f"\n{what}: {ratio:.3f}")

    def generated(self, command, pattern):
        """One run of a generator: requests per second, and its own processor time per request."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(["taskset", "-c", "1", *map(str, command)], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = re.search(pattern, done.stdout)
        if done.returncode or not found or "Socket errors" in done.stdout:
            print(f"    {command[0]}: not counted: {(done.stderr or done.stdout)[-300:]}", file=sys.stderr)
            return None
        rate = float(found[1])
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return rate, cpu / (rate * self.options.seconds) * 1e6


ROWS = ["keepalive-1k", "random-1k", "pipeline-10", "sizes", "churn", "cache-off", "large-site", "crawl", "few-connections", "access-log", "idle-memory", "first-byte", "scaling", "checks", "response-cache", "metrics", *leaders.ROWS, *routes.ROWS, *proxies.ROWS, "slowloris", "http2", "tls", "handshakes", "cgi", "cgiplus", *components.ROWS, *compression.ROWS, "php", "wsgi", "load", *http3.ROWS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", choices=[*ROWS, *versions.ROWS, "all"], metavar="ROW")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--launches", type=int, default=6, help="starts of each build, for the row versions")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dunlin", default="target/dist/dunlin")
    parser.add_argument("--before", help="an older build, for the row versions")
    parser.add_argument("--baseline", default="target/dist/baseline")
    parser.add_argument("--python", default=sys.executable, help="interpreter for the row wsgi")
    parser.add_argument("--only", help="a regular expression of titles, for the row leaders")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    servers.Dunlin.binary, servers.Baseline.binary = options.dunlin, options.baseline
    for tool in ("wrk", "taskset"):
        if not shutil.which(tool):
            sys.exit(f"figures: {tool} is missing")
    model = re.search(r"model name\s+: (.*)", Path("/proc/cpuinfo").read_text())
    print(f"Linux {platform.release()}, {os.cpu_count()} × {model[1] if model else platform.machine()}")
    print(f"`{' '.join(['benches/figures.py', *sys.argv[1:]])}`, seed {options.seed}")
    for server in servers.ALL.values():
        if issubclass(server, servers.Application):
            continue
        print(f"- {server.name}: {server.version()}")
    bench = Bench(options)
    for row in ROWS if "all" in options.rows else options.rows:
        getattr(bench, row.replace("-", "_"))()
        if options.json:
            options.json.write_text(json.dumps(bench.results, indent=1))
    if bench.disturbed:
        print(f"\n{bench.disturbed} runs were disturbed by other guests of this machine's host and repeated.")
    shutil.rmtree(bench.folder)


if __name__ == "__main__":
    main()
