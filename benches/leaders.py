"""The row `leaders`: the workloads in which Dunlin is to be the first of all servers, with the processor time that the best
other server takes.

The figure is all time of processor 0, that of interrupts included, per request. Each table has the share of its time that each
processor worked: a load that works nearly all the time while the server does not is the bound of the rate, not of the figure."""

import gzip
import os
import re
import statistics
import time
from dataclasses import dataclass
from typing import Callable

import servers

ROWS = ["leaders"]
# Sizes of the files of a site, in KB.
SITE = [3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 12, 14, 16, 20, 24, 32, 48, 64, 120, 300]
GZIP = "accept-encoding: gzip"
# The fields with which Dunlin names the client to an upstream, for nginx, which adds none by itself.
FORWARDED = (
    'proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; '
    'proxy_set_header X-Forwarded-Host $http_host; proxy_set_header Via "1.1 nginx"; '
    'proxy_set_header Forwarded "for=$remote_addr;host=\\"$http_host\\";proto=$scheme";'
)


@dataclass
class Workload:
    title: str
    # Gives the command of the load for a server, and the pattern of the number of its requests.
    command: Callable
    # The most that Dunlin may take of what the best other server takes.
    most: float
    # The work can move to the processor of the load: both count.
    both: bool = False
    upstream: bool = False
    # Further settings of nginx.
    nginx: str = ""


class Rows:
    """The row, for `Bench`."""

    def leaders(self):
        self.make_site()
        upstream = self.start("dunlin", core=1)
        try:
            for workload in self.workloads():
                self.lead(workload, upstream)
        finally:
            upstream.stop()

    def make_site(self):
        """Makes 20 files of a site with their siblings in gzip, that have the ratio of text."""
        folder = self.root / "site"
        folder.mkdir(exist_ok=True)
        past = time.time() - 3600
        for number, size in enumerate(SITE):
            words = (f"{self.random.randrange(1 << 20):x} item {self.random.randrange(40)} of the list\n" for _ in range(size * 64))
            text = "".join(words).encode()[: size * 1024]
            for path, content in ((f"{number}.txt", text), (f"{number}.txt.gz", gzip.compress(text, 9))):
                (folder / path).write_bytes(content)
                os.utime(folder / path, (past, past))
        paths = [f"/site/{number}.txt" for number in range(len(SITE))]
        (self.folder / "site.txt").write_text("".join(f"{path}\n" for path in paths))
        listed = ", ".join(f'"{path}"' for path in paths)
        (self.folder / "site.lua").write_text(
            f'local paths, n = {{ {listed} }}, 0 request = function() n = n % {len(paths)} + 1 return wrk.format("GET", paths[n]) end\n'
        )
        # A connection has ten requests on average.
        (self.folder / "ten.lua").write_text(
            'local n = 0 request = function() n = n + 1 wrk.headers["Connection"] = n % 10 == 0 and "close" or nil '
            'return wrk.format("GET", "/1k.bin") end\n'
        )
        (self.folder / "sixteen.lua").write_text(
            'init = function(args) local r = {} for i = 1, 16 do r[i] = wrk.format("GET", "/1k.bin") end '
            'req = table.concat(r) end request = function() return req end\n'
        )

    def wrk_at(self, path, connections, script=None, fields=(), tls=False):
        """Gives the command of wrk for a server."""
        def command(server):
            own = ["wrk", "-t1", f"-c{connections}", f"-d{self.options.seconds}s"]
            own += [word for field in fields for word in ("-H", field)]
            own += ["-s", self.folder / script] if script else []
            base = f"https://127.0.0.1:{server.tls_port}" if tls else f"http://127.0.0.1:{server.port}"
            return [*own, base + path]

        return command, r"(\d+) requests in"

    def h2load_at(self, path, connections, streams, tls=True, fields=()):
        """Gives the command of h2load for a server; without a path, it requests the files of the site."""
        def command(server):
            base = f"https://127.0.0.1:{server.tls_port}" if tls else f"http://127.0.0.1:{server.http2_port}"
            own = ["h2load", "-D", self.options.seconds, "-c", connections, "-m", streams]
            own += [word for field in fields for word in ("-H", field)]
            own += [base + path] if path else ["-i", self.site_urls(base)]
            return own

        return command, r"requests: \d+ total, \d+ started, (\d+) done"

    def site_urls(self, base):
        file = self.folder / f"site-{base.rpartition(':')[2]}.txt"
        file.write_text("".join(f"{base}{path}\n" for path in (self.folder / "site.txt").read_text().split()))
        return file

    def workloads(self):
        wrk, h2load = self.wrk_at, self.h2load_at
        site = {"script": "site.lua", "path": "/"}
        yield Workload("HTTP/2 over TLS, 64 KB, 8 × 8", h2load("/64k.bin", 8, 8), 0.80)
        yield Workload("HTTP/2 over TLS, 20 files, gzip, 32 × 10", h2load("", 32, 10, fields=[GZIP]), 0.75)
        yield Workload("HTTP/1.1 over TLS, 20 files, gzip, 64", wrk(connections=64, tls=True, fields=[GZIP], **site), 0.70)
        yield Workload("20 files, gzip, 256", wrk(connections=256, fields=[GZIP], **site), 0.70)
        yield Workload("20 files, identity, 256", wrk(connections=256, **site), 0.75)
        yield Workload("16 KB, 32", wrk("/16k.bin", 32), 0.75)
        yield Workload("64 KB, 32", wrk("/64k.bin", 32), 0.70)
        for connections, most in ((4, 0.62), (32, 0.60), (512, 0.60), (4096, 0.70)):
            yield Workload(f"1 KB, {connections}", wrk("/1k.bin", connections), most)
        yield Workload("1 KB, ten requests a connection, 256", wrk("/1k.bin", 256, "ten.lua"), 0.78)
        yield Workload("proxy, 1 KB, 32", wrk("/1k.bin", 32), 0.95, upstream=True)
        yield Workload("proxy, 1 KB, 32, equal fields", wrk("/1k.bin", 32), 0.95, upstream=True, nginx=FORWARDED)
        yield Workload("4 MB, 10, both processors", wrk("/4m.bin", 10), 0.78, both=True)
        yield Workload("HTTP/2, 1 KB, 32 × 32", h2load("/1k.bin", 32, 32, tls=False), 0.40)
        yield Workload("HTTP/2 over TLS, 1 KB, 32 × 100", h2load("/1k.bin", 32, 100), 0.60)
        yield Workload("HTTP/2 over TLS, 1 KB, 256 × 1", h2load("/1k.bin", 256, 1), 0.60)
        yield Workload("HTTP/1.1 over TLS, 1 KB, 64", wrk("/1k.bin", 64, tls=True), 0.65)
        yield Workload("HTTP/1.1 over TLS, 1 KB, 64, 16 pipelined", wrk("/1k.bin", 64, "sixteen.lua", tls=True), 0.32)

    def lead(self, workload, upstream):
        """Measures a workload for all servers, and compares Dunlin with the best other."""
        # What serves files with siblings in gzip, with each server's own setting.
        variant = {"tls": self.certificate(), "siblings": True}
        names = ["dunlin", "nginx", "h2o"]
        if workload.upstream:
            variant, names = {"upstream": upstream.port, "location": workload.nginx}, ["dunlin", "nginx"]
        only = self.options.only
        if only and not re.search(only, workload.title):
            return
        shares = {}
        check = lambda _, server: self.verify(server, "/1k.bin")
        run = lambda label, server: self.whole(workload, server, shares.setdefault(label, []))
        result = self.compete(workload.title, {name: (name, variant) for name in names}, check, run)
        for label, samples in shares.items():
            server, load = (statistics.median(sample[n] for sample in samples) for n in range(2))
            bound = "the load is the bound of the rate" if load > 0.95 > server else ""
            print(f"{label}: the server's processor works {server:.0%} of the time, the load's {load:.0%} {bound}")
        others = [measured["cpu_us"] for name, measured in result.items() if name != "dunlin"]
        if "dunlin" in result and others:
            ratio = result["dunlin"]["cpu_us"] / min(others)
            self.assess(f"CPU against the best other, {workload.title}", ratio, ratio <= workload.most, f"≤ {workload.most}")

    def whole(self, workload, server, shares):
        """One run: requests per second, and time of the processor, or of both, per request."""
        command, pattern = workload.command
        before, began = [servers.core_time(core) for core in (0, 1)], time.monotonic()
        sample = self.counted(server, command(server), pattern)
        seconds = time.monotonic() - began
        used = [servers.core_time(core) - then for core, then in zip((0, 1), before)]
        if not sample:
            return None
        shares.append([each / seconds for each in used])
        rate = sample[0]
        return rate, (sum(used) if workload.both else used[0]) / (rate * seconds) * 1e6
