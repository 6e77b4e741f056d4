#!/usr/bin/env python3
"""Draws the chart of README and book from the table of benchmarks.

    docs/chart.py > docs/src/figures.svg
"""

import re
from pathlib import Path

PAGE = Path(__file__).parent / "src" / "figures.md"
ROW = "16 KB, 10 at a time, cache on"
TITLE = "CPU time per request, 16 KB file, ten connections at a time"
# Servers beyond this value would make the other bars too short to compare; their bars are cut.
MOST = 130

WIDTH, LEFT, TOP, STEP, BAR = 640, 96, 40, 26, 18

STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1b1815 }
.title { font-weight: 600 }
.note { font-size: 11px; fill: #5c554c }
.bar { fill: #b9a892 }
.own { fill: #8a5a34 }
.bound { fill: none; stroke: #8a8177; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) { text { fill: #d8d2c6 } .note { fill: #a79e92 } .bar { fill: #6f6456 } .own { fill: #c58a5a } }"""


def cells(line):
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def values():
    """The servers with their values in the row, the fastest first."""
    lines = PAGE.read_text().splitlines()
    [head] = [line for line in lines if line.startswith("| CPU µs per request")]
    [row] = [line for line in lines if line.startswith(f"| {ROW} |")]
    pairs = list(zip(cells(head)[1:], cells(row)[1:]))
    return sorted(((name, float(value.replace(",", ""))) for name, value in pairs), key=lambda pair: pair[1])


def bar(n, name, value):
    y = TOP + n * STEP
    length = min(value, MOST) / MOST * (WIDTH - LEFT - 64)
    kind = {"dunlin": "own", "baseline": "bound"}.get(name, "bar")
    label = f"{value:g} µs" + (" (cut)" if value > MOST else "")
    if name == "baseline":
        label += ", a bare responder"
    inside = value > MOST
    x = LEFT + length - 8 if inside else LEFT + length + 6
    anchor = ' text-anchor="end"' if inside else ""
    return (
        f'<text x="{LEFT - 8}" y="{y + 13.5}" text-anchor="end">{name}</text>\n'
        f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}"/>\n'
        f'<text x="{x:.1f}" y="{y + 13.5}"{anchor}>{label}</text>\n'
    )


def chart():
    servers = values()
    height = TOP + len(servers) * STEP + 24
    spoken = "; ".join(f"{name} {value:g}" for name, value in servers)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{TITLE}, in microseconds: {spoken}">\n'
        f"<title>{TITLE}</title>\n<style>\n{STYLE}\n</style>\n"
        f'<text class="title" x="8" y="22">{TITLE}</text>\n'
        + "".join(bar(n, name, value) for n, (name, value) in enumerate(servers))
        + f'<text class="note" x="8" y="{height - 8}">Less is better. One connection per request, cache on, one worker each. '
        "dunlin compare wasd-files</text>\n</svg>\n"
    )


if __name__ == "__main__":
    print(re.sub(r"[ \t]+\n", "\n", chart()), end="")
