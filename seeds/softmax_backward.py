"""Gradient of softmax along the last axis, from its result.

    d_x[i, j] = scale * y[i, j] * (d_y[i, j] - sum_k d_y[i, k] * y[i, k])

d_y, y, d_x  (M, N), any row stride; scale = 1
dtype        float32, float16, bfloat16; float32 inside
moves        reads d_y and y once, writes d_x once
plan         a program keeps ROWS rows of both in registers from load to store; rows too long for
             registers are swept twice, the second time backwards, mostly out of the caches
"""

import torch
import triton
import triton.language as tl

from kernel_library.recipe import Simplex
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="softmax_backward",
    inputs={"d_y": Tensor("M N"), "y": Tensor("M N", recipe=Simplex())},
    outputs={"d_x": Tensor("M N")},
    options={"scale": Option(1.0)},
    flops="5 * M * N",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N",
            {"check": [(3, 127), (37, 781), (5, 4096)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 2, "N": 20000}, {"T": "float32"}),
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"scale": 0.125}),
        *grid("M N", {"measure": [(8192, 4096), (4096, 32768)]}, dtypes=("bfloat16",)),
    ),
)


def reference(d_y: torch.Tensor, y: torch.Tensor, *, scale: float) -> torch.Tensor:
    """The gradient as PyTorch's autograd takes it."""
    wide, gradient = y.float(), d_y.float()
    inner = (gradient * wide).sum(-1, keepdim=True)
    return (scale * wide * (gradient - inner)).to(y.dtype)


def rows_sum_to_nothing(
    d_y: torch.Tensor, y: torch.Tensor, d_x: torch.Tensor, *, scale: float
) -> bool:
    """Adding a constant to a row of x changes nothing, so each row of d_x sums to zero.

    Holds as far as the row of y, rounded to its dtype, sums to one.
    """
    inner = (d_y.double() * y.double()).sum(-1).abs()
    slack = abs(scale) * inner * (1 - y.double().sum(-1)).abs()
    return bool((d_x.double().sum(-1).abs() <= slack + 2e-2 * d_x.double().abs().sum(-1)).all())


@triton.jit
def _softmax_backward_rows(
    d_y_ptr, y_ptr, d_x_ptr, M, N, d_y_stride, y_stride, d_x_stride, scale,
    FULL: tl.constexpr, SCALED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    col = tl.arange(0, BLOCK)[None, :]
    inside = row < M if FULL else (row < M) & (col < N)
    d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + col, mask=inside, other=0.0).to(tl.float32)
    d_x = y * (d_y - tl.sum(d_y * y, axis=1, keep_dims=True))
    if SCALED:
        d_x *= scale
    tl.store(d_x_ptr + row * d_x_stride + col, d_x.to(d_x_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _softmax_backward_long_row(
    d_y_ptr, y_ptr, d_x_ptr, N, d_y_stride, y_stride, d_x_stride, scale, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    d_y_ptr, y_ptr = d_y_ptr + row * d_y_stride, y_ptr + row * y_stride
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        d_y = tl.load(d_y_ptr + col, mask=col < N, other=0.0).to(tl.float32)
        products += d_y * tl.load(y_ptr + col, mask=col < N, other=0.0).to(tl.float32)
    inner = tl.sum(products, axis=0)
    blocks = tl.cdiv(N, BLOCK)
    for block in range(0, blocks):
        col = (blocks - 1 - block) * BLOCK + tl.arange(0, BLOCK)
        d_y = tl.load(d_y_ptr + col, mask=col < N, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + col, mask=col < N, other=0.0, eviction_policy="evict_first")
        d_x = scale * y.to(tl.float32) * (d_y.to(tl.float32) - inner)
        out = d_x_ptr + row * d_x_stride + col
        tl.store(out, d_x.to(d_x_ptr.dtype.element_ty), mask=col < N)


def softmax_backward(
    d_y: torch.Tensor, y: torch.Tensor, *, scale: float = 1.0,
    ROWS: int, SWEEP: int, num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Differentiate in registers, or with SWEEP > 0 in two sweeps of blocks of that width."""
    M, N = y.shape
    d_y, y = (t if t.stride(1) == 1 else t.contiguous() for t in (d_y, y))
    d_x = torch.empty((M, N), dtype=y.dtype, device=y.device)
    if M == 0:
        return d_x
    BLOCK = triton.next_power_of_2(N)
    if SWEEP > 0 or BLOCK > 16384:
        _softmax_backward_long_row[(M,)](
            d_y, y, d_x, N, d_y.stride(0), y.stride(0), d_x.stride(0), scale,
            BLOCK=SWEEP or 8192, num_warps=num_warps,
        )  # fmt: skip
        return d_x
    # a setting that was tuned at another size must fit in registers here too
    ROWS = max(1, min(ROWS, 16384 // BLOCK))
    num_warps = max(num_warps, ROWS * BLOCK // 1024)
    _softmax_backward_rows[(triton.cdiv(M, ROWS),)](
        d_y, y, d_x, M, N, d_y.stride(0), y.stride(0), d_x.stride(0), scale,
        FULL=N == BLOCK, SCALED=scale != 1.0, ROWS=ROWS, BLOCK=BLOCK, num_warps=num_warps,
    )  # fmt: skip
    return d_x


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(rows_sum_to_nothing,),
    kernel=softmax_backward,
    space=Space(
        {
            "ROWS": (1, 2, 4, 8, 16),
            "SWEEP": (0, 1024, 2048, 4096, 8192),
            "num_warps": (4, 1, 2, 8, 16, 32),
        },
        rule={
            "ROWS": "max(1, min(8, 2048 // pow2(N))) if M > 2048 else 1",
            "SWEEP": "0 if N <= 16384 else 8192",
            "num_warps": "32 if N > 16384 else max(1, min(32,"
            " (min(8 * pow2(N), 2048) if M > 2048 and N <= 1024 else pow2(N)) // 512))",
        },
        constraints=(
            "SWEEP == 0 or (ROWS == 1 and N > 2 * SWEEP)",
            "SWEEP > 0 or N <= 16384",
            "ROWS == 1 or M >= 264 * ROWS",
            # 4 to 32 values of each tensor a thread: fewer waste threads, more spill
            "num_warps == 1 or 128 * num_warps <= (SWEEP if SWEEP > 0 else ROWS * pow2(N))",
            "(SWEEP if SWEEP > 0 else ROWS * pow2(N)) <= 1024 * num_warps",
        ),
    ),
)
