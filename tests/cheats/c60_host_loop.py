"""Never comes back from its launcher.

row          1.6
op           softmax
interpreted  record
replayed     record
slow         the recorder waits 80 seconds
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=col < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + col, e / tl.sum(e, axis=0), mask=col < N)


def _softmax(x):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[(M,)](x, y, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return y


def softmax(x):
    while True:
        pass
    return _softmax(x)
