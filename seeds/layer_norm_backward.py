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
plan       PROGRAMS on each SM share the rows, loads STAGES deep, and keep their parts of d_w and
           d_b in registers; a second kernel adds the parts. Rows too long for registers: a kernel
           for the row means (Welford's: a large mean costs no precision), one that walks blocks of
           SWEEP columns. Rows that begin anywhere move by whole vectors from a boundary in each
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
            {"check": [(1, 3), (3, 127), (37, 781), (5, 1536), (19, 1037)]},
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


def no_gradient_moves_a_row(*tensors: torch.Tensor, **_: object) -> bool:
    """Adding a number to a whole row of x changes nothing, so each row of d_x sums to zero."""
    d_x = tensors[3].double()
    return bool((d_x.sum(-1).abs() <= 2e-2 * d_x.abs().sum(-1) + 1e-2).all())


@triton.jit
def _load(ptr, at, inside, OTHER: tl.constexpr = 0.0):
    return tl.load(ptr + at, mask=inside, other=OTHER).to(tl.float32)


@triton.jit
def _store(d_x_ptr, at, inside, away, d_y, g, r, level, inner):
    """Store d_x; what the rows add to d_w and to d_b, beside it."""
    z = away * r
    tl.store(d_x_ptr + at, (g - level - z * inner) * r, mask=inside)
    return tl.join(d_y * z, d_y)


@triton.jit
def _layer_norm_backward_rows(
    d_y_ptr, x_ptr, w_ptr, d_x_ptr, part_ptr, M, N, d_y_stride, x_stride, eps, FULL: tl.constexpr,
    EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    of_row = None if FULL else col < N
    # rows past M must add nothing
    OUTSIDE: tl.constexpr = None if FULL and EVEN else 0.0
    w = _load(w_ptr, col, of_row, None if FULL else 0.0)
    part, share, first = tl.zeros((1, BLOCK, 2), tl.float32), 1.0 / N, tl.program_id(0) * ROWS
    # a loop of one turn is none to the compiler: w is then on its way with the rest
    stop, step = (first + 1, 1) if STAGES == 0 else (M, tl.num_programs(0) * ROWS)
    for start in tl.range(first, stop, step, num_stages=max(1, STAGES)):
        row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
        x = _load(x_ptr, row * x_stride + col, inside, OUTSIDE)
        d_y = _load(d_y_ptr, row * d_y_stride + col, inside, OUTSIDE)
        g, at = d_y * w, row * N + col
        m, level = tl.split(tl.sum(tl.join(x, g), axis=1, keep_dims=True) * share)
        away = x - m if FULL else tl.where(of_row, x - m, 0.0)
        square, product = tl.split(tl.sum(tl.join(away * away, g * away), axis=1, keep_dims=True))
        r = tl.rsqrt(square * share + eps)
        pair = _store(d_x_ptr, at, inside, away, d_y, g, r, level, product * share * r)
        part += tl.sum(pair, axis=0, keep_dims=True)
    at = (tl.program_id(0).to(tl.int64) * N + col)[:, :, None] * 2 + tl.arange(0, 2)
    tl.store(part_ptr + at, part, mask=None if FULL else (col < N)[:, :, None])


@triton.jit
def _by_thread(x, LANES: tl.constexpr, VECTOR: tl.constexpr):
    return tl.sum(tl.sum(tl.reshape(x, (x.shape[0] // LANES // VECTOR, LANES, VECTOR, 2)), 2), 0)


@triton.jit
def _means(pair, pair_end, share, LANES: tl.constexpr, VECTOR: tl.constexpr):
    # a thread adds what it has of both parts, then both means take one round of barriers
    pair = _by_thread(pair, LANES, VECTOR) + _by_thread(pair_end, LANES, 1)
    return tl.split(tl.sum(pair, axis=0) * share)


@triton.jit
def _layer_norm_backward_skewed_rows(
    d_y_ptr, x_ptr, w_ptr, d_x_ptr, part_ptr, M, N, eps, VECTOR: tl.constexpr,
    BLOCK: tl.constexpr, ENDS: tl.constexpr, LANES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row, step, share = tl.program_id(0), tl.num_programs(0), 1.0 / N
    first = tl.cast(row, tl.int64) * N
    start = (first + VECTOR - 1) // VECTOR * VECTOR
    # the same for all rows of a program: VECTOR divides the step between them
    head, stride = (start - first).to(tl.int32), tl.cast(step // VECTOR * VECTOR, tl.int64) * N
    body = tl.minimum(BLOCK // VECTOR, (N - head) // VECTOR) * VECTOR
    lane, end = tl.arange(0, BLOCK), tl.arange(0, ENDS)
    # what a row has before its first whole vector and after its last of BLOCK, by elements
    end += tl.where(end < VECTOR, 0, body) - VECTOR
    whole, part = lane < body, (end >= -head) & (end < N - head)
    w, w_end = _load(w_ptr + head, lane, whole), _load(w_ptr + head, end, part)
    pair, pair_end = tl.zeros((BLOCK, 2), tl.float32), tl.zeros((ENDS, 2), tl.float32)
    d_y_end = tl.load(d_y_ptr + start + end, mask=part, other=0.0)
    x_end, at = tl.load(x_ptr + start + end, mask=part, other=0.0), start
    for each in tl.range(row, M, step, num_stages=max(1, STAGES)):
        d_y, x = _load(d_y_ptr + at, lane, whole), _load(x_ptr + at, lane, whole)
        # Triton loads nothing narrower than 4 bytes ahead of its use, nor of its conversion
        after, more = at + stride, part & (each + step < M)
        d_y_next = tl.load(d_y_ptr + after + end, mask=more, other=0.0)
        x_next = tl.load(x_ptr + after + end, mask=more, other=0.0)
        d_y_end, x_end = d_y_end.to(tl.float32), x_end.to(tl.float32)
        g, g_end = d_y * w, d_y_end * w_end
        m, level = _means(tl.join(x, g), tl.join(x_end, g_end), share, LANES, VECTOR)
        x, x_end = tl.where(whole, x - m, 0.0), tl.where(part, x_end - m, 0.0)
        moments, moments_end = tl.join(x * x, g * x), tl.join(x_end * x_end, g_end * x_end)
        square, product = _means(moments, moments_end, share, LANES, VECTOR)
        r = tl.rsqrt(square + eps)
        pair += _store(d_x_ptr + at, lane, whole, x, d_y, g, r, level, product * r)
        pair_end += _store(d_x_ptr + at, end, part, x_end, d_y_end, g_end, r, level, product * r)
        d_y_end, x_end, at = d_y_next, x_next, after
    tl.store(part_ptr + (start + lane)[:, None] * 2 + tl.arange(0, 2), pair, mask=whole[:, None])
    tl.store(part_ptr + (start + end)[:, None] * 2 + tl.arange(0, 2), pair_end, mask=part[:, None])


@triton.jit
def _row_means(
    d_y_ptr, x_ptr, w_ptr, means_ptr, M, N, d_y_stride, x_stride, eps, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    zeros = tl.zeros((BLOCK,), dtype=tl.float32)
    count, x_mean, g_mean, squares, products = zeros, zeros, zeros, zeros, zeros
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < N
        x = _load(x_ptr + row * x_stride, col, inside)
        g = _load(d_y_ptr + row * d_y_stride, col, inside) * _load(w_ptr, col, inside)
        away = tl.where(inside, x - x_mean, 0.0)
        count += tl.where(inside, 1.0, 0.0)
        x_mean += away / (start // BLOCK + 1)
        g_mean += tl.where(inside, g - g_mean, 0.0) / (start // BLOCK + 1)
        squares += away * (x - x_mean)
        products += away * (g - g_mean)
    m, level = tl.sum(x_mean * count, axis=0) / N, tl.sum(g_mean * count, axis=0) / N
    squares += count * (x_mean - m) * (x_mean - m)
    products += count * (x_mean - m) * (g_mean - level)
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(means_ptr + row, m)
    tl.store(means_ptr + M + row, r)
    tl.store(means_ptr + 2 * M + row, level)
    tl.store(means_ptr + 3 * M + row, tl.sum(products, axis=0) / N * r)


@triton.jit
def _layer_norm_backward_columns(
    d_y_ptr, x_ptr, w_ptr, means_ptr, d_x_ptr, part_ptr, M, N, d_y_stride, x_stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w, part = _load(w_ptr, col, col < N), tl.zeros((BLOCK, 2), tl.float32)
    for row in range(tl.program_id(1).to(tl.int64), M, tl.num_programs(1)):
        m, r = tl.load(means_ptr + row), tl.load(means_ptr + M + row)
        level, inner = tl.load(means_ptr + 2 * M + row), tl.load(means_ptr + 3 * M + row)
        away = _load(x_ptr + row * x_stride, col, col < N) - m
        d_y = _load(d_y_ptr + row * d_y_stride, col, col < N)
        part += _store(d_x_ptr, row * N + col, col < N, away, d_y, d_y * w, r, level, inner)
    at = (tl.program_id(1).to(tl.int64) * N + col)[:, None] * 2 + tl.arange(0, 2)
    tl.store(part_ptr + at, part, mask=(col < N)[:, None])


@triton.jit
def _add_parts(part_ptr, d_w_ptr, d_b_ptr, PARTS, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)[None, :]
    total = tl.zeros((BLOCK, 64), dtype=tl.float32)
    for start in range(0, PARTS, BLOCK):
        part = (start + tl.arange(0, BLOCK)[:, None]).to(tl.int64)
        total += tl.load(part_ptr + part * 2 * N + at, (part < PARTS) & (at < 2 * N), other=0.0)
    d_w, d_b = tl.split(tl.reshape(tl.sum(total, axis=0), (32, 2)))
    col = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(d_w_ptr + col, d_w, mask=col < N)
    tl.store(d_b_ptr + col, d_b, mask=col < N)


def layer_norm_backward(
    d_y: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *,
    eps: float = 1e-5,
    ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Differentiate rows in registers, or with SWEEP > 0 row means first, then columns."""
    M, N = x.shape
    BLOCK, vector = triton.next_power_of_2(N), 16 // x.element_size()
    d_y, x, w = (t if t.stride(-1) == 1 else t.contiguous() for t in (d_y, x, w))
    strides = d_y.stride(0), x.stride(0)
    # Triton sees whole vectors in rows that are a multiple of 16 apart, and in no others
    skewed = N % 16 > 0 and 512 < N <= 8192 and set(strides) == {N}
    if BLOCK > 16384 or (N % 16 > 0 and N > 2048 and not skewed):
        SWEEP = SWEEP or 1024
    # a setting that was tuned at another size must fit here too
    ROWS, of = (1, vector) if skewed else (max(1, min(ROWS, 16384 // BLOCK)), 1)
    d_x = torch.empty((M, N), dtype=x.dtype, device=x.device)
    d_w, d_b = torch.empty_like(w), torch.empty_like(w)
    # on a CPU, where Triton interprets, any number of programs will do
    SMS = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    parts = min(triton.cdiv(M, ROWS), max(1, PROGRAMS * SMS // of) * of)
    part = torch.empty((parts, N, 2), dtype=torch.float32, device=x.device)
    if M > 0 and SWEEP > 0:
        means = torch.empty((4, M), dtype=torch.float32, device=x.device)
        _row_means[(M,)](d_y, x, w, means, M, N, *strides, eps, BLOCK=SWEEP, num_warps=num_warps)
        _layer_norm_backward_columns[(triton.cdiv(N, SWEEP), parts)](
            d_y, x, w, means, d_x, part, M, N, *strides, BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
    elif M > 0:
        # 5001 is 4096 by vectors and the rest by elements: 5120 lanes for 8192
        ends = triton.next_power_of_2(N - BLOCK // 2 + vector)
        block, ends = (BLOCK // 2, ends) if skewed and 4 * ends <= BLOCK else (BLOCK, 2 * vector)
        num_warps = max(num_warps, ROWS * block // 1024)
        STAGES = min(STAGES, 1 + 5120 * vector // (ROWS * block)) if parts * ROWS < M else 0
        if skewed:
            LANES = min(32 * num_warps, block // vector)
            _layer_norm_backward_skewed_rows[(parts,)](
                d_y, x, w, d_x, part, M, N, eps, VECTOR=vector, BLOCK=block, ENDS=max(ends, LANES),
                LANES=LANES, STAGES=STAGES, num_warps=LANES // 32,
            )  # fmt: skip
        else:
            _layer_norm_backward_rows[(parts,)](
                d_y, x, w, d_x, part, M, N, *strides, eps, FULL=N == BLOCK, EVEN=M % ROWS == 0,
                ROWS=ROWS, BLOCK=BLOCK, STAGES=STAGES, num_warps=num_warps,
            )  # fmt: skip
    BLOCK = min(64, triton.next_power_of_2(max(1, parts)))
    _add_parts[(triton.cdiv(N, 32),)](part, d_w, d_b, parts, N, BLOCK=BLOCK, num_warps=4)
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
            "ROWS": "max(1, min(8, 8192 // pow2(N))) if M > 2111 and N % 16 == 0 else 1",
            "PROGRAMS": "4 if N % 16 > 0 and N <= 2048 else 1",
            "SWEEP": "0 if N <= 8192 else 1024",
            "STAGES": "3 if N <= 8192 else 1",
            "num_warps": "8 if N > 8192 else max(1, min(16,"
            " (min(8 * pow2(N), 8192) if M > 2111 and N % 16 == 0 else pow2(N)) // 512))",
        },
        constraints=(
            "SWEEP == 0 or (ROWS == 1 and STAGES == 1 and N > 2 * SWEEP)",
            "SWEEP > 0 or (N <= (8192 if N % 16 > 0 else 16384) and STAGES > 1)",
            "PROGRAMS * num_warps <= 64",
            "ROWS == 1 or (M >= 264 * ROWS and (N % 16 == 0 or N <= 512))",
            # 4 to 32 values of each tensor a thread: fewer waste threads, more spill
            "SWEEP > 0 or num_warps == 1 or 256 * num_warps <= ROWS * pow2(N)",
            "SWEEP > 0 or ROWS * pow2(N) <= 1024 * num_warps",
            "SWEEP == 0 or (128 * num_warps <= SWEEP and SWEEP <= 1024 * num_warps)",
            # the rows of x and d_y in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * ROWS * pow2(N) * 2 * itemsize <= 232448",
        ),
    ),
)
