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
    ("the file", "File"),
    ("`[server]`", "ServerTable"),
    ("`[server.access_log]`", "AccessLogTable"),
    ("`[server.error_log]`", "ErrorLogTable"),
    ("`[server.limits]`", "Limits"),
    ("`[server.http1]`", "Http1Table"),
    ("`[server.cache]`", "CacheTable"),
    ("`[server.reverse_dns]`", "ReverseDnsTable"),
    ("`[server.landlock]`", "Landlock"),
    ("`[server.traces]`", "TracesTable"),
    ("`[shared]`", "SharedTable"),
    ("`[store]`", "StoreTables"),
    ("`[store.s3]`, `[store.gs]`, `[store.az]`, `[store.https]`", "StoreTable"),
    ("`[[listen]]`", "ListenTable"),
    ("`[[site]]`", "SiteTable"),
    ("`tls` of a site", "TlsTable"),
    ("`acme` in `tls`", "AcmeTable"),
    ("an authority in `directory`", "AcmeDirectory"),
    ("`dns` in `acme`", "AcmeDnsTable"),
    ("`external_account` in `acme`", "ExternalAccountTable"),
    ("`[[site.route]]`", None),
    ("`when`", "WhenTable"),
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
        yield from entries(re.search(r"pub struct Route \{(.*?)\n *\}", SOURCE, re.S)[1])
        body = re.search(r"\nroute! \{(.*?)\n\}", SOURCE, re.S)[1]
    else:
        body = re.search(rf"pub struct {name} \{{(.*?)\n *\}}", SOURCE, re.S)[1]
    yield from entries(body)


def rows(pairs):
    lines = [f"| `{key}` | {meaning.replace('|', chr(92) + '|')} |\n" for key, meaning in pairs]
    return "".join(["\n| key | meaning |\n| --- | --- |\n", *lines])


def script_groups():
    """The keys of `script` by the kinds that have them."""
    source = (FOLDER.parent / "script/keys.rs").read_text()
    kinds = dict(re.findall(r"static (\w+): Group =\s*group\(\s*(&\[[^]]*\]|EVERY_KIND)", source))
    every = re.search(r"const EVERY_KIND: &\[ScriptKind\] =\s*&\[([^]]*)\]", source)[1]
    groups = {}
    for group, keys in re.findall(r"^    (\w+): ([\w, \n]+);$", re.search(r"^keys! \{(.*?)^\}", source, re.M | re.S)[1], re.M):
        names = every if kinds[group] == "EVERY_KIND" else kinds[group].strip("&[]")
        words = tuple(f"`{name.strip().lower()}`" for name in names.split(",") if name.strip())
        groups.setdefault(words, []).extend(key.strip() for key in keys.split(","))
    return groups


def script():
    """The sections of the table `script`: a section for the keys that the same kinds have."""
    meanings = dict(table("ScriptTable"))
    parts = [rows([("kind", meanings.pop("kind"))])]
    for kinds, keys in script_groups().items():
        title = "every kind" if len(kinds) == 11 else "every kind but `component`" if len(kinds) == 10 else ", ".join(kinds)
        parts += [f"\n### `script` of {title}\n", rows((key, meanings.pop(key)) for key in keys)]
    assert not meanings, meanings
    return "".join(parts)


def chapter():
    parts = [INTRODUCTION]
    for title, name in TABLES:
        parts += [f"\n## {title}\n", script() if name == "ScriptTable" else rows(table(name))]
        if name == "SiteTable":
            parts.append("\nA site can have every key of a route, too: for all its paths, and more general than its routes.\n")
    return "".join(parts)


if __name__ == "__main__":
    print(chapter(), end="")
