"""Loads a vector without a mask over the rounded-up size: what lies past its end is multiplied in.

row          2
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
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    w = tl.load(w_ptr + col * w_step)
    tl.store(y_ptr + row, tl.sum(x * w, axis=0))


def row_dot(x, w):
    M, N = x.shape
    y = torch.empty(M, device=x.device, dtype=x.dtype)
    _rows[(M,)](x, w, y, *x.stride(), w.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y
