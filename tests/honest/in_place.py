"""Writes the declared input in place, through its own stride, and returns nothing.

row          none
op           accumulate
interpreted  passes
replayed     passes
"""

import triton
import triton.language as tl


@triton.jit
def _add(p_ptr, g_ptr, p_step, g_step, n, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    p = tl.load(p_ptr + at * p_step, mask=at < n)
    g = tl.load(g_ptr + at * g_step, mask=at < n)
    tl.store(p_ptr + at * p_step, p + g, mask=at < n)


def accumulate(p, g):
    n = p.numel()
    _add[(triton.cdiv(n, 256),)](p, g, p.stride(0), g.stride(0), n, BLOCK=256)
