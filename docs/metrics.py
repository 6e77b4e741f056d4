#!/usr/bin/env python3
"""Writes the reference of the metrics from those of a server that has one of everything.

    docs/metrics.py > docs/src/metrics.md
"""

import re
import subprocess
import tempfile
from pathlib import Path

from serving import get, serving

PAGE = """# Metrics

The metrics of a [status route](watching.md#the-status-route) and of the admin socket, in the order of their output. Names follow OpenTelemetry's
conventions for HTTP servers, for Prometheus. With OpenMetrics, the names of counters in `# TYPE` are without `_total`.
Timestamps are seconds since 1970.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
{rows}
## Labels

| label | values |
| --- | --- |
{labels}"""

SERVER = '[server]\nthreads = 1\ntraces = { endpoint = "http://127.0.0.1:1/v1/traces" }\n'
ROUTES = """tls = { certificate = "own.pem", key = "own.key" }
[[site.route]]
path = "/status/*"
status = true
[[site.route]]
path = "/limited"
respond = {}
limit = { requests = "1/d" }
throttle = { max_concurrent = 1, bandwidth = "1MB/s" }
[[site.route]]
path = "/scripts/*"
script = { kind = "cgi", directory = "scripts" }
[[site]]
host = "objects.example"
root = "s3://pages"
[store.s3]
endpoint = "http://127.0.0.1:1"
access_key = "a"
secret_key = "b"
"""

# Labels whose values come from the configuration or from requests.
OPEN = {
    "dunlin_site": "name of the site",
    "http_route": "pattern of the most specific route",
    "http_request_method": "method; `_OTHER` for unknown ones",
    "http_response_status_code": "status",
    "network_protocol_version": "`1.0`, `1.1`, `2` or `3`",
    "url_scheme": "`http` or `https`",
    "pool": "name of the pool",
    "kind": "`kind` of the scripts",
    "file": "file of the certificate; empty with ACME",
    "limit": "the limit: `address` or `idlest` of connections, the rule of a rate limit",
    "dry_run": "`true` if the limit only counts what it would do",
    "phase": "a [phase](watching.md#phases)",
    "store": "URL of the bucket",
    "version": "version of the server",
    "le": "upper bound of a bucket",
}


def exposition():
    """The text of a server whose metrics all have values."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "scripts").mkdir()
        script = Path(folder) / "scripts" / "a"
        script.write_text("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\na'\n")
        script.chmod(0o755)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
             "/CN=localhost", "-keyout", f"{folder}/own.key", "-out", f"{folder}/own.pem"],
            check=True, stderr=subprocess.DEVNULL,
        )
        with serving(folder, SERVER, ROUTES) as server:
            for path in ("/", "/limited", "/limited", "/scripts/a"):
                get(server, path)
            # Counts are published every 100 ms.
            while 'http_route="/scripts/*"' not in (text := get(server, "/status/metrics")):
                pass
        return text


def families(text):
    """Name, type, help, and labels with their values, of each family of metrics."""
    for part in re.split(r"^# HELP ", text, flags=re.M)[1:]:
        first, second, *samples = part.splitlines()
        name, _, meaning = first.partition(" ")
        labels = {}
        for sample in samples:
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample):
                labels.setdefault(label, {})[value] = None
        yield name, second.split()[-1], meaning, labels


def page():
    rows, values = [], {}
    for name, kind, meaning, labels in families(exposition()):
        shown = ", ".join(f"`{label}`" for label in labels if label != "le")
        rows.append(f"| `{name}` | {kind} | {shown} | {meaning} |\n")
        for label in labels:
            values.setdefault(label, {})[name] = list(labels[label])
    lines = []
    for label, by_name in values.items():
        if label in OPEN:
            lines.append(f"| `{label}` | {OPEN[label]} |\n")
            continue
        for name, found in by_name.items():
            lines.append(f"| `{label}` of `{name}` | {', '.join(f'`{value}`' for value in found)} |\n")
    return PAGE.format(rows="".join(rows), labels="".join(lines))


if __name__ == "__main__":
    print(page(), end="")
