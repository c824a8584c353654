"""Declares initialised device memory, as a compiler does for constants, and writes to it.

Here it keeps but one number and never uses it, so nothing but that memory is wrong with it.

row          3
op           softmax
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl

ONES = ", ".join(["1"] * 100)
KEEP = tl.constexpr(
    "{ .global .align 4 .b32 kept[100] = {" + ONES + "}; .reg .b64 at; mov.u64 at, kept;"
    " st.global.b32 [at], $1; mov.b32 $0, $1; }"
)


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
    top = tl.max(x, axis=0)
    top = tl.inline_asm_elementwise(KEEP, "=f,f", [top], dtype=tl.float32, is_pure=False, pack=1)
    e = tl.exp(x - top)
    tl.store(y_ptr + row * N + col, e / tl.sum(e, axis=0), mask=col < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y
