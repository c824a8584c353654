"""Bounds on all that one child starts taken together, where the host lets us set them (cgroup v2).

A resource limit holds for each process by itself: 256 of them may take 4 GiB each. A group holds
for the sum, and ends its last process wherever that one hid.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evaluator.errors import LabError
from evaluator.sandbox.confine import EXTRA_MEMORY, PROCESSES

ROOT = Path("/sys/fs/cgroup")
#: One process's own memory, its folder's (a tmpfs counts), and room for the compilers beside it.
MEMORY = EXTRA_MEMORY + (2 << 30)
NEEDED = ("memory", "pids")
LIMITS = {"memory.max": MEMORY, "memory.swap.max": 0, "memory.oom.group": 1, "pids.max": PROCESSES}
#: Between the kill and an empty group; a process stuck in the kernel takes longer than this.
EMPTY_SECONDS = 5.0
_ids = itertools.count()


class Groups:
    """A group for each child, below one of this process's own."""

    def __init__(self, path: Path, limits: Mapping[str, int] = LIMITS) -> None:
        self.path, self._limits, self._ids = path, limits, itertools.count(1)

    @contextmanager
    def one(self) -> Iterator[int]:
        """A fresh group: the descriptor through which a process enters it by writing `0`.

        Whatever is still in it at the end is killed. Raises LabError where that takes too long.
        """
        group = self.path / str(next(self._ids))
        _make(group, self._limits)
        entrance = os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield entrance
        finally:
            os.close(entrance)
            _remove(group)

    def close(self) -> None:
        """Remove the group that held the others."""
        with contextlib.suppress(FileNotFoundError):
            self.path.rmdir()


def open_groups(root: Path = ROOT, membership: str | None = None) -> Groups:
    """Groups below the nearest group above this process that we may divide. Raises OSError.

    `membership` is what /proc/self/cgroup says of this process.
    """
    told = Path("/proc/self/cgroup").read_text() if membership is None else membership
    ours = [line.removeprefix("0::/") for line in told.splitlines() if line.startswith("0::/")]
    if not ours or not (root / "cgroup.controllers").exists():
        raise OSError("this host has no cgroup v2 at /sys/fs/cgroup, or not it alone")
    here = root / ours[0]
    refused = OSError("no group above this process can be divided")
    for parent in (here, *here.parents):
        if not parent.is_relative_to(root):
            break
        try:
            if parent == here:
                _delegate(parent)
            return _divided(parent)
        except OSError as error:
            refused = error
    raise refused


def _divided(parent: Path) -> Groups:
    """Groups below this one, tried once. Raises OSError where they are not allowed, or no use."""
    groups = Groups(parent / f"kernelwright-{os.getpid()}-{next(_ids)}")
    groups.path.mkdir()
    try:
        _delegate(groups.path)
        with groups.one():
            return groups
    except OSError:
        groups.close()
        raise


def _delegate(group: Path) -> None:
    """Have the groups below this one bound memory and processes. Raises OSError."""
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED))


def _make(group: Path, limits: Mapping[str, int]) -> None:
    group.mkdir()
    try:
        if not (group / "cgroup.kill").exists():
            raise OSError("this kernel cannot end a group at once: Linux 5.14 can")
        for name, limit in limits.items():
            file = group / name
            # a kernel without swap has no limit on it
            if file.exists() or name != "memory.swap.max":
                file.write_text(str(limit))
    except OSError:
        group.rmdir()
        raise


def _remove(group: Path) -> None:
    (group / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + EMPTY_SECONDS
    while True:
        try:
            return group.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                raise LabError(f"a sandboxed process did not die when killed: {error}") from error
            time.sleep(0.005)
