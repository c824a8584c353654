"""Runs seed units against their references and prints what came out, one JSON object a case.

    TRITON_INTERPRET=1 python tests/run_unit.py rms_norm softmax     Triton's interpreter, no GPU
    python tests/run_unit.py rms_norm --device cuda                  the compiled kernel

In a process of its own, since Triton reads TRITON_INTERPRET when a kernel is decorated.
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from triton.runtime import interpreter

from evaluator.inputs import Case, bendable, draw
from evaluator.interpret.float8 import correct_float8
from evaluator.interpret.whole import count
from kernel_library.space import Config
from kernel_library.spec import Workload
from kernel_library.unit import Unit, space_names, tuned_table

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    count(interpreter)
    correct_float8(interpreter)
#: Largest difference over largest true value: a few roundings of the dtype.
BOUND = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
Layout = Callable[[torch.Tensor], torch.Tensor]
Argument = torch.Tensor | list[torch.Tensor]
PLAIN = Case(0)


def inputs(unit: Unit, at: Workload, case: Case = PLAIN) -> list[Argument]:
    """All inputs by their recipes, the same ones each time; a list argument is a list."""
    return list(draw(unit.op, at, case, "cpu").values())


def each(argument: Argument, change: Callable[[torch.Tensor], torch.Tensor]) -> Argument:
    """The argument with each of its tensors changed."""
    return [change(t) for t in argument] if isinstance(argument, list) else change(argument)


def widened(t: torch.Tensor) -> torch.Tensor:
    """A copy, in float64 if it is floating."""
    return t.double() if t.is_floating_point() else t.clone()


def plain(t: torch.Tensor) -> torch.Tensor:
    """As it is."""
    return t


def poison(t: torch.Tensor) -> float | int:
    """What nobody may read."""
    return float("nan") if t.is_floating_point() else torch.iinfo(t.dtype).max


def gapped(t: torch.Tensor) -> torch.Tensor:
    """The same values with three poisoned elements after each row."""
    wide = torch.full((*t.shape[:-1], t.shape[-1] + 3), poison(t), dtype=t.dtype)
    wide[..., : t.shape[-1]] = t
    return wide[..., : t.shape[-1]]


def turned(t: torch.Tensor) -> torch.Tensor:
    """The same values, the first axis without gaps; a vector with every other element poisoned."""
    if t.dim() == 2:
        return t.t().contiguous().t()
    return torch.stack([t, torch.full_like(t, poison(t))], dim=-1)[..., 0]


def skewed(t: torch.Tensor) -> torch.Tensor:
    """The same values at an address that is no multiple of 16 bytes."""
    room = torch.empty(t.numel() + 1, dtype=t.dtype)
    return room[1:].view(t.shape).copy_(t)


def longest(at: Workload) -> int:
    """The longest axis; for a list argument, of any of its tensors."""
    return max(max(n) if isinstance(n, tuple) else n for n in at.dims.values())


def cases(unit: Unit) -> Iterator[tuple[Workload, Case, Layout, Config]]:
    """Every check workload as it is, the last of each dtype in every layout, a mask with entries
    and rows at -inf at each, and settings that were tuned elsewhere at the widest check workload:
    `nearest` may pick any row.
    """
    checks = [at for at in unit.op.workloads if at.role == "check"]
    if INTERPRETED and unit.op.matmul_flops != "0":
        # Triton's interpreter gets bfloat16 dots wrong (docs/measured.md)
        checks = [at for at in checks if "bfloat16" not in at.dtypes.values()]
    for at in checks:
        default = unit.space.default(space_names(unit.op, at))
        yield at, PLAIN, plain, default
        if "mask" in unit.op.inputs and at.dims["M"] > 1:
            on = bendable(unit.op, at).index("mask")
            yield at, Case(0, values="infinite", on=on), plain, default
            yield at, Case(0, values="masked", on=on), plain, default
    last = {tuple(at.dtypes.values()): at for at in checks if longest(at) <= 5000}
    for at in last.values():
        for layout in (gapped, turned, skewed):
            yield at, PLAIN, layout, unit.space.default(space_names(unit.op, at))
    widest = max(checks, key=lambda at: (longest(at), "float32" not in at.dtypes.values()))
    for row in tuned_table(unit, "NVIDIA H200"):
        if unit.op.matmul_flops == "0":
            yield widest, PLAIN, plain, row.config


def to(device: str, t: torch.Tensor) -> torch.Tensor:
    """A copy on the device, with the same strides and offset."""
    values = t.untyped_storage().nbytes() // t.element_size()
    flat = t.as_strided((values,), (1,), 0).to(device, copy=True)
    return flat.as_strided(t.shape, t.stride(), t.storage_offset())


def called(
    unit: Unit, function: Callable[..., object], args: list[Argument], **options: object
) -> list[torch.Tensor]:
    """What a call returned, then the inputs that it wrote, as a list."""
    out = function(*args, **options)
    returned = [out] if isinstance(out, torch.Tensor) else list(out or ())
    written = dict(zip(unit.op.inputs, args, strict=True))
    return returned + [t for name in unit.op.mutates for t in listed(written[name])]


def listed(argument: Argument) -> list[torch.Tensor]:
    """The tensors of an argument."""
    return argument if isinstance(argument, list) else [argument]


def error(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    """The worst output's largest difference over its largest true value; inf where one is NaN.

    An 8-bit float may be a code from the true one, an eighth of it.
    """

    def one(g: torch.Tensor, w: torch.Tensor) -> float:
        if g.shape != w.shape:
            return float("inf")
        if w.numel() == 0:
            return 0.0
        code = 0.125 if g.element_size() == 1 else 0.0
        g, scale = g.cpu().double(), w.nan_to_num(0.0).abs().max().clamp_min(1e-30)
        far = (((g - w).abs() - code * w.abs()).clamp_min(0.0) / scale).nan_to_num(float("inf"))
        return float(far.masked_fill(g.isnan() & w.isnan(), 0.0).max())

    return max(one(g, w) for g, w in zip(got, want, strict=True))


def run_case(
    unit: Unit, at: Workload, case: Case, layout: Layout, config: Config, device: str
) -> dict[str, object]:
    """Run the kernel once and compare."""
    options = unit.op.option_values(at)
    args = inputs(unit, at, case)
    wide = [each(a, widened) for a in args]
    want = [t.double() for t in called(unit, unit.reference, wide, **options)]
    placed = [each(a, lambda t: to(device, layout(t))) for a in args]
    got = called(unit, unit.kernel, placed, **options, **config)
    return {
        "case": f"{at}-{case.values}-{layout.__name__}-{dict(config)}",
        "error": error(got, want),
        "error_of_zeros": error([torch.zeros_like(w) for w in want], want),
        "bound": BOUND[next(iter(at.dtypes.values()))],
        "dtypes": [str(t.dtype).removeprefix("torch.") for t in got],
        "want_dtypes": [
            unit.op.dtype(t, at)
            for t in unit.op.written().values()
            for _ in t.shapes(unit.op.names(at))
        ],
        "broken_laws": [
            law.__name__ for law in unit.laws if not law(*args, *(g.cpu() for g in got), **options)
        ],
    }


def run_empty(unit: Unit, device: str) -> dict[str, object]:
    """The first axis that may be empty is: shapes must still be right, and sums of nothing zero."""
    first = next(at for at in unit.op.workloads if at.dims.get("N") == 96 or at.role == "check")
    none = (replace(first, dims={**first.dims, axis: 0}) for axis in first.dims)
    at = next(at for at in none if unit.op.is_legal(at))
    config, options = unit.space.default(space_names(unit.op, at)), unit.op.option_values(at)
    args = inputs(unit, at)
    want = called(unit, unit.reference, [each(a, torch.clone) for a in args], **options)
    placed = [each(a, lambda t: t.to(device)) for a in args]
    got = called(unit, unit.kernel, placed, **options, **config)
    same = (
        g.shape == w.shape
        and torch.equal(g.cpu().double().nan_to_num(7.0), w.double().nan_to_num(7.0))
        for g, w in zip(got, want, strict=True)
    )
    return {"case": "nothing", "right": all(same)}


def run_large(unit: Unit) -> dict[str, object]:
    """More than 2^31 elements on a GPU: the last rows must be right, at offsets above int32."""
    first = next(at for at in unit.op.workloads if at.role == "measure")
    dims = {**first.dims, "M": 70000, "N": 32768} | ({"K": 16} if "K" in first.dims else {})
    at = Workload(dims, {"T": "bfloat16"})
    options = unit.op.option_values(at)
    names = unit.op.names(at)
    args = [
        torch.empty(t.shape(names), dtype=torch.bfloat16, device="cuda").normal_()
        for t in unit.op.inputs.values()
    ]
    by_row = [t.axes.split()[0] == "M" for t in unit.op.inputs.values()]
    tails = [(a[-4:] if rows else a).double() for a, rows in zip(args, by_row, strict=True)]
    config = unit.space.default(space_names(unit.op, at))
    got = called(unit, unit.kernel, args, **options, **config)
    want = called(unit, unit.reference, tails, **options)
    rows = [
        (g[-4:], w.double().cpu())
        for g, w, t in zip(got, want, unit.op.outputs.values(), strict=True)
        if t.axes.split()[0] == "M"
    ]
    return {"case": f"{at}", "error": error(*map(list, zip(*rows, strict=True))), "bound": 3e-2}


def outcomes(unit: Unit, device: str) -> Iterator[dict[str, object]]:
    """Each case's outcome, then the large one's on a GPU, then that of no rows."""
    for at, case, layout, config in cases(unit):
        yield run_case(unit, at, case, layout, config, device)
    if device == "cuda" and {"M", "N"} <= unit.op.workloads[0].dims.keys():
        yield run_large(unit)
    yield run_empty(unit, device)


def main() -> None:
    """Print every unit's outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("units", nargs="+")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    for name in asked.units:
        unit: Unit = importlib.import_module(f"seeds.{name}").UNIT
        for outcome in outcomes(unit, asked.device):
            sys.stdout.write(json.dumps({"unit": name} | outcome) + "\n")


if __name__ == "__main__":
    main()
