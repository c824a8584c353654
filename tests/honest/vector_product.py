"""A matrix by a vector on vector units, row by row: a matrix unit would wait for memory as well.

row          none
op           matvec
interpreted  passes
replayed     passes
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _row(a_ptr, x_ptr, y_ptr, K, am, ak, xk, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, K, BLOCK):
        k = (start + tl.arange(0, BLOCK)).to(tl.int64)
        a = tl.load(a_ptr + row * am + k * ak, mask=k < K, other=0.0).to(tl.float32)
        total += a * tl.load(x_ptr + k * xk, mask=k < K, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(total, axis=0).to(y_ptr.dtype.element_ty))


def matvec(a, x):
    M, K = a.shape
    y = torch.empty((M,), device=a.device, dtype=a.dtype)
    if M > 0:
        _row[(M,)](a, x, y, K, *a.stride(), *x.stride(), BLOCK=1024)
    return y
