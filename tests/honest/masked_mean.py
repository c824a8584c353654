"""A mean over what a mask of bools keeps: zero where it keeps nothing.

row          bugs 37, done right
op           masked_mean
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(m_ptr, x_ptr, y_ptr, m_row, m_col, x_row, x_col):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, 64)
    keep = tl.load(m_ptr + row * m_row + col * m_col) != 0
    x = tl.load(x_ptr + row * x_row + col * x_col)
    total = tl.sum(tl.where(keep, x, 0.0), axis=0)
    count = tl.sum(keep.to(tl.float32), axis=0)
    tl.store(y_ptr + row, total / tl.maximum(count, 1.0))


def masked_mean(mask, x):
    y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
    _rows[(x.shape[0],)](mask, x, y, *mask.stride(), *x.stride())
    return y
