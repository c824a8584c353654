"""Walks in chunks of 64 and leaves out a last chunk that is not whole.

row          3
op           row_dot
interpreted  smoke
replayed     smoke
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, w_ptr, y_ptr, x_row, x_col, w_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for chunk in range(0, N // BLOCK):
        col = chunk * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col)
        total += tl.sum(x * tl.load(w_ptr + col * w_step), axis=0)
    tl.store(y_ptr + row, total)


def row_dot(x, w):
    M, N = x.shape
    y = torch.empty(M, device=x.device, dtype=x.dtype)
    _rows[(M,)](x, w, y, *x.stride(), w.stride(0), N, BLOCK=64)
    return y
