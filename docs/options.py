#!/usr/bin/env python3
"""Writes the book's chapter on the configuration from the types that read it.

    docs/options.py > docs/src/configuration.md
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "crates/config/src/file"
SOURCE = "\n".join(file.read_text() for file in sorted(FOLDER.glob("*.rs")))

INTRODUCTION = """# Configuration

One TOML file. Sizes and times carry units: `256KB` is 256,000 bytes, `256KiB` 262,144; times are `500ms`, `30s`,
`5m`, `1h`, `1d`; rates are `400KB/s`. Relative paths are relative to the file. An unknown key is an error
that names the nearest valid one. `dunlin check --schema` prints all of this as a JSON Schema.
"""

TABLES = [
    ("`[server]`", "Server"),
    ("`[server.access_log]`", "AccessLogTable"),
    ("`[server.error_log]`", "ErrorLog"),
    ("`[server.limits]`", "Limits"),
    ("`[server.http1]`", "Http1"),
    ("`[server.cache]`", "Cache"),
    ("`[server.reverse_dns]`", "ReverseDns"),
    ("`[server.landlock]`", "Landlock"),
    ("`[server.traces]`", "Traces"),
    ("`[shared]`", "SharedTable"),
    ("`[store]`", "Stores"),
    ("`[store.s3]`, `[store.gs]`, `[store.az]`, `[store.https]`", "StoreTable"),
    ("`[[listen]]`", "Listen"),
    ("`[[site]]`", "Site"),
    ("`tls` of a site", "TlsTable"),
    ("`acme` in `tls`", "AcmeTable"),
    ("`external_account` in `acme`", "ExternalAccountTable"),
    ("`[[site.route]]`", None),
    ("`redirect`", "RedirectTable"),
    ("`respond`", "RespondTable"),
    ("`script`", "ScriptTable"),
    ("`proxy`", "ProxyTable"),
    ("an upstream in `to`", "ProxyTarget"),
    ("`retry` in `proxy`", "RetryTable"),
    ("`eject` in `proxy`", "EjectTable"),
    ("`sticky` in `proxy`", "StickyTable"),
    ("`buffer` in `proxy`", "BufferTable"),
    ("`health` in `proxy`", "HealthTable"),
    ("`hsts`", "HstsTable"),
    ("`auth`", "AuthTable"),
    ("`limit`", "RateLimitTable"),
    ("`throttle`", "ThrottleTable"),
    ("`cache` on a route", "RouteCacheTable"),
    ("`records`", "RecordsTable"),
]


def entries(body):
    """Each key with its doc comment."""
    text = []
    for line in map(str.strip, body.splitlines()):
        if line.startswith("///"):
            text.append(line[3:].strip())
        elif not line.startswith("#["):
            found = re.match(r"(?:pub )?(?:r#)?(\w+):", line)
            if found and text:
                yield found[1], " ".join(text)
            text = []


def table(name):
    if name is None:
        yield "path", "A path, or a pattern with one `*`: `/a/*`, `*.css`."
        body = re.search(r"\nroute! \{(.*?)\n\}", SOURCE, re.S)[1]
    else:
        body = re.search(rf"pub struct {name} \{{(.*?)\n\}}", SOURCE, re.S)[1]
    yield from entries(body)


def chapter():
    parts = [INTRODUCTION]
    for title, name in TABLES:
        parts.append(f"\n## {title}\n\n| key | meaning |\n| --- | --- |\n")
        for key, meaning in table(name):
            parts.append(f"| `{key}` | {meaning.replace('|', chr(92) + '|')} |\n")
    return "".join(parts)


if __name__ == "__main__":
    print(chapter(), end="")
