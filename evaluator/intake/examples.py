"""An author's example inputs: shapes and dtypes without their gigabytes. Runs in the intake job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from typing import Any, get_args

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from evaluator.errors import ProblemError
from evaluator.intake.loading import OnCpu
from evaluator.intake.recipes import Hints, recipe_of
from evaluator.intake.wire import Example, Meta, Slot
from kernel_library.formula import Value
from kernel_library.recipe import Normal, Recipe
from kernel_library.spec import DTYPES

#: Examples that weigh more than this are looked at in small.
MOST_BYTES = 256 << 20
#: No side of a tensor is longer than this when looked at in small.
SIDE = 64
_FACTORIES = {
    torch.rand, torch.randn, torch.zeros, torch.ones, torch.empty, torch.full, torch.randint,
}  # fmt: skip


class _Shrunk(TorchFunctionMode):
    """Every tensor that is made has short sides."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None  # noqa: ANN401
    ) -> Any:  # fmt: skip  # noqa: ANN401
        kwargs = dict(kwargs or {})
        if func in _FACTORIES:
            # `randint(low, high, size)` and `full(size, value)` have numbers that are no sizes
            loose = func not in (torch.randint, torch.full)
            args = tuple(_short(arg, loose) for arg in args)
            kwargs = {k: _short(v, False) if k == "size" else v for k, v in kwargs.items()}
        return func(*args, **kwargs)


def _short(size: object, loose: bool) -> object:
    if isinstance(size, list | tuple):
        return tuple(min(n, SIDE) for n in size)
    return min(size, SIDE) if loose and isinstance(size, int) else size


def ask_for_inputs(give: Callable[[], Any]) -> tuple[object, object, Hints]:
    """What `get_inputs()` gives without values, the same with values, and what they are drawn of.

    The second has the same shapes if it is small enough, shorter sides if it is not.
    """
    fake = _try(give, FakeTensorMode(), OnCpu())
    if fake is not None and _weight(fake) > MOST_BYTES:
        cpu = OnCpu()
        small = _try(give, _Shrunk(), cpu)
        return fake, fake if small is None else small, _hints(cpu)
    torch.manual_seed(0)
    with OnCpu() as cpu:
        real = give()
    return real, real, _hints(cpu)


def _hints(cpu: OnCpu) -> Hints:
    return Hints(frozenset(cpu.drawn), frozenset(cpu.shuffled))


def _try(give: Callable[[], Any], *modes: Any) -> object | None:  # noqa: ANN401
    with modes[0], modes[1] if len(modes) > 1 else nullcontext():
        try:
            given: object = give()
            return given
        # the author's code, tried in a way that it was not written for
        except Exception:
            return None


def _weight(values: object) -> int:
    if isinstance(values, torch.Tensor):
        return values.nbytes
    if isinstance(values, Mapping):
        return sum(_weight(value) for value in values.values())
    return sum(_weight(value) for value in values) if isinstance(values, list | tuple) else 0


def sort_out(
    named: Sequence[tuple[str, object, object]], hints: Hints
) -> tuple[tuple[Example, ...], dict[str, Value]]:
    """Tensors (and lists of them) are inputs, plain values are options; anything else is junk."""
    found: list[tuple[str, Slot, object]] = []
    options: dict[str, Value] = {}
    for name, value, small in named:
        if isinstance(value, torch.Tensor):
            found.append((name, Slot((meta(name, value),)), small))
        elif isinstance(value, list | tuple) and value and _all_tensors(value):
            slot = Slot(tuple(meta(name, item) for item in value), listed=True)
            found.append(
                (name, slot, small[0] if isinstance(small, list | tuple) and small else None)
            )
        elif isinstance(value, get_args(Value)):
            options[name] = value
        else:
            what = f"is a {type(value).__name__}: give tensors, lists of tensors or plain values"
            raise ProblemError(what, f"input {name!r}")
    if not found:
        raise ProblemError("the example inputs hold no tensor", "get_inputs")
    sizes = {n for _, slot, _ in found for tensor in slot.tensors for n in tensor.shape}
    hints = replace(hints, sizes=frozenset(sizes))
    return tuple(Example(name, slot, _recipe(name, at, hints)) for name, slot, at in found), options


def _all_tensors(values: Sequence[object]) -> bool:
    return all(isinstance(value, torch.Tensor) for value in values)


def _recipe(name: str, small: object, hints: Hints) -> Recipe:
    if not isinstance(small, torch.Tensor) or small.is_meta or _is_fake(small):
        return Normal()
    return recipe_of(name, small, hints)


def _is_fake(tensor: torch.Tensor) -> bool:
    return type(tensor).__name__ == "FakeTensor"


def meta(name: str, tensor: torch.Tensor) -> Meta:
    """The tensor without its values. Raises `ProblemError` for a dtype that no contract has."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        known = ", ".join(sorted(DTYPES))
        raise ProblemError(f"has dtype {dtype}; known are {known}", f"input {name!r}")
    return Meta(tuple(tensor.shape), dtype)  # type: ignore[arg-type]


def elements(slot: Slot) -> int:
    """How many numbers an argument holds."""
    return sum(prod(tensor.shape) for tensor in slot.tensors)
