"""What compute-sanitizer's four tools say of a tape's kernels, in words for their author.

Its own faults are told as notes: that it is not installed, took too long, or may not run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kernel_library.verdict import KernelFacts

Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
#: How the sanitizer ends if it found something; the target itself ends with 0 or 1.
FOUND = 93
#: Room around each allocation in which an access is told as out of bounds: else one that jumps into
#: the next allocation is not. In bytes.
PADDING = 1 << 16
_MARK = "========="
_ACCESS = {"read": "reads", "write": "writes", "atomic": "updates"}
_MEMCHECK = re.compile(r"Invalid __(global|local|shared)__ (\S+) of size (\d+)")
#: The first version whose memcheck knows a masked asynchronous copy for what it is, a zero fill and
#: no read (its release notes, 2026.4).
ZERO_FILL = (2026, 4)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a kernel, as a sentence without its subject.

    `access` is memcheck's: the memory and the kind, `global write`.
    """

    tool: Tool
    kernel: str
    what: str
    access: str = ""


def believed(finding: Finding, kernels: Iterable[KernelFacts], version: tuple[int, int]) -> bool:
    """Whether a finding is held against a kernel, or is of a sort that the tools have invented.

    What is asynchronous is where they err, and each version's release notes mend some of it:
    memcheck took masked copies for reads, and matrix operands for larger ones; racecheck and
    synccheck misread mbarriers, and warps that are apart by design; initcheck does not see all
    that such copies write. A write beyond a buffer is nothing of that sort.
    """
    told = list(kernels)
    if finding.tool != "initcheck":
        told = [kernel for kernel in told if kernel.name == finding.kernel]
    if not any(kernel.async_instructions for kernel in told):
        return True
    if finding.access == "global read":
        return version >= ZERO_FILL
    return finding.access in ("global write", "global atomic")


def command(program: str, tool: Tool, log: str) -> list[str]:
    """The sanitizer's command line, up to the program that it is to watch.

    Kernels are not filtered: initcheck learns from torch's own kernels what they have written.
    """
    asked = [program, "--tool", tool, "--error-exitcode", str(FOUND), "--log-file", log]
    asked += ["--show-backtrace", "no"]
    if tool == "memcheck":
        # probing for driver functions that are not there is no error of anybody's
        asked += ["--padding", str(PADDING), "--report-api-errors", "no"]
    return asked


def is_complete(log: str) -> bool:
    """Whether the tool came to its end, so that finding nothing means something."""
    return " SUMMARY: " in log


def version_of(told: str) -> tuple[int, int]:
    """What `--version` says, as year and number; zeros where it says something else."""
    found = re.search(r"^Version (\d+)\.(\d+)", told, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def findings(tool: Tool, log: str, kernels: Sequence[str]) -> tuple[Finding, ...]:
    """What a tool's log says of these kernels, each thing once; torch's own are none of them."""
    found = [
        finding
        for report in _reports(log)
        for kernel in kernels
        if re.search(rf"(?<!\w){re.escape(kernel)}(?!\w)", report)
        for finding in [_finding(tool, kernel, report)]
        if finding
    ]
    return tuple(dict.fromkeys(found))


def _reports(log: str) -> Iterator[str]:
    """The log's reports: a line that begins one has one space, the rest of it more."""
    report: list[str] = []
    for line in log.splitlines():
        if not line.startswith(_MARK):
            continue
        said = line.removeprefix(_MARK)
        if re.match(r" \S", said) and report:
            yield "\n".join(report)
            report = []
        report.append(said)
    if report:
        yield "\n".join(report)


def _finding(tool: Tool, kernel: str, report: str) -> Finding | None:
    match tool:
        case "memcheck":
            return _memory(kernel, report)
        case "initcheck" if "Uninitialized __global__ memory read" in report:
            return Finding(tool, kernel, "reads memory that nothing has written")
        # a warning is a hazard within one warp, whose threads Triton keeps in step
        case "racecheck" if "error: race reported" in report.lower():
            return Finding(tool, kernel, "races on shared memory: a barrier is missing")
        case "synccheck" if "Barrier error detected" in report:
            return Finding(tool, kernel, "uses a barrier that not all of its threads reach")
    return None


def _memory(kernel: str, report: str) -> Finding | None:
    access = _MEMCHECK.search(report)
    if access is None:
        return None
    space, kind, size = access.groups()
    verb = _ACCESS.get(kind, "touches")
    what = f"{verb} {size} bytes {_place(report)}"
    return Finding("memcheck", kernel, what, f"{space} {kind}")


def _place(report: str) -> str:
    """Where an access lies, without saying how far: that would tell a hidden size."""
    if "misaligned" in report:
        return "at a misaligned address"
    if "after the nearest allocation" in report:
        return "past the end of a buffer"
    if "before the nearest allocation" in report:
        return "before the start of a buffer"
    return "outside its buffers"
