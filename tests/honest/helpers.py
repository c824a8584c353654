"""Spreads the kernel over `@triton.jit` helpers and the launcher over plain ones.

row          none
op           softmax
interpreted  passes
replayed     passes
"""

from functools import lru_cache

import triton
import triton.language as tl


@triton.jit
def _top(x):
    top = tl.max(x, axis=0)
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def _normalised(x):
    e = tl.exp(x - _top(x))
    return e / tl.sum(e, axis=0)


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
    tl.store(y_ptr + row * N + col, _normalised(x), mask=col < N)


@lru_cache(maxsize=64)
def _block(N):
    return max(16, triton.next_power_of_2(N))


def _warps(block):
    return 4 if block < 4096 else 8


def softmax(x):
    M, N = x.shape
    y = x.new_empty((M, N))
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=_block(N), num_warps=_warps(_block(N)))
    return y
