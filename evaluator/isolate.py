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


#: A candidate that does nothing, to see whether a job fails on any.
CONTROL = "def entry():\n    return ()\n"
CONTROL_SECONDS = 60.0
#: What is said of a candidate on whom alone a job fails. It shares a process with the job, so the
#: failure may be its own doing.
BREAKS = "works without it: should it be honest, this is a fault of ours"


def works(isolate: Isolate, job: str, control: bytes) -> bool:
    """Whether a job does what it must for a request that holds nothing of a stranger's."""
    return isinstance(isolate(job, control, CONTROL_SECONDS), Done)


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
