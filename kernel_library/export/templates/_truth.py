"""The reference in float64, and how far an answer is from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_library.spec import Tolerance

from ._contract import Op
from ._settle import parts

WIDENED = (torch.float16, torch.bfloat16, torch.float32)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
#: Some units in the last place, over the largest true value: what rounding once or twice may cost.
ROUNDING: Mapping[torch.dtype, float] = {
    torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2,
    torch.float8_e4m3fn: 0.13, torch.float8_e5m2: 0.25,
}  # fmt: skip


class _Wide(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Turns each cast to a narrower float, which a reference may ask for, into one to float64."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        wide = {k: torch.float64 if v in WIDENED else v for k, v in (kwargs or {}).items()
                if isinstance(v, torch.dtype)}  # fmt: skip
        return func(*args, **{**(kwargs or {}), **wide})


@contextmanager
def wide() -> Iterator[None]:
    """Everything floating is float64 inside this block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Wide():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.set_default_dtype(before)


def widened(args: Sequence[Any]) -> list[Any]:
    """Copies of the arguments, floats in float64."""
    return [
        _wide_copy(arg) if isinstance(arg, torch.Tensor) else [_wide_copy(t) for t in arg]
        for arg in args
    ]


def _wide_copy(tensor: torch.Tensor) -> torch.Tensor:
    floats = tensor.dtype in WIDENED or tensor.dtype in FLOAT8
    return tensor.detach().clone().to(torch.float64 if floats else tensor.dtype)


def copied(args: Sequence[Any]) -> list[Any]:
    """Copies of the arguments, so that in-place ops leave the originals alone."""
    return [
        arg.detach().clone() if isinstance(arg, torch.Tensor) else [t.detach().clone() for t in arg]
        for arg in args
    ]


def written(
    op: Op, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
) -> list[torch.Tensor]:
    """All that a call writes: outputs, then mutated inputs, lists laid flat."""
    found = parts(op, function(*args, **options))
    by_name = dict(zip(op.spec.inputs, args, strict=True))
    found += [by_name[name] for name in op.spec.mutates]
    return [t for part in found for t in ([part] if isinstance(part, torch.Tensor) else part)]


def error(found: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest difference over the largest true value; infinite where only one is finite."""
    if found.shape != truth.shape:
        return float("inf")
    mine, true = found.detach().double(), truth.detach().double()
    finite = true.isfinite()
    if not torch.equal(mine.isfinite(), finite):
        return float("inf")
    if not torch.equal(mine[~finite].nan_to_num(), true[~finite].nan_to_num()):
        return float("inf")
    if not finite.any():
        return 0.0
    most = float(true[finite].abs().max())
    return float((mine - true)[finite].abs().max()) / (most or 1.0)


def allowed(tolerance: Tolerance, dtype: torch.dtype, torch_error: float) -> float:
    """The error that an output of this dtype may have; for integers only what torch has too."""
    if dtype not in ROUNDING:
        return torch_error
    return max(tolerance.times_torch * torch_error, tolerance.loosen * ROUNDING[dtype])
