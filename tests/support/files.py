"""Files that a server serves, and files that it writes."""

import os
import time

from support.waiting import wait_until

# The files whose tags have to be strong when `serve` returns.
settled = []


def write(path, content):
    """Writes a file whose tag is strong once `serve` has returned: its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    settle(path)
    return path


def settle(path):
    """Sets an old time of modification. `serve` waits until the tags of such files are strong."""
    past = time.time() - 60
    os.utime(path, (past, past))
    settled.append(path)


def wait_until_settled():
    """Waits until the tag of the file that `settle` was called for last is strong."""
    if settled and settled[-1].exists():
        until_strong(settled[-1])
    settled.clear()


def until_strong(path):
    """Waits until the file's last change is old enough for its tag to be strong."""
    wait_until(lambda: time.time() > path.stat().st_ctime + 0.05, f"{path} to be old enough")


def lines(path):
    """The lines of a file, which need not exist yet."""
    return path.read_text().splitlines() if path.exists() else []
