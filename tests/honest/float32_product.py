"""A float32 product in full precision, which no matrix unit has, of an op for every dtype.

row          none
op           matmul_any
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _tile(a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, B: tl.constexpr):
    m = (tl.program_id(0) * B + tl.arange(0, B)[:, None]).to(tl.int64)
    n = (tl.program_id(1) * B + tl.arange(0, B)[None, :]).to(tl.int64)
    total = tl.zeros((B, B), tl.float32)
    for start in range(0, K, B):
        k = (start + tl.arange(0, B)).to(tl.int64)
        a = tl.load(a_ptr + m * am + k[None, :] * ak, mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * bk + n * bn, mask=(k[:, None] < K) & (n < N), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + m * N + n, total.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def matmul_any(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    _tile[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), B=32)
    return c
