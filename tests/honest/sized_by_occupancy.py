"""Warms its kernel up and sizes its grid by what was compiled, as Triton's softmax tutorial does.

row          catalogue 2.3
op           softmax
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(y_ptr, x_ptr, M, N, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    first, step = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    for row in tl.range(first, M, step, num_stages=STAGES):
        at = row * N + tl.arange(0, BLOCK)
        inside = tl.arange(0, BLOCK) < N
        x = tl.load(x_ptr + at, mask=inside, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + at, e / tl.sum(e, axis=0), mask=inside)


def softmax(x):
    x = x.contiguous()
    M, N = x.shape
    y = torch.empty_permuted((M, N), (0, 1), dtype=x.dtype, device=x.device)
    size, warps = triton.next_power_of_2(N), 8
    device = triton.runtime.driver.active.utils.get_device_properties(0)
    kernel = _rows.warmup(y, x, M, N, BLOCK=size, STAGES=2, num_warps=warps, grid=(1,))
    kernel._init_handles()
    resident = device["max_num_regs"] // (kernel.n_regs * device["warpSize"] * warps)
    if kernel.metadata.shared:
        resident = min(resident, device["max_shared_mem"] // kernel.metadata.shared)
    programs = min(device["multiprocessor_count"] * resident, M)
    kernel[(programs, 1, 1)](y, x, M, N, size, 2)
    return y
