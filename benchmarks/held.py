"""What a process and all that come from it hold of their host, to be compared before and after."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
#: What may grow without anything having leaked, in MiB: caches fill, allocators keep.
ALLOWED = {"host_mib": 256, "gpu_mib": 64}
SETTLE_SECONDS = 3.0
GPU = "import torch; free, total = torch.cuda.mem_get_info(); print((total - free) >> 20)"


@dataclass(frozen=True, slots=True)
class Held:
    """Counts at one moment; memory in MiB, the GPU's as another process sees it."""

    processes: int
    descriptors: int
    namespaces: int
    mounts: int
    cgroups: int
    files: int
    host_mib: int
    gpu_mib: int


def adopt_orphans() -> None:
    """Whoever outlives its parent becomes a child of this process from here on, and is seen."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def held(gpu: bool) -> Held:
    """What this process and its descendants hold now. `gpu` says whether there is one to ask."""
    ours = [os.getpid(), *descendants(os.getpid())]
    spaces = {_linked(f"/proc/{pid}/ns/{kind}") for pid in ours for kind in ("pid", "mnt", "net")}
    groups = Path("/sys/fs/cgroup").rglob(f"kernelwright-{os.getpid()}-*")
    return Held(
        processes=len(ours) - 1,
        descriptors=sum(len(_listed(f"/proc/{pid}/fd")) for pid in ours),
        namespaces=len(spaces - {""}),
        mounts=Path("/proc/self/mountinfo").read_text().count("\n"),
        cgroups=sum(1 for group in groups for inner in group.glob("[0-9]*") if inner.is_dir()),
        files=len(_listed("/dev/shm")) + sum(1 for _ in Path(tempfile.gettempdir()).rglob("*")),
        host_mib=sum(map(_resident_mib, ours)),
        gpu_mib=_gpu_mib() if gpu else 0,
    )


def settled(before: Held, gpu: bool) -> Held:
    """What is held once nothing has grown, or after some seconds: the dead take time to go."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while leaks(before, now := held(gpu)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def leaks(before: Held, after: Held) -> list[str]:
    """What there is more of than may be."""
    return [
        f"{name}: {more} more than before"
        for name, was, more in _grown(before, after)
        if more > ALLOWED.get(name, 0)
    ]


def rows(before: Held, after: Held, closed: Held) -> Iterator[str]:
    """A table: what was held after the first verdict, after the last, and when all was closed."""
    yield f"  {'held':12s} {'first':>8s} {'last':>8s} {'closed':>8s}"
    for field, *counts in zip(fields(Held), *map(astuple, (before, after, closed)), strict=True):
        yield f"  {field.name:12s} " + " ".join(f"{count:8d}" for count in counts)


def descendants(root: int) -> list[int]:
    """The process's children, their children, and so on.

    Those that died and were not waited for count too, but for its own: it has adopted orphans, for
    whom nobody else will wait.
    """
    found, fresh = list[int](), {root}
    known = list(filter(None, map(_state, _listed("/proc"))))
    while fresh:
        born = [(pid, state, parent) for pid, state, parent in known if parent in fresh]
        fresh = {pid for pid, state, parent in born if (state, parent) != ("Z", root)}
        found += fresh
    return found


def _state(name: str) -> tuple[int, str, int] | None:
    """A process's number, state and parent."""
    try:
        stat = Path(f"/proc/{name}/stat").read_text() if name.isdigit() else ""
        state, parent = stat.rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return int(name), state, int(parent)


def _grown(before: Held, after: Held) -> Iterator[tuple[str, int, int]]:
    for field, was, now in zip(fields(Held), astuple(before), astuple(after), strict=True):
        yield field.name, was, now - was


def _listed(folder: str) -> list[str]:
    try:
        return [path.name for path in Path(folder).iterdir()]
    except OSError:
        return []


def _linked(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _resident_mib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) >> 10


def _gpu_mib() -> int:
    asked = subprocess.run([sys.executable, "-c", GPU], capture_output=True, text=True, check=True)
    return int(asked.stdout)
