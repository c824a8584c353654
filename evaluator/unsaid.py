"""What may be told of a failure at a hidden size: words of our own, for the rest may spell it.

A candidate that learns the sizes that it is judged on can be right at those alone. It words its
exceptions, chooses their classes, and raises them on a line for each size, as it likes.
"""

from __future__ import annotations

import sys

_TRITONS = ("CompilationError", "OutOfResources", "PTXASError", "InterpreterError")
_OURS = ("TapeError", "Barred")
#: Classes of exceptions that tell an author what to do, and that are few.
KNOWN = frozenset({*_TRITONS, *_OURS})
OTHER = "an exception"


def name_of(error: BaseException) -> str:
    """The name of its class; with its module's, where it only is called as one of `KNOWN`."""
    named, where = type(error).__name__, str(type(error).__module__)
    ours = where.partition(".")[0] in ("triton", "evaluator")
    own = ours and getattr(sys.modules.get(where), named, None) is type(error)
    return named if own or named not in KNOWN else f"{where}.{named}"


def kind(error: str) -> str:
    """The name of an exception's class, where it is a known one."""
    return error if error in KNOWN else OTHER


def fault(what: str, rules: tuple[str, ...]) -> str:
    """What a job says that a candidate did: an exception's class, or one of its `rules` broken."""
    raised = what.removeprefix("raises ")
    if raised != what:
        return f"raises {kind(raised)}"
    return next((rule for rule in rules if what.startswith(rule)), "breaks a rule of the call")
