"""Mean and variance by one reduction with a combine of its own, in a kernel that a factory makes.

row          none
op           layer_norm
interpreted  passes
replayed     passes
"""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _combine(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    delta = mean_b - mean_a
    n = n_a + n_b
    share = tl.where(n == 0.0, 0.0, n_b / n)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@functools.cache
def _kernel(eps):
    EPS = tl.constexpr(eps)

    @triton.jit
    def rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        col = tl.arange(0, BLOCK)
        inside = col < N
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=inside, other=0.0).to(tl.float32)
        parts = (x, tl.zeros_like(x), inside.to(tl.float32))
        mean, m2, n = tl.reduce(parts, 0, _combine)
        y = (x - mean) * tl.rsqrt(m2 / n + EPS)
        tl.store(y_ptr + row * N + col, y, mask=inside)

    return rows


def layer_norm(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _kernel(1e-5)[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y
