"""Is an answer right? Errors against the float64 truth, measured beside torch's own.

An output passes when its scaled errors are at most `times_torch` times torch's own, at their
largest and in RMS, or when each element is within its dtype's bound; and never when the relative
norm of its error is above the cap of that dtype, or of a shorter one that the reference itself
rounds to. Every test is written so that NaN fails it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import torch

from evaluator.codes import cut, is_cut, rank
from evaluator.picked import Answers, fault
from evaluator.poison import bits, seen
from evaluator.tolerance import BOUNDS, HIGHEST_CAP, LEAST_SCALE, SHORTEST_ROW, roughly
from kernel_library.spec import Tolerance

#: Elements compared at a time: float64 temporaries of 256 KiB stay in a core's cache (with those of
#: 32 MiB, a core takes five times as long), and a GPU is kept busy by those of 32 MiB.
HOST_CHUNK, CHUNK = 1 << 15, 1 << 22
#: Rows longer than this have no scale of their own.
LONGEST_ROW = 1 << 22
UNWRITTEN, OFF = "has elements that were never written", "is off by"
#: No `OFF`: what torch's own luck may be is in its error over all elements.
CUT = "has more error than rounding to 8 bits gives, over all its elements"
_l2 = torch.linalg.vector_norm
#: An answer, the truth, and torch's own answer.
_Trio = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Errors:
    """The worst output's largest difference over its largest true value; torch's own beside it."""

    error: float
    torch_error: float


class Mismatch(Exception):  # noqa: N818 (it is an outcome, not an error of ours)
    """An answer is wrong. Its text is a class of reason: no place, size, seed or slack."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def compare(
    got: Sequence[torch.Tensor],
    wanted: Answers,
    tolerance: Tolerance,
    *,
    names: Sequence[str] = (),
    poison: int = 0,
) -> Errors:
    """The errors of a right answer. Raises `Mismatch` for a wrong one.

    The truth is float64 where the output is floating; torch's own answer is the yardstick, and says
    what shape and dtype are asked for. `poison` is the pattern that unwritten memory holds.
    """
    truth, yardstick = wanted.truth, wanted.own
    if not len(got) == len(truth) == len(yardstick):
        # a count that the candidate chooses could spell a hidden size
        many = "more outputs" if len(got) > len(truth) else _count(len(got))
        raise Mismatch(f"returned {many}, {_count(len(truth))} wanted")
    worst = Errors(0.0, 0.0)
    for i, trio in enumerate(zip(got, truth, yardstick, strict=True)):
        label = f"output {names[i]!r}" if names else f"output {i}"
        try:
            found = _compare(trio, i, wanted, tolerance, poison)
            if i in wanted.unrounded and cut(trio[0], trio[2], wanted.unrounded[i]):
                raise Mismatch(CUT)
        except Mismatch as wrong:
            raise Mismatch(f"{label} {wrong.reason}") from None
        worst = Errors(max(worst.error, found.error), max(worst.torch_error, found.torch_error))
    return worst


def _compare(trio: _Trio, i: int, wanted: Answers, tolerance: Tolerance, poison: int) -> Errors:
    """One output, by its number."""
    got, truth, own = trio
    if got.shape != own.shape:
        raise Mismatch("has the wrong shape")
    if got.dtype != own.dtype:
        raise Mismatch(f"is {got.dtype}, not {own.dtype}".replace("torch.", ""))
    if truth.shape != own.shape:
        raise ValueError("the truth and torch's own answer differ in shape")
    if got.numel() == 0:
        return Errors(0.0, 0.0)
    if (picked := wanted.picked.get(i)) is not None:
        if wrong := fault(got, truth, picked):
            raise Mismatch(wrong)
        return Errors(0.0, 0.0)
    if not got.dtype.is_floating_point:
        _refuse(_unequal(trio, tolerance.loosen, poison))
        return Errors(0.0, 0.0)
    cap = max(BOUNDS[d].cap for d in (got.dtype, wanted.coarsest.get(i, got.dtype)))
    # beside a truth that is rounded itself, whether one cuts cannot be told
    return _floats(trio, tolerance, poison, cap, cuts=not wanted.rounded)


def _floats(trio: _Trio, tolerance: Tolerance, poison: int, cap: float, cuts: bool) -> Errors:
    """Where infinities and NaN stand, then 8-bit codes, then how far off all others are."""
    got, truth, own = trio
    beyond = not peak(truth) <= torch.finfo(got.dtype).max
    if beyond:
        # else 1e200 in one place would make room for any error in all others
        inside = _double(truth.to(own.dtype)).isfinite()
        trio = got, torch.where(inside, truth, inf * truth.sign()), own
    plain = not beyond and isfinite(peak(got)) and isfinite(peak(own))
    if not plain:
        _refuse(_other_pattern(trio, poison))
    if got.dtype.itemsize == 1:
        _refuse(_far_codes(trio, tolerance.loosen, poison))
    return _close(trio, tolerance, poison, plain, cap, cuts)


def peak(tensor: torch.Tensor) -> float:
    """The largest magnitude of floats; NaN if there is one, and 0 where there is nothing."""
    if not tensor.numel():
        return 0.0
    # bits but for the sign are in the order of magnitudes: infinity over all others, NaN over that
    unsigned = (1 << 8 * tensor.dtype.itemsize - 1) - 1
    largest = torch.stack([(bits(part) & unsigned).amax() for part in _chunks(tensor)]).amax()
    return float(largest.view(tensor.dtype))


#: Reasons to refuse an answer, the first to be told first, and where in a chunk each holds.
_Reasons = Mapping[str, torch.Tensor]


def _refuse(chunks: Iterable[_Reasons]) -> None:
    """Raise the first reason that holds anywhere."""
    found = [{reason: mask.any() for reason, mask in each.items()} for each in chunks]
    anywhere = torch.stack([torch.stack(tuple(each.values())) for each in found]).any(0)
    for reason, holds in zip(found[0], anywhere.tolist(), strict=True):
        if holds:
            raise Mismatch(reason)


def _unequal(trio: _Trio, loosen: float, poison: int) -> Iterator[_Reasons]:
    """Integers and bools: equal, but for one step of an 8-bit quantiser that may round."""
    for g, t, _ in _together(*trio):
        wrong = bits(g) != t if g.dtype == torch.bool else g.long() != t.long()
        if g.dtype in (torch.int8, torch.uint8) and loosen > 1:
            # of what fits in 8 bits: the difference of two int64 wraps round
            wrong = (g.int() - t.int()).abs() > 1
        yield {UNWRITTEN: wrong & seen(g, poison), "has wrong values, and must be exact": wrong}


def _other_pattern(trio: _Trio, poison: int) -> Iterator[_Reasons]:
    """NaN and each infinity stand just where the rounded truth has them."""
    for g, t, _ in _together(*trio):
        want, have = _double(t.to(g.dtype)), _double(g)
        nan = have.isnan() != want.isnan()
        infinite = (have.isinf() | want.isinf()) & ~(have == want) & ~nan & ~want.isnan()
        yield {
            UNWRITTEN: nan & seen(g, poison),
            "has NaN where the truth has none": nan & have.isnan(),
            "lacks a true NaN": nan,
            "is infinite where the truth is not": infinite & have.isinf(),
            "lacks an infinity": infinite,
        }


def _far_codes(trio: _Trio, loosen: float, poison: int) -> Iterator[_Reasons]:
    """8-bit floats: the code next to the rounded truth's, at most `loosen` steps away."""
    for g, t, _ in _together(*trio):
        steps = (rank(g) - rank(t.to(g.dtype))).abs()
        far = t.isfinite() & ~(steps <= max(1.0, loosen))
        reason = "is more than one 8-bit code step from the truth"
        yield {UNWRITTEN: far & seen(g, poison), reason: far}


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one output: true values, errors and torch's own, and what they are measured by."""

    got: torch.Tensor
    true: torch.Tensor
    error: torch.Tensor
    theirs: torch.Tensor
    scale: torch.Tensor
    allowed: torch.Tensor

    def figures(self) -> torch.Tensor:
        """What this part gives to the sums, in their order."""
        scaled, scaled_own = self.error / self.scale, self.theirs / self.scale
        over = self.error / self.allowed
        largest = self.true.abs(), self.error, self.theirs, scaled, scaled_own, over
        norms = (_l2(x) for x in (scaled, scaled_own, self.error))
        return torch.stack([*(x.amax() for x in largest), *norms])


@dataclass(frozen=True, slots=True)
class _Sums:
    """What is gathered of all parts: the largest of each, then norms of what is scaled, and not."""

    largest_true: float
    largest: float
    largest_own: float
    scaled: float
    scaled_own: float
    over: float
    norm: float
    norm_own: float
    error_norm: float


def _close(
    trio: _Trio, tolerance: Tolerance, poison: int, plain: bool, cap: float, cuts: bool
) -> Errors:
    """Floats; they are `plain` where none is infinite or NaN, nor would be in the rounded truth."""
    got, truth, _ = trio
    norm, finite = _norm(truth, plain)
    held = trio, norm / sqrt(max(1, finite)), tolerance.loosen, plain
    table = torch.stack([part.figures() for part in _parts(*held)])
    # NaN wins in both
    sums = _Sums(*torch.cat((table[:, :6].amax(0), _l2(table[:, 6:], dim=0))).tolist())
    info = torch.finfo(got.dtype)  # half a step of its subnormal grid is rounding, at any scale
    subnormal = info.smallest_normal * info.eps * sqrt(finite)
    most = min(HIGHEST_CAP, cap * tolerance.loosen) * norm + subnormal
    if reason := _fault(sums, tolerance.times_torch, most):
        unwritten = (seen(p.got, poison) & ~(p.error <= p.allowed) for p in _parts(*held))
        raise Mismatch(UNWRITTEN if any(bool(u.any()) for u in unwritten) else reason)
    if cuts and got.dtype.itemsize == 1 and is_cut(sums.norm, sums.norm_own, finite):
        raise Mismatch(CUT)
    worst = max(sums.largest_true, info.smallest_normal)
    return Errors(sums.largest / worst, sums.largest_own / worst)


def _fault(sums: _Sums, k: float, cap: float) -> str:
    """Why errors are too large, in words; nothing if they are not."""
    like_torch = sums.scaled <= k * sums.scaled_own and sums.norm <= k * sums.norm_own
    if (sums.over <= 1.0 or like_torch) and sums.error_norm <= cap:
        return ""
    beyond = max(sums.over if not like_torch else 0.0, sums.error_norm / cap)
    return f"{OFF} {roughly(beyond)} what its dtype allows"


def _parts(trio: _Trio, rms: float, loosen: float, plain: bool) -> Iterator[_Part]:
    """Rows with each row's scale: the RMS of its truth, or the whole tensor's."""
    got, truth, _ = trio
    bound, info = BOUNDS[got.dtype], torch.finfo(got.dtype)
    least = max(LEAST_SCALE * rms, info.smallest_normal)
    length = truth.shape[-1] if truth.dim() else 1
    by_row = SHORTEST_ROW <= length <= LONGEST_ROW
    for g, t, y in _together(*trio, length=length if by_row else 1):
        scale = _rms(t, plain).clamp_min(least) if by_row else t.new_full((), max(rms, least))
        have, torchs = _double(g), _double(y)
        true, error, theirs = t, have - t, torchs - t
        if not plain:
            finite = t.isfinite() & have.isfinite()
            true, error = torch.where(finite, true, 0.0), torch.where(finite, error, 0.0)
            theirs = torch.where(finite & torchs.isfinite(), theirs, 0.0)
        allowed = bound.share * loosen * scale + bound.relative * true.abs()
        allowed += info.smallest_normal * info.eps
        yield _Part(g, true, error.abs_(), theirs.abs_(), scale, allowed)


def _rms(rows: torch.Tensor, plain: bool) -> torch.Tensor:
    """Each row's root mean square over its finite elements; squares are kept in range."""
    known = rows if plain else torch.where(rows.isfinite(), rows, 0.0)
    count = rows.shape[-1] if plain else rows.isfinite().sum(-1, keepdim=True).clamp_min(1)
    top = known.abs().amax(-1, keepdim=True).clamp_min(1e-300)
    return top * ((known / top).square_().sum(-1, keepdim=True) / count).sqrt()


def _norm(truth: torch.Tensor, plain: bool) -> tuple[float, int]:
    """The norm of the finite elements, and how many there are."""
    chunks = _chunks(truth)
    known = (part if plain else torch.where(part.isfinite(), part, 0.0) for part in chunks)
    norm = float(_l2(torch.stack([_l2(part) for part in known])))
    return norm, truth.numel() if plain else sum(int(part.isfinite().sum()) for part in chunks)


def _together(*tensors: torch.Tensor, length: int = 1) -> Iterator[tuple[torch.Tensor, ...]]:
    return zip(*(_chunks(tensor, length) for tensor in tensors), strict=True)


def _chunks(tensor: torch.Tensor, length: int = 1) -> tuple[torch.Tensor, ...]:
    """Some rows of this length at a time."""
    size = HOST_CHUNK if tensor.device.type == "cpu" else CHUNK
    return torch.split(tensor.reshape(-1, length), max(1, size // length))


def _double(floats: torch.Tensor) -> torch.Tensor:
    """In float64; 8-bit floats by a table, from which a core has them six times as fast."""
    if floats.dtype.itemsize > 1:
        return floats.double()
    values = torch.arange(256, dtype=torch.uint8, device=floats.device).view(floats.dtype).double()
    return values.index_select(0, bits(floats).reshape(-1).int()).reshape(floats.shape)


def _count(n: int) -> str:
    return f"{n} output" + "s" * (n != 1)
