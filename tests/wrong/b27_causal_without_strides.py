"""Takes scores for contiguous, some of which become infinities whatever they hold.

row          27
op           causal
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(s_ptr, y_ptr, L, S, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    s = tl.load(s_ptr + row * S + col, mask=col < S, other=0.0)
    y = tl.where(col <= row + S - L, s * 0.125, -float("inf"))
    tl.store(y_ptr + row * S + col, y, mask=col < S)


def causal(s):
    L, S = s.shape
    y = torch.empty((L, S), device=s.device, dtype=s.dtype)
    _rows[(L,)](s, y, L, S, BLOCK=triton.next_power_of_2(S))
    return y
