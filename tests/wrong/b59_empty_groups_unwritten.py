"""Writes nothing for a group without rows.

row          59, 62
op           segment_sum
interpreted  smoke, correct
replayed     smoke, correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _segment(x_ptr, bounds_ptr, y_ptr, x_row, x_col, step, D, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    first = tl.load(bounds_ptr + segment * step)
    last = tl.load(bounds_ptr + (segment + 1) * step)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, last):
        total += tl.load(x_ptr + row * x_row + col * x_col, mask=col < D, other=0.0)
    tl.store(y_ptr + segment * D + col, total, mask=(col < D) & (first < last))


def segment_sum(x, bounds):
    B, D = bounds.shape[0] - 1, x.shape[1]
    y = torch.empty((B, D), device=x.device, dtype=x.dtype)
    BLOCK = triton.next_power_of_2(D)
    _segment[(B,)](x, bounds, y, *x.stride(), bounds.stride(0), D, BLOCK=BLOCK)
    return y
