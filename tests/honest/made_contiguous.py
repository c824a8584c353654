"""Copies an input that is not contiguous before it reads rows, as many launchers do.

row          bugs 24 and 26, done right
op           softmax
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + col, mask=col < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + col, e / tl.sum(e, axis=0), mask=col < N)


def softmax(x):
    if not x.is_contiguous():
        x = x.contiguous()
    y = torch.empty_like(x)
    _rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
