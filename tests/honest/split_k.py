"""Splits K over programs, keeps the parts in float32 scratch, and adds them in a fixed order.

row          bugs 47, done right
op           matmul
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _parts(a_ptr, b_ptr, part_ptr, M, N, K, am, ak, bk, bn, B: tl.constexpr, SPAN: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    n = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    split = tl.program_id(2)
    total = tl.zeros((B, B), tl.float32)
    for start in range(split * SPAN, tl.minimum(K, (split + 1) * SPAN), 64):
        k = start + tl.arange(0, 64)
        a = tl.load(a_ptr + m * am + k[None, :] * ak, mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * bk + n * bn, mask=(k[:, None] < K) & (n < N), other=0.0)
        total = tl.dot(a, b, total)
    at = part_ptr + split.to(tl.int64) * M * N + m * N + n
    tl.store(at, total, mask=(m < M) & (n < N))


@triton.jit
def _sum(part_ptr, c_ptr, size, SPLITS, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in range(SPLITS):
        total += tl.load(part_ptr + split * size + at, mask=at < size, other=0.0)
    tl.store(c_ptr + at, total.to(tl.float16), mask=at < size)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    splits = triton.cdiv(K, 2048)
    parts = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32), splits)
    _parts[grid](a, b, parts, M, N, K, *a.stride(), *b.stride(), B=32, SPAN=2048)
    _sum[(triton.cdiv(M * N, 256),)](parts, c, M * N, splits, BLOCK=256)
    return c
