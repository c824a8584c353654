"""Allocates its output once for each shape, so that a call overwrites what the last one returned.

row          2
op           layer_norm
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl

KEPT = {}


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    d = tl.where(col < N, x - tl.sum(x, axis=0) / N, 0.0)
    y = d * tl.rsqrt(tl.sum(d * d, axis=0) / N + 1e-5)
    tl.store(y_ptr + row * N + col, y, mask=col < N)


def layer_norm(x):
    M, N = x.shape
    if x.shape not in KEPT:
        KEPT[x.shape] = torch.empty((M, N), device=x.device, dtype=x.dtype)
    y = KEPT[x.shape]
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y
