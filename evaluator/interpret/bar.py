"""Keeps the work in kernels where there are data: torch may move, fill and allocate, no more.

The recorder bars the same calls from a tape, but a launcher can tell the two apart. What it does
to this process itself cannot be barred here; that is why interpreted evidence is called weaker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.play.calls import is_allowed
from evaluator.record.tensors import REFUSED, computes


class Barred(Exception):  # noqa: N818 (the candidate's outcome, not an error of ours)
    """The launcher computes with torch, or reads device data on the host."""


class Launching:
    """Whether a kernel is being interpreted: the interpreter itself may do as it likes."""

    depth = 0


def mark_launches(interpreter: ModuleType) -> None:
    """Patch a freshly imported `triton.runtime.interpreter` to say when it is at work."""
    executor = interpreter.GridExecutor
    begin, original = executor.__init__, executor.__call__

    def begin_outside(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        begin(self, *args, **kwargs)
        self.grid = _outside(self.grid) if callable(self.grid) else self.grid
        self.pre_run_hooks = [_outside(hook) for hook in self.pre_run_hooks]

    def run(self: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        Launching.depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            Launching.depth -= 1

    executor.__init__, executor.__call__ = begin_outside, run


def _outside(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the launcher's that the interpreter calls: no kernel, and barred as it is."""

    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        depth, Launching.depth = Launching.depth, 0
        try:
            return function(*args, **kwargs)
        finally:
            Launching.depth = depth

    return run


class NoReading(TorchFunctionMode):
    """Refuses what a recording refuses: host code that needs device data."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Pass the call on, if it may be made."""
        if func in REFUSED and not Launching.depth:
            raise Barred(f"host code needs device data: {REFUSED[func]}")
        return func(*args, **(kwargs or {}))


class NoComputing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses aten calls that compute, but for those that the op allows."""

    def __init__(self, allows: Sequence[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allows = allows

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch's own signature
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's own signature
        """Run the call, if it may be made."""
        if not Launching.depth and computes(func) and not is_allowed(str(func), self.allows):
            remedy = "launch a kernel for it, or have the problem allow it"
            raise Barred(f"calls {func}, which this problem bars: {remedy}")
        return func(*args, **(kwargs or {}))
