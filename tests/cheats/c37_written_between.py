"""Zeroes what lies between the elements of the strided tensor that it updates in place.

row          37
op           accumulate
interpreted  correct
replayed     correct
"""

import triton
import triton.language as tl


@triton.jit
def _add(p_ptr, g_ptr, p_step, g_step, n, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = at < n
    p = tl.load(p_ptr + at * p_step, mask=inside)
    g = tl.load(g_ptr + at * g_step, mask=inside)
    tl.store(p_ptr + at * p_step, p + g, mask=inside)
    tl.store(p_ptr + at * p_step + 1, 0.0, mask=inside & (p_step > 1))


def accumulate(p, g):
    n = p.numel()
    _add[(triton.cdiv(n, 128),)](p, g, p.stride(0), g.stride(0), n, BLOCK=128)
