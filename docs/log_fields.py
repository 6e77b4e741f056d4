#!/usr/bin/env python3
"""Writes the reference of the access log's fields from the table of the code that reads formats, and from a line of a server.

    docs/log_fields.py > docs/src/log-fields.md
"""

import json
import re
import tempfile
from pathlib import Path

from program import sources
from serving import get, serving

PAGE = """# Log fields

The fields of the [access log](logs.md#access-log): as placeholders of a template (`"{{remote}} {{status}}"`), and as members of the
objects of the format `json`. A value that is absent is `-` in a template and `null` in JSON.

| placeholder | in JSON | meaning |
| --- | --- | --- |
{rows}
In JSON, `time` has the form of `{{time_iso}}`. JSON has further members:

| member | meaning |
| --- | --- |
{more}"""

ONLY_IN_JSON = {
    "phases": "Durations of the [phases](watching.md#phases) of the request, in microseconds.",
    "script_ns": "[Times](logs.md#requests-to-scripts) of the script, of requests to scripts.",
}

ROUTE = '[[site.route]]\npath = "/*"\nscript = { kind = "cgi", file = "script" }\n'


def fields():
    """The names of the placeholders with their meanings."""
    [table] = [found for _, text in sources("config") for found in re.findall(r"^fields! \{\n(.*?)^\}", text, re.S | re.M)]
    for comment, name in re.findall(r"((?:    ///.*\n)+)    \w+ = \"(\w+)\",", table):
        yield name, " ".join(line.strip()[3:].strip() for line in comment.strip().splitlines())


def members():
    """The members of an object in the format `json`, for a request to a script."""
    with tempfile.TemporaryDirectory() as folder:
        log, script = Path(folder) / "access.log", Path(folder) / "script"
        script.write_text("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\na'\n")
        script.chmod(0o755)
        with serving(folder, f'[server]\naccess_log = {{ path = "{log}", format = "json" }}\n', ROUTE) as server:
            get(server, "/")
        return list(json.loads(log.read_text().splitlines()[0]))


def page():
    known, found = dict(fields()), members()
    rows = "".join(f"| `{{{name}}}` | {'yes' if name in found else ''} | {meaning} |\n" for name, meaning in known.items())
    more = "".join(f"| `{name}` | {ONLY_IN_JSON[name]} |\n" for name in found if name not in known)
    return PAGE.format(rows=rows, more=more)


if __name__ == "__main__":
    print(page(), end="")
