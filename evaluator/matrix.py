"""Which workloads and cases a candidate is judged on: the public ones, and hidden ones beside them.

Everything follows from the op, the candidate's source and a secret, so that a verdict can be
reached again. Hidden sizes differ from the public ones only along axes that the op leaves free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from evaluator.compare import Errors
from evaluator.hidden import Budget, constants, distinct, empty, hidden, setting
from evaluator.inputs import ALL, Case, bendable, places, size_of, spreadable
from evaluator.layouts import LAYOUTS, ONE_ALONE, TWO_WAYS, Layout
from evaluator.values import ALIKE, VALUES, Values
from kernel_library.spec import OpSpec, Workload
from kernel_library.verdict import Checked

Point = tuple[Workload, Case]
_LAYOUTS: Mapping[Layout, str] = {
    "wide": "with an input that spans more than 2^31 elements by its strides",
    "unlike": "with inputs of unlike layouts",
    "still": "with an input whose strides are all 0",
}


def smoke(op: OpSpec, secret: int = 0) -> Point:
    """The first check workload with plain values: what fails here fails everywhere."""
    at = next((at for at in op.workloads if at.role == "check"), op.workloads[0])
    return at, Case(_seed(Random(f"smoke {secret}")))


def matrix(
    op: OpSpec, source: str, secret: int, budget: Budget, *, hints: Iterable[int] = ()
) -> list[Point]:
    """What to judge on, public workloads first; `hints` are tile sizes that the source hides.

    Plain cases for all, an empty axis where the contract says that it may be (`M >= 0`), a repeat
    for each setting; then each layout and each value class, spread over the workloads.
    """
    random = Random(f"matrix {secret} {op.name}")
    shown = _public(op, budget)
    edges = sorted({*constants(source), *(n for n in hints if n > 0)})
    unseen = list(hidden(op, edges, random, budget))
    plain = [(at, _plain(random, n)) for n in range(budget.seeds) for at in shown]
    plain += [(at, _plain(random, n)) for n, at in enumerate([*unseen, *empty(op, shown[0])])]
    largest = sorted(shown, key=lambda at: -size_of(op, at))
    firsts = [next(at for at in largest if setting(at) == s) for s in distinct(shown)]
    # one right after the other, so that one process meets the same sizes with other contents
    twice = [(at, replace(_plain(random, n), repeat=n == 1)) for at in firsts for n in (0, 1)]
    return [*plain, *twice, *_bent(op, [*shown, *unseen], random, budget)]


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
    if op.option_values(at) not in [op.option_values(known) for known in op.workloads]:
        words.append("with other options")
    if case.layout != "contiguous":
        words.append(_LAYOUTS.get(case.layout, f"with {case.layout} inputs"))
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


def _plain(random: Random, n: int) -> Case:
    return Case(_seed(random), poison=n % 2)


def _seed(random: Random) -> int:
    return random.getrandbits(38)


def _bent(
    op: OpSpec, workloads: Sequence[Workload], random: Random, budget: Budget
) -> Iterator[Point]:
    """Each layout and each value class, on one workload after another of the larger half.

    Where cases cost little, values are bent at the largest public one as well: a head of -inf that
    fills a tile takes a row of several tiles.
    """
    able = [at for at in workloads if is_public(op, at) or size_of(op, at) <= budget.bent]
    order = sorted(able, key=lambda at: -size_of(op, at))
    largest = [at for at in order if is_public(op, at)][:1] if budget.each_input else []
    random.shuffle(order := order[: -(-len(order) // 2)])
    turn = random.randrange(1 << 8)
    for layout in LAYOUTS[1:]:
        ways = [Case(_seed(random), layout, on=on) for on in _turns(_ways(op, layout), turn)]
        meant = [(_first(op, order[turn % len(order) :] + order, case), case) for case in ways]
        felt = [(at, case) for at, case in meant if at]
        for at, case in felt if budget.each_input else felt[: 1 + (layout in TWO_WAYS)]:
            yield at, replace(case, poison=turn % 2)
            turn += 1
    for values in VALUES[1:]:
        many = len(bendable(op, order[0], values))
        some = sorted({0, random.randrange(max(1, many))})[:many]
        each = range(many) if budget.each_input else some
        for on in [*each, *([ALL] if values in ALIKE and many > 1 else [])]:
            case = Case(_seed(random), values=values, poison=turn % 2, on=on)
            yield from ((at, case) for at in _where(order, turn, values, largest))
            turn += 1


def _ways(op: OpSpec, layout: Layout) -> int:
    """In how many ways a layout is tried, each by a number of its own."""
    if layout in ONE_ALONE:
        return len(spreadable(op, layout)) * (1 + (layout in TWO_WAYS))
    middle = max((len(tensor.axes.split()) - 2 for tensor in op.inputs.values()), default=0)
    return 2 if layout == "unlike" or (layout in ("permuted", "sliced") and middle > 1) else 1


def _where(
    order: Sequence[Workload], turn: int, values: Values, also: Sequence[Workload]
) -> list[Workload]:
    """The workloads for a class of values: the next in turn; of large ones, one of each dtype."""
    found = [order[turn % len(order)], *also]
    if values == "large":
        rest = {str(at.dtypes): at for at in order}
        found += [at for dtypes, at in rest.items() if dtypes not in {str(w.dtypes) for w in found}]
    return found


def _turns(count: int, turn: int) -> list[int]:
    """Numbers below this one, each time beginning with another."""
    return [(turn + n) % count for n in range(count)]


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
