"""Makes a tensor of the variable of an interpreted loop, as the compiler does.

In Triton's interpreter it is a number of Python's: `row.to(tl.int64)` raises there, as every
persistent kernel has it, and `-3 // 2` is -2 where a GPU says -1. Seen in 3.6.0 and 3.8.0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any


def vary(interpreter: Any) -> None:  # noqa: ANN401 - a module of Triton's
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    semantic = interpreter.interpreter_semantic

    def steps(over: Iterable[Any]) -> Iterable[Any]:
        if type(over) is not range:
            return over
        return (semantic.to_tensor(each, False) for each in over)

    def visit_for(self: Any, node: ast.For) -> ast.For:  # noqa: ANN401 - Triton's
        self.generic_visit(node)
        name = ast.Name("interpreter_semantic", ast.Load())
        node.iter = ast.Call(ast.Attribute(name, "steps", ast.Load()), [node.iter], [])
        return node

    semantic.steps = steps
    interpreter.ASTTransformer.visit_For = visit_for
    original = interpreter._patch_lang_core

    def patch(lang: Any, scope: Any) -> None:  # noqa: ANN401 - Triton's
        original(lang, scope)
        unrolled = lang.static_range
        # what is unrolled stays a number: no `range` to `steps`
        scope.set_attr(lang, "static_range", lambda *args, **kw: tuple(unrolled(*args, **kw)))

    interpreter._patch_lang_core = patch
