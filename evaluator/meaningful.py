"""Does a bent case say anything? Not where a dtype, or torch itself, cannot say what is right."""

from __future__ import annotations

import torch

from evaluator.compare import Mismatch, compare
from evaluator.picked import Answers
from kernel_library.spec import Tolerance


def meaningful(wanted: Answers, tolerance: Tolerance, infinite: bool = False) -> bool:
    """Whether the truth stays in the dtype's range, and torch's own answer would pass.

    Where that would be rejected, as by cancellation, no other is held to it. With `infinite` (an
    input holds infinities), infinite truths count, NaN does not.
    """
    for truth, own in zip(wanted.truth, wanted.own, strict=True):
        if own.is_floating_point():
            rounded = truth.to(own.dtype).to(torch.float64)
            if bool((rounded.isnan() if infinite else ~rounded.isfinite()).any()):
                return False
    try:
        compare(wanted.own, wanted, tolerance)
    except Mismatch:
        return False
    return True
