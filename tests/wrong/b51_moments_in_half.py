"""Takes a float16 row's sums in float16.

row          51
op           layer_norm16
interpreted  smoke, correct
replayed     smoke, correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    mean = (tl.sum(x, axis=0) / N).to(dtype)
    off = tl.where(col < N, x - mean, 0.0).to(dtype)
    squares = tl.sum((off * off).to(dtype), axis=0).to(tl.float32)
    y = off.to(tl.float32) / tl.sqrt(squares / N + 1e-5)
    tl.store(y_ptr + row * N + col, y.to(dtype), mask=col < N)


def layer_norm16(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y
