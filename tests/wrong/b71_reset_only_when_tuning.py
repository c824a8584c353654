"""Counts into memory that only an autotuner's trial runs would have cleared.

row          71
op           histogram
interpreted  smoke
replayed     smoke
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _count(ids_ptr, counts_ptr, step, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + at * step, mask=at < n, other=0)
    tl.atomic_add(counts_ptr + ids, tl.full((BLOCK,), 1, tl.int32), mask=at < n)


def histogram(ids):
    counts = torch.empty(16, device=ids.device, dtype=torch.int32)
    _count[(triton.cdiv(ids.numel(), 64),)](ids, counts, ids.stride(0), ids.numel(), BLOCK=64)
    return counts
