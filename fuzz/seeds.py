#!/usr/bin/env python3
"""Writes the corpus of the target `configuration` from the examples of the book: each with a request, and some in two files.

    fuzz/seeds.py [DIRECTORY]    default: fuzz/corpus/configuration

The dictionary of its keys and placeholders is written beside it, for `-dict=`."""

import re
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUESTS = [
    "",
    "GET /old/a%20b?lang=de&id=7 HTTP/1.1\r\nHost: example.com\r\nCookie: lang=de; id=7\r\nUser-Agent: bot/1\r\nAccept: text/html\r\n\r\n",
    "POST /index.php/a?x=%3C HTTP/1.1\r\nHost: www.example.com\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
]


def examples():
    for page in sorted((ROOT / "docs" / "src").rglob("*.md")):
        yield from re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.S | re.M)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "fuzz" / "corpus" / "configuration")
    folder.mkdir(parents=True, exist_ok=True)
    words = set()
    for number, text in enumerate(examples()):
        seeds = [f"{text}\0{REQUESTS[number % len(REQUESTS)]}"]
        tables = re.split(r"^(?=\[\[site\]\]$)", text, flags=re.M)
        if len(tables) > 1 and "include" not in tables[0]:
            seeds.append(f'include = "*.toml"\n{tables[0]}\0{REQUESTS[1]}\0' + "".join(tables[1:]))
        for seed in seeds:
            (folder / sha256(seed.encode()).hexdigest()[:16]).write_text(seed)
        words.update(re.findall(r"^\s*([a-z_]+) =|(?<=[{ ])([a-z_]+)(?= =)", text, re.M))
        words.update((word, "") for word in re.findall(r"\{[a-z.]+\}|\[\[?[a-z.]+\]\]?", text))
    names = sorted({first or second for first, second in words})
    (folder.parent / f"{folder.name}.dict").write_text("".join(f'"{name}"\n' for name in names))


if __name__ == "__main__":
    main()
