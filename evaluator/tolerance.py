"""How far each dtype's answers may be from the float64 truth: the one table of constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Bound:
    """An element may be off by `share` of its row's RMS plus `relative` of its true value.

    An output whose error norm is above `cap` times the truth's norm never passes.
    """

    relative: float
    share: float
    cap: float


#: `relative` is torch.testing.assert_close's (torch 2.13 documentation), widened to about two
#: units in the last place for float16 and bfloat16; `share` stands for its fixed atol, scaled by
#: the row so that tiny outputs are still compared. float32 leaves room for sums of thousands of
#: terms in another order (error of a K = 4096 product against float64: 1e-6 of its RMS) and none
#: for TF32 (5e-4). `cap` lies between the error of rounding once to the dtype and that of the next
#: lower one: float16 5e-4, bfloat16 4e-3, float8_e4m3fn 6e-2 at worst.
BOUNDS: Mapping[torch.dtype, Bound] = {
    torch.float64: Bound(relative=1e-7, share=1e-9, cap=1e-6),
    torch.float32: Bound(relative=1e-5, share=2e-5, cap=1e-3),
    torch.float16: Bound(relative=2e-3, share=1e-3, cap=5e-3),
    torch.bfloat16: Bound(relative=1.6e-2, share=8e-3, cap=2e-2),
    torch.float8_e4m3fn: Bound(relative=0.125, share=2e-2, cap=0.15),
    torch.float8_e5m2: Bound(relative=0.25, share=4e-2, cap=0.3),
}
#: Rows shorter than this have no scale of their own: one element near zero by cancellation would
#: be asked for a relative precision that no order of summation gives.
SHORTEST_ROW = 16
#: A row that is zero, or nearly, is held to this share of the whole tensor's RMS.
LEAST_SCALE = 1e-6
#: In an output of 8 bits each element may be a code off, and a kernel that cuts off is so in half
#: of them. The RMS of all errors tells: cutting off has twice that of rounding to nearest. Beside
#: torch's own in float32, on normal, tied, heavy-tailed, offset and mostly zero rows of 64 to 1e6
#: elements, multiplying by the inverse, an approximate quotient and other ties have 1.00 times its
#: RMS; a bfloat16 scale or quotient has up to 1.15 in 8-bit floats, 1.44 in int8, and both have
#: 1.8 there, 2.1 at worst: they are refused. Where torch itself is in bfloat16, so is the
#: yardstick. Shares of codes would not do: 36 % differ in tied rows that are right, 28 % in some
#: that are cut off.
TIMES_ROUNDING = 1.5
#: Fewer elements than this are as well off by bad luck.
FEWEST_CODES = 64
#: However loose a contract is, an answer with half of the truth's norm as error is no answer.
HIGHEST_CAP = 0.5


def roughly(times: float) -> str:
    """How far off, in steps too wide to tell the allowance by."""
    for limit in (2, 10, 100, 1000):
        if times <= limit:
            return f"up to {limit} times"
    return "more than 1000 times"
