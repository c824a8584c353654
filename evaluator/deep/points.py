"""Where the deep stage looks: two small points, a real one, and one beyond 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from math import prod
from random import Random

from evaluator.inputs import Case, bendable, place, size_of, spreadable
from evaluator.matrix import Point, is_public
from evaluator.values import VALUES
from kernel_library.recipe import Offsets
from kernel_library.spec import ITEMSIZE, OpSpec, Workload


def ragged(op: OpSpec, points: Sequence[Point]) -> list[Point]:
    """The plain hidden point that has the most odd axes, for tiles that fit hide what is beyond.

    None where every size is public.
    """
    hidden = [
        (at, case)
        for at, case in points
        if not is_public(op, at) and (case.layout, case.values) == ("contiguous", "recipe")
    ]
    return sorted(hidden, key=lambda point: (-_odd(point[0]), size_of(op, point[0])))[:1]


def real(op: OpSpec, secret: int) -> Point:
    """The measured workload of the smallest tensors; the largest of all where none is measured."""
    measured = [at for at in op.workloads if at.role == "measure"]
    by_size = sorted(measured or op.workloads, key=lambda at: size_of(op, at))
    return by_size[0 if measured else -1], Case(Random(f"deep {secret}").getrandbits(38))


def bent(op: OpSpec, secret: int) -> list[Point]:
    """Each class of values once, spread over the measured workloads.

    A launcher knows those sizes by heart, and could take a short cut there that plain values bear.
    None where no input can be bent.
    """
    random = Random(f"bent {secret}")
    able = [at for at in op.workloads if at.role == "measure" and bendable(op, at)]
    random.shuffle(able)
    return [
        (at, Case(random.getrandbits(38), values=values, on=on))
        for on, (values, at) in enumerate(zip(VALUES[1:], cycle(able), strict=False))
    ]


def beyond(op: OpSpec, secret: int) -> Point | None:
    """A small workload with its largest input spread over 2^31 elements, of as few bytes as can be.

    None where no input has an axis to spread.
    """
    able = [
        (_bytes(op, at, name), size_of(op, at), on, at)
        for at in op.workloads
        if at.role == "check"
        for name, on in [_widest(op, at)]
        if name
    ]
    if not able:
        return None
    _, _, on, at = min(able, key=lambda each: each[:2])
    return at, Case(Random(f"wide {secret}").getrandbits(38), "wide", on=on)


def _widest(op: OpSpec, at: Workload) -> tuple[str, int]:
    """The largest input that can be spread, and its number among those; no name if none can."""
    names, sizes = spreadable(op), op.names(at)
    shapes = {
        name: op.inputs[name].shape(sizes)
        for name in names
        if op.inputs[name].count is None and not isinstance(op.inputs[name].recipe, Offsets)
    }
    can = [name for name, shape in shapes.items() if place(shape, "wide").room > prod(shape)]
    name = max(can, key=lambda name: prod(shapes[name]), default="")
    return name, names.index(name) if name else 0


def _bytes(op: OpSpec, at: Workload, name: str) -> int:
    return ITEMSIZE[op.dtype(op.inputs[name], at)]


def _odd(at: Workload) -> int:
    sizes = [n for size in at.dims.values() for n in (size if isinstance(size, tuple) else (size,))]
    return sum(n % 2 and n > 1 for n in sizes)
