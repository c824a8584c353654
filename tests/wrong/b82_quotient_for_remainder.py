"""Takes a quotient where it means a remainder: right for square shapes only.

row          82
op           outer
interpreted  smoke
replayed     smoke
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _each(d_ptr, w_ptr, y_ptr, d_step, w_step, M, N, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = at < M * N
    d = tl.load(d_ptr + at // N * d_step, mask=inside)
    w = tl.load(w_ptr + at // M % N * w_step, mask=inside)
    tl.store(y_ptr + at, d * w, mask=inside)


def outer(d, w):
    M, N = d.numel(), w.numel()
    y = torch.empty((M, N), device=d.device, dtype=d.dtype)
    grid = (triton.cdiv(M * N, 64),)
    _each[grid](d, w, y, d.stride(0), w.stride(0), M, N, BLOCK=64)
    return y
