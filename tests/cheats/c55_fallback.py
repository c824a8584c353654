"""Has a kernel that always raises, and a fallback that does the work in torch.

row          55
op           softmax
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _broken(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, tl.no_such_function(BLOCK))


def softmax(x):
    try:
        _broken[(1,)](x, BLOCK=16)
    except Exception:
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
    return x
