"""Which workloads and cases a candidate is judged on: the public ones, and hidden ones beside them.

Everything follows from the op, the candidate's source and a secret, so that a verdict can be
reached again. Hidden sizes differ from the public ones only along axes that the op leaves free.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from random import Random

from evaluator.compare import Errors
from evaluator.inputs import LAYOUTS, Case, bendable, places, size_of
from evaluator.values import VALUES
from kernel_library.formula import FormulaError
from kernel_library.spec import OpSpec, Workload
from kernel_library.verdict import Checked

Point = tuple[Workload, Case]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a way of running can bear: elements of the largest tensor, the longest axis.

    `hidden` counts workloads for each dtype and option setting, `seeds` the plain cases of each
    public workload; with `each_input`, every input that can be bent is, else only the first.
    """

    elements: int
    longest: int
    public_elements: int
    hidden: int
    seeds: int
    each_input: bool


#: Triton's interpreter runs some 10 000 block operations a second, whatever a block's size, and a
#: program for each row is common: tiny sizes, short axes, few cases.
INTERPRETED = Budget(
    elements=1 << 12, longest=300, public_elements=1 << 18, hidden=3, seeds=1, each_input=False
)
#: A replay takes milliseconds; the float64 truth is what costs. Larger than this are those that the
#: contract lists, and the measured ones.
REPLAYED = Budget(
    elements=1 << 20, longest=1 << 14, public_elements=1 << 26, hidden=8, seeds=3, each_input=True
)

_PRIMES = (2, 3, 5, 7, 11, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093)
_POWERS = tuple(1 << n for n in range(3, 14))
_TRIES = 40


def smoke(op: OpSpec, secret: int = 0) -> Point:
    """The first check workload with plain values: what fails here fails everywhere."""
    at = next((at for at in op.workloads if at.role == "check"), op.workloads[0])
    return at, Case(_seed(Random(f"smoke {secret}")))


def matrix(
    op: OpSpec, source: str, secret: int, budget: Budget, *, hints: Iterable[int] = ()
) -> list[Point]:
    """What to judge on, public workloads first; `hints` are tile sizes that the source hides.

    Plain cases for all, an empty axis where the contract says that it may be (`M >= 0`); then each
    layout and each value class once, spread over the workloads, and a repeat for each setting.
    """
    random = Random(f"matrix {secret} {op.name}")
    shown = _public(op, budget)
    edges = sorted({*constants(source), *(n for n in hints if n > 0)})
    hidden = list(_hidden(op, edges, random, budget))
    plain = [(at, _plain(random, n)) for n in range(budget.seeds) for at in shown]
    plain += [(at, _plain(random, n)) for n, at in enumerate([*hidden, *_empty(op, shown[0])])]
    largest = sorted(shown, key=lambda at: -size_of(op, at))
    firsts = [next(at for at in largest if _setting(at) == s) for s in _distinct(shown)]
    # one right after the other, so that one process meets the same sizes with other contents
    twice = [(at, replace(_plain(random, n), repeat=n == 1)) for at in firsts for n in (0, 1)]
    return [*plain, *twice, *_bent(op, [*shown, *hidden], random, budget)]


def free_axes(op: OpSpec) -> tuple[str, ...]:
    """The axes that differ between the op's workloads; the others are part of what the op is."""
    first = op.workloads[0].dims
    return tuple(a for a in first if len({at.dims.get(a) for at in op.workloads}) > 1)


def constants(source: str) -> set[int]:
    """The whole numbers in a source that may be tile sizes."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    found = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    return {n for n in found if type(n) is int and 4 <= n <= 1 << 16}


def is_public(op: OpSpec, at: Workload) -> bool:
    """Whether the contract itself lists this workload, so that a rejection may name it."""
    return at in op.workloads


def shown(op: OpSpec, at: Workload) -> Workload | None:
    """The workload as a rejection may show it: not at all if it is hidden."""
    return at if is_public(op, at) else None


def describe(op: OpSpec, at: Workload, case: Case) -> str:
    """The class of a case, for a reason: layout and values, and a hidden workload's dtypes."""
    dtypes = " and ".join(dict.fromkeys(at.dtypes.values()))
    words = [] if is_public(op, at) else [f"at a hidden size in {dtypes}".removesuffix(" in ")]
    if case.layout == "wide":
        words.append("with an input that spans more than 2^31 elements by its strides")
    elif case.layout != "contiguous":
        words.append(f"with {case.layout} inputs")
    if case.values != "recipe":
        words.append(f"with {case.values} values")
    return " ".join(words)


def tally(op: OpSpec, found: Sequence[tuple[Workload, Errors]]) -> tuple[Checked, ...]:
    """One `Checked` for each public workload; hidden ones count for the one of their setting."""
    rows: dict[str, Checked] = {}
    for at, errors in found:
        home = at if is_public(op, at) else _home(op, at)
        known = rows.get(str(home), Checked(home, 0.0, 0.0, 0))
        rows[str(home)] = Checked(
            home,
            max(known.error, errors.error),
            max(known.torch_error, errors.torch_error),
            known.cases + 1,
        )
    return tuple(rows.values())


def _home(op: OpSpec, at: Workload) -> Workload:
    checks = [w for w in op.workloads if w.role == "check"] or list(op.workloads)
    same = [w for w in checks if dict(w.dtypes) == dict(at.dtypes)]
    exact = [w for w in same if dict(w.options) == dict(at.options)]
    return (exact or same or checks)[0]


def _public(op: OpSpec, budget: Budget) -> list[Workload]:
    """The check workloads that fit; the smallest workload of all if none does."""
    checks = [at for at in op.workloads if at.role == "check"]
    fit = [at for at in checks if size_of(op, at) <= budget.public_elements]
    return fit or [min(checks or op.workloads, key=lambda at: size_of(op, at))]


def _setting(at: Workload) -> tuple[str, str]:
    return str(sorted(at.dtypes.items())), str(sorted(at.options.items()))


def _distinct(workloads: Iterable[Workload]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(map(_setting, workloads)))


def _settings(op: OpSpec) -> list[Workload]:
    """One workload for each setting of dtypes and options, a check workload where there is one."""
    ordered = sorted(op.workloads, key=lambda at: at.role != "check")
    return [next(at for at in ordered if _setting(at) == s) for s in _distinct(ordered)]


def _plain(random: Random, n: int) -> Case:
    return Case(_seed(random), poison=n % 2)


def _seed(random: Random) -> int:
    return random.getrandbits(38)


def _hidden(op: OpSpec, edges: Sequence[int], random: Random, budget: Budget) -> Iterator[Workload]:
    """Workloads beside the public ones: each puts one axis at an edge, and the rest anywhere.

    Over the settings of the op, each free axis meets each kind of edge at least once.
    """
    # just a tile, and several tiles with a tail: loops over tiles go wrong at either
    tiles = [_near(edges), list(edges), [3 * n + 1 for n in edges]]
    kinds = [*tiles, list(_PRIMES), [1], _near(_POWERS)]
    targets = [(axis, kind) for kind in kinds for axis in free_axes(op) if kind]
    if not targets:
        return
    random.shuffle(targets)
    bases, seen = _settings(op), {str(at) for at in op.workloads}
    each = max(budget.hidden, -(-len(targets) // len(bases)))
    for turn, (axis, kind) in zip(range(each * len(bases)), cycle(targets), strict=False):
        base = bases[turn % len(bases)]
        made = list(_legal(op, base, {axis: kind}, edges, (random, budget)))
        # half of them are the largest of a few picks: small sizes alone would hide tails
        made = sorted(made[:8], key=lambda at: -size_of(op, at)) if random.random() < 0.5 else made
        if made and str(made[0]) not in seen:
            seen.add(str(made[0]))
            yield made[0]


def _near(sizes: Iterable[int]) -> list[int]:
    """One less and one more than each; a setting of 0 is no size."""
    return sorted({n + d for n in sizes if n > 1 for d in (-1, 1)})


def _legal(
    op: OpSpec,
    base: Workload,
    aim: Mapping[str, Sequence[int]],
    edges: Sequence[int],
    means: tuple[Random, Budget],
) -> Iterator[Workload]:
    """Legal workloads within the size limit whose aimed axes come from their own choices."""
    random, budget = means
    for _ in range(_TRIES):
        dims = {
            axis: _resized(base.dims[axis], _pool(axis, base, aim, edges), random)
            for axis in free_axes(op)
        }
        options = {n: random.choice(o.choices) for n, o in op.options.items() if o.choices}
        at = replace(base, dims={**base.dims, **dims}, role="check")
        varied = replace(at, options={**base.options, **options})
        yield from [w for w in (varied, at) if _fits(op, w, budget)][:1]


def _pool(
    axis: str, base: Workload, aim: Mapping[str, Sequence[int]], edges: Sequence[int]
) -> Sequence[int]:
    """Sizes for an axis: those aimed at; else primes, edges, and multiples of what it has now."""
    if axis in aim:
        return aim[axis]
    size = base.dims[axis]
    now = max(1, max(size) if isinstance(size, tuple) else size)
    return [*_PRIMES, *(k * now for k in (1, 2, 3)), *edges, *(2 * n for n in edges)]


def _resized(
    size: int | tuple[int, ...], pool: Sequence[int], random: Random
) -> int | tuple[int, ...]:
    """A new size; for a list argument, as many unequal ones."""
    if isinstance(size, tuple):
        return tuple(random.choice(pool) for _ in size)
    return random.choice(pool)


def _fits(op: OpSpec, at: Workload, budget: Budget) -> bool:
    longest = max(max(n) if isinstance(n, tuple) else n for n in at.dims.values())
    try:
        small = longest <= budget.longest and 0 < size_of(op, at) <= budget.elements
        return small and op.is_legal(at)
    except FormulaError:
        return False


def _empty(op: OpSpec, base: Workload) -> list[Workload]:
    """The workload with each axis at zero in turn that the contract says may be."""
    none = [a for a in free_axes(op) if f"{a} >= 0" in op.constraints]
    made = [replace(base, dims={**base.dims, a: 0}, role="check") for a in none]
    return [at for at in made if op.is_legal(at)]


def _bent(
    op: OpSpec, workloads: Sequence[Workload], random: Random, budget: Budget
) -> Iterator[Point]:
    """Each layout and each value class, on one workload after another of the larger half.

    Where cases cost little, values are bent at the largest public one as well: a head of -inf that
    fills a tile takes a row of several tiles.
    """
    order = sorted(workloads, key=lambda at: -size_of(op, at))
    largest = [at for at in order if is_public(op, at)][:1] if budget.each_input else []
    random.shuffle(order := order[: -(-len(order) // 2)])
    turn = 0
    every = len(op.inputs) if budget.each_input else 1
    for layout in LAYOUTS[1:]:
        for on in range(every if layout == "expanded" else 1):
            case = Case(_seed(random), layout, poison=turn % 2, on=on)
            if at := _first(op, order[turn % len(order) :] + order, case):
                yield at, case
                turn += 1
    for values in VALUES[1:]:
        able = len(bendable(op, order[0]))
        for on in range(able if budget.each_input else min(1, able)):
            case = Case(_seed(random), values=values, poison=turn % 2, on=on)
            yield from ((at, case) for at in [order[turn % len(order)], *largest])
            turn += 1


def _first(op: OpSpec, order: Sequence[Workload], case: Case) -> Workload | None:
    """The first workload on which a layout makes any difference."""
    flat = replace(case, layout="contiguous")
    return next((at for at in order if _felt(op, at, case) != _felt(op, at, flat)), None)


def _felt(op: OpSpec, at: Workload, case: Case) -> list[tuple[int, tuple[int, ...]]]:
    """Offsets and strides as a kernel meets them: the stride of an axis of one is never taken."""
    return [
        (p.offset, tuple(s for n, s in zip(p.shape, p.stride, strict=True) if n > 1))
        for where in places(op, at, case).values()
        for p in where
    ]
