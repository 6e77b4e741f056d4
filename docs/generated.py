#!/usr/bin/env python3
"""Writes the pages of the book that are generated from the code.

    docs/generated.py            writes all of them
    docs/generated.py --check    fails if one is not up to date
    docs/generated.py metrics.md writes one

Some are made from the program: DUNLIN names it, or else it is looked for in `target/`.
"""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PAGES = {
    "configuration.md": "options.py",
    "command-line.md": "command_line.py",
    "metrics.md": "metrics.py",
    "log-fields.md": "log_fields.py",
    "status-codes.md": "status_codes.py",
    "figures.svg": "chart.py",
}


def page(name):
    return subprocess.run([sys.executable, FOLDER / PAGES[name]], check=True, stdout=subprocess.PIPE, text=True).stdout


def main(arguments):
    check = "--check" in arguments
    names = [name for name in arguments if name != "--check"] or PAGES
    stale = []
    for name in names:
        file, text = FOLDER / "src" / name, page(name)
        if file.exists() and file.read_text() == text:
            continue
        stale.append(name)
        if not check:
            file.write_text(text)
            print(f"wrote {file}")
    if check and stale:
        sys.exit(f"not up to date: {', '.join(stale)}; run docs/generated.py")


if __name__ == "__main__":
    main(sys.argv[1:])
