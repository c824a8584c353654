"""Gives NaN where a query may see no key at all, and the contract says zero.

row          37
op           attention
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _row(
    bias_ptr, q_ptr, k_ptr, v_ptr, y_ptr, lse_ptr,
    b0, b1, q0, q1, k0, k1, v0, v1, S, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, 16)
    q = tl.load(q_ptr + row * q0 + d * q1)
    top = -float("inf")
    total = 0.0
    y = tl.zeros((16,), tl.float32)
    for start in range(0, S, BLOCK):
        key = start + tl.arange(0, BLOCK)
        at = key[:, None]
        k = tl.load(k_ptr + at * k0 + d * k1, mask=at < S, other=0.0)
        v = tl.load(v_ptr + at * v0 + d * v1, mask=at < S, other=0.0)
        bias = tl.load(bias_ptr + row * b0 + key * b1, mask=key < S, other=-float("inf"))
        s = tl.sum(q[None, :] * k, axis=1) * 0.25 + bias
        higher = tl.maximum(top, tl.max(s, axis=0))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        p = tl.exp(s - base)
        kept = tl.exp(top - base)
        total = total * kept + tl.sum(p, axis=0)
        y = y * kept + tl.sum(p[:, None] * v, axis=0)
        top = higher
    tl.store(y_ptr + row * 16 + d, y / total)
    tl.store(lse_ptr + row, tl.where(total == 0.0, -float("inf"), tl.log(total) + top))


def attention(bias, q, k, v):
    L, S = bias.shape
    y = torch.empty((L, 16), device=q.device, dtype=q.dtype)
    lse = torch.empty(L, device=q.device, dtype=q.dtype)
    strides = (*bias.stride(), *q.stride(), *k.stride(), *v.stride())
    _row[(L,)](bias, q, k, v, y, lse, *strides, S, BLOCK=32)
    return y, lse
