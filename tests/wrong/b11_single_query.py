"""Breaks where there is one query: it takes a stride of one row for the end of the tensor.

row          11
op           outer
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(d_ptr, w_ptr, y_ptr, d_step, w_step, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    d = tl.load(d_ptr + row * d_step, mask=row < M - 1 + (M > 1), other=0.0)
    w = tl.load(w_ptr + col * w_step, mask=col < N)
    tl.store(y_ptr + row * N + col, d * w, mask=col < N)


def outer(d, w):
    M, N = d.numel(), w.numel()
    y = torch.empty((M, N), device=d.device, dtype=d.dtype)
    BLOCK = triton.next_power_of_2(N)
    _rows[(M,)](d, w, y, d.stride(0), w.stride(0), M, N, BLOCK=BLOCK)
    return y
