"""Does a bent case say anything? Not where a dtype, or torch itself, cannot say what is right."""

from __future__ import annotations

from math import isfinite, isnan

from evaluator.compare import Mismatch, compare, peak
from evaluator.picked import Answers
from kernel_library.spec import Tolerance


def meaningful(wanted: Answers, tolerance: Tolerance, infinite: bool = False) -> bool:
    """Whether the truth stays in the dtype's range, and torch's own answer would pass.

    Where that would be rejected, as by cancellation, no other is held to it. With `infinite` (an
    input holds infinities), infinite truths count, NaN does not.
    """
    for truth, own in zip(wanted.truth, wanted.own, strict=True):
        if own.is_floating_point():
            largest = peak(truth.to(own.dtype))
            if isnan(largest) if infinite else not isfinite(largest):
                return False
    try:
        compare(wanted.own, wanted, tolerance)
    except Mismatch:
        return False
    return True
