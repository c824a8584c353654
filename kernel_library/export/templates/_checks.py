"""The single checks that `verify` is made of. Each returns what it found; none raises for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Literal

import torch

from kernel_library.spec import Workload

from ._bind import described
from ._contract import HERE, Op, load
from ._dispatch import choose, kernel, reference, setting
from ._draw import draw
from ._guards import Call, arch
from ._ops import NAMESPACE
from ._truth import allowed, copied, error, wide, widened, written

__all__ = ["Finding", "arch", "correct", "differentiable", "files", "interpreted", "registered"]
Status = Literal["ok", "failed", "unchecked"]
#: What one op's workloads may take, most of it compiling, before the rest is left unchecked.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: for `unchecked`, `note` says why it could not be."""

    op: str
    what: str
    status: Status
    note: str


def files() -> list[Finding]:
    """Whether each file is the one in the certificate, and none was added."""
    sealed: dict[str, str] = json.loads((HERE / "certificate.json").read_text("utf-8"))["files"]
    here = {p.relative_to(HERE).as_posix(): p for p in HERE.rglob("*")
            if p.is_file() and "__pycache__" not in p.parts}  # fmt: skip
    del here["certificate.json"]
    wrong = [f"{name} is missing" for name in sorted(sealed.keys() - here.keys())]
    wrong += [f"{name} was added" for name in sorted(here.keys() - sealed.keys())]
    wrong += [f"{name} was changed" for name in sorted(sealed.keys() & here.keys())
              if hashlib.sha256(here[name].read_bytes()).hexdigest() != sealed[name]]  # fmt: skip
    if wrong:
        return [Finding("", "files", "failed", note) for note in wrong]
    seal = hashlib.sha256((HERE / "certificate.json").read_bytes()).hexdigest()
    note = f"{len(sealed)} files as in the certificate, whose own sha256 is {seal}"
    return [Finding("", "files", "ok", note)]


def registered(op: Op, device: str) -> Finding:
    """Whether torch's own checks of schema, fake, autograd and dynamic shapes pass."""
    overload = getattr(getattr(torch.ops, NAMESPACE), op.name).default
    at = _checked(op)[-1]
    args = draw(op.spec, at, 0, device)
    tracked = [_tracked(op, name, arg) for name, arg in zip(op.spec.inputs, args, strict=True)]
    results = torch.library.opcheck(
        overload, tuple(tracked), op.spec.option_values(at), raise_exception=False
    )
    wrong = {name: str(r) for name, r in results.items() if r != "SUCCESS"}
    if wrong:
        return Finding(op.name, "opcheck", "failed", _short(str(wrong)))
    return Finding(op.name, "opcheck", "ok", ", ".join(n.removeprefix("test_") for n in results))


def correct(op: Op, seed: int, device: str) -> Finding:
    """Whether the registered op is right at the contract's check workloads, by its own path."""
    overload = getattr(getattr(torch.ops, NAMESPACE), op.name)
    paths = set()
    worst = 0.0
    points, done, start = _checked(op), 0, monotonic()
    for at in points:
        if monotonic() - start > PATIENCE_S:
            break
        args, options = draw(op.spec, at, seed, device), op.spec.option_values(at)
        paths.add(choose(op, args, options).path)
        wrong, ratio = compared(op, overload, args, at)
        if wrong:
            return Finding(op.name, "correct", "failed", f"{'/'.join(paths)} at {at}: {wrong}")
        worst, done = max(worst, ratio), done + 1
    where = f"{' and '.join(sorted(paths))} path on {device}"
    note = f"{where}, {done} of {len(points)} workloads, worst error {worst:.0%} of the allowed"
    return Finding(op.name, "correct", "ok", note)


def interpreted(op: Op, seed: int) -> Finding:
    """Whether the kernel itself is right when Triton's interpreter runs it on the CPU."""
    points, done = _checked(op), 0
    # Triton's interpreter returns garbage for tl.dot on bfloat16 (seen in 3.6.0 to 3.9.0)
    dots = "dot(" in (HERE / "kernels" / f"{op.name}.py").read_text("utf-8")
    start = monotonic()
    for at in points:
        if (dots and "bfloat16" in at.dtypes.values()) or monotonic() - start > PATIENCE_S:
            continue
        args = draw(op.spec, at, seed, "cpu")
        config = setting(op, Call(described(op, args), op.spec.option_values(at)), "").config
        try:
            launch = partial(kernel(op), **config)
            wrong, _ = compared(op, launch, args, at)
        except Exception as raised:  # a launcher may need what only a GPU has: that is no proof
            note = f"the interpreter cannot run it: {type(raised).__name__}: {raised}"
            return Finding(op.name, "kernel, interpreted", "unchecked", _short(note))
        if wrong:
            return Finding(op.name, "kernel, interpreted", "failed", f"at {at}: {wrong}")
        done += 1
    status: Status = "ok" if done else "unchecked"
    note = f"Triton's interpreter on the CPU, {done} of {len(points)} workloads"
    return Finding(op.name, "kernel, interpreted", status, note)


def differentiable(op: Op, seed: int, device: str) -> Finding:
    """Whether gradients agree with autograd through the reference in float64."""
    back, at = load(op.backward or ""), _checked(op)[-1]
    overload = getattr(getattr(torch.ops, NAMESPACE), op.name)
    args, options = draw(op.spec, at, seed, device), op.spec.option_values(at)
    mine = _gradients(op, back, partial(overload, **options), copied(args))
    plain = _gradients(op, back, partial(reference(op), **options), copied(args))
    with wide():
        truth = _gradients(op, back, partial(reference(op), **options), widened(args))
    names = [name for name in op.spec.inputs if f"d_{name}" in back.spec.outputs]
    for name, m, p, t in zip(names, mine, plain, truth, strict=True):
        limit = allowed(back.spec.tolerance, m.dtype, error(p, t))
        if error(m, t) > limit:
            note = f"d_{name} at {at}: error {error(m, t):.2g}, allowed {limit:.2g}"
            return Finding(op.name, "gradient", "failed", note)
    return Finding(op.name, "gradient", "ok", f"{', '.join(names)} through {back.name} on {device}")


def compared(
    op: Op, function: Callable[..., Any], args: Sequence[Any], at: Workload
) -> tuple[str | None, float]:
    """What is wrong with the function's answer, and its worst error as a share of the allowed."""
    options = op.spec.option_values(at)
    with wide():
        truth = written(op, reference(op), widened(args), options)
    plain = written(op, reference(op), copied(args), options)
    mine = written(op, function, copied(args), options)
    share = 0.0
    for name, m, p, t in zip(_labels(op, mine), mine, plain, truth, strict=True):
        off, limit = error(m, t), allowed(op.spec.tolerance, m.dtype, error(p, t))
        if off > limit:
            return f"{name}: error {off:.2g}, allowed {limit:.2g}", share
        share = max(share, off / limit if limit else 0.0)
    return None, share


def _labels(op: Op, found: Sequence[torch.Tensor]) -> list[str]:
    names = list(op.spec.written())
    return names if len(names) == len(found) else [f"result {i}" for i in range(len(found))]


def _gradients(
    op: Op, back: Op, function: Callable[..., Any], args: list[Any]
) -> tuple[torch.Tensor, ...]:
    leaves = [arg.requires_grad_() for name, arg in zip(op.spec.inputs, args, strict=True)
              if f"d_{name}" in back.spec.outputs]  # fmt: skip
    result = function(*args)
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    kept = [r for name, r in zip(op.spec.outputs, results, strict=True)
            if f"d_{name}" in back.spec.inputs]  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    cotangents = [
        torch.randn(r.shape, generator=generator, dtype=torch.float32).to(r.device, r.dtype)
        for r in kept
    ]
    return torch.autograd.grad(kept, leaves, cotangents)


def _tracked(op: Op, name: str, arg: Any) -> Any:
    gradient = op.backward is not None and f"d_{name}" in load(op.backward).spec.outputs
    return arg.requires_grad_() if gradient else arg


def _checked(op: Op) -> list[Workload]:
    return [at for at in op.spec.workloads if at.role == "check"] or list(op.spec.workloads[:1])


def _short(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:400]}..."
