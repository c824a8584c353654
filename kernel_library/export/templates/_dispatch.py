"""The tuned kernel where it was proven, the reference everywhere else, and the reason for it.

A call takes the kernel only if every guard lets it pass. Set the environment variable
`<PACKAGE>_REFERENCE=1`, or use `reference_only()`, to take the reference always.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Literal

import torch

from kernel_library.space import nearest

from ._bind import Seen, described, free_dtypes, sizes
from ._contract import Op, load
from ._guards import GUARDS, Call
from ._settle import Expected, expected, settled

PACKAGE = __name__.rpartition(".")[0]
SWITCH = f"{PACKAGE.rpartition('.')[2].upper()}_REFERENCE"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which path a call takes, and why; `config` is the setting that the kernel is launched at."""

    path: Literal["kernel", "reference"]
    why: str
    config: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a call will do: its path, where, and what must come out."""

    choice: Choice
    device: torch.device
    outputs: Expected | None


class _Forced:
    """How many `reference_only` blocks are open, in this process and on all its threads."""

    depth = 0
    lock = Lock()


@contextmanager
def reference_only() -> Iterator[None]:
    """Take the reference inside this block, on every thread: autograd runs on threads of its own.

    Compiled graphs ask at each call; a captured CUDA graph replays the path it was captured with.
    """
    with _Forced.lock:
        _Forced.depth += 1
    try:
        yield
    finally:
        with _Forced.lock:
            _Forced.depth -= 1


def explain(op: str, *args: Any, **options: Any) -> Choice:
    """The path that this call would take, and why. Runs nothing. Raises KeyError, TypeError."""
    known = load(op)
    return choose(known, args, filled(known, options))


def run(op: Op, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The op's outputs, by whichever path `explain` names: contiguous, and aliasing no input."""
    options = filled(op, options)
    plan = planned(op, args, options)
    choice = _forced() or plan.choice
    if choice.path == "kernel":
        # triton launches on the current device, whatever device the tensors are on
        here = torch.cuda.current_device() == plan.device.index
        with nullcontext() if here else torch.cuda.device(plan.device):
            result = kernel(op)(*args, **options, **choice.config)
    else:
        result = reference(op)(*args, **options)
    return settled(op, args, result, plan.outputs)


def choose(op: Op, args: Sequence[Any], options: Mapping[str, Any]) -> Choice:
    """The path that `run` takes with these arguments and all options filled in."""
    return _forced() or planned(op, args, options).choice


def planned(op: Op, args: Sequence[Any], options: Mapping[str, Any]) -> Plan:
    """The plan for a call, made once for each combination of shapes, strides and options."""
    seen = described(op, args)
    return _plan(op.name, tuple(seen.values()), tuple(options.values()))


def _forced() -> Choice | None:
    if _Forced.depth:
        return Choice("reference", "inside reference_only()")
    if os.environ.get(SWITCH, "0") not in ("", "0"):
        return Choice("reference", f"{SWITCH} is set")
    return None


@lru_cache(maxsize=4096)
def _plan(name: str, seen: tuple[tuple[Seen, ...], ...], values: tuple[Any, ...]) -> Plan:
    op = load(name)
    args = dict(zip(op.spec.inputs, seen, strict=True))
    call = Call(args, dict(zip(op.spec.options, values, strict=True)))
    device = next((t.device for t in call.tensors()), torch.device("cpu"))
    reasons = (guard(op, call) for guard in GUARDS)
    why = next((reason for reason in reasons if reason is not None), None)
    choice = (
        setting(op, call, torch.cuda.get_device_name(device))
        if why is None
        else Choice("reference", why)
    )
    return Plan(choice, device, expected(op, call.args, call.options))


def setting(op: Op, call: Call, device: str) -> Choice:
    """The kernel at the tuned row nearest to this call: this device's, or another's of its kind."""
    names = sizes(op.spec, call.args) | dict(call.options)
    whose = device if device in op.rows else next(iter(op.rows), "")
    rows = op.rows.get(whose, ())
    dims = {axis: names[axis] for axis in op.spec.workloads[0].dims if axis in names}
    row = nearest(rows, dims, free_dtypes(op.spec, call.args))
    if row is None:
        return Choice("kernel", "no tuned row for these dtypes: the default setting", op.config)
    at = ", ".join(f"{axis}={size}" for axis, size in row.dims.items())
    return Choice("kernel", f"the setting tuned on {whose} at {at}", row.config)


def filled(op: Op, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option's value. Raises TypeError for one that the op has not."""
    unknown = options.keys() - op.spec.options.keys()
    if unknown:
        raise TypeError(f"{op.name} has no option {', '.join(sorted(unknown))}")
    return {name: options.get(name, o.default) for name, o in op.spec.options.items()}


def _pin(module: str, pick: int) -> None:
    """Keep the autotuners of one module to the setting that was judged, in all that they prune to.

    Others stay as they are. What its own timing would choose at a user's sizes may be a setting
    that nobody judged.
    """
    from triton.runtime.autotuner import Autotuner

    original = Autotuner.prune_configs

    def pinned(self: Any, kwargs: Any) -> Any:
        configs = original(self, kwargs)
        if self.base_fn.__module__ != module:
            return configs
        return [configs[pick % len(configs)]]

    Autotuner.prune_configs = pinned


@cache
def _function(folder: str, op: str, entry: str) -> Callable[..., Any]:
    module = importlib.import_module(f"{PACKAGE}.{folder}.{op}")
    function: Callable[..., Any] = getattr(module, entry)
    return function


def kernel(op: Op) -> Callable[..., Any]:
    """The launcher; the first call imports triton."""
    return _launcher(op.name, op.entry, op.pick)


@cache
def _launcher(op: str, entry: str, pick: int | None) -> Callable[..., Any]:
    function = _function("kernels", op, entry)
    if pick is not None:
        _pin(f"{PACKAGE}.kernels.{op}", pick)
    return function


def reference(op: Op) -> Callable[..., Any]:
    """The op in PyTorch."""
    return _function("reference", op.name, op.spec.reference.entry)
