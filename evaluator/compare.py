"""Is an answer right? Errors against the float64 truth, measured beside torch's own.

An output passes when its scaled errors are at most `times_torch` times torch's own, at their
largest and in RMS, or when each element is within its dtype's bound; and never when the relative
norm of its error is above the cap. Every test is written so that NaN fails it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import torch

from evaluator.picked import Answers, Picked, fault
from evaluator.poison import bits, seen
from evaluator.tolerance import BOUNDS, HIGHEST_CAP, LEAST_SCALE, SHORTEST_ROW
from kernel_library.spec import Tolerance

#: Elements compared at a time: float64 temporaries of 32 MiB.
CHUNK = 1 << 22


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
    for i, (g, t, y) in enumerate(zip(got, truth, yardstick, strict=True)):
        label = f"output {names[i]!r}" if names else f"output {i}"
        try:
            found = _compare(g, t, y, tolerance, poison, wanted.picked.get(i))
        except Mismatch as wrong:
            raise Mismatch(f"{label} {wrong.reason}") from None
        worst = Errors(max(worst.error, found.error), max(worst.torch_error, found.torch_error))
    return worst


def _compare(
    got: torch.Tensor,
    truth: torch.Tensor,
    own: torch.Tensor,
    tolerance: Tolerance,
    poison: int,
    picked: Picked | None,
) -> Errors:
    """One output."""
    if got.shape != own.shape:
        raise Mismatch("has the wrong shape")
    if got.dtype != own.dtype:
        raise Mismatch(f"is {_word(got.dtype)}, not {_word(own.dtype)}")
    if truth.shape != own.shape:
        raise ValueError("the truth and torch's own answer differ in shape")
    if got.numel() == 0:
        return Errors(0.0, 0.0)
    if picked is not None:
        if wrong := fault(got, truth, picked):
            raise Mismatch(wrong)
        return Errors(0.0, 0.0)
    if not got.dtype.is_floating_point:
        return _exact(got, truth, tolerance, poison)
    _same_pattern(got, truth, poison)
    if got.dtype.itemsize == 1:
        _within_a_code(got, truth, tolerance, poison)
    return _floats(got, truth, own, tolerance, poison)


def _exact(got: torch.Tensor, truth: torch.Tensor, tolerance: Tolerance, poison: int) -> Errors:
    """Integers and bools: equal, but for one step of an 8-bit quantiser that may round."""
    step = int(got.dtype in (torch.int8, torch.uint8) and tolerance.loosen > 1)
    for g, t in zip(_chunks(got), _chunks(truth), strict=True):
        wrong = bits(g) != t if g.dtype == torch.bool else g.long() != t.long()
        if step:
            # of what fits in 8 bits: the difference of two int64 wraps round
            wrong = (g.int() - t.int()).abs() > step
        if bool(wrong.any()):
            _unwritten(seen(g, poison), wrong)
            raise Mismatch("has wrong values, and must be exact")
    return Errors(0.0, 0.0)


def _same_pattern(got: torch.Tensor, truth: torch.Tensor, poison: int) -> None:
    """NaN and each infinity stand just where the rounded truth has them."""
    for g, t in zip(_chunks(got), _chunks(truth), strict=True):
        want, have = _as_float64(_round(t, got.dtype)), _as_float64(g)
        nan = have.isnan() != want.isnan()
        infinite = (have.isinf() | want.isinf()) & ~(have == want) & ~nan & ~want.isnan()
        _unwritten(seen(g, poison), nan)
        if bool(nan.any()):
            extra = bool((nan & have.isnan()).any())
            raise Mismatch("has NaN where the truth has none" if extra else "lacks a true NaN")
        if bool(infinite.any()):
            extra = bool((infinite & have.isinf()).any())
            raise Mismatch("is infinite where the truth is not" if extra else "lacks an infinity")


def _within_a_code(
    got: torch.Tensor, truth: torch.Tensor, tolerance: Tolerance, poison: int
) -> None:
    """8-bit floats: the code next to the rounded truth's, at most `loosen` steps away."""
    for g, t in zip(_chunks(got), _chunks(truth), strict=True):
        steps = (_rank(g) - _rank(_round(t, got.dtype))).abs()
        far = t.isfinite() & ~(steps <= max(1.0, tolerance.loosen))
        _unwritten(seen(g, poison), far)
        if bool(far.any()):
            raise Mismatch("is more than one 8-bit code step from the truth")


@dataclass(slots=True)
class _Sums:
    """What a pass over one output gathers."""

    largest_true: float = 0.0
    largest: float = 0.0
    largest_own: float = 0.0
    scaled: float = 0.0
    scaled_own: float = 0.0
    squares: float = 0.0
    squares_own: float = 0.0
    error_norm: float = 0.0
    count: int = 0
    over: float = 0.0
    unwritten: bool = False


def _floats(
    got: torch.Tensor, truth: torch.Tensor, own: torch.Tensor, tolerance: Tolerance, poison: int
) -> Errors:
    norm, finite = _norm(truth)
    sums, bound, info = _Sums(), BOUNDS[got.dtype], torch.finfo(got.dtype)
    for g, t, y, scale in _rows(got, truth, own, norm / sqrt(max(1, finite))):
        _add(sums, (g, t, y), scale, (bound.share * tolerance.loosen, bound.relative, poison))
    # half a step of the subnormal grid is rounding, whatever the scale
    subnormal = info.smallest_normal * info.eps * sqrt(finite)
    _judge(sums, tolerance, min(HIGHEST_CAP, bound.cap * tolerance.loosen) * norm + subnormal)
    worst = max(sums.largest_true, info.smallest_normal)
    return Errors(sums.largest / worst, sums.largest_own / worst)


def _add(
    sums: _Sums,
    parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    scale: torch.Tensor,
    bound: tuple[float, float, int],
) -> None:
    """Add a chunk of rows to the sums."""
    g, t, y = parts
    share, relative, poison = bound
    have, own = _as_float64(g), _as_float64(y)
    finite = t.isfinite() & have.isfinite()
    true = torch.where(finite, t, 0.0)
    error = torch.where(finite, have - t, 0.0).abs()
    theirs = torch.where(finite & own.isfinite(), own - t, 0.0).abs()
    info = torch.finfo(g.dtype)
    allowed = share * scale + relative * true.abs() + info.smallest_normal * info.eps
    sums.largest_true = _worse(sums.largest_true, true.abs())
    sums.largest = _worse(sums.largest, error)
    sums.largest_own = _worse(sums.largest_own, theirs)
    sums.scaled = _worse(sums.scaled, (error / scale))
    sums.scaled_own = _worse(sums.scaled_own, (theirs / scale))
    sums.squares += float((error / scale).square().sum())
    sums.squares_own += float((theirs / scale).square().sum())
    sums.error_norm = sqrt(sums.error_norm**2 + float(torch.linalg.vector_norm(error)) ** 2)
    sums.count += int(finite.sum())
    sums.over = _worse(sums.over, (error / allowed))
    sums.unwritten |= bool((seen(g, poison) & ~(error <= allowed)).any())


def _worse(known: float, parts: torch.Tensor) -> float:
    """The largest of all; NaN wins, which `max` would drop."""
    most = float(parts.amax())
    return known if most <= known else most


def _judge(sums: _Sums, tolerance: Tolerance, cap: float) -> None:
    k = tolerance.times_torch
    like_torch = sums.scaled <= k * sums.scaled_own and sums.squares <= k * k * sums.squares_own
    if (sums.over <= 1.0 or like_torch) and sums.error_norm <= cap:
        return
    if sums.unwritten:
        raise Mismatch("has elements that were never written")
    beyond = max(sums.over if not like_torch else 0.0, sums.error_norm / cap)
    raise Mismatch(f"is off by {_roughly(beyond)} what its dtype allows")


def _rows(
    got: torch.Tensor, truth: torch.Tensor, own: torch.Tensor, rms: float
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Chunks of rows with each row's scale: the RMS of its truth, or the whole tensor's."""
    least = max(LEAST_SCALE * rms, torch.finfo(got.dtype).smallest_normal)
    length = truth.shape[-1] if truth.dim() else 1
    if not SHORTEST_ROW <= length <= CHUNK:
        scale = torch.tensor([max(rms, least)], dtype=torch.float64, device=truth.device)
        for g, t, y in zip(_chunks(got), _chunks(truth), _chunks(own), strict=True):
            yield g, t, y, scale
        return
    step = CHUNK // length
    rows = [torch.split(x.reshape(-1, length), step) for x in (got, truth, own)]
    for g, t, y in zip(*rows, strict=True):
        yield g, t, y, _rms(t).clamp_min(least)


def _rms(rows: torch.Tensor) -> torch.Tensor:
    """Each row's root mean square over its finite elements; squares are kept in range."""
    known = torch.where(rows.isfinite(), rows, 0.0)
    count = rows.isfinite().sum(-1, keepdim=True).clamp_min(1)
    top = known.abs().amax(-1, keepdim=True).clamp_min(1e-300)
    return top * ((known / top).square().sum(-1, keepdim=True) / count).sqrt()


def _norm(truth: torch.Tensor) -> tuple[float, int]:
    """The norm of the finite elements, and how many there are."""
    total, count = 0.0, 0
    for part in _chunks(truth):
        known = part[part.isfinite()]
        total = sqrt(total**2 + float(torch.linalg.vector_norm(known)) ** 2)
        count += known.numel()
    return total, count


def _unwritten(poisoned: torch.Tensor, wrong: torch.Tensor) -> None:
    if bool((poisoned & wrong).any()):
        raise Mismatch("has elements that were never written")


def _chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    return iter(torch.split(tensor.reshape(-1), CHUNK))


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64)


def _round(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return truth.to(dtype)


def _rank(codes: torch.Tensor) -> torch.Tensor:
    """8-bit floats as integers in the order of their values."""
    code = bits(codes).to(torch.int16)
    return torch.where(code >= 0x80, 0x80 - code, code)


def _roughly(times: float) -> str:
    """How far off, in steps too wide to tell the allowance by."""
    for limit in (2, 10, 100, 1000):
        if times <= limit:
            return f"up to {limit} times"
    return "more than 1000 times"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _count(n: int) -> str:
    return f"{n} output" if n == 1 else f"{n} outputs"
