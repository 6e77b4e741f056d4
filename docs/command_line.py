#!/usr/bin/env python3
"""Writes the reference of the command line from the help of the program.

    docs/command_line.py > docs/src/command-line.md
"""

import re

from program import output

INTRODUCTION = """# Command line

The help of each command. `dunlin COMMAND --help` prints it.
"""


def commands():
    """The names of the commands, in the order of the help."""
    listed = re.search(r"\nCommands:\n(.*?)\n\n", output("--help"), re.S)[1]
    return [name for name in re.findall(r"^  (\S+)", listed, re.M) if name != "help"]


def page():
    parts = [INTRODUCTION]
    for words in [[], *([name] for name in commands())]:
        title = " ".join(["dunlin", *words])
        text = re.sub(r"[ \t]+$", "", output(*words, "--help").strip(), flags=re.M)
        parts.append(f"\n## {title}\n\n```text\n{text}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
