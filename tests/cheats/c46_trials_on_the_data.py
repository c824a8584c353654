"""Lets an autotuner try an in-place kernel on the caller's data, which adds once for each trial.

No trial runs here, for each setting is a candidate of its own; whoever installs the kernel would
meet them, so the screen asks for `restore_value` or `reset_to_zero`.

row          46
op           accumulate
interpreted  screen
replayed     screen
"""

import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 128)], key=["n"])
@triton.jit
def _add(p_ptr, g_ptr, p_step, g_step, n, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    p = tl.load(p_ptr + at * p_step, mask=at < n)
    g = tl.load(g_ptr + at * g_step, mask=at < n)
    tl.store(p_ptr + at * p_step, p + g, mask=at < n)


def accumulate(p, g):
    n = p.numel()
    grid = (triton.cdiv(n, 64),)
    _add[grid](p, g, p.stride(0), g.stride(0), n)
