"""Quantises each row to int8 by cutting off what it should round: half of all codes are one off.

row          38
op           quantise
interpreted  smoke
replayed     smoke
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, q_ptr, scale_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    scale = tl.max(tl.abs(x), axis=0) / 127.0
    q = x / tl.where(scale == 0.0, 1.0, scale)
    tl.store(q_ptr + row * N + col, q.to(tl.int8), mask=col < N)
    tl.store(scale_ptr + row, scale)


def quantise(x):
    M, N = x.shape
    q = torch.empty((M, N), device=x.device, dtype=torch.int8)
    scale = torch.empty(M, device=x.device, dtype=torch.float32)
    _rows[(M,)](x, q, scale, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return q, scale
