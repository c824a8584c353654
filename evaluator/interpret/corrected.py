"""All that is done to Triton's interpreter before it meets a candidate, in order."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from evaluator.interpret.bar import mark_launches
from evaluator.interpret.bfloat16 import correct
from evaluator.interpret.float8 import correct_float8
from evaluator.interpret.libdevice import provide
from evaluator.interpret.loops import vary
from evaluator.interpret.reduces import halve
from evaluator.interpret.sources import find
from evaluator.interpret.tuples import unpack
from evaluator.interpret.warm import warm
from evaluator.interpret.whole import count


def correct_all(interpreter: ModuleType) -> None:
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    correct(interpreter)
    correct_float8(interpreter)
    halve(interpreter)
    count(interpreter)
    vary(interpreter)
    find(interpreter)
    unpack(interpreter)
    warm(interpreter)
    mark_launches(interpreter)
    _admit_assembly(interpreter)
    _interpret_names(interpreter)
    provide(interpreter)


def _admit_assembly(interpreter: Any) -> None:  # noqa: ANN401 - a module of Triton's
    """Say of inline assembly that the limit is ours."""

    def fail(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            "no inline assembly without a GPU: have this kernel judged on one, or write it without"
        )

    interpreter.InterpreterBuilder.create_inline_asm = fail


def _interpret_names(interpreter: Any) -> None:  # noqa: ANN401 - a module of Triton's
    """Let `from triton.language import load` give what is interpreted.

    Else that is so only of `tl.load`, and only once a kernel has been launched.
    """
    tl = interpreter.tl
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
