"""Mean and variance in one sweep by Welford's update, a chunk at a time, in float32.

row          none
op           layer_norm
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count, mean, m2 = 0.0, 0.0, 0.0
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < N
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=inside, other=0.0).to(tl.float32)
        n = tl.sum(inside.to(tl.float32), axis=0)
        own = tl.sum(x, axis=0) / n
        off = tl.where(inside, x - own, 0.0)
        delta = own - mean
        m2 += tl.sum(off * off, axis=0) + delta * delta * count * n / (count + n)
        mean += delta * n / (count + n)
        count += n
    scale = 1.0 / tl.sqrt(m2 / N + 1e-5)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=0.0).to(tl.float32)
        y = ((x - mean) * scale).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + row * N + col, y, mask=col < N)


def layer_norm(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=64)
    return y
