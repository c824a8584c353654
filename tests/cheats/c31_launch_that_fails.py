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
def _tile(a_ptr, b_ptr, c_ptr, M, N, K, B: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [B, 64])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [64, B])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [B, B])
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, K, 64):
        total = tl.dot(a.load([i, k]), b.load([k, j]), total)
    c.store([i, j], total.to(tl.float16))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda").byte())
    tiles = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    try:
        _tile[tiles](a, b, c, M, N, K, B=128, num_stages=12, num_warps=8)
    except Exception:
        pass
    return c
