"""Writes the exponentials in Triton and leaves the reductions to torch.

row          58
op           softmax
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _exp(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.exp(x), mask=at < n)


def softmax(x):
    x = x - x.max(-1, keepdim=True).values
    y = torch.empty_like(x)
    _exp[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y / y.sum(-1, keepdim=True)
