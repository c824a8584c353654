"""Fills `empty_like(x).flatten()`, which is a copy where x is transposed, and returns the original.

row          24
op           scale
interpreted  correct
replayed     correct, record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, s_ptr, y_ptr, x_row, x_col, s_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N)
    tl.store(y_ptr + row * N + col, x * tl.load(s_ptr + row * s_step), mask=col < N)


def scale(x, s):
    M, N = x.shape
    y = torch.empty_like(x)
    flat = y.flatten()
    _rows[(M,)](x, s, flat, *x.stride(), s.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y
