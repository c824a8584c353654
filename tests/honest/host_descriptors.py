"""Hands the kernel tensor descriptors that were made on the host.

row          none
op           scale
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _tiles(x, s_ptr, y_ptr, s_col, M, N, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.program_id(0) * R, tl.program_id(1) * C
    tile = x.load([i, j])
    row, col = i + tl.arange(0, R)[:, None], j + tl.arange(0, C)
    s = tl.load(s_ptr + row.to(tl.int64) * s_col, mask=row < M, other=0.0)
    at = y_ptr + row.to(tl.int64) * N + col
    tl.store(at, tile * s, mask=(row < M) & (col < N))


def scale(x, s):
    M, N = x.shape
    # TMA wants the start and the rows at multiples of 16 bytes
    wide = torch.zeros((M, (N + 3) // 4 * 4), device=x.device, dtype=x.dtype)
    wide[:, :N].copy_(x)
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    described = TensorDescriptor.from_tensor(wide, [8, 32])
    grid = (triton.cdiv(M, 8), triton.cdiv(N, 32))
    _tiles[grid](described, s, y, s.stride(0), M, N, R=8, C=32)
    return y
