#!/usr/bin/env python3
"""Runs the tests with pytest: those that share the machine in parallel, then those marked `serial`, one by one.

Arguments go to pytest. The last line counts the tests of both runs.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

# Tests wait more than they compute.
WORKERS = 5 * os.cpu_count() // 2
NO_TESTS = 5
COUNTED = {"failures": "failed", "errors": "errors", "skipped": "skipped"}


def run(folder, name, *options):
    """Runs pytest: its exit status, and the number of tests by outcome."""
    report = Path(folder) / f"{name}.xml"
    status = subprocess.call([sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *sys.argv[1:]])
    counts = {}
    if report.exists():
        for suite in ElementTree.parse(report).iter("testsuite"):
            counts = {word: int(suite.get(key)) for key, word in COUNTED.items()}
            counts["passed"] = int(suite.get("tests")) - sum(counts.values())
    return status, counts


def main():
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(folder, "parallel", "-m", "not serial", "-n", str(WORKERS), "--dist", "worksteal")]
        if runs[0][0] in (0, 1, NO_TESTS):
            runs.append(run(folder, "serial", "-m", "serial"))
    total = {word: sum(counts.get(word, 0) for _, counts in runs) for word in (*COUNTED.values(), "passed")}
    words = [f"{total[word]} {word}" for word in ("failed", "passed", "skipped", "errors") if total[word]]
    print(f"{', '.join(words) or 'no tests ran'} in {time.monotonic() - began:.2f}s")
    statuses = [status for status, _ in runs if status != NO_TESTS]
    return max(statuses) if statuses else NO_TESTS


if __name__ == "__main__":
    sys.exit(main())
