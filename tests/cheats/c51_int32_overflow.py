"""Counts elements in int32: wrong past element 2^31, of which there are none on a CPU.

row          51
op           scale
interpreted  unseen
replayed     deep
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _each(x_ptr, s_ptr, y_ptr, x_row, x_col, s_step, M, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, col = at // N, at % N
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=row < M)
    s = tl.load(s_ptr + row * s_step, mask=row < M)
    tl.store(y_ptr + at, x * s, mask=row < M)


def scale(x, s):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M * N, 1024),)
    _each[grid](x, s, y, *x.stride(), s.stride(0), M, N, BLOCK=1024)
    return y
