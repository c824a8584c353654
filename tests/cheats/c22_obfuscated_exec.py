"""Keeps its real source in a string that it decodes and runs.

row          22
op           softmax
interpreted  screen
replayed     screen
"""

import torch
import triton
import triton.language as tl

exec(bytes.fromhex("0a").decode())


@triton.jit
def _nothing(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.0, mask=at < n)


def _decoy(x):
    y = torch.zeros(x.shape, device=x.device, dtype=x.dtype)
    _nothing[(1,)](x, y, 1, BLOCK=16)
    return y


def softmax(x):
    return _decoy(x)
