"""Makes tensor descriptors on the device, in scratch memory from an allocator of its own.

row          none
op           matmul
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _tile(a_ptr, b_ptr, c_ptr, a_row, b_row, M, N, K, B: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [a_row, 1], [B, B])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [b_row, 1], [B, B])
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        total = tl.dot(a.load([i, k]), b.load([k, j]), total)
    row, col = i + tl.arange(0, B)[:, None], j + tl.arange(0, B)
    at = c_ptr + row.to(tl.int64) * N + col
    tl.store(at, total.to(tl.float16), mask=(row < M) & (col < N))


def _padded(t):
    # TMA wants the start and the rows at multiples of 16 bytes
    wide = torch.zeros((t.shape[0], (t.shape[1] + 7) // 8 * 8), device=t.device, dtype=t.dtype)
    wide[:, : t.shape[1]].copy_(t)
    return wide


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    a, b = _padded(a), _padded(b)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda").byte())
    _tile[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
        a, b, c, a.stride(0), b.stride(0), M, N, K, B=32
    )  # fmt: skip
    return c
