#!/usr/bin/env python3
"""Runs the tests with pytest: most of them share the machine; those marked `paced` run by three; those marked `serial`
run one by one.

A few tests that fail beside the others run again alone. The first failure is reported, but the second run decides. Those that
pass then are listed as flaky at the end, and more than two of them fail the run. Arguments go to pytest. The last line counts the tests of all runs.
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
RUNS = {
    "parallel": ("-m", "not serial and not paced", "-n", str(WORKERS), "--dist", "worksteal"),
    "paced": ("-m", "paced", "-n", "3", "--dist", "worksteal"),
    "serial": ("-m", "serial"),
}
# More failures than this are no disturbance.
MAX_RERUNS = 10
MAX_FLAKY = 2
FAILED, NO_TESTS = 1, 5
COUNTED = {"failures": "failed", "errors": "errors", "skipped": "skipped"}


def run(folder, name, *options):
    """Runs pytest: its exit status, the number of tests by outcome, and the names of those that failed."""
    report = folder / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *sys.argv[1:]]
    status = subprocess.call(command)
    counts, failed = {}, set()
    if report.exists():
        for suite in ElementTree.parse(report).iter("testsuite"):
            counts = {word: int(suite.get(key)) for key, word in COUNTED.items()}
            counts["passed"] = int(suite.get("tests")) - sum(counts.values())
            failed |= {
                f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"
                for case in suite.iter("testcase")
                if case.find("failure") is not None or case.find("error") is not None
            }
    return status, counts, failed


def run_all(folder):
    """Runs all tests: the exit statuses, the number of tests by outcome, and the names of those that passed when run again."""
    flaky = set()
    statuses, total = [], dict.fromkeys(("failed", "passed", "skipped", "errors", "rerun"), 0)
    for name, options in RUNS.items():
        cache = ("-o", f"cache_dir={folder / name}")
        status, counts, names = run(folder, name, *options, *cache)
        failed = counts.get("failed", 0) + counts.get("errors", 0)
        if name != "serial" and status == FAILED and 0 < failed <= MAX_RERUNS:
            print(f"\n{failed} failed beside other tests and run again alone:", flush=True)
            status, again, still_failing = run(folder, f"{name}-again", "--last-failed", "--last-failed-no-failures=none", *cache)
            counts["failed"], counts["errors"] = again.get("failed", 0), again.get("errors", 0)
            counts["passed"] += again.get("passed", 0)
            counts["rerun"] = failed
            flaky |= names - still_failing
        for word, count in counts.items():
            total[word] += count
        statuses.append(status)
        if status not in (0, FAILED, NO_TESTS):
            break
    return statuses, total, flaky


def main():
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        statuses, total, flaky = run_all(Path(folder))
    for name in sorted(flaky):
        print(f"flaky: {name}")
    if len(flaky) > MAX_FLAKY:
        print(f"{len(flaky)} tests are flaky, which are more than {MAX_FLAKY}")
        statuses.append(FAILED)
    words = [f"{count} {word}" for word, count in total.items() if count]
    print(f"{', '.join(words) or 'no tests ran'} in {time.monotonic() - began:.2f}s")
    statuses = [status for status in statuses if status != NO_TESTS]
    return max(statuses) if statuses else NO_TESTS


if __name__ == "__main__":
    sys.exit(main())
