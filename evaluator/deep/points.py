"""Where the deep stage looks: at small points, at real ones and near them, and far beyond."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from math import prod
from random import Random

from evaluator.hidden import free_axes
from evaluator.inputs import ALL, Case, bendable, places, size_of, spreadable
from evaluator.layouts import WIDE, Layout, place
from evaluator.matrix import Point, is_public
from evaluator.values import ALIKE, VALUES
from kernel_library.formula import FormulaError
from kernel_library.recipe import Offsets
from kernel_library.spec import ITEMSIZE, OpSpec, Workload

#: Layouts in which a measured size is met, the first that differs from a contiguous one.
_LAID: tuple[Layout, ...] = ("padded", "step2")
#: How far a hidden size is from a measured one: odd, or by whole vectors or tiles where it must be.
_STEPS = (1, 3, 7, 31, 8, 64)
#: Hidden sizes near measured ones, and tries at a legal one.
_NEARBY, _TRIES = 2, 40
#: Elements up to which a measured workload meets every class of values.
_BENT = 1 << 26
#: The longest hidden axis elsewhere, twice that, and the most elements to try it with.
_LONG, _LONGER, _MOST = 1 << 14, 1 << 15, 1 << 22
#: The same for an axis that is no row of any tensor: a grid's second axis ends at 65535.
_MANY, _MORE, _MOST_OF_MANY = 1 << 16, 5 << 14, 1 << 24
#: The most bytes of all tensors of a vast workload, of which an H200 has four times as many, and
#: the most operations in products: four seconds at the 5 TFLOP/s of a plain kernel, of ten that
#: a candidate may take.
_VAST_BYTES, _VAST_FLOPS = 1 << 35, 2 * 10**13


@dataclass(frozen=True, slots=True)
class Points:
    """Where to look: for the sanitizer, for repeats, for effects, beyond 32 bits; at what else is
    real (bent values, other layouts, sizes nearby), along axes longer than elsewhere, and where
    what is written is beyond 32 bits, too."""

    small: Sequence[Point]
    real: Point
    matrix: Sequence[Point]
    beyond: Sequence[Point]
    bent: Sequence[Point] = ()
    long: Sequence[Point] = ()
    vast: Sequence[Point] = ()


def everywhere(op: OpSpec, secret: int, small: Sequence[Point], matrix: Sequence[Point]) -> Points:
    """All points of an op; `small` and `matrix` depend on the candidate as well."""
    again = [*bent(op, secret), *laid(op, secret), *near(op, secret)]
    where, far = real(op, secret), beyond(op, secret)
    return Points(small, where, matrix, far, again, list(long(op, secret)), vast(op, secret))


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
    measured = _measured(op)
    by_size = sorted(measured or op.workloads, key=lambda at: size_of(op, at))
    return by_size[0 if measured else -1], Case(Random(f"deep {secret}").getrandbits(38))


def bent(op: OpSpec, secret: int) -> list[Point]:
    """Each class of values at each measured workload; at a very large one, its share of them.

    A launcher knows those sizes by heart, and could take a short cut there that plain values bear.
    Where a class bends all inputs at once as well, so it does here. None where it can bend none.
    """
    random, found = Random(f"bent {secret}"), list[Point]()
    able = [at for at in _measured(op) if bendable(op, at)]
    random.shuffle(able)
    first = random.randrange(1 << 8)
    for number, at in enumerate(able):
        whole = size_of(op, at) <= _BENT
        for n, values in enumerate(VALUES[1:]):
            many = len(bendable(op, at, values))
            if many and (whole or n % len(able) == number):
                both = [ALL] if values in ALIKE and many > 1 else []
                cases = [
                    Case(random.getrandbits(38), values=values, on=on) for on in (first, *both)
                ]
                found += [(at, case) for case in cases]
                first += 1
    return found


def laid(op: OpSpec, secret: int) -> list[Point]:
    """Each measured workload in a layout that is not contiguous: strides may be known by heart."""
    random, found = Random(f"laid {secret}"), list[Point]()
    for at in _measured(op):
        flat = Case(random.getrandbits(38))
        cases = [replace(flat, layout=layout) for layout in _LAID]
        felt = [case for case in cases if places(op, at, case) != places(op, at, flat)]
        found += [(at, case) for case in felt[:1]]
    return found


def near(op: OpSpec, secret: int) -> list[Point]:
    """A few hidden workloads about as large as measured ones: all others are small."""
    random = Random(f"near {secret}")
    bases = _measured(op)
    random.shuffle(bases)
    legal = (at for base in bases for at in islice(_moved(op, base, random), 1))
    return [(at, Case(random.getrandbits(38))) for at in islice(legal, _NEARBY)]


def long(op: OpSpec, secret: int) -> Iterator[Point]:
    """A small workload with one free axis longer than hidden sizes are elsewhere, for each."""
    random = Random(f"long {secret}")
    bases = sorted(op.workloads, key=lambda at: (at.role != "check", size_of(op, at)))
    for axis in free_axes(op):
        row = _is_row(op, axis)
        least, below, most = (_LONG, _LONGER, _MOST) if row else (_MANY, _MORE, _MOST_OF_MANY)
        sizes = [random.randrange(least + 1, below, 2) for _ in range(_TRIES)]
        made = (
            _sized(base, {axis: n - n % step})
            for n, step, base in zip(sizes, cycle((1, 1, 16)), cycle(bases), strict=False)
        )
        legal = (at for at in made if _is_legal(op, at) and size_of(op, at) <= most)
        yield from ((at, Case(random.getrandbits(38))) for at in islice(legal, 1))


def _is_row(op: OpSpec, axis: str, least: int = 1) -> bool:
    """Whether rows are as long as this axis, or longer, in some tensor of so many axes or more."""
    shapes = [tensor.axes.split() for tensor in (*op.inputs.values(), *op.outputs.values())]
    rows = [shape[-1] for shape in shapes if len(shape) >= least]
    return any(re.search(rf"\b{re.escape(axis)}\b", row) for row in rows)


def _measured(op: OpSpec) -> list[Workload]:
    return [at for at in op.workloads if at.role == "measure"]


def _moved(op: OpSpec, base: Workload, random: Random) -> Iterator[Workload]:
    """Hidden workloads with each free axis a bit longer than here, and one of half its length."""
    axes = free_axes(op)
    for _ in range(_TRIES if axes else 0):
        half = random.choice(axes) if len(axes) > 1 else ""
        at = _sized(base, {a: _near(base.dims[a], a == half, random) for a in axes})
        if not is_public(op, at) and _is_legal(op, at):
            yield at


def _near(size: int | tuple[int, ...], halved: bool, random: Random) -> int | tuple[int, ...]:
    if isinstance(size, tuple):
        return tuple(_near_one(n, halved, random) for n in size)
    return _near_one(size, halved, random)


def _near_one(n: int, halved: bool, random: Random) -> int:
    able = [step for step in _STEPS if 8 * step <= n]
    return (n // 2 if halved and n > 1 else n) + (random.choice(able) if able else 0)


def _sized(at: Workload, dims: Mapping[str, int | tuple[int, ...]]) -> Workload:
    """The workload with other sizes, hidden wherever they differ."""
    return replace(at, dims={**at.dims, **dims}, role="check")


def _is_legal(op: OpSpec, at: Workload) -> bool:
    try:
        return op.is_legal(at) and size_of(op, at) > 0
    except FormulaError:
        return False


def beyond(op: OpSpec, secret: int) -> list[Point]:
    """For each input, a small workload with it spread over 2^31 elements, of the fewest bytes.

    None for one without an axis to spread.
    """
    random, checks = Random(f"wide {secret}"), [at for at in op.workloads if at.role == "check"]
    found = list[Point]()
    for on, name in enumerate(spreadable(op, "wide")):
        able = [at for at in checks if _is_wide(op, at, name)]
        if able:
            at = min(able, key=lambda at: (_bytes(op, at, name), size_of(op, at)))
            found.append((at, Case(random.getrandbits(38), "wide", on=on)))
    return found


def _is_wide(op: OpSpec, at: Workload, name: str) -> bool:
    tensor = op.inputs[name]
    if tensor.count is not None or isinstance(tensor.recipe, Offsets):
        return False
    shape = tensor.shape(op.names(at))
    return place(shape, "wide").room > prod(shape)


def _bytes(op: OpSpec, at: Workload, name: str) -> int:
    return ITEMSIZE[op.dtype(op.inputs[name], at)]


def vast(op: OpSpec, secret: int) -> list[Point]:
    """For each tensor that is written, a workload with more than 2^31 elements of it.

    Strides can spread an input over as many; what is written has strides of the launcher's own
    choice. Longer than elsewhere is an axis along which no matrix has its rows; of those workloads
    one of the fewest bytes, give or take 4 GiB, whose axis is the shortest: a grid ends at 2^31.
    So does what is written by the row beside a matrix, which is left out.
    """
    random, found = Random(f"vast {secret}"), list[Workload]()
    axes = [axis for axis in free_axes(op) if not _is_row(op, axis, least=2)]
    ranks = {name: len(tensor.axes.split()) for name, tensor in op.written().items()}
    for name, rank in ranks.items():
        if rank < max(ranks.values()) or any(_elements(op, at, name) > WIDE for at in found):
            continue
        grown = [
            (total >> 32, n, at)
            for axis in axes
            for base in op.workloads
            for n, at in islice(_grown(op, base, axis, name), 1)
            if (total := _total(op, at)) <= _VAST_BYTES and op.cost(at).matmul_flops <= _VAST_FLOPS
        ]
        found += [at for *_, at in sorted(grown, key=lambda each: each[:2])[:1]]
    return [(at, Case(random.getrandbits(38))) for at in found]


def _grown(op: OpSpec, base: Workload, axis: str, name: str) -> Iterator[tuple[int, Workload]]:
    """How long one axis must be for more than 2^31 elements of a tensor, and the workload so."""
    size, had = base.dims[axis], _elements(op, base, name)
    first = size[0] if isinstance(size, tuple) else size
    least = WIDE * first // had + 1 if had else 0
    for step in (1, 16, 256):
        n = least - least % -step
        at = _sized(base, {axis: (n, *size[1:]) if isinstance(size, tuple) else n})
        if had and _is_legal(op, at) and _elements(op, at, name) > WIDE:
            yield n, at


def _elements(op: OpSpec, at: Workload, name: str) -> int:
    return max((prod(shape) for shape in op.written()[name].shapes(op.names(at))), default=0)


def _total(op: OpSpec, at: Workload) -> int:
    """The bytes of all tensors."""
    tensors, names = [*op.inputs.values(), *op.outputs.values()], op.names(at)
    return sum(
        prod(shape) * ITEMSIZE[op.dtype(t, at)] for t in tensors for shape in t.shapes(names)
    )


def _odd(at: Workload) -> int:
    sizes = [n for size in at.dims.values() for n in (size if isinstance(size, tuple) else (size,))]
    return sum(n % 2 and n > 1 for n in sizes)
