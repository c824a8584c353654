"""Reads by 64-bit offsets, and writes by a product of 32 bits: wrong past element 2^31 of it.

row          19
op           scale
interpreted  unseen
replayed     deep
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, s_ptr, y_ptr, x_row, x_col, s_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    wide = row.to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + wide * x_row + col * x_col, mask=col < N)
    s = tl.load(s_ptr + wide * s_step)
    tl.store(y_ptr + row * N + col, x * s, mask=col < N)


def scale(x, s):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    BLOCK = triton.next_power_of_2(N)
    _rows[(M,)](x, s, y, *x.stride(), s.stride(0), N, BLOCK=BLOCK)
    return y
