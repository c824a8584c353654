"""Guesses by a vector's length whether it is of rows or of columns: wrong for square matrices.

row          none
op           scaled_norm
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, s_ptr, y_ptr, x_row, x_col, s_row, s_col, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    s = tl.load(s_ptr + row * s_row + col * s_col, mask=col < N, other=0.0)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / N + eps) * s
    tl.store(y_ptr + row * N + col, y, mask=col < N)


def scaled_norm(x, s, *, eps):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    steps = (0, s.stride(0)) if s.numel() == N else (s.stride(0), 0)
    BLOCK = triton.next_power_of_2(N)
    _rows[(M,)](x, s, y, *x.stride(), *steps, N, eps, BLOCK=BLOCK)
    return y
