"""Gradient of layer norm, from its inputs.

    r[i]      = rsqrt(mean_j (x[i, j] - m[i])^2 + eps), with m[i] = mean_j x[i, j]
    z[i, j]   = (x[i, j] - m[i]) * r[i]
    g[i, j]   = d_y[i, j] * w[j]
    d_x[i, j] = r[i] * (g[i, j] - mean_k g[i, k] - z[i, j] * mean_k g[i, k] * z[i, k])
    d_w[j]    = sum_i d_y[i, j] * z[i, j]
    d_b[j]    = sum_i d_y[i, j]

d_y, x, w  (M, N), (M, N), (N,), any row stride; d_x as x, d_w and d_b as w; eps as layer_norm's
dtype      float32, float16, bfloat16; float32 inside, d_w and d_b summed so in a fixed order
moves      reads d_y, x and w once, writes d_x, d_w and d_b once
plan       PROGRAMS on each SM share the rows, loads STAGES deep (0 where none takes a second turn),
           and keep their parts of d_w and d_b in registers; a second kernel adds the parts. Rows
           too long for registers: one kernel for the row means (Welford's: a large mean costs no
           precision), one that walks down blocks of SWEEP columns; no mask where rows fill their
           blocks and ROWS divides M
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="layer_norm_backward",
    inputs={"d_y": Tensor("M N"), "x": Tensor("M N"), "w": Tensor("N")},
    outputs={"d_x": Tensor("M N"), "d_w": Tensor("N"), "d_b": Tensor("N")},
    options={"eps": Option(1e-5)},
    flops="16 * M * N",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N",
            {"check": [(1, 3), (3, 127), (37, 781), (5, 1536)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 2, "N": 9000}, {"T": "float32"}),
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"eps": 0.5}),
        *grid("M N", {"measure": [(8192, 4096), (16, 4096), (2047, 5001)]}, dtypes=("bfloat16",)),
    ),
)


def reference(
    d_y: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients as autograd takes them, with the sums in float32."""
    away = x.float() - x.float().mean(-1, keepdim=True)
    r = torch.rsqrt(away.square().mean(-1, keepdim=True) + eps)
    z, g = away * r, d_y.float() * w.float()
    d_x = r * (g - g.mean(-1, keepdim=True) - z * (g * z).mean(-1, keepdim=True))
    return d_x.to(x.dtype), (d_y.float() * z).sum(0).to(w.dtype), d_y.float().sum(0).to(w.dtype)


def no_gradient_moves_a_row(
    d_y: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    d_x: torch.Tensor,
    d_w: torch.Tensor,
    d_b: torch.Tensor,
    **_: object,
) -> bool:
    """Adding a number to a whole row of x changes nothing, so each row of d_x sums to zero."""
    total = d_x.double().sum(-1).abs()
    return bool((total <= 2e-2 * d_x.double().abs().sum(-1) + 1e-2).all())


@triton.jit
def _means(a, b, N, FULL: tl.constexpr, BLOCK: tl.constexpr):
    # both in one round of barriers; a row that fills its block is of a power of two: no division
    one, other = tl.split(tl.sum(tl.join(a, b), axis=1, keep_dims=True))
    return (one * (1.0 / BLOCK), other * (1.0 / BLOCK)) if FULL else (one / N, other / N)


@triton.jit
def _gradients(
    d_y_ptr, x_ptr, w, d_x_ptr, start, M, N, d_y_stride, x_stride, d_x_stride, eps,
    FULL: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store d_x of the rows from `start`; what they add to d_w and d_b."""
    col = tl.arange(0, BLOCK)[None, :]
    row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    of_row = None if FULL else col < N
    inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
    # rows past M must add nothing
    OUTSIDE: tl.constexpr = None if FULL and EVEN else 0.0
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=OUTSIDE).to(tl.float32)
    d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=OUTSIDE).to(tl.float32)
    g = d_y * w
    m, level = _means(x, g, N, FULL, BLOCK)
    away = x - m if FULL else tl.where(of_row, x - m, 0.0)
    square, product = _means(away * away, g * away, N, FULL, BLOCK)
    r = tl.rsqrt(square + eps)
    z = away * r
    d_x = ((g - level - z * (product * r)) * r).to(d_x_ptr.dtype.element_ty)
    tl.store(d_x_ptr + row * d_x_stride + col, d_x, mask=inside)
    return tl.sum(d_y * z, axis=0, keep_dims=True), tl.sum(d_y, axis=0, keep_dims=True)


@triton.jit
def _layer_norm_backward_rows(
    d_y_ptr, x_ptr, w_ptr, d_x_ptr, w_part_ptr, b_part_ptr, M, N,
    d_y_stride, x_stride, d_x_stride, eps,
    FULL: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    of_row = None if FULL else col < N
    w = tl.load(w_ptr + col, mask=of_row, other=None if FULL else 0.0).to(tl.float32)
    if STAGES == 0:
        w_part, b_part = _gradients(
            d_y_ptr, x_ptr, w, d_x_ptr, tl.program_id(0) * ROWS, M, N,
            d_y_stride, x_stride, d_x_stride, eps, FULL, EVEN, ROWS, BLOCK,
        )  # fmt: skip
    else:
        w_part = tl.zeros((1, BLOCK), dtype=tl.float32)
        b_part = tl.zeros((1, BLOCK), dtype=tl.float32)
        step = tl.num_programs(0) * ROWS
        for start in tl.range(tl.program_id(0) * ROWS, M, step, num_stages=STAGES):
            d_w, d_b = _gradients(
                d_y_ptr, x_ptr, w, d_x_ptr, start, M, N,
                d_y_stride, x_stride, d_x_stride, eps, FULL, EVEN, ROWS, BLOCK,
            )  # fmt: skip
            w_part += d_w
            b_part += d_b
    at = tl.program_id(0).to(tl.int64) * N + col
    tl.store(w_part_ptr + at, w_part, mask=of_row)
    tl.store(b_part_ptr + at, b_part, mask=of_row)


@triton.jit
def _row_means(
    d_y_ptr, x_ptr, w_ptr, means_ptr, M, N, d_y_stride, x_stride, eps, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    x_mean = tl.zeros((BLOCK,), dtype=tl.float32)
    g_mean = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < N
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=0.0).to(tl.float32)
        g = d_y * tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32)
        away = tl.where(inside, x - x_mean, 0.0)
        count += tl.where(inside, 1.0, 0.0)
        x_mean += away / (start // BLOCK + 1)
        g_mean += tl.where(inside, g - g_mean, 0.0) / (start // BLOCK + 1)
        squares += away * (x - x_mean)
        products += away * (g - g_mean)
    m = tl.sum(x_mean * count, axis=0) / N
    level = tl.sum(g_mean * count, axis=0) / N
    squares += count * (x_mean - m) * (x_mean - m)
    products += count * (x_mean - m) * (g_mean - level)
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(means_ptr + row, m)
    tl.store(means_ptr + M + row, r)
    tl.store(means_ptr + 2 * M + row, level)
    tl.store(means_ptr + 3 * M + row, tl.sum(products, axis=0) / N * r)


@triton.jit
def _layer_norm_backward_columns(
    d_y_ptr, x_ptr, w_ptr, means_ptr, d_x_ptr, w_part_ptr, b_part_ptr,
    M, N, d_y_stride, x_stride, d_x_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = col < N
    w = tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32)
    w_part = tl.zeros((BLOCK,), dtype=tl.float32)
    b_part = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(tl.program_id(1), M, tl.num_programs(1)):
        row = tl.cast(index, tl.int64)
        m, r = tl.load(means_ptr + row), tl.load(means_ptr + M + row)
        level, inner = tl.load(means_ptr + 2 * M + row), tl.load(means_ptr + 3 * M + row)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=0.0).to(tl.float32)
        z = (x - m) * r
        d_x = ((d_y * w - level - z * inner) * r).to(d_x_ptr.dtype.element_ty)
        tl.store(d_x_ptr + row * d_x_stride + col, d_x, mask=inside)
        w_part += d_y * z
        b_part += d_y
    at = tl.program_id(1).to(tl.int64) * N + col
    tl.store(w_part_ptr + at, w_part, mask=inside)
    tl.store(b_part_ptr + at, b_part, mask=inside)


@triton.jit
def _add_parts(
    part_ptr, d_w_ptr, d_b_ptr, PARTS, N, BLOCK_PARTS: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    w_total = tl.zeros((BLOCK_PARTS, BLOCK_N), dtype=tl.float32)
    b_total = tl.zeros((BLOCK_PARTS, BLOCK_N), dtype=tl.float32)
    for start in range(0, PARTS, BLOCK_PARTS):
        part = (start + tl.arange(0, BLOCK_PARTS)[:, None]).to(tl.int64)
        inside = (part < PARTS) & (col < N)
        w_total += tl.load(part_ptr + part * N + col, mask=inside, other=0.0)
        b_total += tl.load(part_ptr + (part + PARTS) * N + col, mask=inside, other=0.0)
    d_w = tl.sum(w_total, axis=0, keep_dims=True).to(d_w_ptr.dtype.element_ty)
    d_b = tl.sum(b_total, axis=0, keep_dims=True).to(d_b_ptr.dtype.element_ty)
    tl.store(d_w_ptr + col, d_w, mask=col < N)
    tl.store(d_b_ptr + col, d_b, mask=col < N)


def _sms(device: torch.device) -> int:
    """Multiprocessors; on a CPU, where Triton interprets, any number of programs will do."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def layer_norm_backward(
    d_y: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *,
    eps: float = 1e-5,
    ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Differentiate rows in registers, or with SWEEP > 0 row means first, then columns."""
    M, N = x.shape
    BLOCK = triton.next_power_of_2(N)
    if BLOCK > 16384:
        SWEEP = SWEEP or 1024
    else:
        # a setting that was tuned at another size must fit here too
        ROWS = max(1, min(ROWS, 16384 // BLOCK))
    d_y, x = (t if t.stride(1) == 1 else t.contiguous() for t in (d_y, x))
    w = w.contiguous()
    d_x = torch.empty((M, N), dtype=x.dtype, device=x.device)
    d_w, d_b = torch.empty_like(w), torch.empty_like(w)
    parts = min(triton.cdiv(M, ROWS), PROGRAMS * _sms(x.device))
    part = torch.empty((2, parts, N), dtype=torch.float32, device=x.device)
    strides = d_y.stride(0), x.stride(0), d_x.stride(0)
    if M > 0 and SWEEP > 0:
        means = torch.empty((4, M), dtype=torch.float32, device=x.device)
        _row_means[(M,)](
            d_y, x, w, means, M, N, *strides[:2], eps, BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
        _layer_norm_backward_columns[(triton.cdiv(N, SWEEP), parts)](
            d_y, x, w, means, d_x, part[0], part[1], M, N, *strides,
            BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
    elif M > 0:
        _layer_norm_backward_rows[(parts,)](
            d_y, x, w, d_x, part[0], part[1], M, N, *strides, eps,
            FULL=N == BLOCK, EVEN=M % ROWS == 0, ROWS=ROWS, BLOCK=BLOCK,
            STAGES=min(STAGES, 1 + 81920 // (ROWS * BLOCK * x.element_size()))
            if parts * ROWS < M else 0,
            num_warps=max(num_warps, ROWS * BLOCK // 1024),
        )  # fmt: skip
    _add_parts[(triton.cdiv(N, 32),)](
        part, d_w, d_b, parts, N,
        BLOCK_PARTS=min(64, triton.next_power_of_2(max(1, parts))), BLOCK_N=32, num_warps=4,
    )  # fmt: skip
    return d_x, d_w, d_b


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(no_gradient_moves_a_row,),
    kernel=layer_norm_backward,
    space=Space(
        {
            "ROWS": (1, 2, 4, 8),
            "PROGRAMS": (1, 2, 4),
            "STAGES": (3, 1, 2, 4),
            "SWEEP": (0, 512, 1024, 2048),
            "num_warps": (8, 1, 2, 4, 16, 32),
        },
        # what was best for rms_norm_backward on an H200
        rule={
            "ROWS": "max(1, min(8, 8192 // pow2(N)))"
            " if M > 2111 and N % 8 == 0 and N <= 8192 else 1",
            "SWEEP": "0 if N <= 2048 or (N <= 8192 and N % 8 == 0) else 1024",
            "STAGES": "min(3, 1 + 116224 // (8192 * itemsize))"
            " if N <= 2048 or (N <= 8192 and N % 8 == 0) else 1",
            "num_warps": "8 if N > 8192 or (N > 2048 and N % 8 > 0) else max(1, min(16,"
            " (min(8 * pow2(N), 8192) if M > 2111 and N % 8 == 0 else pow2(N)) // 512))",
        },
        constraints=(
            "SWEEP == 0 or (ROWS == 1 and STAGES == 1 and N > 2 * SWEEP)",
            "SWEEP > 0 or (N <= 16384 and STAGES > 1)",
            "ROWS == 1 or M >= 264 * ROWS",
            # 4 to 32 values of each tensor a thread: fewer waste threads, more spill
            "SWEEP > 0 or num_warps == 1 or 256 * num_warps <= ROWS * pow2(N)",
            "SWEEP > 0 or ROWS * pow2(N) <= 1024 * num_warps",
            "SWEEP == 0 or (128 * num_warps <= SWEEP and SWEEP <= 1024 * num_warps)",
            "PROGRAMS * num_warps <= 64",
            # the rows of x and d_y in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * ROWS * pow2(N) * 2 * itemsize <= 232448",
        ),
    ),
)
