"""Softmax along the last axis.

    z[i, j] = scale * x[i, j]
    y[i, j] = exp(z[i, j] - max_j z[i, j]) / sum_j exp(z[i, j] - max_j z[i, j])

x, y    (M, N), any row stride; scale = 1
dtype   float32, float16, bfloat16; max, exp and sum in float32
moves   reads x once, writes y once
plan    a program keeps ROWS rows in registers from load to store, and either ends there or walks on
        (PROGRAMS on each SM, loads STAGES deep); a longer row is cut into pieces of SPLIT columns,
        one for each program, which tells the others its max and sum and waits for theirs; or it is
        swept twice, the first time with a running max and sum in each lane, the second time
        backwards, mostly out of the caches; STREAM asks L2 to let go of y first, LOAD says how x
        comes; what is known before a launch costs no instruction: no mask where rows fill their
        blocks (FULL) and ROWS divides M (EVEN), no product where scale is 1; rows that begin
        anywhere move by whole vectors from the first boundary in each (LOAD 1)
"""

# mypy: disable-error-code="assignment"

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="softmax",
    inputs={"x": Tensor("M N")},
    outputs={"y": Tensor("M N")},
    options={"scale": Option(1.0)},
    flops="5 * M * N",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N",
            {"check": [(1, 1), (3, 127), (37, 781), (5, 4096)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 2, "N": 40000}, {"T": "float32"}),
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"scale": 0.125}),
        *grid(
            "M N",
            {"measure": [(8192, 4096), (4096, 32768), (16, 4096), (2047, 5001), (32768, 256)]},
            dtypes=("bfloat16",),
        ),
        Workload({"M": 1024, "N": 131072}, {"T": "bfloat16"}, role="measure"),
    ),
)


def reference(x: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Softmax as PyTorch has it."""
    return torch.softmax(x if scale == 1.0 else x * scale, dim=-1)


def rows_sum_to_one(x: torch.Tensor, y: torch.Tensor, **_: object) -> bool:
    """Each row of y is a distribution."""
    total = y.double().sum(-1)
    return torch.allclose(total, torch.ones_like(total), atol=2e-2) and bool((y >= 0).all())


@triton.jit
def _exp(t):
    # exp2 lets what is below 2^-126 be zero; tl.exp spends three instructions on each to keep it
    return tl.exp2(t * 1.4426950408889634)


@triton.jit
def _scores(x_at, inside, scale, FULL: tl.constexpr, SCALED: tl.constexpr, HINT: tl.constexpr):
    # what a full row's block holds of rows past M is not stored: it may be anything
    OUTSIDE: tl.constexpr = None if FULL else -float("inf")
    z = tl.load(x_at, mask=inside, other=OUTSIDE, eviction_policy=HINT).to(tl.float32)
    if SCALED:
        # what lies outside the row is -inf, and must stay so
        z = z * scale if FULL else tl.where(inside, z * scale, -float("inf"))
    return z


@triton.jit
def _softmax_rows(
    x_ptr, y_ptr, M, N, x_stride, y_stride, scale,
    FULL: tl.constexpr, EVEN: tl.constexpr, SCALED: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr, X_HINT: tl.constexpr, Y_HINT: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    of_row = None if FULL else col < N
    first = tl.program_id(0) * ROWS
    # from 0 to 1 is no loop once it is compiled
    begin, end, step = (first, M, tl.num_programs(0) * ROWS) if STAGES > 0 else (0, 1, 1)
    for start in tl.range(begin, end, step, num_stages=STAGES):
        row = ((start if STAGES > 0 else first) + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
        z = _scores(x_ptr + row * x_stride + col, inside, scale, FULL, SCALED, X_HINT)
        e = _exp(z - tl.max(z, axis=1, keep_dims=True))
        y = (e * (1.0 / tl.sum(e, axis=1, keep_dims=True))).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + row * y_stride + col, y, mask=inside, eviction_policy=Y_HINT)


@triton.jit
def _softmax_skewed_rows(
    x_ptr, y_ptr, N, scale, SCALED: tl.constexpr, VECTOR: tl.constexpr, VECTORS: tl.constexpr,
    THREADS: tl.constexpr, Y_HINT: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * N
    at = (start + VECTOR - 1) // VECTOR * VECTOR
    head = (at - start).to(tl.int32)
    body = (N - head) // VECTOR * VECTOR
    thread = tl.arange(0, THREADS)[:, None]
    # what a row has before its first whole vector and after its last, by elements; then vectors
    end = tl.where(thread < VECTOR, thread, thread + body) - VECTOR
    cols, insides, zs, es = (end,), ((end >= -head) & (end < N - head),), (), ()
    peak = tl.full((THREADS,), -float("inf"), dtype=tl.float32)
    for i in tl.static_range(VECTORS + 1):
        zs += (_scores(x_ptr + at + cols[i], insides[i], scale, False, SCALED, ""),)
        cols += ((i * THREADS + thread) * VECTOR + tl.arange(0, VECTOR)[None, :],)
        insides += (cols[i + 1] < body,)
        # each thread by itself, and then all threads once
        peak = tl.maximum(peak, tl.max(zs[i], axis=1))
    top, total = tl.max(peak, axis=0), tl.zeros((THREADS,), dtype=tl.float32)
    for i in tl.static_range(VECTORS + 1):
        es += (_exp(zs[i] - top),)
        total += tl.sum(es[i], axis=1)
    inverse = 1.0 / tl.sum(total, axis=0)
    for i in tl.static_range(VECTORS + 1):
        tl.store(y_ptr + at + cols[i], es[i] * inverse, insides[i], eviction_policy=Y_HINT)


@triton.jit
def _softmax_pieces(
    x_ptr, y_ptr, word_ptr, M, N, x_stride, y_stride, scale,
    FULL: tl.constexpr, SCALED: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr,
    LANES: tl.constexpr, X_HINT: tl.constexpr, Y_HINT: tl.constexpr,
):  # fmt: skip
    # pieces go out in the order in which programs start, whatever order the hardware picks: only
    # the newest row can lack any, so all programs but its own are sure to end
    ticket = tl.atomic_add(word_ptr + M * PIECES, 1, sem="relaxed").to(tl.int32)
    row, piece = (ticket // PIECES).to(tl.int64), ticket % PIECES
    col = piece * BLOCK + tl.arange(0, BLOCK)
    inside = None if FULL else col < N
    z = _scores(x_ptr + row * x_stride + col, inside, scale, FULL, SCALED, X_HINT)
    peak = tl.max(z, axis=0)
    # a piece that holds nothing but -inf must not subtract it from itself
    e = _exp(z - tl.where(peak == -float("inf"), 0.0, peak))
    # max and sum come in one word, so no memory needs an order; it is not 0, since a finite max has
    # a sum of at least 1; past the last piece it is (-inf, 0); LANES gives each thread words of its
    # own, so that a program's threads decide as one to leave the loop
    high = peak.to(tl.int32, bitcast=True).to(tl.int64) << 32
    word = high | tl.sum(e, axis=0).to(tl.uint32, bitcast=True).to(tl.int64)
    tl.atomic_xchg(word_ptr + row * PIECES + piece, word, sem="relaxed")
    NOTHING: tl.constexpr = -(1 << 55)
    lane = tl.arange(0, LANES)
    at = word_ptr + row * PIECES + lane
    words = tl.load(at, lane < PIECES, NOTHING, volatile=True)
    while tl.min(tl.where(words == 0, 0, 1), axis=0) == 0:
        words = tl.load(at, lane < PIECES, NOTHING, volatile=True)
    peaks = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    top = tl.max(peaks, axis=0)
    total = tl.sum(words.to(tl.int32).to(tl.float32, bitcast=True) * _exp(peaks - top), axis=0)
    y = (e * (_exp(peak - top) / total)).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * y_stride + col, y, mask=inside, eviction_policy=Y_HINT)


@triton.jit
def _softmax_long_row(x_ptr, y_ptr, M, N, x_stride, y_stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    peak = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        z = _scores(x_ptr + row * x_stride + col, col < N, scale, False, True, "")
        higher = tl.maximum(peak, z)
        # a lane that has seen nothing but -inf must not subtract it from itself
        base = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * _exp(peak - base) + _exp(z - base)
        peak = higher
    top = tl.max(peak, axis=0)
    inverse = 1.0 / tl.sum(total * _exp(peak - top), axis=0)
    for start in range(0, N, BLOCK):
        col = (N - 1 - start) // BLOCK * BLOCK + tl.arange(0, BLOCK)
        z = _scores(x_ptr + row * x_stride + col, col < N, scale, False, True, "evict_first")
        y = _exp(z - top) * inverse
        tl.store(y_ptr + row * y_stride + col, y.to(y_ptr.dtype.element_ty), mask=col < N)


#: By LOAD: the eviction policy of x.
_HINTS = ("", "", "evict_first", "evict_last")


def _sms(device: torch.device) -> int:
    """How many multiprocessors a GPU has; else 0."""
    cuda = device.type == "cuda"
    return torch.cuda.get_device_properties(device).multi_processor_count if cuda else 0


def _pieces(N: int, SPLIT: int, device: torch.device) -> int:
    """How many pieces of SPLIT columns a row has; 0 where their programs might wait for ever.

    A GPU holds a program on each SM at least, and another stream may have a row under way, too.
    For AMD, Triton makes a plain load of a volatile one.
    """
    pieces = triton.cdiv(N, SPLIT)
    return pieces if pieces <= min(64, _sms(device) // 2) and torch.version.hip is None else 0


def softmax(
    x: torch.Tensor, *, scale: float = 1.0, ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int,
    SPLIT: int, STREAM: int, LOAD: int, num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Normalise in registers, of one program or several, or with SWEEP > 0 in two sweeps."""
    M, N = x.shape
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if M == 0:
        return y
    BLOCK, VECTOR = triton.next_power_of_2(N), 16 // x.element_size()
    sizes = M, N, x.stride(0), y.stride(0), scale
    x_hint, y_hint = _HINTS[LOAD], "evict_first" if STREAM else ""
    # a setting that was tuned at another size must fit here too: registers, then shared memory
    SPLIT = (SPLIT or 8192) if SWEEP == 0 and BLOCK > 32768 else SPLIT
    PIECES = _pieces(N, SPLIT, x.device) if SPLIT > 0 and BLOCK >= 32768 else 0
    ROWS = max(1, min(ROWS, 32768 // BLOCK))
    if PIECES > 0:
        num_warps = max(SPLIT // 4096, min(num_warps, SPLIT // 1024))
        _softmax_pieces[(M * PIECES,)](
            x, y, x.new_zeros(M * PIECES + 1, dtype=torch.int64), *sizes,
            FULL=N % SPLIT == 0, SCALED=scale != 1.0, PIECES=PIECES, BLOCK=SPLIT,
            LANES=64 * num_warps, X_HINT=x_hint, Y_HINT=y_hint, num_warps=num_warps,
        )  # fmt: skip
    elif SWEEP > 0 or BLOCK > 32768:
        _softmax_long_row[(M,)](x, y, *sizes, BLOCK=SWEEP or 4096, num_warps=num_warps)
    elif LOAD == 1 and N % VECTOR > 0 and x.stride(0) == N:
        num_warps = max(num_warps, BLOCK // 2048)
        _softmax_skewed_rows[(M,)](
            x, y, N, scale, SCALED=scale != 1.0, VECTOR=VECTOR, THREADS=32 * num_warps,
            VECTORS=triton.cdiv(N, 32 * num_warps * VECTOR), Y_HINT=y_hint, num_warps=num_warps,
        )  # fmt: skip
    else:
        blocks, bytes_ = triton.cdiv(M, ROWS), ROWS * BLOCK * x.element_size()
        _softmax_rows[(min(blocks, PROGRAMS * _sms(x.device) or blocks),)](
            x, y, *sizes, FULL=N == BLOCK, EVEN=M % ROWS == 0, SCALED=scale != 1.0, ROWS=ROWS,
            BLOCK=BLOCK, STAGES=min(STAGES, 1 + 163840 // bytes_) if PROGRAMS > 0 else 0,
            X_HINT=x_hint, Y_HINT=y_hint, num_warps=max(num_warps, ROWS * BLOCK // 2048),
        )  # fmt: skip
    return y


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(rows_sum_to_one,),
    kernel=softmax,
    space=Space(
        {
            "ROWS": (1, 2, 4, 8, 16),
            "PROGRAMS": (0, 1, 2, 4),
            "STAGES": (1, 2, 3),
            "SWEEP": (0, 2048, 4096, 8192),
            "SPLIT": (0, 4096, 8192, 16384),
            "STREAM": (0, 1),
            "LOAD": (0, 1, 2, 3),
            "num_warps": (4, 1, 2, 8, 16, 32),
        },
        rule={
            "ROWS": "max(1, min(8, 4096 // pow2(N)))"
            " if M > 2048 and (N <= 512 or N % (16 // itemsize) == 0) else 1",
            "PROGRAMS": "1 if N > 8192 and N <= 32768 and N % 8 == 0 and M > 132 else 0",
            "STAGES": "min(3, 1 + 232448 // (pow2(N) * itemsize))"
            " if N > 8192 and N <= 32768 and N % 8 == 0 and M > 132 else 1",
            "SWEEP": "4096 if N > 524288 else 0",
            "SPLIT": "8192 if N > 32768 and N <= 524288 else 0",
            "LOAD": "1 if N % (16 // itemsize) > 0 and N > 512 and N <= 32768 else 0",
            "num_warps": "8 if N > 32768 else max(1, pow2(N) // (256 if M <= 2048 and N <= 2048"
            " else 2048)) if N % (16 // itemsize) > 0 and N > 512 else max(1, min(32,"
            " (min(8 * pow2(N), 4096) if M > 2048 and N <= 2048 else pow2(N)) // 512))",
        },
        constraints=(
            "SWEEP == 0 or (ROWS == 1 and PROGRAMS == 0 and N > 8192 and STREAM + LOAD == 0)",
            "SPLIT == 0 or (SWEEP + PROGRAMS == 0 and ROWS == 1 and LOAD == 2 * STREAM"
            " and N >= 32768 and N <= 64 * SPLIT)",
            "(PROGRAMS > 0) == (STAGES > 1)",
            "PROGRAMS == 0 or (N >= 2048 and LOAD % 2 == 0 and M > 132 * ROWS * PROGRAMS)",
            "LOAD != 1 or (ROWS == 1 and PROGRAMS == 0 and N % (16 // itemsize) > 0 and N > 512)",
            # what fits in L2 may be wanted from there next
            "(STREAM == 0 and LOAD < 3) or M * N * itemsize > 33554432",
            "ROWS == 1 or (M >= 264 * ROWS and ROWS * pow2(N) <= 8192)",
            # 8 to 64 values a thread, or 4 where SMs are idle: fewer waste threads, more spill
            "SWEEP + SPLIT > 0 or num_warps == 1"
            " or (256 if M > 132 else 128) * num_warps <= ROWS * pow2(N)",
            "SWEEP + SPLIT > 0 or ROWS * pow2(N) <= min(32768, 2048 * num_warps)",
            "SPLIT == 0 or (1024 * num_warps <= SPLIT and SPLIT <= 4096 * num_warps)",
            "SWEEP == 0 or (128 * num_warps <= SWEEP and SWEEP <= 1024 * num_warps)",
            # the rows in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * ROWS * pow2(N) * itemsize <= 232448",
        ),
    ),
    backward="softmax_backward",
)
