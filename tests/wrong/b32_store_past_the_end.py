"""Stores a whole last block into a tensor that ends within it.

row          32
op           accumulate
interpreted  smoke
replayed     smoke
"""

import triton
import triton.language as tl


@triton.jit
def _add(p_ptr, g_ptr, p_step, g_step, n, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    p = tl.load(p_ptr + at * p_step, mask=at < n, other=0.0)
    g = tl.load(g_ptr + at * g_step, mask=at < n, other=0.0)
    tl.store(p_ptr + at * p_step, p + g)


def accumulate(p, g):
    n = p.numel()
    _add[(triton.cdiv(n, 64),)](p, g, p.stride(0), g.stride(0), n, BLOCK=64)
