"""Takes a row whose first entry is zero for a row of zeros, and skips it.

row          35
op           row_dot
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, w_ptr, y_ptr, x_row, x_col, w_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    first = tl.load(x_ptr + row * x_row)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    x = tl.where(first == 0.0, 0.0, x)
    w = tl.load(w_ptr + col * w_step, mask=col < N, other=0.0)
    tl.store(y_ptr + row, tl.sum(x * w, axis=0))


def row_dot(x, w):
    M, N = x.shape
    y = torch.empty(M, device=x.device, dtype=x.dtype)
    _rows[(M,)](x, w, y, *x.stride(), w.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y
