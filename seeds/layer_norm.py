"""Layer normalisation of each row, scaled by a weight and moved by a bias.

    m[i]    = mean_j x[i, j]
    r[i]    = rsqrt(mean_j (x[i, j] - m[i])^2 + eps)
    y[i, j] = (x[i, j] - m[i]) * r[i] * w[j] + b[j]

x, w, b, y  (M, N), (N,), (N,), (M, N), any row stride; eps = 1e-5
dtype       float32, float16, bfloat16; float32 inside
moves       reads x, w and b once, writes y once
plan        a program keeps ROWS rows in registers from load to store, so that the variance is taken
            about the mean itself, and either ends there or walks on (PROGRAMS on each SM, loads
            STAGES deep); rows too long for registers are swept twice, first with a running mean
            and variance in each lane (Welford's); STREAM asks L2 to let go of y first, LOAD says
            how x, w and b come; what is known before a launch costs no instruction: no mask where
            rows fill their blocks and ROWS divides M; ROUNDS 1 takes both means in one, about the
            first value; rows that begin anywhere move by vectors from a first boundary (LOAD 5)
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="layer_norm",
    inputs={"x": Tensor("M N"), "w": Tensor("N"), "b": Tensor("N")},
    outputs={"y": Tensor("M N")},
    options={"eps": Option(1e-5)},
    flops="7 * M * N",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N",
            {"check": [(1, 1), (3, 127), (37, 781), (5, 1536)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 2, "N": 40000}, {"T": "float32"}),
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"eps": 0.5}),
        *grid("M N", {"measure": [(8192, 4096), (16, 4096), (2047, 5001)]}, dtypes=("bfloat16",)),
    ),
)


def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Layer norm as PyTorch has it."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b, eps)


def no_row_outgrows_its_bound(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor, **_: object
) -> bool:
    """|y[i, j] - b[j]| <= sqrt(N) * |w[j]|: no entry is further from its row's mean."""
    bound = x.shape[-1] ** 0.5 * w.double().abs()
    rounding = 0.02 * (bound + b.double().abs())
    return bool(((y.double() - b.double()).abs() <= bound + rounding).all())


@triton.jit
def _both(x, y, more_x, more_y):
    return x + more_x, y + more_y


@triton.jit
def _normalise(
    x, near, w, b, N, eps, of_row, DTYPE: tl.constexpr, FULL: tl.constexpr, BLOCK: tl.constexpr
):
    x = x.to(tl.float32)
    if near is None:
        total = tl.sum(x, axis=1, keep_dims=True)
        # a row that fills its block is of a power of two: its means take no division
        away = x - (total * (1.0 / BLOCK) if FULL else total / N)
        if not FULL:
            # lanes past the row held zeros, which are not zero once the mean is taken off
            away = tl.where(of_row, away, 0.0)
        squares = tl.sum(away * away, axis=1, keep_dims=True)
        variance = squares * (1.0 / BLOCK) if FULL else squares / N
    else:
        x -= near.to(tl.float32)
        total, squares = tl.reduce((x, x * x), 1, _both, keep_dims=True)
        mean = total * (1.0 / BLOCK)
        away, variance = x - mean, squares * (1.0 / BLOCK) - mean * mean
        # near was an outlier: of the difference too few bits are left
        if tl.max(mean * mean - 16.0 * variance) > 0.0:
            variance = tl.sum(away * away, axis=1, keep_dims=True) * (1.0 / BLOCK)
    return (away * tl.rsqrt(variance + eps) * w.to(tl.float32) + b.to(tl.float32)).to(DTYPE)


@triton.jit
def _layer_norm_rows(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, x_stride, y_stride, eps,
    FULL: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, ROUNDS: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr, X_CACHE: tl.constexpr, X_HINT: tl.constexpr,
    W_HINT: tl.constexpr, Y_HINT: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    of_row = None if FULL else col < N
    # what a full row's block holds of rows past M is not stored: it needs no zeros
    OUTSIDE: tl.constexpr = None if FULL else 0.0
    if STAGES == 0:
        # no loop: x, w and b are then on their way at the same time
        row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
        at = x_ptr + row * x_stride + col
        x = tl.load(at, mask=inside, other=OUTSIDE, cache_modifier=X_CACHE, eviction_policy=X_HINT)
        w = tl.load(w_ptr + col, mask=of_row, other=OUTSIDE, eviction_policy=W_HINT)
        b = tl.load(b_ptr + col, mask=of_row, other=OUTSIDE, eviction_policy=W_HINT)
        near = tl.load(x_ptr + row * x_stride) if FULL and ROUNDS == 1 else None
        y = _normalise(x, near, w, b, N, eps, of_row, dtype, FULL, BLOCK)
        tl.store(y_ptr + row * y_stride + col, y, mask=inside, eviction_policy=Y_HINT)
    else:
        w = tl.load(w_ptr + col, mask=of_row, other=OUTSIDE)
        b = tl.load(b_ptr + col, mask=of_row, other=OUTSIDE)
        step = tl.num_programs(0) * ROWS
        for start in tl.range(tl.program_id(0) * ROWS, M, step, num_stages=STAGES):
            row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
            inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
            x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=OUTSIDE)
            y = _normalise(x, None, w, b, N, eps, of_row, dtype, FULL, BLOCK)
            tl.store(y_ptr + row * y_stride + col, y, mask=inside, eviction_policy=Y_HINT)


@triton.jit
def _boundary(row, N, VECTOR: tl.constexpr):
    return (tl.cast(row, tl.int64) * N + VECTOR - 1) // VECTOR * VECTOR


@triton.jit
def _layer_norm_skewed_rows(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, eps,
    BLOCK: tl.constexpr, STAGES: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    row, step = tl.program_id(0), tl.num_programs(0)
    at = _boundary(row, N, VECTOR)
    # the same for all rows of a program: VECTOR divides the step between them
    head = (at - tl.cast(row, tl.int64) * N).to(tl.int32)
    body = BLOCK if ENDS > 2 * VECTOR else (N - head) // VECTOR * VECTOR
    lane, end = tl.arange(0, BLOCK), tl.arange(0, ENDS)
    # what a row has before its first whole vector and after its last of BLOCK, by elements
    end += tl.where(end < VECTOR, 0, body) - VECTOR
    whole, part = lane < body, (end >= -head) & (end < N - head)
    w = tl.load(w_ptr + head + lane, mask=whole, other=0.0)
    b = tl.load(b_ptr + head + lane, mask=whole, other=0.0)
    w_end = tl.load(w_ptr + head + end, mask=part, other=0.0)
    b_end = tl.load(b_ptr + head + end, mask=part, other=0.0)
    x_end = tl.load(x_ptr + at + end, mask=part, other=0.0)
    for each in tl.range(row, M, step, num_stages=STAGES):
        at, after = _boundary(each, N, VECTOR), _boundary(each + step, N, VECTOR)
        x = tl.load(x_ptr + at + lane, mask=whole, other=0.0).to(tl.float32)
        # Triton loads nothing narrower than 4 bytes ahead of its use
        next_end = tl.load(x_ptr + after + end, mask=part & (each + step < M), other=0.0)
        wide_end = x_end.to(tl.float32)
        mean = (tl.sum(x) + tl.sum(wide_end)) / N
        away, away_end = tl.where(whole, x - mean, 0.0), tl.where(part, wide_end - mean, 0.0)
        r = tl.rsqrt((tl.sum(away * away) + tl.sum(away_end * away_end)) / N + eps)
        y = (away * r * w.to(tl.float32) + b.to(tl.float32)).to(dtype)
        y_end = (away_end * r * w_end.to(tl.float32) + b_end.to(tl.float32)).to(dtype)
        tl.store(y_ptr + at + lane, y, mask=whole)
        tl.store(y_ptr + at + end, y_end, mask=part)
        x_end = next_end


@triton.jit
def _layer_norm_long_row(
    x_ptr, w_ptr, b_ptr, y_ptr, N, x_stride, y_stride, eps, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    mean, squares = count, count
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + col, mask=col < N, other=0.0).to(tl.float32)
        away = tl.where(col < N, x - mean, 0.0)
        count += tl.where(col < N, 1.0, 0.0)
        mean += away / (start // BLOCK + 1)
        squares += away * (x - mean)
    m = tl.sum(mean * count, axis=0) / N
    m += tl.sum((mean - m) * count, axis=0) / N  # the first is off by 1e-5 where values are 100
    squares += count * (mean - m) * (mean - m)
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    blocks = tl.cdiv(N, BLOCK)
    for block in range(0, blocks):
        # backwards, so that the second sweep begins with what the first left in the caches
        col = (blocks - 1 - block) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + col, mask=col < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + col, mask=col < N, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + col, mask=col < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * y_stride + col, (x - m) * r * w + b, mask=col < N)


#: By LOAD: the cache modifier of x, the eviction policies of x and of w and b; 5 is as 0.
_LOADS = (("", "", ""), (".cg", "", ""), ("", "evict_first", ""), ("", "evict_last", ""),
          ("", "", "evict_last"))  # fmt: skip


def _programs(blocks: int, per_sm: int, device: torch.device, of: int = 1) -> int:
    """One program for each block, or `per_sm` on each multiprocessor (a multiple of `of`)."""
    if per_sm == 0 or device.type != "cuda":
        return blocks
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    return min(blocks, max(1, per_sm * sms // of) * of)


def layer_norm(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *,
    eps: float = 1e-5, ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, STREAM: int, LOAD: int,
    ROUNDS: int, num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Normalise in registers, or with SWEEP > 0 in two sweeps of blocks of that many columns."""
    M, N = x.shape
    x, w, b = x if x.stride(1) == 1 else x.contiguous(), w.contiguous(), b.contiguous()
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if M == 0:
        return y
    BLOCK = triton.next_power_of_2(N)
    if SWEEP > 0 or BLOCK > 32768:
        _layer_norm_long_row[(M,)](
            x, w, b, y, N, x.stride(0), y.stride(0), eps, BLOCK=SWEEP or 4096, num_warps=num_warps,
        )  # fmt: skip
        return y
    # a setting that was tuned at another size must fit here too: registers, then shared memory
    ROWS = max(1, min(ROWS, 32768 // BLOCK))
    num_warps = max(num_warps, ROWS * BLOCK // 2048)
    STAGES = min(STAGES, 1 + 163840 // (ROWS * BLOCK * x.element_size())) if PROGRAMS > 0 else 0
    vector = 16 // x.element_size()
    if LOAD == 5 and N % vector > 0 and vector < N <= 16384 and x.stride(0) == N:
        # 5001 is 4096 by vectors and the rest by elements: 5120 lanes for 8192
        ends = triton.next_power_of_2(N - BLOCK // 2 + vector)
        block, ends = (BLOCK // 2, ends) if 4 * ends <= BLOCK else (BLOCK, 2 * vector)
        _layer_norm_skewed_rows[(_programs(M, PROGRAMS, x.device, vector),)](
            x, w, b, y, M, N, eps,
            BLOCK=block, STAGES=max(1, STAGES), VECTOR=vector, ENDS=ends, num_warps=num_warps,
        )  # fmt: skip
        return y
    x_cache, x_hint, w_hint = _LOADS[LOAD % 5]
    _layer_norm_rows[(_programs(triton.cdiv(M, ROWS), PROGRAMS, x.device),)](
        x, w, b, y, M, N, x.stride(0), y.stride(0), eps, num_warps=num_warps,
        FULL=N == BLOCK, EVEN=M % ROWS == 0, ROWS=ROWS, ROUNDS=ROUNDS, BLOCK=BLOCK, STAGES=STAGES,
        X_CACHE=x_cache, X_HINT=x_hint, W_HINT=w_hint, Y_HINT="evict_first" if STREAM else "",
    )  # fmt: skip
    return y


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(no_row_outgrows_its_bound,),
    kernel=layer_norm,
    space=Space(
        {
            "ROWS": (1, 2, 4, 8, 16),
            "PROGRAMS": (0, 1, 2, 4),
            "STAGES": (1, 2, 3),
            "SWEEP": (0, 2048, 4096, 8192),
            "STREAM": (0, 1),
            "LOAD": (0, 1, 2, 3, 4, 5),
            "ROUNDS": (2, 1),
            "num_warps": (4, 1, 2, 8, 16, 32),
        },
        # what was best for rms_norm on an H200: the same row, one sum and one vector more
        rule={
            "ROWS": "max(1, min(8, 4096 // pow2(N))) if M > 2048 else 1",
            "PROGRAMS": "1 if N > 8192 and N <= 16384 and M > 132"
            " else 2 if N % 8 > 0 and N > 2048 and N <= 8192 and M > 264 else 0",
            "STAGES": "min(3, 1 + 232448 // (pow2(N) * itemsize))"
            " if N > 8192 and N <= 16384 and M > 132"
            " else 3 if N % 8 > 0 and N > 2048 and N <= 8192 and M > 264 else 1",
            "SWEEP": "0 if N <= 32768 else 4096",
            "LOAD": "5 if N % (16 // itemsize) > 0 and N > 512 and N <= 16384"
            " and (M <= 2048 or N > 2048) else 0",
            "num_warps": "8 if N > 32768 else max(1, min(32,"
            " (min(8 * pow2(N), 4096) if M > 2048 and N <= 2048 else pow2(N))"
            " // (1024 if N % 8 > 0 and N > 2048 else 512)))",
        },
        constraints=(
            "SWEEP == 0 or (ROWS == 1 and PROGRAMS == 0 and N > 8192 and STREAM + LOAD == 0)",
            "(PROGRAMS > 0) == (STAGES > 1) and LOAD % 5 * PROGRAMS == 0",
            # what fits in L2 may be wanted from there next
            "STREAM + LOAD % 5 == 0 or M * N * itemsize > 33554432",
            "LOAD < 5 or (ROWS == 1 and STREAM == 0 and N % (16 // itemsize) > 0)",
            "LOAD < 5 or (N > 512 and N <= 16384)",
            # a walking program keeps w and b as well
            "PROGRAMS == 0 or (N >= 2048 and N <= 16384 and M > 132 * ROWS * PROGRAMS)",
            "ROWS == 1 or (M >= 264 * ROWS and ROWS * pow2(N) <= 8192)",
            # half the steps, for a few instructions and, of float32, a bit or two
            "ROUNDS == 2 or (SWEEP + PROGRAMS == 0 and M <= 528 and N == pow2(N) and itemsize < 4)",
            # 8 to 32 values a thread: fewer waste threads, more spill; 4 where latency is all
            "SWEEP > 0 or num_warps == 1 or 128 * (1 + (M > 132)) * num_warps <= ROWS * pow2(N)",
            "SWEEP > 0 or (N <= 32768 and ROWS * pow2(N) <= 1024 * num_warps)",
            "SWEEP == 0 or (128 * num_warps <= SWEEP and SWEEP <= 1024 * num_warps)",
            # the rows in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * ROWS * pow2(N) * itemsize <= 232448",
        ),
    ),
    backward="layer_norm_backward",
)
