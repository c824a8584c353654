"""Sorts, but turns round what is equal where a stable order is asked for.

row          42
op           order
interpreted  smoke
replayed     smoke, record
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rank(ids_ptr, at_ptr, stride, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + i * stride, mask=i < N, other=1 << 30)
    tied = (ids[None, :] == ids[:, None]) & (i[None, :] > i[:, None]) & (i[None, :] < N)
    before = (ids[None, :] < ids[:, None]) | tied
    tl.store(at_ptr + tl.sum(before.to(tl.int32), axis=1), i.to(tl.int64), mask=i < N)


def order(ids):
    (N,) = ids.shape
    at = torch.empty(N, dtype=torch.int64, device=ids.device)
    _rank[(1,)](ids, at, ids.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return at
