"""Never comes back from its kernel.

row          1.6
op           softmax
interpreted  smoke
replayed     smoke
slow         the interpreter waits 30 seconds
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _forever(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    while tl.max(x, axis=0) > -float("inf"):
        x = tl.load(x_ptr + at, volatile=True)
    tl.store(y_ptr + at, x)


def softmax(x):
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    _forever[(1,)](x, y, BLOCK=16)
    return y
