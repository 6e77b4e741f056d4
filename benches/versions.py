"""The row `versions`: two builds of Dunlin side by side, before and after a change.

    benches/figures.py versions --before target/before/dunlin --launches 6 --rounds 5 --seconds 1

The figure is the ratio of processor time per request: of the threads of the server and its scripts, and all time of
processor 0, which includes that of interrupts. It depends on where memory lies by up to a tenth, so all builds are started
several times: the figure is the median of the ratios of the launches. The build before the change takes part twice, which
shows how much of a difference is noise. Instructions per request are counted, too."""

import statistics
from pathlib import Path

import servers
from instructions import Rows as Instructions

ROWS = ["versions"]


class Rows(Instructions):
    """The row, for `Bench`."""

    def versions(self):
        before = self.options.before
        if not before:
            raise SystemExit("figures: the row `versions` needs --before BINARY")
        upstream = self.start("dunlin", core=1, binary=before)
        try:
            self.compare_versions(self.version_cases(upstream))
        finally:
            upstream.stop()
        self.count_instructions(before)

    def compare_versions(self, cases):
        builds = {"before": self.options.before, "again": self.options.before, "after": self.options.dunlin}
        for case, (variant, load) in cases.items():
            launches = [self.version_launch(builds, variant, load) for _ in range(self.options.launches)]
            self.version_table(case, launches)

    def version_launch(self, builds, variant, load):
        """Starts all builds, and returns the samples of each."""
        running = {}
        try:
            for label in self.random.sample(list(builds), len(builds)):
                running[label] = self.start("dunlin", binary=builds[label], **variant)
                load(running[label])
            return self.version_rounds(running, load)
        finally:
            for server in running.values():
                server.stop()

    def version_cases(self, upstream):
        """The variant of the configuration and the load by case. The upstream of the proxy shares the processor of the load."""
        folder, pair = self.scripts_folder(), self.certificate()
        self.build_programs(folder, Path("scripting/cgiplus"))
        script = lambda text: {"script": text}
        wrk = lambda path, connections=32, **more: lambda server: self.both(
            server, lambda: self.wrk(server, path, connections, **more))
        python = self.options.python
        wsgi = f'kind = "wsgi", application = "app:application", directory = "{folder}", interpreter = "{python}", processes = 1'
        h2load = lambda server: ["h2load", "-n", 300_000, "-c", 16, "-m", 32, f"http://127.0.0.1:{server.http2_port}/1k.bin"]
        tls = lambda server: ["wrk", "-t1", "-c32", f"-d{self.options.seconds}s", f"https://127.0.0.1:{server.tls_port}/1k.bin"]
        return {
            "keepalive-1k": ({}, wrk("/1k.bin")),
            "pipeline-10": ({}, wrk("/1k.bin", script=self.ten_at_once())),
            "http2": ({}, lambda server: self.both(server, lambda: self.counted(server, h2load(server), r"(\d+) succeeded, 0 failed"))),
            "tls": ({"tls": pair}, lambda server: self.both(server, lambda: self.counted(server, tls(server), r"(\d+) requests in"))),
            "proxy": ({"upstream": upstream.port}, wrk("/1k.bin")),
            "cgi": (script(f'kind = "cgi", directory = "{folder}"'), wrk("/s/hello", 4)),
            "wsgi": (script(wsgi), wrk("/s/")),
            "cgiplus": (script(f'kind = "cgiplus", directory = "{folder}"'), wrk("/s/plus?0")),
        }

    def both(self, server, run):
        """One run: requests per second, time of threads and of the processor per request in microseconds."""
        processor, threads = servers.core_time(), server.cpu()
        sample = run()
        processor, threads = servers.core_time() - processor, server.cpu() - threads
        if not sample or not threads:
            return None
        rate, per_request = sample
        return rate, per_request, per_request * processor / threads

    def version_rounds(self, running, load):
        samples = {label: [] for label in running}
        for _ in range(self.options.rounds):
            order = list(running)
            self.random.shuffle(order)
            for label in order:
                sample = self.undisturbed(lambda: load(running[label]))
                if sample:
                    samples[label].append(sample)
        return samples

    def version_table(self, case, launches):
        medians = lambda label, n: [statistics.median(sample[n] for sample in samples[label]) for samples in launches]
        print(f"\n### {case}\n\n| | requests/s | threads, CPU µs/request | processor, µs/request |\n| --- | ---: | ---: | ---: |")
        for label in ("before", "again", "after"):
            rate, threads, processor = (statistics.median(medians(label, n)) for n in range(3))
            print(f"| {label} | {rate:,.0f} | {threads:.2f} | {processor:.2f} |")
        for n, what in ((1, "threads"), (2, "processor")):
            before = medians("before", n)
            ratio = lambda label: statistics.median(a / b for a, b in zip(medians(label, n), before))
            noise = f"before against itself {ratio('again'):.3f}"
            self.assess(f"{case}: {what}, after against before ({noise})", ratio("after"), ratio("after") <= 1.02, "≤ 1.02")
