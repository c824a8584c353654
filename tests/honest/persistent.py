"""Starts no more programs than a few and lets each walk over many rows.

row          none
op           softmax
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, M, N, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=2):
        x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * N + col, e / tl.sum(e, axis=0), mask=col < N)


def softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    _rows[(min(M, 2 * sms, 1 + M // 2),)](x, y, *x.stride(), M, N, BLOCK=triton.next_power_of_2(N))
    return y
