"""Run in a confined child that is under nothing more yet: what else would hold here?"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

from evaluator.sandbox import landlock, seccomp


def main(_: bytes) -> bytes:
    """For each further wall, why it does not stand here, or nothing if it does, as JSON."""
    told = {"landlock": _why_not(_landlock), "seccomp": _why_not(_seccomp)}
    return json.dumps(told).encode()


def _landlock() -> None:
    landlock.install(["/"], [str(Path.cwd())])
    # anybody may write to this device, and no rule allows it
    _must_fail(lambda: Path("/dev/full").open("wb").close())


def _seccomp() -> None:
    if not seccomp.supported(os.uname().machine):
        raise OSError(f"the system calls of {os.uname().machine} are not known here")
    seccomp.install()
    _must_fail(lambda: socket.socket(socket.AF_UNIX).close())


def _must_fail(forbidden: Callable[[], object]) -> None:
    try:
        forbidden()
    except PermissionError:
        return
    raise OSError("it was accepted, and holds nothing back")


def _why_not(stands: Callable[[], None]) -> str:
    try:
        stands()
    except OSError as error:
        return str(error)
    return ""
