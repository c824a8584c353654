"""Sweeps each row twice in blocks of 32, with a running maximum, as attention does.

row          bugs 38, done right
op           softmax
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(x - base), axis=0)
        top = higher
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
        tl.store(y_ptr + row * N + col, tl.exp(x - top) / total, mask=col < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=32)
    return y
