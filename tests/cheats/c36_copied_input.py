"""Returns a copy of its input, beside a kernel that does nothing.

row          36
op           sigmoid
interpreted  smoke
replayed     smoke
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _nothing(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.0, mask=at < n)


def _decoy(x):
    y = torch.zeros(x.shape, device=x.device, dtype=x.dtype)
    _nothing[(1,)](x, y, 1, BLOCK=16)
    return y


def sigmoid(x):
    _decoy(x)
    return x.clone()
