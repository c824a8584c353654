"""Which walls this host lets us put around a stranger's code, found by trying each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluator.errors import LabError
from evaluator.isolate import Died, Done
from evaluator.sandbox.remedies import read_host, remedy
from kernel_library.verdict import Mechanism

#: What holds alone. The others are tried in a child that is within the first of these to work.
BASES: tuple[tuple[Mechanism, ...], ...] = (("namespaces", "rlimits"), ("rlimits",))
PROBE = "evaluator.sandbox.probe:main"
WHY: dict[Mechanism, str] = {
    "namespaces": "no network, no foreign process or file in sight, one kill ends all",
    "seccomp": "no ptrace, mount, socket, io_uring: less kernel to attack",
    "landlock": "reads and writes held to a list of folders",
    "cgroup": "memory and processes bounded in sum, not one by one",
    "rlimits": "memory, files, CPU time and, but for root without namespaces, processes bounded",
}

#: Starts a child within these walls and asks it which others stand. Raises LabError or OSError.
Ask = Callable[[Sequence[Mechanism]], Done | Died]


@dataclass(frozen=True, slots=True)
class Finding:
    """One wall: whether it stands here, what it is for, why it does not, and what to do then."""

    name: Mechanism
    there: bool
    why: str
    refusal: str = ""
    remedy: str = ""


def look(ask: Ask, read: Callable[[str], str] = read_host) -> tuple[Finding, ...]:
    """A finding for each wall. Raises LabError where no child can be started at all."""
    refusals: dict[Mechanism, str] = {}
    for base in BASES:
        refusal, body = _try(ask, base)
        if not refusal:
            break
        refusals["namespaces"] = refusal
    else:
        raise LabError(f"no child can be started, confined or not: {refusal}")
    refusals |= json.loads(body)
    refusals["cgroup"], _ = _try(ask, (*base, "cgroup"))
    return tuple(_finding(name, refusals.get(name, ""), read) for name in WHY)


def _finding(name: Mechanism, refusal: str, read: Callable[[str], str]) -> Finding:
    told = remedy(name, read) if refusal else ""
    return Finding(name, not refusal, WHY[name], refusal, told)


def _try(ask: Ask, walls: Sequence[Mechanism]) -> tuple[str, bytes]:
    """Why these do not stand, or nothing; and the child's answer."""
    try:
        outcome = ask(walls)
    except (LabError, OSError) as error:
        return _short(str(error)), b""
    if isinstance(outcome, Died):
        return _short(f"{outcome.how} {outcome.text}"), b""
    return "", outcome.body


def _short(text: str) -> str:
    """The last line says what went wrong."""
    return (text.strip().splitlines() or ["it was refused"])[-1][-200:]
