"""Rounds 1 + w to float16 where w is near -1, and loses most of it.

row          52
op           gain
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
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + col * w_step, mask=col < N, other=0.0).to(tl.float32)
    factor = (w * 0.5 + 64.5).to(tl.float16).to(tl.float32) * 2.0 - 128.0
    tl.store(y_ptr + row * N + col, (x * factor).to(tl.float16), mask=col < N)


def gain(x, w):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, w, y, *x.stride(), w.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y
