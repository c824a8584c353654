"""Takes the row of a loop over programs to 64 bits, as every kernel for large tensors does.

row          none
op           scale
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, s_ptr, y_ptr, x_row, x_col, s_step, M, N, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0)):
        at = row.to(tl.int64)
        s = tl.load(s_ptr + at * s_step)
        for start in range(0, N, BLOCK):
            col = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + at * x_row + col * x_col, mask=col < N)
            tl.store(y_ptr + at * N + col, x * s, mask=col < N)


def scale(x, s):
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _rows[[min(M, 264)]](x, s, y, *x.stride(), *s.stride(), M, N, BLOCK=1024)
    return y
