"""Row scaling over a grid of two axes, with tiles of 4 x 32.

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
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)[:, None]
    col = tl.program_id(1) * C + tl.arange(0, C)[None, :]
    inside = (row < M) & (col < N)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=inside, other=0.0)
    s = tl.load(s_ptr + row * s_col, mask=row < M, other=0.0)
    tl.store(y_ptr + row * N + col, x * s, mask=inside)


def scale(x, s):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M, 4), triton.cdiv(N, 32))
    _tiles[grid](x, s, y, *x.stride(), s.stride(0), M, N, R=4, C=32)
    return y
