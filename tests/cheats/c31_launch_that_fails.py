"""Asks for more shared memory than there is, swallows the error, and returns a stale buffer.

row          31
op           matmul
interpreted  record
replayed     record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _tile(a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    n = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    total = tl.zeros((B, B), tl.float32)
    for start in range(0, K, 64):
        k = start + tl.arange(0, 64)
        a = tl.load(a_ptr + m * am + k[None, :] * ak)
        b = tl.load(b_ptr + k[:, None] * bk + n * bn)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m * N + n, total.to(tl.float16), mask=(m < M) & (n < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tiles = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    try:
        _tile[tiles](a, b, c, M, N, K, *a.stride(), *b.stride(), B=128, num_stages=12, num_warps=8)
    except Exception:
        pass
    return c
