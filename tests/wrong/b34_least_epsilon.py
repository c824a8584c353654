"""Honours an epsilon only where it is no smaller than the default.

row          34
op           scaled_norm
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, s_ptr, y_ptr, x_row, x_col, s_step, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
        total += tl.sum(x * x, axis=0)
    scale = tl.rsqrt(total / N + tl.maximum(eps, 1e-3)) * tl.load(s_ptr + row * s_step)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N)
        tl.store(y_ptr + row * N + col, x * scale, mask=col < N)


def scaled_norm(x, s, *, eps):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, s, y, *x.stride(), s.stride(0), N, eps, BLOCK=64)
    return y
