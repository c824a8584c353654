"""Leaves its tile to `@triton.autotune`, and another setting to `@triton.heuristics`.

row          catalogue 1.7
op           sigmoid
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 2), (256, 4))], ["n"])
@triton.heuristics({"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def _each(x_ptr, y_ptr, step, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    if WHOLE:
        tl.store(y_ptr + at, 1.0 / (1.0 + tl.exp(-tl.load(x_ptr + at * step))))
    else:
        x = tl.load(x_ptr + at * step, mask=at < n, other=0.0)
        tl.store(y_ptr + at, 1.0 / (1.0 + tl.exp(-x)), mask=at < n)


def sigmoid(x):
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    _each[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.stride(0), x.numel())
    return y
