"""Writes tanh with exp(2x), which overflows to inf / inf for large logits.

row          41
op           capped_lse
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, lse_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    e = tl.exp(2.0 * x / 30.0)
    z = tl.where(col < N, 30.0 * (e - 1.0) / (e + 1.0), -float("inf"))
    top = tl.max(z, axis=0)
    tl.store(lse_ptr + row, tl.log(tl.sum(tl.exp(z - top), axis=0)) + top)


def capped_lse(x):
    M, N = x.shape
    lse = torch.empty(M, device=x.device, dtype=x.dtype)
    _rows[(M,)](x, lse, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return lse
