"""Running a function in a process of its own: what the judge asks, and what comes back.

A job is a dotted name, `"evaluator.intake.job:main"`, of a function from bytes to bytes in this
package. Requests and replies are JSON, and replies are a stranger's words: validate them.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Done:
    """The job returned. `log` is what it printed, cut to a few kilobytes."""

    body: bytes
    log: str = ""


@dataclass(frozen=True, slots=True)
class Died:
    """The job did not return: it took too long, was killed, raised, or answered too much.

    `error` is the exception's class name where it raised, and `text` its message and last lines.
    """

    how: Literal["timeout", "killed", "raised", "overflow"]
    text: str
    error: str = ""


#: Runs a job on a request, for at most so many seconds.
Isolate = Callable[[str, bytes, float], Done | Died]


def resolve(job: str) -> Callable[[bytes], bytes]:
    """The function that a job's dotted name stands for."""
    module, _, name = job.partition(":")
    function: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    return function


def run_here(job: str, request: bytes, seconds: float) -> Done | Died:
    """The double: runs the job in this process, with no isolation and no limit. Tests only."""
    try:
        return Done(resolve(job)(request))
    except Exception as error:
        return Died("raised", traceback.format_exc(limit=-3), type(error).__name__)
