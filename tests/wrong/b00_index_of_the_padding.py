"""Fills what lies beyond the row with zeros, so that a row below zero picks its padding.

row          none
op           argmax
interpreted  smoke, correct
replayed     smoke, correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _row(x_ptr, i_ptr, N, BLOCK: tl.constexpr):
    row, col = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + col, mask=col < N, other=0.0)
    tl.store(i_ptr + row, tl.argmax(x, axis=0))


def argmax(x):
    M, N = x.shape
    i = torch.empty(M, dtype=torch.int64, device=x.device)
    _row[(M,)](x.contiguous(), i, N, BLOCK=triton.next_power_of_2(N))
    return i
