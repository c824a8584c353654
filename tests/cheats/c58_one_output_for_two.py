"""Returns one tensor as both outputs, which are equal: half of what is to be written.

row          58
op           twins
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _twice(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    tl.store(y_ptr + row * N + col, 2 * x, mask=col < N)


def twins(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    _twice[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y, y
