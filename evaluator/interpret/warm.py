"""Gives launchers what the compiler does: a compiled kernel to ask, and grids that are lists.

The style of Triton's own softmax tutorial: warm up, size the grid by registers and shared memory,
then launch what was compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

#: A kernel of moderate needs: 8 warps of it fit on an SM eight times over.
REGISTERS, SHARED = 32, 0


class Warm:
    """What `warmup` returns: answers like a compiled kernel, and launches the interpreted one."""

    n_regs, n_spills, n_max_threads = REGISTERS, 0, 1024

    def __init__(self, function: Any, num_warps: int) -> None:  # noqa: ANN401 - Triton's
        self.function = function
        self.metadata = SimpleNamespace(shared=SHARED, num_warps=num_warps, name=function.__name__)

    def _init_handles(self) -> None:
        """There is no binary to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:  # noqa: ANN401 - Triton's
        """A launch over the grid; all arguments by position, constants included."""

        def launch(*args: Any) -> Any:  # noqa: ANN401
            return self.function.run(*args, grid=grid, warmup=False)

        return launch


def warm(interpreter: Any) -> None:  # noqa: ANN401 - a module of Triton's
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    original = interpreter.InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:  # noqa: ANN401
        if warmup:
            return Warm(self, kwargs.get("num_warps", 4))
        return original(self, *args, grid=_whole(grid), warmup=warmup, **kwargs)

    interpreter.InterpretedFunction.run = run


def _whole(grid: Any) -> Any:  # noqa: ANN401 - Triton's
    """The grid as a tuple: the compiler takes a list, too; the interpreter cannot add to one."""
    return (lambda meta: tuple(grid(meta))) if callable(grid) else tuple(grid)
