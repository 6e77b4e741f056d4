"""The row of a crawler: the hit rate of the file cache under a load by Zipf's law, before, while and after a client requests each
document of the site once."""

import http.client
import json
import subprocess
import threading
import time

# Seconds. A worker passes its counts on about once a second.
WARM_UP, BEFORE, AFTER, LAST = 20, 5, 12, 4
# Requests per second of the crawler.
RATE = 2000


class Crawler(threading.Thread):
    def __init__(self, port, paths):
        super().__init__()
        self.port, self.paths, self.sent = port, paths, 0

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        began = time.monotonic()
        for number, path in enumerate(self.paths):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            connection.request("GET", path)
            connection.getresponse().read()
            self.sent = number + 1


class Samples:
    """Counts of the server, from its status."""

    def __init__(self, server, crawler, documents):
        self.server, self.crawler, self.documents = server, crawler, documents

    def take(self):
        cache = json.loads(self.server.get("/status/status.json")[1])["cache"]
        return cache["hits"], cache["misses"], cache["files"], self.crawler.sent

    def rate(self, then, now):
        """The hit rate of the load alone. A request of the crawler is a hit with the probability that its document is cached."""
        hits, misses, sent = now[0] - then[0], now[1] - then[1], now[3] - then[3]
        own = sent * now[2] / self.documents
        return (hits - own) / (hits + misses - sent)


def run(bench):
    paths, size = bench.documents()
    script = bench.by_zipf("crawl", paths)
    server = bench.start("dunlin", server=f"cache = {{ size = {size // 4} }}", counted=True)
    crawler = Crawler(server.port, bench.random.sample(paths, len(paths)))
    samples = Samples(server, crawler, len(paths))
    lasts = WARM_UP + BEFORE + len(paths) / RATE + AFTER + 5
    command = ["taskset", "-c", "1", "wrk", "-t1", "-c32", f"-d{lasts:.0f}s", "-s", str(script), f"http://127.0.0.1:{server.port}/"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        time.sleep(WARM_UP)
        start = samples.take()
        time.sleep(BEFORE)
        begun = samples.take()
        crawler.start()
        crawler.join()
        ended = samples.take()
        time.sleep(AFTER - LAST)
        late = samples.take()
        time.sleep(LAST)
        last = samples.take()
    finally:
        load.kill()
        load.wait()
        server.stop()
    before, during, after = (100 * samples.rate(*two) for two in ((start, begun), (begun, ended), (late, last)))
    print(f"\n### A crawler during a load by Zipf's law, a cache of a quarter of {len(paths):,} documents\n")
    print("| hit rate | % |\n| --- | ---: |")
    for what, value in (("before", before), ("during", during), ("10 s after", after)):
        print(f"| {what} | {value:.2f} |")
    bench.results["crawl"] = {"before": before, "during": during, "after": after}
    bench.assess("points of the hit rate that a crawler costs", before - during, before - during <= 2, "≤ 2")
    bench.assess("points that are missing 10 s after it", before - after, before - after <= 0.5, "≤ 0.5")
