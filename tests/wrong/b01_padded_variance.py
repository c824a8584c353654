"""LayerNorm subtracts the mean in padded lanes too, and sums their squares.

row          1
op           layer_norm
interpreted  smoke
replayed     smoke
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0).to(tl.float32)
    x = x - tl.sum(x, axis=0) / N + 1e-2
    y = (x - 1e-2) / tl.sqrt(tl.sum(x * x, axis=0) / N + 1e-5)
    tl.store(y_ptr + row * N + col, y.to(y_ptr.dtype.element_ty), mask=col < N)


def layer_norm(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y
