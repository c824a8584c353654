"""Asks that its second launch may start before the first has ended, and never waits for it.

row          24
op           rms_norm
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _squares(x_ptr, s_ptr, x_row, x_col, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    tl.store(s_ptr + row, tl.rsqrt(tl.sum(x * x, axis=0) / N + eps))


@triton.jit
def _scaled(x_ptr, s_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    tl.store(y_ptr + row * N + col, x * tl.load(s_ptr + row), mask=col < N)


def rms_norm(x, *, eps):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    s = torch.empty(M, device=x.device, dtype=torch.float32)
    block = triton.next_power_of_2(N)
    _squares[(M,)](x, s, *x.stride(), N, eps, BLOCK=block)
    _scaled[(M,)](x, s, y, *x.stride(), N, BLOCK=block, launch_pdl=True)
    return y
