"""Interprets kernels on an input that spans 2^31 elements by its strides, on a CPU.

    TRITON_INTERPRET=1 python tests/run_wide.py rms_norm softmax       seeds by name
    TRITON_INTERPRET=1 python tests/run_wide.py kernel.py scale        a file, for a red team's op

Memory is reserved and not held: only pages that a kernel touches take any. Prints, as a JSON object
a kernel, the largest difference over the largest true value; one that wraps may end by a fault.
"""

import importlib
import json
import mmap
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from triton.runtime import interpreter

from evaluator.deep.points import beyond
from evaluator.inputs import draw, places
from evaluator.interpret.float8 import correct_float8
from evaluator.interpret.whole import count
from evaluator.layouts import WIDE, Place
from evaluator.matrix import Point
from evaluator.record.job import load
from evaluator.redteam.ops import OPS
from kernel_library.spec import OpSpec
from kernel_library.unit import space_names

count(interpreter)
correct_float8(interpreter)
#: Linux's MAP_NORESERVE, for which Python has had a name only of late.
NORESERVE = 0x4000


def reserved(room: int, dtype: torch.dtype) -> torch.Tensor:
    """So many elements, none of which is held yet."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    return torch.frombuffer(mmap.mmap(-1, room * dtype.itemsize, flags=flags), dtype=dtype)


def laid(tensor: torch.Tensor, spot: Place) -> torch.Tensor:
    """The tensor at its place, if that is a wide one."""
    if spot.room < WIDE:
        return tensor
    view = reserved(spot.room, tensor.dtype).as_strided(spot.shape, spot.stride, spot.offset)
    return view.copy_(tensor)


def run(name: str, op: OpSpec, kernel: Callable, reference: Callable, config: Callable) -> None:
    errors = [one(op, point, kernel, reference, config) for point in beyond(op, 1)]
    # torch's maximum keeps NaN, as Python's does not
    sys.stdout.write(json.dumps({"kernel": name, "error": torch.stack(errors).max().item()}) + "\n")


def one(
    op: OpSpec, point: Point, kernel: Callable, reference: Callable, config: Callable
) -> torch.Tensor:
    """The largest relative error of any output with one input spread."""
    at, case = point
    flat, where = draw(op, at, type(case)(case.seed), "cpu"), places(op, at, case)
    options = op.option_values(at)
    apart, spread = ({n: t.clone() for n, t in flat.items()} for _ in range(2))
    spread = {n: laid(t, where[n][0]) for n, t in spread.items()}
    want = outputs(op, reference(*apart.values(), **options), apart)
    got = outputs(op, kernel(*spread.values(), **options, **config(at)), spread)
    pairs = zip(got, want, strict=True)
    errors = [(g - w).abs().max() / w.abs().max() for g, w in widened(pairs)]
    return torch.stack(errors).max()


def outputs(op: OpSpec, returned: object, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """What a call returned, then what it wrote in place."""
    found = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    return [*found, *(inputs[name] for name in op.mutates)]


def widened(pairs):
    """Each pair that holds anything, in float64."""
    return ((g.double(), w.double()) for g, w in pairs if w.numel())


def main(names: list[str]) -> None:
    if names[0].endswith(".py"):
        op = OPS[names[1]]
        reference: dict = {}
        exec(op.reference.source, reference)
        kernel = getattr(load(Path(names[0]).read_text()), op.name)
        run(op.name, op, kernel, reference["reference"], lambda at: {})
        return
    for name in names:
        unit = importlib.import_module(f"seeds.{name}").UNIT
        run(name, unit.spec, unit.kernel, unit.reference,
            lambda at, unit=unit: unit.space.default(space_names(unit.op, at)))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
