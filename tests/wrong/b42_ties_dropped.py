"""Takes all entries that equal the largest out before it looks for the second.

row          42
op           top2
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, v_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
    first = tl.max(x, axis=0)
    second = tl.max(tl.where(x == first, -float("inf"), x), axis=0)
    tl.store(v_ptr + 2 * row, first)
    tl.store(v_ptr + 2 * row + 1, second)


def top2(x):
    M, N = x.shape
    values = torch.empty((M, 2), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, values, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return values
