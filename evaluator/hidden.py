"""The workloads that a candidate is not told of: sizes at edges, settings of its own.

They differ from the public ones only where the op leaves room: along axes that vary among its
workloads, in the length of a list that may have any, in options, within its constraints.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, cycle, islice
from random import Random

from evaluator.inputs import size_of
from kernel_library.formula import FormulaError, Value
from kernel_library.spec import OpSpec, Option, Workload


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a way of running can bear: elements of the largest tensor, the longest axis.

    `hidden` counts workloads for each dtype and option setting, `seeds` the plain cases of each
    public workload; with `each_input`, every input is bent that can be, else the first and any
    one. `bent` is what `elements` is for cases of other values and layouts, which are most.
    """

    elements: int
    bent: int
    longest: int
    public_elements: int
    hidden: int
    seeds: int
    each_input: bool


#: Triton's interpreter runs some 10 000 block operations a second, whatever a block's size, and a
#: program for each row is common: tiny sizes, short axes, few cases.
INTERPRETED = Budget(
    elements=1 << 12,
    bent=1 << 12,
    longest=300,
    public_elements=1 << 18,
    hidden=3,
    seeds=1,
    each_input=False,
)
#: A replay takes milliseconds; the float64 truth is what costs. Larger than this are those that the
#: contract lists, and the measured ones.
REPLAYED = Budget(
    elements=1 << 20,
    bent=1 << 20,
    longest=1 << 14,
    public_elements=1 << 26,
    hidden=8,
    seeds=3,
    each_input=True,
)

_PRIMES = (2, 3, 5, 7, 11, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093)
_POWERS = tuple(1 << n for n in range(3, 14))
_LENGTHS = (1, 2, 17, 33, 129)
_TRIES = 40
_FOLDED: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    # of exponents that make sizes; larger ones would take this process with them
    ast.LShift: lambda a, b: a << b if 0 <= b <= 16 else 0,
    ast.Pow: lambda a, b: a**b if 0 <= b <= 16 else 0,
}  # fmt: skip
#: Sizes by the kind of edge that they are at: one kind is drawn, then one of its sizes, so that no
#: kind is lost among another's thousands.
Kinds = Sequence[Sequence[int]]


def free_axes(op: OpSpec) -> tuple[str, ...]:
    """The axes that differ between the op's workloads; the others are part of what the op is."""
    first = op.workloads[0].dims
    return tuple(a for a in first if len({at.dims.get(a) for at in op.workloads}) > 1)


def constants(source: str) -> set[int]:
    """The whole numbers in a source that may be tile sizes; `2 * 32` and `1 << 6` are ones."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found = {_whole(node) for node in ast.walk(tree)}
    return {n for n in found if n is not None and 4 <= n <= 1 << 16}


def _whole(node: ast.AST) -> int | None:
    """A whole number that is written down, or made of two that are."""
    match node:
        case ast.Constant(value=int(n)) if type(n) is int and abs(n) <= 1 << 16:
            return n
        case ast.BinOp(op=sign) if type(sign) in _FOLDED:
            sides = [_whole(s) for s in (node.left, node.right) if isinstance(s, ast.Constant)]
            if len(sides) == 2 and None not in sides and 0 not in sides[1:]:
                return _FOLDED[type(sign)](*(n for n in sides if n is not None))
    return None


def hidden(op: OpSpec, edges: Sequence[int], random: Random, budget: Budget) -> Iterator[Workload]:
    """Workloads beside the public ones: each puts one axis at an edge, and the rest anywhere.

    Over the settings of the op, each free axis meets each kind of edge at least once. Ahead of
    them come one that is large, some with two axes alike, and one for each way to move an option.
    """
    # just a tile, whole ones, and several with a tail, or one more than two nested tiles hold:
    # loops over tiles go wrong at any
    nested = [a * b + 1 for a, b in combinations(edges[:8], 2)]
    tails = [*(3 * n + 1 for n in edges), *nested]
    kinds = (_near(edges), edges, tails, _PRIMES, (1,), [*_near(_POWERS), *_POWERS])
    targets = [
        (axis, able)
        for axis in free_axes(op)
        for kind in kinds
        if (able := [n for n in kind if n <= _longest(op, axis, budget)])
    ]
    if not targets:
        return
    random.shuffle(targets)
    bases, seen = settings(op), {str(at) for at in op.workloads}
    yield from _large(op, random.choice(bases), edges, (random, budget))
    yield from _square(op, random.choice(bases), edges, (random, budget))
    yield from _moved(op, random.choice(bases), edges, (random, budget))
    each = max(budget.hidden, -(-len(targets) // len(bases)))
    for turn, (axis, kind) in zip(range(each * len(bases)), cycle(targets), strict=False):
        base = bases[turn % len(bases)]
        made = list(_legal(op, base, {axis: [kind]}, edges, (random, budget)))
        # half of them are the largest of a few picks: small sizes alone would hide tails
        made = sorted(made[:8], key=lambda at: -size_of(op, at)) if random.random() < 0.5 else made
        if made and str(made[0]) not in seen:
            seen.add(str(made[0]))
            yield made[0]


def _large(
    op: OpSpec, base: Workload, edges: Sequence[int], means: tuple[Random, Budget]
) -> Iterator[Workload]:
    """The largest of some whose axes are as likely long as short; none where none is legal."""
    random, budget = means
    aim = {
        axis: [[int(_longest(op, axis, budget) ** random.random()) for _ in range(_TRIES)]]
        for axis in free_axes(op)
    }
    made = [at for at in _legal(op, base, aim, edges, means) if at not in op.workloads]
    yield from sorted(made, key=lambda at: -size_of(op, at))[:1]


def _square(
    op: OpSpec, base: Workload, edges: Sequence[int], means: tuple[Random, Budget]
) -> Iterator[Workload]:
    """Pairs of axes as long as each other: a length does not tell then which of them it is."""
    random, budget = means
    able = [axis for axis in free_axes(op) if not isinstance(base.dims[axis], tuple)]
    pairs = list(combinations(able, 2))
    random.shuffle(pairs)
    for pair in pairs[: budget.hidden // 2]:
        sizes = [n for n in _PRIMES if 2 < n <= min(_longest(op, axis, budget) for axis in pair)]
        random.shuffle(sizes)
        alike = ({axis: [[n]] for axis in pair} for n in sizes)
        made = (at for aim in alike for at in islice(_legal(op, base, aim, edges, means), 1))
        yield from islice((at for at in made if at not in op.workloads), 1)


def _moved(
    op: OpSpec, base: Workload, edges: Sequence[int], means: tuple[Random, Budget]
) -> Iterator[Workload]:
    """For each float without choices, a workload for all that it is moved to."""
    for name, option in op.options.items():
        for value in () if option.choices else _others(op.option_values(base)[name]):
            made = _legal(op, base, {}, edges, means)
            other = (replace(at, options={**at.options, name: value}) for at in made)
            yield from islice((at for at in other if op.is_legal(at)), 1)


def empty(op: OpSpec, base: Workload) -> list[Workload]:
    """The workload with each axis at zero in turn that the contract says may be."""
    none = [a for a in free_axes(op) if f"{a} >= 0" in op.constraints]
    made = [replace(base, dims={**base.dims, a: 0}, role="check") for a in none]
    return [at for at in made if op.is_legal(at)]


def setting(at: Workload) -> tuple[str, str]:
    """A workload's dtypes and options, to tell those of others by."""
    return str(sorted(at.dtypes.items())), str(sorted(at.options.items()))


def distinct(workloads: Iterable[Workload]) -> list[tuple[str, str]]:
    """The settings of some workloads, each once."""
    return list(dict.fromkeys(map(setting, workloads)))


def settings(op: OpSpec) -> list[Workload]:
    """One workload for each setting of dtypes and options, a check workload where there is one."""
    ordered = sorted(op.workloads, key=lambda at: at.role != "check")
    return [next(at for at in ordered if setting(at) == s) for s in distinct(ordered)]


def _near(sizes: Iterable[int]) -> list[int]:
    """One less and one more than each; a setting of 0 is no size."""
    return sorted({n + d for n in sizes if n > 1 for d in (-1, 1)})


def _longest(op: OpSpec, axis: str, budget: Budget) -> int:
    """An axis may be as long as the budget says, or as a public check has it."""
    sizes = [at.dims.get(axis, 0) for at in op.workloads if at.role == "check"]
    return max([budget.longest, *(max(n) if isinstance(n, tuple) else n for n in sizes)])


def _legal(
    op: OpSpec,
    base: Workload,
    aim: Mapping[str, Kinds],
    edges: Sequence[int],
    means: tuple[Random, Budget],
) -> Iterator[Workload]:
    """Legal workloads within the size limit whose aimed axes come from their own choices."""
    random, budget = means
    # one more than what the source may take at a time
    lengths = [*_LENGTHS, *(n + 1 for n in edges if n < 256)]
    for _ in range(_TRIES):
        length = random.choice(lengths) if _any_length(op) and random.random() < 0.5 else None
        dims = {
            axis: _resized(base.dims[axis], _kinds(axis, base, aim, edges), length, random)
            for axis in free_axes(op)
        }
        options = {n: _chosen(o, op.option_values(base)[n], random) for n, o in op.options.items()}
        at = replace(base, dims={**base.dims, **dims}, role="check")
        varied = replace(at, options={**base.options, **options})
        yield from [w for w in (varied, at) if _fits(op, w, budget)][:1]


def _any_length(op: OpSpec) -> bool:
    """Whether each list argument is as long as an axis has sizes."""
    counts = [t.count for t in op.inputs.values() if t.count is not None]
    return bool(counts) and all("len(" in count for count in counts)


def _chosen(option: Option, now: Value, random: Random) -> Value:
    """One of the choices; without any, a float may be moved."""
    if option.choices:
        return random.choice(option.choices)
    others = _others(now)
    return random.choice(others) if others and random.random() < 0.5 else now


def _others(now: Value) -> tuple[float, ...]:
    """What a float is moved to, far enough for 16 bits to show it."""
    if not isinstance(now, float):
        return ()
    if now == 0:
        return 0.1, 1.0
    if abs(now) < 0.1:  # an epsilon or a rate
        return 64 * now, now / 64
    # what is nearly 1, as a decay is, goes as far again from there
    return (2 * now - 1 if 0.75 < now < 1 else now / 2,)


def _kinds(axis: str, base: Workload, aim: Mapping[str, Kinds], edges: Sequence[int]) -> Kinds:
    """Sizes for an axis: those aimed at; else primes, edges, and multiples of what it has now."""
    if axis in aim:
        return aim[axis]
    size = base.dims[axis]
    now = max(1, max(size) if isinstance(size, tuple) else size)
    kinds = (_PRIMES, (now, 2 * now, 3 * now), edges, [2 * n for n in edges])
    return [kind for kind in kinds if kind]


def _resized(
    size: int | tuple[int, ...], kinds: Kinds, length: int | None, random: Random
) -> int | tuple[int, ...]:
    """A new size; for a list argument, as many unequal ones as it has or is to have."""
    if not isinstance(size, tuple):
        return random.choice(random.choice(kinds))
    # a long list of long items is slow, and tells no more
    drawn = (random.choice(random.choice(kinds)) for _ in range(length or len(size)))
    return tuple(n if (length or 0) <= len(size) else min(n, 127) for n in drawn)


def _fits(op: OpSpec, at: Workload, budget: Budget) -> bool:
    sizes = {axis: max(n) if isinstance(n, tuple) else n for axis, n in at.dims.items()}
    try:
        short = all(n <= _longest(op, axis, budget) for axis, n in sizes.items())
        return short and 0 < size_of(op, at) <= budget.elements and op.is_legal(at)
    except FormulaError:
        return False
