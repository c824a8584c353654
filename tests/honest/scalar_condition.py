"""Masks a load by a condition on one loaded number, beside the condition on the column.

row          none
op           row_dot
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, w_ptr, y_ptr, x_row, x_col, w_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        known = tl.load(x_ptr + row * x_row)
        inside = (col < N) & ((known != 0.0) | (known == 0.0))
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=inside, other=0.0)
        total += tl.sum(x * tl.load(w_ptr + col * w_step, mask=inside, other=0.0), axis=0)
    tl.store(y_ptr + row, total)


def row_dot(x, w):
    M, N = x.shape
    y = torch.empty(M, device=x.device, dtype=x.dtype)
    _rows[(M,)](x, w, y, *x.stride(), w.stride(0), N, BLOCK=64)
    return y
