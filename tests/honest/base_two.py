"""Softmax by exp2 and one reciprocal, as fast kernels have it: other roundings, none of them wrong.

row          none
op           softmax
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
    e = tl.exp2((x - tl.max(x, axis=0)) * LOG2_E)
    tl.store(y_ptr + row * N + col, e * (1.0 / tl.sum(e, axis=0)), mask=col < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y
