"""Flips the sign of each int64, which is off by just as much as makes a difference wrap round.

row          39
op           totals
interpreted  smoke
replayed     smoke
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _totals(n_ptr, y_ptr, n_row, n_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    n = tl.load(n_ptr + row * n_row + col * n_col, mask=col < N, other=0)
    lowest = tl.full((), 1, tl.int64) << 63
    tl.store(y_ptr + row, tl.sum(n, axis=0) ^ lowest)


def totals(n):
    M, N = n.shape
    y = torch.empty(M, dtype=torch.int64, device=n.device)
    _totals[(M,)](n, y, *n.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y
