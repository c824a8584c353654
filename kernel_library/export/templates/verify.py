"""Checks this package on the machine that it is installed on, and says what it could not check."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import torch

from . import _checks
from ._checks import Finding
from ._contract import HERE, Op, load, names
from ._dispatch import PACKAGE

#: What the process that runs kernels under the interpreter may take, in seconds.
INTERPRETER_LIMIT_S = 900.0


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was found; 0 if nothing failed, 1 if something did."""
    parser = argparse.ArgumentParser(prog=f"python -m {PACKAGE}", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("verify", help="check this package on this machine")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--seed", type=int, default=0, help="of the random inputs")
    command.add_argument("--interpreted", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    found = []
    show = (lambda line: None) if asked.json else _say
    show(_row("op", "check", "result", "what was seen"))
    for finding in interpreted_here(asked.seed) if asked.interpreted else verify(asked.seed):
        found.append(finding)
        show(_row(finding.op or "(package)", finding.what, finding.status, finding.note))
    show(", ".join(f"{name} {value}" for name, value in machine().items()))
    show(verdict(found))
    if asked.json:
        _say(_json(found))
    return int(any(f.status == "failed" for f in found))


def verify(seed: int = 0) -> Iterator[Finding]:
    """Everything that can be checked here, as it is found. Changed files are not run."""
    found = _checks.files()
    yield from found
    if any(f.status == "failed" for f in found):
        yield Finding("", "ops", "unchecked", "not run, because files differ")
        return
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    for name in names():
        yield from _op(load(name), seed, device)
    if device == "cpu":
        yield from interpreted_elsewhere(seed)


def _op(op: Op, seed: int, device: str) -> Iterator[Finding]:
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("opcheck", lambda: _checks.registered(op, device)),
        ("correct", lambda: _checks.correct(op, seed, device)),
    ]
    if op.backward is not None:
        checks.append(("gradient", lambda: _checks.differentiable(op, seed, device)))
    for what, check in checks:
        yield _tried(op, what, check)
    if not op.archs:
        yield Finding(op.name, "kernel", "unchecked", "no verdict, so it is never used")
    elif device == "cpu":
        note = f"no GPU here; it is for {', '.join(op.archs)}"
        yield Finding(op.name, "kernel on a GPU", "unchecked", note)
    elif _checks.arch(device) not in op.archs:
        note = f"this GPU is {_checks.arch(device)}, not {', '.join(op.archs)}: the reference ran"
        yield Finding(op.name, "kernel on a GPU", "unchecked", note)


def _tried(op: Op, what: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as raised:  # whatever a kernel or reference raises is a finding, not a crash
        return Finding(op.name, what, "failed", f"{type(raised).__name__}: {raised}"[:400])


def interpreted_here(seed: int) -> list[Finding]:
    """The kernels under Triton's interpreter, in a process begun with `TRITON_INTERPRET=1`."""
    return [_checks.interpreted(load(name), seed) for name in names() if load(name).archs]


def interpreted_elsewhere(seed: int) -> list[Finding]:
    """The same in a process of its own: the interpreter is chosen when triton is imported."""
    if importlib.util.find_spec("triton") is None:
        return [Finding("", "kernels, interpreted", "unchecked", "triton is not installed")]
    search = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", PACKAGE, "verify", "--interpreted", "--json"]
    try:
        done = subprocess.run(
            [*command, "--seed", str(seed)],
            env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": search},
            capture_output=True, text=True, timeout=INTERPRETER_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        note = f"the interpreter took more than {INTERPRETER_LIMIT_S:.0f} s"
        return [Finding("", "kernels, interpreted", "unchecked", note)]
    if done.returncode not in (0, 1) or not done.stdout.startswith("{"):
        note = f"the interpreter's process ended with {done.returncode}: {done.stderr[-300:]}"
        return [Finding("", "kernels, interpreted", "unchecked", note)]
    return [Finding(**finding) for finding in json.loads(done.stdout)["findings"]]


def verdict(found: Sequence[Finding]) -> str:
    """One line: what failed, or how much held and how much could not be checked here."""
    counts = {status: sum(f.status == status for f in found)
              for status in ("ok", "failed", "unchecked")}  # fmt: skip
    if counts["failed"]:
        first = next(f for f in found if f.status == "failed")
        subject = f"{first.op} {first.what}".strip()
        return f"FAILED: {counts['failed']} of {len(found)}; {subject}: {first.note}"
    left = f"; {counts['unchecked']} could not be checked here" if counts["unchecked"] else ""
    return f"verified: {counts['ok']} checks hold{left}"


def machine() -> dict[str, str]:
    """What was checked on what."""
    triton = importlib.util.find_spec("triton") is not None
    return {
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": "installed" if triton else "not installed",
    }


def _json(found: Sequence[Finding]) -> str:
    body = {"verdict": verdict(found), "machine": machine(), "findings": list(map(asdict, found))}
    return json.dumps(body, indent=1)


def _row(op: str, what: str, status: str, note: str) -> str:
    return f"{op:<24} {what:<20} {status:<10} {note}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
