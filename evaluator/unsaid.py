"""What may be told of a failure at a hidden size: words of our own, for the rest may spell it.

A candidate that learns the sizes that it is judged on can be right at those alone. It words its
exceptions, and names their classes, as it likes.
"""

from __future__ import annotations

import builtins

_TRITONS = ("CompilationError", "OutOfResources", "PTXASError", "InterpreterError")
_OURS = ("TapeError", "Barred")
_BUILTIN = [
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
]
#: Classes of exceptions that carry no candidate's words.
KNOWN = frozenset({*_BUILTIN, *_TRITONS, *_OURS})
OTHER = "an exception"


def kind(error: str) -> str:
    """The name of an exception's class, where it is a common one."""
    return error if error in KNOWN else OTHER


def fault(what: str, rules: tuple[str, ...]) -> str:
    """What a job says that a candidate did: an exception's class, or one of its `rules` broken."""
    raised = what.removeprefix("raises ")
    if raised != what:
        return f"raises {kind(raised)}"
    return next((rule for rule in rules if what.startswith(rule)), "breaks a rule of the call")
