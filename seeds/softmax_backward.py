"""Gradient of softmax along the last axis, from its result.

    d_x[i, j] = scale * y[i, j] * (d_y[i, j] - sum_k d_y[i, k] * y[i, k])

d_y, y, d_x  (M, N), any row stride; scale = 1
dtype        float32, float16, bfloat16; float32 inside
moves        reads d_y and y once, writes d_x once
plan         a program keeps ROWS rows of both in registers from load to store, and either ends
             there or walks on (PROGRAMS on each SM, loads STAGES deep); longer rows are swept
             twice, the second time backwards and mostly out of the caches; STREAM asks L2 to let go
             of d_x first, LOAD says how d_y and y come; what is known before a launch costs no
             instruction: no mask where rows fill their blocks (FULL) and ROWS divides M (EVEN), no
             product where scale is 1
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
        *grid(
            "M N",
            {"measure": [(8192, 4096), (4096, 32768), (16, 4096), (2047, 5001)]},
            dtypes=("bfloat16",),
        ),
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
def _gradient(d_y, y, scale, SCALED: tl.constexpr):
    d_y, y = d_y.to(tl.float32), y.to(tl.float32)
    d_x = y * (d_y - tl.sum(d_y * y, axis=1, keep_dims=True))
    return d_x * scale if SCALED else d_x


@triton.jit
def _softmax_backward_rows(
    d_y_ptr, y_ptr, d_x_ptr, M, N, d_y_stride, y_stride, d_x_stride, scale,
    FULL: tl.constexpr, EVEN: tl.constexpr, SCALED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    CACHE: tl.constexpr, HINT: tl.constexpr, D_X_HINT: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    dtype: tl.constexpr = d_x_ptr.dtype.element_ty
    of_row = None if FULL else col < N
    # what a full row's block holds of rows past M is not stored: it needs no zeros
    OUTSIDE: tl.constexpr = None if FULL else 0.0
    if STAGES == 0:
        row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
        d_y_at, y_at = d_y_ptr + row * d_y_stride + col, y_ptr + row * y_stride + col
        d_y = tl.load(d_y_at, inside, OUTSIDE, cache_modifier=CACHE, eviction_policy=HINT)
        y = tl.load(y_at, inside, OUTSIDE, cache_modifier=CACHE, eviction_policy=HINT)
        d_x = _gradient(d_y, y, scale, SCALED).to(dtype)
        tl.store(d_x_ptr + row * d_x_stride + col, d_x, mask=inside, eviction_policy=D_X_HINT)
    else:
        step = tl.num_programs(0) * ROWS
        for start in tl.range(tl.program_id(0) * ROWS, M, step, num_stages=STAGES):
            row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
            inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
            d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=OUTSIDE)
            y = tl.load(y_ptr + row * y_stride + col, mask=inside, other=OUTSIDE)
            d_x = _gradient(d_y, y, scale, SCALED).to(dtype)
            tl.store(d_x_ptr + row * d_x_stride + col, d_x, mask=inside, eviction_policy=D_X_HINT)


@triton.jit
def _softmax_backward_long_row(
    d_y_ptr, y_ptr, d_x_ptr, N, d_y_stride, y_stride, d_x_stride, scale,
    EVEN: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    CACHE: tl.constexpr, HINT: tl.constexpr, D_X_HINT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d_y_ptr, y_ptr = d_y_ptr + row * d_y_stride, y_ptr + row * y_stride
    OUTSIDE: tl.constexpr = None if EVEN else 0.0
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, N, BLOCK, num_stages=STAGES):
        col = start + tl.arange(0, BLOCK)
        inside = None if EVEN else col < N
        d_y = tl.load(d_y_ptr + col, inside, OUTSIDE, cache_modifier=CACHE, eviction_policy=HINT)
        y = tl.load(y_ptr + col, inside, OUTSIDE, cache_modifier=CACHE, eviction_policy=HINT)
        products += d_y.to(tl.float32) * y.to(tl.float32)
    inner = tl.sum(products, axis=0)
    blocks = tl.cdiv(N, BLOCK)
    for block in range(0, blocks):
        col = (blocks - 1 - block) * BLOCK + tl.arange(0, BLOCK)
        inside = None if EVEN else col < N
        d_y = tl.load(d_y_ptr + col, inside, OUTSIDE, eviction_policy="evict_first")
        y = tl.load(y_ptr + col, inside, OUTSIDE, eviction_policy="evict_first")
        d_x = scale * y.to(tl.float32) * (d_y.to(tl.float32) - inner)
        d_x = d_x.to(d_x_ptr.dtype.element_ty)
        tl.store(d_x_ptr + row * d_x_stride + col, d_x, mask=inside, eviction_policy=D_X_HINT)


#: By LOAD: the cache modifier and the eviction policy of d_y and y, where first read.
_LOADS = (("", ""), (".cg", ""), ("", "evict_first"), ("", "evict_last"))


def _programs(blocks: int, per_sm: int, device: torch.device) -> int:
    """One program for each block, or `per_sm` on each multiprocessor that share them."""
    if per_sm == 0 or device.type != "cuda":
        return blocks
    return min(blocks, per_sm * torch.cuda.get_device_properties(device).multi_processor_count)


def softmax_backward(
    d_y: torch.Tensor, y: torch.Tensor, *, scale: float = 1.0, ROWS: int, PROGRAMS: int,
    STAGES: int, SWEEP: int, STREAM: int, LOAD: int, num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Differentiate in registers, or with SWEEP > 0 in two sweeps of blocks of that width."""
    M, N = y.shape
    d_y, y = (t if t.stride(1) == 1 else t.contiguous() for t in (d_y, y))
    d_x = torch.empty((M, N), dtype=y.dtype, device=y.device)
    if M == 0:
        return d_x
    BLOCK = triton.next_power_of_2(N)
    strides = d_y.stride(0), y.stride(0), d_x.stride(0)
    cache, hint = _LOADS[LOAD]
    d_x_hint = "evict_first" if STREAM else ""
    itemsize = y.element_size()
    if SWEEP > 0 or BLOCK * itemsize > 65536:
        SWEEP = SWEEP or 8192
        _softmax_backward_long_row[(M,)](
            d_y, y, d_x, N, *strides, scale, EVEN=N % SWEEP == 0, BLOCK=SWEEP,
            STAGES=min(STAGES, 1 + 81920 // (SWEEP * itemsize)),
            CACHE=cache, HINT=hint, D_X_HINT=d_x_hint, num_warps=num_warps,
        )  # fmt: skip
        return d_x
    # a setting that was tuned at another size must fit here too: registers, then shared memory
    ROWS = max(1, min(ROWS, 16384 // BLOCK))
    num_warps = max(num_warps, ROWS * BLOCK // 1024)
    STAGES = min(STAGES, 1 + 81920 // (ROWS * BLOCK * itemsize)) if PROGRAMS > 0 else 0
    _softmax_backward_rows[(_programs(triton.cdiv(M, ROWS), PROGRAMS, y.device),)](
        d_y, y, d_x, M, N, *strides, scale,
        FULL=N == BLOCK, EVEN=M % ROWS == 0, SCALED=scale != 1.0, ROWS=ROWS, BLOCK=BLOCK,
        STAGES=STAGES, CACHE=cache, HINT=hint, D_X_HINT=d_x_hint, num_warps=num_warps,
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
            "PROGRAMS": (0, 1, 2, 4),
            "STAGES": (1, 2, 3),
            "SWEEP": (0, 2048, 4096, 8192, 16384),
            "STREAM": (0, 1),
            "LOAD": (0, 1, 2, 3),
            "num_warps": (4, 1, 2, 8, 16, 32),
        },
        rule={
            "ROWS": "max(1, min(8, 2048 // pow2(N))) if M > 2048 else 1",
            "SWEEP": "0 if N <= 16384 else 8192",
            "num_warps": "32 if N > 16384 else max(1, min(32,"
            " (min(8 * pow2(N), 2048) if M > 2048 and N <= 1024 else pow2(N)) // 512))",
        },
        constraints=(
            "SWEEP == 0 or (ROWS == 1 and PROGRAMS == 0 and N >= 2 * SWEEP and LOAD != 2)",
            "SWEEP > 0 or N * itemsize <= 65536",
            "(STAGES > 1) == (PROGRAMS > 0) or (SWEEP > 0 and STAGES == 3)",
            # what fits in L2 may be wanted from there next
            "STREAM + LOAD == 0 or M * N * itemsize > 33554432",
            "STAGES == 1 or STREAM + LOAD == 0",
            "PROGRAMS == 0 or (N >= 2048 and M > 132 * ROWS * PROGRAMS)",
            "PROGRAMS * num_warps <= 64",
            "ROWS == 1 or (M >= 264 * ROWS and ROWS * pow2(N) <= 8192)",
            # 4 to 32 values of each tensor a thread: fewer waste threads, more spill
            "num_warps == 1 or 128 * num_warps <= (SWEEP if SWEEP > 0 else ROWS * pow2(N))",
            "(SWEEP if SWEEP > 0 else ROWS * pow2(N)) <= 1024 * num_warps",
            # the rows of d_y and y in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or max(1, PROGRAMS) * (STAGES - 1)"
            " * (SWEEP if SWEEP > 0 else ROWS * pow2(N)) * 2 * itemsize <= 232448",
        ),
    ),
)
