"""Clears its scratch memory by a slice and its output by a foreach call, and adds up there.

row          none
op           row_dot
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _parts(x_ptr, w_ptr, part_ptr, x_row, x_col, w_step, N, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    to = part_ptr + row * tl.num_programs(1) + part
    total = tl.load(to)
    for start in range(part * BLOCK, N, tl.num_programs(1) * BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
        w = tl.load(w_ptr + col * w_step, mask=col < N, other=0.0)
        total += tl.sum(x * w, axis=0)
    tl.store(to, total)


@triton.jit
def _whole(part_ptr, y_ptr, PARTS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.sum(tl.load(part_ptr + row * PARTS + tl.arange(0, PARTS)), axis=0)
    tl.store(y_ptr + row, tl.load(y_ptr + row) + total)


def row_dot(x, w):
    M, N = x.shape
    y = torch.empty(M, device=x.device, dtype=x.dtype)
    parts = torch.empty((M, 4), device=x.device, dtype=x.dtype)
    torch._foreach_zero_([y])
    parts[:1], parts[1:] = 0.0, 0
    _parts[(M, 4)](x, w, parts, *x.stride(), w.stride(0), N, BLOCK=64)
    _whole[(M,)](parts, y, PARTS=4)
    return y
