"""Caps the logits after padding them, so that each padded lane counts as exp(0).

row          14
op           capped_lse
interpreted  smoke, correct
replayed     smoke, correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, lse_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    e = tl.exp(-2.0 * tl.abs(x) / 30.0)
    z = 30.0 * tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)
    top = tl.max(z, axis=0)
    tl.store(lse_ptr + row, tl.log(tl.sum(tl.exp(z - top), axis=0)) + top)


def capped_lse(x):
    M, N = x.shape
    lse = torch.empty(M, device=x.device, dtype=x.dtype)
    _rows[(M,)](x, lse, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return lse
