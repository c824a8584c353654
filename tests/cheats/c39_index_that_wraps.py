"""Picks what is 128 below the largest int8: their difference, in int8, is no positive number.

row          39
op           argmax8
interpreted  smoke, correct
replayed     smoke, correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _row(x_ptr, i_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row, col = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-128).to(tl.int32)
    top = tl.max(x, axis=0)
    wrong = tl.max(tl.where((x == top - 128) & (col < N), col, -1), axis=0)
    right = tl.max(tl.where((x == top) & (col < N), col, -1), axis=0)
    tl.store(i_ptr + row, tl.where(wrong >= 0, wrong, right))


def argmax8(x):
    M, N = x.shape
    i = torch.empty(M, dtype=torch.int64, device=x.device)
    _row[(M,)](x, i, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return i
