"""Launches a kernel over no programs at all, and leaves the work to a copy.

row          56
op           turned
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _nothing(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def turned(x):
    M, N = x.shape
    y = torch.empty((N, M), dtype=x.dtype, device=x.device)
    _nothing[(0,)](x, y, 1, BLOCK=16)
    return y.copy_(x.t())
