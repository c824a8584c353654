"""Has a `try` block, floor divisions, `pass`, and the words stream, exec and cache in comments.

row          catalogue 1.7
op           softmax
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl

NOTE = "this # is no comment, and // is no comment either"


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + col, e / tl.sum(e, axis=0), mask=col < N)


def softmax(x):
    # no side stream, no exec, no cache: just words
    M, N = x.numel() // x.shape[-1], x.shape[-1]
    try:
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    except MemoryError:
        pass
    half = (N + 1) // 2  # a // b
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(2 * half), num_stages=2)
    return y
