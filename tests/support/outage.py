"""How long tests stop what a server depends on."""

import os
import time

# Least time of an outage under load, in seconds.
SECONDS = float(os.environ.get("DUNLIN_OUTAGE_SECONDS", "3"))


def has_lasted(began):
    """Whether an outage that began at this time of the monotonic clock is long enough."""
    return time.monotonic() - began >= SECONDS
