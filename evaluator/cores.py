"""How many cores there are to compile on."""

from __future__ import annotations

import os


def cores() -> int:
    """The cores that this process may use: `taskset`'s or a container's share of the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
