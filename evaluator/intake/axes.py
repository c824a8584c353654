"""Names for the sizes of example inputs, and formulas for the sizes of outputs."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, permutations
from math import prod

from evaluator.errors import ProblemError
from evaluator.intake.wire import Example
from kernel_library.formula import FUNCTIONS, evaluate

Size = int | tuple[int, ...]
#: A size, and the author's name for it or an empty one.
Side = tuple[Size, str]
_POOLS = {1: "N", 2: "M N K", 3: "B S H", 4: "B C H W"}
_SPARE = ["K", "L", "P", "Q", "R", "U", "V", "X", "Y", "Z"]
_LONGEST_NAME = 20
_STRIDES = range(2, 9)
#: Smaller bounds are numbers of classes as likely as they are lengths or pages.
_LEAST_BOUND = 9


def sizes_of(example: Example) -> tuple[Size, ...]:
    """The sizes of an argument, axis by axis; a list's is a tuple where its items differ."""
    shapes = [tensor.shape for tensor in example.slot.tensors]
    if len({len(shape) for shape in shapes}) > 1:
        raise ProblemError(
            "the tensors of a list must have as many axes as each other", f"input {example.name!r}"
        )
    columns = zip(*shapes, strict=True)
    return tuple(column[0] if len(set(column)) == 1 else column for column in columns)


def sides_of(example: Example) -> tuple[Side, ...]:
    """The sizes of an argument, each with the author's name for it where that is known."""
    sizes = sizes_of(example)
    return tuple(zip(sizes, example.follows or ("",) * len(sizes), strict=True))


def name_sides(
    examples: Sequence[Example], known: Mapping[str, int], taken: Iterable[str]
) -> dict[Side, str]:
    """An axis for each size beyond 1: equal sizes are one, unless their author tells them apart.

    A size that the author gave one name has that name; others are called by custom: M N K for
    matrices, B S H for sequences, B H S D for heads, B C H W for images.
    """
    sides = dict.fromkeys(s for example in examples for s in sides_of(example) if s[0] != 1)
    used = {*taken, *FUNCTIONS, "T_bytes"}
    authors: dict[Size, list[str]] = {}
    for name, value in known.items():
        if _is_name(name) and name not in used:
            authors.setdefault(value, []).append(name)
    shapes = [sizes_of(example) for example in examples]
    pool = iter(name for name in _custom(shapes) if name not in {*used, *known})
    named = {}
    for size, follows in sides:
        own = [name for name in authors.get(size, []) if follows in (name, "")]
        named[size, follows] = own[0] if len(own) == 1 else next(pool)
    return named


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and len(name) <= _LONGEST_NAME


def _custom(shapes: Sequence[tuple[Size, ...]]) -> Iterator[str]:
    first = shapes[0]
    pool = _POOLS.get(len(first), "").split()
    if len(first) == 4 and any(len(s) == 4 and s[-1] == first[-1] for s in shapes[1:]):
        pool = ["B", "H", "S", "D"]
    matrices = [shape for shape in shapes[:2] if len(shape) == 2]
    if len(matrices) == 2 and first[0] != first[1] and first[1] in matrices[1] and first not in (
        matrices[1], matrices[1][::-1]
    ):  # fmt: skip
        pool = ["M", "K", "N"]
    seen = dict.fromkeys([*pool, *_SPARE])
    yield from seen
    yield from (f"A{i}" for i in range(1000))


def bound(
    value: int, axes: Mapping[str, int], rows: Sequence[Sequence[str]], own: Sequence[str] = ()
) -> str:
    """A bound of indices as a formula: an axis, one more than an axis, two axes' product, or that.

    A length ends at the axis that it measures, a slot lies in one of so many pages. Products are of
    neighbours in `rows` if they can be. What may be several stays a number, but for an axis that
    the indices do not have as their `own`; so do small numbers, and 2, below which a mask's are.
    """
    if value == 2:
        return str(value)
    for by in (0, 1) if value >= _LEAST_BOUND else (0,):
        alike = [axis for axis, size in axes.items() if size == value - by]
        called = [axis for axis in alike if axis not in own] if len(alike) > 1 else alike
        if len(called) == 1:
            return _shifted(called[0], by)
    if value < _LEAST_BOUND:
        return str(value)
    neighbours = {pair for row in rows for pair in pairwise(row) if axes.keys() >= set(pair)}
    for by in (0, 1):
        for pairs in (neighbours, combinations(axes, 2)):
            made = [f"{a}*{b}" for a, b in pairs if axes[a] * axes[b] == value - by]
            if len(made) == 1:
                return _shifted(made[0], by)
    return str(value)


Seen = tuple[Mapping[str, Size], int]


def formula(seen: Sequence[Seen]) -> str | None:
    """What a side of an output is, as simple as may be: it gives every size that was seen.

    Written without spaces, as `Tensor.axes` wants it.
    """
    (dims, value), *_ = seen
    return next((f for f in _candidates(dims, value) if all(_gives(f, *one) for one in seen)), None)


def _gives(formula: str, dims: Mapping[str, Size], value: int) -> bool:
    return bool(evaluate(formula, dims) == value)


def _candidates(dims: Mapping[str, Size], value: int) -> Iterator[str]:
    yield str(value)
    axes = {axis: size for axis, size in dims.items() if isinstance(size, int)}
    for axis, n in axes.items():
        yield axis
        if value % n == 0:
            yield f"{value // n}*{axis}"
        yield _shifted(axis, value - n)
        if value and n // value > 1:
            yield f"{axis}//{n // value}"
    for (a, n), (b, m) in combinations(axes.items(), 2):
        if value % (n * m) == 0:
            yield f"{a}*{b}" if value == n * m else f"{value // (n * m)}*{a}*{b}"
        yield _shifted(f"{a}+{b}", value - n - m)
        yield _shifted(f"{a}-{b}", value - n + m)
        yield _shifted(f"{b}-{a}", value - m + n)
    yield from ("*".join(names) for names in combinations(axes, 3))
    for axis, n in axes.items():
        yield from _strided(axis, n, value)
    yield from _of_several(axes, value)


def _of_several(axes: Mapping[str, int], value: int) -> Iterator[str]:
    """Windows or pixels that become rows, then sizes after a transposed convolution."""
    for many in (2, 3):
        for names in combinations(axes, many):
            yield _divided("*".join(names), prod(axes[name] for name in names), value)
    for (a, n), (b, m) in permutations(axes.items(), 2):
        yield from (_shifted(f"{by}*{a}+{b}", value - by * n - m) for by in _STRIDES)


def _divided(formula: str, size: int, value: int) -> str:
    return f"{formula}//{size // value}" if value and size % value == 0 else formula


def _shifted(formula: str, by: int) -> str:
    return f"{formula}{by:+d}" if by else formula


def _strided(axis: str, n: int, value: int) -> Iterator[str]:
    """Sizes after a stride, as convolution and pooling have them."""
    for stride in _STRIDES:
        for shift in range(value * stride - n, value * stride - n + stride):
            yield f"({axis}{shift:+d})//{stride}" if shift else f"{axis}//{stride}"
