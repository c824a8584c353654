"""Which processes there are, from /proc."""

import time
from collections.abc import Collection
from pathlib import Path


def parents() -> dict[int, int]:
    """Each process's parent, but for the dead, whom nobody has yet asked how they ended."""
    found: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state != "Z":
                found[int(folder.name)] = int(parent)
    return found


def left(of: Collection[int], seconds: float = 10.0) -> set[int]:
    """Those that are still there once they have had so long to end."""
    until = time.monotonic() + seconds
    while (there := parents().keys() & set(of)) and time.monotonic() < until:
        time.sleep(0.1)
    return there


def descendants(root: int) -> set[int]:
    """The process's children, their children, and so on, but for the dead."""
    known = parents()
    found, fresh = set[int](), {root}
    while fresh:
        fresh = {pid for pid, parent in known.items() if parent in fresh} - found
        found |= fresh
    return found
