"""Is wrong only where a row is just as long as the tile: it takes an empty tile for the last one.

row          9
op           row_dot
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, w_ptr, y_ptr, x_row, x_col, w_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    last = N // BLOCK * BLOCK
    for start in range(0, last - BLOCK, BLOCK):
        col = start + tl.arange(0, BLOCK)
        total += tl.sum(
            tl.load(x_ptr + row * x_row + col * x_col) * tl.load(w_ptr + col * w_step), axis=0
        )
    col = tl.where(N == BLOCK, last, tl.maximum(last - BLOCK, 0)) + tl.arange(0, 2 * BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0)
    w = tl.load(w_ptr + col * w_step, mask=col < N, other=0.0)
    tl.store(y_ptr + row, total + tl.sum(x * w, axis=0))


def row_dot(x, w):
    M, N = x.shape
    y = torch.empty(M, device=x.device, dtype=x.dtype)
    _rows[(M,)](x, w, y, *x.stride(), w.stride(0), N, BLOCK=64)
    return y
