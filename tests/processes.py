"""Which processes there are, from /proc."""

from pathlib import Path


def descendants(root: int) -> set[int]:
    """The process's children, their children, and so on, but for the dead."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    found, fresh = set[int](), {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found
