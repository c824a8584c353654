"""Reads and writes through block pointers with boundary checks.

row          none
op           scale
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _tiles(x_ptr, s_ptr, y_ptr, x_row, x_col, s_col, M, N, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.program_id(0) * R, tl.program_id(1) * C
    x = tl.make_block_ptr(x_ptr, (M, N), (x_row, x_col), (i, j), (R, C), (1, 0))
    s = tl.make_block_ptr(s_ptr, (M,), (s_col,), (i,), (R,), (0,))
    y = tl.make_block_ptr(y_ptr, (M, N), (N, 1), (i, j), (R, C), (1, 0))
    rows = tl.load(s, boundary_check=(0,), padding_option="zero")
    tile = tl.load(x, boundary_check=(0, 1), padding_option="zero") * rows[:, None]
    tl.store(y, tile, boundary_check=(0, 1))


def scale(x, s):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M, 8), triton.cdiv(N, 64))
    _tiles[grid](x, s, y, *x.stride(), s.stride(0), M, N, R=8, C=64)
    return y
