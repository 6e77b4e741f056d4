"""The wait for a condition."""

import time


def wait_until(condition, what, seconds=15.0):
    """Waits for a condition, and fails if it does not become true."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.005)
