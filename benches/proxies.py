"""The rows of the reverse proxy: Dunlin, nginx and HAProxy before one upstream.

The proxy has processor 0. The upstream shares processor 1 with the load generator: the processor time of the proxy is the
figure to compare."""

import json
import subprocess

import servers

ROWS = ["proxy-small", "proxy-http2", "proxy-large", "proxy-upload", "proxy-latency"]
# By proxy, for bodies that are streamed. By default, nginx collects request bodies and, in part, response bodies.
STREAMED = {
    "dunlin": ("dunlin", {}),
    "nginx": ("nginx", {}),
    "nginx, unbuffered": ("nginx", {"location": "proxy_buffering off; proxy_request_buffering off;"}),
    "haproxy": ("haproxy", {}),
    "haproxy, splice": ("haproxy", {"options": "option splice-auto"}),
}
DEFAULT = {name: STREAMED[name] for name in ("dunlin", "nginx", "haproxy")}
# What Dunlin always tells upstreams, as others are usually set to do.
FORWARDED = (
    "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; "
    'proxy_set_header X-Forwarded-Host $host; proxy_set_header Via "1.1 nginx";'
)
LARGE = 10_000_000


class Rows:
    """The rows, for `Bench`."""

    def behind(self, upstream, proxies, **more):
        """The variants of proxies before this upstream."""
        return {label: (name, {**variant, **more, "upstream": upstream.port}) for label, (name, variant) in proxies.items()}

    def against_nginx(self, what, result, limit, of="cpu_us"):
        nginx = min(value[of] for label, value in result.items() if label.startswith("nginx"))
        ratio = result["dunlin"][of] / nginx
        self.assess(f"{what} against nginx", ratio, ratio <= limit, f"≤ {limit:.2f}")

    def proxy_small(self):
        upstream = self.start("dunlin", core=1)
        try:
            proxies = {**DEFAULT, "nginx, X-Forwarded-* and Via": ("nginx", {"location": FORWARDED})}
            r = self.race("proxy, HTTP/1.1 to HTTP/1.1, 1 KB, 32 connections", [], "/1k.bin", 32, self.behind(upstream, proxies))
            self.against_nginx("CPU of the proxy, HTTP/1.1 to HTTP/1.1,", r, 1.0)
        finally:
            upstream.stop()

    def proxy_http2(self):
        """nginx has only HTTP/1 to upstreams: both ways of Dunlin are compared with that."""
        upstream = self.start("dunlin", core=1)
        try:
            for kind, limit in (("HTTP/1.1", 0.8), ("HTTP/2", 0.5)):
                more = {"http2_upstream": kind == "HTTP/2"}
                check = lambda _, server: self.verify(server, "/1k.bin")
                run = lambda _, server: self.counted(server, self.h2load_command(server), r"(\d+) succeeded, 0 failed")
                title = f"proxy, HTTP/2 to {kind}, 1 KB, 4 connections of 32 streams (nginx: to HTTP/1.1)"
                r = self.compete(title, self.behind(upstream, DEFAULT, **more), check, run)
                self.against_nginx(f"CPU of the proxy, HTTP/2 to {kind},", r, limit)
        finally:
            upstream.stop()

    def h2load_command(self, server):
        return ["h2load", "-n", 40_000, "-c", 4, "-m", 32, f"http://127.0.0.1:{server.http2_port}/1k.bin"]

    def proxy_large(self):
        (self.root / "10m.bin").write_bytes(self.random.randbytes(LARGE))
        upstream = self.start("dunlin", core=1)
        try:
            for name, text in (("64k", "64 KB"), ("10m", "10 MB")):
                r = self.race(f"proxy, {text} down, 8 connections", [], f"/{name}.bin", 8, self.behind(upstream, STREAMED))
                self.against_nginx(f"CPU of the proxy, {text} down,", r, 1.0)
        finally:
            upstream.stop()

    def proxy_upload(self):
        upstream = self.start("node", core=1)
        script = self.folder / "upload.lua"
        script.write_text(f'wrk.method = "POST"\nwrk.body = string.rep("x", {LARGE})\n')
        body = self.folder / "upload"
        body.write_bytes(b"x" * LARGE)

        def check(label, server):
            url = f"http://127.0.0.1:{server.port}/"
            got = subprocess.run(["curl", "-s", "--data-binary", f"@{body}", url], capture_output=True, text=True).stdout
            if got != str(LARGE):
                raise RuntimeError(f"{label} forwards a wrong body: {got[:80]}")

        try:
            run = lambda _, server: self.wrk(server, "/", 4, script=script)
            r = self.compete("proxy, 10 MB up, 4 connections", self.behind(upstream, STREAMED), check, run)
            self.against_nginx("CPU of the proxy, 10 MB up,", r, 1.0)
        finally:
            upstream.stop()

    def proxy_latency(self):
        """Response times at half of the rate that the upstream reaches alone, with the load generator on its processor.

        The upstream works 100 µs on each response, as an application does: the load generator is then idle most of the time."""
        upstream = self.start("node", core=1, work=100)
        running = {"none": upstream}
        try:
            for label, (name, variant) in self.behind(upstream, DEFAULT).items():
                running[label] = self.start(name, **variant)
            for server in running.values():
                self.wrk(server, "/1k.bin", 32)
            rate = int(self.run_load(upstream)["requests_per_second"] / 2)
            samples = {}
            for _ in range(self.options.rounds):
                for label in self.random.sample(list(running), len(running)):
                    samples.setdefault(label, []).append(self.undisturbed(lambda: self.latencies(running[label], rate)))
        finally:
            for server in running.values():
                server.stop()
        print(f"\n### proxy, 1 KB, {rate} requests/s: half of what the upstream (Node, 100 µs of work each) reaches\n")
        print("| proxy | p50, ms | p99, ms | p99, ms, lowest and highest |\n| --- | ---: | ---: | --- |")
        p99 = {}
        for label, taken in samples.items():
            p50, p99[label] = (sorted(s[n] for s in taken)[len(taken) // 2] for n in (0, 1))
            print(f"| {label} | {p50:.3f} | {p99[label]:.3f} | {min(s[1] for s in taken):.3f}–{max(s[1] for s in taken):.3f} |", flush=True)
        self.results["proxy, response times"] = samples
        # Within a round, since the host disturbs single rounds by more than a proxy adds.
        pairs = list(zip(samples["dunlin"], samples["nginx"], samples["none"]))
        added = [(own[1] - none[1], other[1] - none[1]) for own, other, none in pairs]
        own, other = (sorted(pair[n] for pair in added)[len(added) // 2] for n in (0, 1))
        print(f"\nAdded to p99, median of {len(added)} rounds, ms: dunlin {own:.3f}, nginx {other:.3f}")
        better = sum(mine <= theirs for mine, theirs in added)
        print(f"\nDunlin adds no more than nginx in {better} of {len(added)} rounds.")
        ratio = sorted(own[1] / other[1] for own, other, _ in pairs)[len(pairs) // 2]
        self.assess("p99 behind the proxy against nginx, median of the rounds", ratio, ratio <= 1, "≤ 1.00")

    def latencies(self, server, rate):
        """The median and the 99th percentile of the response times in ms, at a rate, after a second with open connections."""
        result = self.run_load(server, "--rate", str(rate), "--warmup", "1s")
        return result["latency_ms"]["p50"], result["latency_ms"]["p99"]

    def run_load(self, server, *options):
        """The result of a run of `dunlin load`."""
        url = f"http://127.0.0.1:{server.port}/1k.bin"
        command = [servers.Dunlin.binary, "load", *options, "-c", "32", "-d", f"{self.options.seconds}s", "--json", "-", url]
        done = subprocess.run(["taskset", "-c", "1", *command], capture_output=True, text=True)
        result = json.loads(done.stdout)
        if result["errors"]:
            raise RuntimeError(f"{server.name}: {result['errors']} failed requests")
        return result
