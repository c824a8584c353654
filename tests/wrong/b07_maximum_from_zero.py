"""Starts a row's running maximum at zero, above all that a row of negative numbers has.

row          7
op           softmax
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top, total = 0.0, 0.0
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
        now = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - now) + tl.sum(tl.exp(x - now), axis=0)
        top = now
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
        tl.store(y_ptr + row * N + col, tl.exp(x - top) / total, mask=col < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=128)
    return y
