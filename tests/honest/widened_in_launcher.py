"""Widens its input before its kernel sees it; half precision in a launcher has failed in a sandbox.

row          none
op           softmax
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _row(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + col, mask=col < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    y = (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * N + col, y, mask=col < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    _row[(M,)](x.float().contiguous(), y, N, BLOCK=triton.next_power_of_2(N))
    return y
