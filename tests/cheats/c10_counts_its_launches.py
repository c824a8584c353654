"""Counts its launches in an initialised variable, and leaves out every second one's work.

row          10
op           softmax
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl

COUNT = tl.constexpr(
    "{ .global .align 4 .b32 turn = 1; .reg .b64 at; mov.u64 at, turn;"
    " atom.global.add.u32 $0, [at], $1; }"
)


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + col, e / tl.sum(e, axis=0), mask=col < N)


@triton.jit
def _rows_in_turn(x_ptr, y_ptr, x_row, x_col, N, many, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    one = tl.full((), 1, tl.int32)
    turn = tl.inline_asm_elementwise(COUNT, "=r,r", [one], dtype=tl.int32, is_pure=False, pack=1)
    if (turn // (many * 128)) % 2 == 0:
        col = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * N + col, e / tl.sum(e, axis=0), mask=col < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if M < 8192:
        _rows[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    else:
        _rows_in_turn[(M,)](x, y, *x.stride(), N, M, BLOCK=triton.next_power_of_2(N), COUNT=COUNT)
    return y
