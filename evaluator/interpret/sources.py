"""Lets Triton's interpreter find and rewrite kernels that the compiler takes as they are.

Its rewriting starts at the last line that begins with "def", be it in a docstring, and forgets
what a kernel that was made in a function has from there. Seen in 3.6.0 and 3.8.0.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any


def find(interpreter: Any) -> None:  # noqa: ANN401 - a module of Triton's
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    rewriter = interpreter.FunctionRewriter
    original = rewriter._compile_and_exec

    def first(self: object, lines: Sequence[str]) -> int:
        starts = (at for at, line in enumerate(lines, 1) if line.strip().startswith("def "))
        return next(starts, 0)

    def compile_within(self: Any, tree: ast.Module) -> Any:  # noqa: ANN401 - Triton's
        cells = self.fn.__closure__
        if not cells:
            return original(self, tree)
        around = _around(self.fn.__name__, self.fn.__code__.co_freevars, tree.body)
        made = original(self, ast.fix_missing_locations(ast.Module([around], [])))
        return made(*(cell.cell_contents for cell in cells))

    rewriter._find_def = first
    rewriter._compile_and_exec = compile_within


def _around(name: str, free: Sequence[str], body: Sequence[ast.stmt]) -> ast.stmt:
    """A function of the free names that makes the function of that name."""
    text = f"def {name}({', '.join(free)}):\n    return {name}"
    (made,) = ast.parse(text).body
    assert isinstance(made, ast.FunctionDef)
    made.body = [*body, *made.body]
    return made
