"""Root-mean-square normalisation of each row, scaled by a weight.

    r[i]    = rsqrt(mean_j x[i, j]^2 + eps)
    y[i, j] = x[i, j] * r[i] * (offset + w[j])

x, w, y  (M, N), (N,), (M, N), any row stride; eps = 1e-6, offset = 0 (Gemma's weights want 1)
dtype    float32, float16, bfloat16; float32 inside; cast="llama" rounds x * r to x's dtype before
         the weight, "gemma" rounds once at the end
moves    reads x and w once, writes y once
plan     a program keeps ROWS rows in registers from load to store, and either ends there or walks
         on (PROGRAMS on each SM, loads STAGES deep); rows too long for registers are swept twice;
         STREAM asks L2 to let go of y first, LOAD says how x and w come; what is known before a
         launch costs no instruction: no mask where rows fill their blocks and ROWS divides M; rows
         that begin anywhere move by whole vectors from the first boundary in each (LOAD 6)
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="rms_norm",
    inputs={"x": Tensor("M N"), "w": Tensor("N")},
    outputs={"y": Tensor("M N")},
    options={
        "eps": Option(1e-6),
        "offset": Option(0.0, (0.0, 1.0)),
        "cast": Option("llama", ("llama", "gemma")),
    },
    flops="4 * M * N",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N",
            {"check": [(1, 1), (3, 127), (37, 781), (5, 4096)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 2, "N": 40000}, {"T": "float32"}),
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"offset": 1.0, "cast": "gemma"}),
        *grid(
            "M N",
            {"measure": [(8192, 4096), (16, 4096), (2047, 5001), (65536, 128)]},
            dtypes=("bfloat16",),
        ),
    ),
)


def reference(
    x: torch.Tensor, w: torch.Tensor, *, eps: float, offset: float, cast: str
) -> torch.Tensor:
    """RMS norm as Llama's and Gemma's model files spell it."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    if cast == "llama":
        return normed.to(x.dtype) * (w + offset)
    return (normed * (w.float() + offset)).to(x.dtype)


def no_row_outgrows_its_bound(
    x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, *, offset: float, **_: object
) -> bool:
    """|y[i, j]| <= sqrt(N) * |offset + w[j]|: no entry exceeds sqrt(N) times its row's RMS."""
    bound = x.shape[-1] ** 0.5 * (w.double() + offset).abs()
    return bool((y.double().abs() <= bound * 1.02).all())


@triton.jit
def _inverse(x, N, eps, FULL: tl.constexpr, BLOCK: tl.constexpr):
    x = x.to(tl.float32)
    squares = tl.sum(x * x, axis=1, keep_dims=True)
    # a row that fills its block is of a power of two: its mean takes no division
    return tl.rsqrt((squares * (1.0 / BLOCK) if FULL else squares / N) + eps)


@triton.jit
def _scaled(x, r, w, offset, DTYPE: tl.constexpr, LLAMA: tl.constexpr, SHIFTED: tl.constexpr):
    normed, w = x.to(tl.float32) * r, w.to(tl.float32)
    if SHIFTED:
        w += offset
    if LLAMA:
        normed = normed.to(DTYPE).to(tl.float32)
    return (normed * w).to(DTYPE)


@triton.jit
def _rms_norm_rows(
    x_ptr, w_ptr, y_ptr, M, N, x_stride, y_stride, eps, offset,
    LLAMA: tl.constexpr, SHIFTED: tl.constexpr, FULL: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    TWICE: tl.constexpr, X_CACHE: tl.constexpr, X_HINT: tl.constexpr, W_HINT: tl.constexpr,
    Y_HINT: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    of_row = None if FULL else col < N
    # what a full row's block holds of rows past M is not stored: it needs no zeros
    OUTSIDE: tl.constexpr = None if FULL else 0.0
    if STAGES == 0:
        # no loop: x and w are then on their way at the same time
        row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
        at = x_ptr + row * x_stride + col
        x = tl.load(at, mask=inside, other=OUTSIDE, cache_modifier=X_CACHE, eviction_policy=X_HINT)
        w = tl.load(w_ptr + col, mask=of_row, other=OUTSIDE, eviction_policy=W_HINT)
        r = _inverse(x, N, eps, FULL, BLOCK)
        if TWICE:
            # out of L1, and so x leaves its registers free while the row is summed
            x = tl.load(at, mask=inside, other=OUTSIDE, eviction_policy="evict_first")
        y = _scaled(x, r, w, offset, dtype, LLAMA, SHIFTED)
        tl.store(y_ptr + row * y_stride + col, y, mask=inside, eviction_policy=Y_HINT)
    else:
        w = tl.load(w_ptr + col, mask=of_row, other=OUTSIDE)
        step = tl.num_programs(0) * ROWS
        for start in tl.range(tl.program_id(0) * ROWS, M, step, num_stages=STAGES):
            row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
            inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
            x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=OUTSIDE)
            r = _inverse(x, N, eps, FULL, BLOCK)
            y = _scaled(x, r, w, offset, dtype, LLAMA, SHIFTED)
            tl.store(y_ptr + row * y_stride + col, y, mask=inside, eviction_policy=Y_HINT)


@triton.jit
def _boundary(row, N, VECTOR: tl.constexpr):
    return (tl.cast(row, tl.int64) * N + VECTOR - 1) // VECTOR * VECTOR


@triton.jit
def _rms_norm_skewed_rows(
    x_ptr, w_ptr, y_ptr, M, N, eps, offset,
    LLAMA: tl.constexpr, SHIFTED: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    VECTOR: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
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
    w_end = tl.load(w_ptr + head + end, mask=part, other=0.0)
    x_end = tl.load(x_ptr + at + end, mask=part, other=0.0)
    for each in tl.range(row, M, step, num_stages=STAGES):
        at, after = _boundary(each, N, VECTOR), _boundary(each + step, N, VECTOR)
        x = tl.load(x_ptr + at + lane, mask=whole, other=0.0)
        # Triton loads nothing narrower than 4 bytes ahead of its use
        next_end = tl.load(x_ptr + after + end, mask=part & (each + step < M), other=0.0)
        wide, wide_end = x.to(tl.float32), x_end.to(tl.float32)
        r = tl.rsqrt((tl.sum(wide * wide) + tl.sum(wide_end * wide_end)) / N + eps)
        y = _scaled(x, r, w, offset, y_ptr.dtype.element_ty, LLAMA, SHIFTED)
        y_end = _scaled(x_end, r, w_end, offset, y_ptr.dtype.element_ty, LLAMA, SHIFTED)
        tl.store(y_ptr + at + lane, y, mask=whole)
        tl.store(y_ptr + at + end, y_end, mask=part)
        x_end = next_end


@triton.jit
def _rms_norm_long_row(
    x_ptr, w_ptr, y_ptr, N, x_stride, y_stride, eps, offset,
    LLAMA: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + col, mask=col < N, other=0.0).to(tl.float32)
        squares += x * x
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    blocks = tl.cdiv(N, BLOCK)
    for block in range(0, blocks):
        # backwards, so that the second sweep begins with what the first left in the caches
        col = (blocks - 1 - block) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + col, mask=col < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + col, mask=col < N, other=0.0).to(tl.float32) + offset
        normed = x * r
        if LLAMA:
            normed = normed.to(x_ptr.dtype.element_ty).to(tl.float32)
        y = (normed * w).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + row * y_stride + col, y, mask=col < N)


#: By LOAD: the cache modifier of x, the eviction policies of x and w; 5 loads x twice; 6 is as 0.
_LOADS = (
    ("", "", ""),
    (".cg", "", ""),
    ("", "evict_first", ""),
    ("", "evict_last", ""),
    ("", "", "evict_last"),
    ("", "evict_last", "evict_last"),
)


def _programs(blocks: int, per_sm: int, device: torch.device, of: int = 1) -> int:
    """One program for each block, or `per_sm` on each multiprocessor (a multiple of `of`)."""
    if per_sm == 0 or device.type != "cuda":
        return blocks
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    return min(blocks, max(1, per_sm * sms // of) * of)


def rms_norm(
    x: torch.Tensor, w: torch.Tensor, *,
    eps: float = 1e-6, offset: float = 0.0, cast: str = "llama",
    ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, STREAM: int, LOAD: int, num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Normalise in registers, or with SWEEP > 0 in two sweeps of blocks of that many columns."""
    M, N = x.shape
    x, w = x if x.stride(1) == 1 else x.contiguous(), w.contiguous()
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if M == 0:
        return y
    BLOCK = triton.next_power_of_2(N)
    if SWEEP > 0 or BLOCK > 32768:
        _rms_norm_long_row[(M,)](
            x, w, y, N, x.stride(0), y.stride(0), eps, offset,
            LLAMA=cast == "llama", BLOCK=SWEEP or 4096, num_warps=num_warps,
        )  # fmt: skip
        return y
    # a setting that was tuned at another size must fit here too: registers, then shared memory
    ROWS = max(1, min(ROWS, 32768 // BLOCK))
    num_warps = max(num_warps, ROWS * BLOCK // 2048)
    STAGES = min(STAGES, 1 + 163840 // (ROWS * BLOCK * x.element_size())) if PROGRAMS > 0 else 0
    vector = 16 // x.element_size()
    if LOAD == 6 and N % vector > 0 and vector < N <= 16384 and x.stride(0) == N:
        # 5001 is 4096 by vectors and the rest by elements: 5120 lanes for 8192
        ends = triton.next_power_of_2(N - BLOCK // 2 + vector)
        block, ends = (BLOCK // 2, ends) if 4 * ends <= BLOCK else (BLOCK, 2 * vector)
        _rms_norm_skewed_rows[(_programs(M, PROGRAMS, x.device, vector),)](
            x, w, y, M, N, eps, offset, LLAMA=cast == "llama", SHIFTED=offset != 0.0, BLOCK=block,
            STAGES=max(1, STAGES), VECTOR=vector, ENDS=ends, num_warps=num_warps,
        )  # fmt: skip
        return y
    x_cache, x_hint, w_hint = _LOADS[LOAD % 6]
    _rms_norm_rows[(_programs(triton.cdiv(M, ROWS), PROGRAMS, x.device),)](
        x, w, y, M, N, x.stride(0), y.stride(0), eps, offset,
        LLAMA=cast == "llama", SHIFTED=offset != 0.0, FULL=N == BLOCK, EVEN=M % ROWS == 0,
        ROWS=ROWS, BLOCK=BLOCK, STAGES=STAGES, TWICE=LOAD == 5, X_CACHE=x_cache,
        X_HINT=x_hint, W_HINT=w_hint, Y_HINT="evict_first" if STREAM else "", num_warps=num_warps,
    )  # fmt: skip
    return y


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(no_row_outgrows_its_bound,),
    kernel=rms_norm,
    space=Space(
        {
            "ROWS": (1, 2, 4, 8, 16),
            "PROGRAMS": (0, 1, 2, 4),
            "STAGES": (1, 2, 3),
            "SWEEP": (0, 2048, 4096, 8192),
            "STREAM": (0, 1),
            "LOAD": (0, 1, 2, 3, 4, 5, 6),
            "num_warps": (4, 1, 2, 8, 16, 32),
        },
        rule={
            "ROWS": "max(1, min(8, 4096 // pow2(N))) if M > 2048 else 1",
            "PROGRAMS": "1 if N > 8192 and N <= 16384 and M > 132"
            " else 2 if N % 8 > 0 and N > 2048 and N <= 8192 and M > 264 else 0",
            "STAGES": "min(3, 1 + 232448 // (pow2(N) * itemsize))"
            " if N > 8192 and N <= 16384 and M > 132"
            " else 3 if N % 8 > 0 and N > 2048 and N <= 8192 and M > 264 else 1",
            "SWEEP": "0 if N <= 32768 else 4096",
            "LOAD": "6 if N % (16 // itemsize) > 0 and N > 512 and N <= 16384"
            " and (M <= 2048 or N > 2048) else 0",
            "num_warps": "8 if N > 32768 else max(1, min(32,"
            " (min(8 * pow2(N), 4096) if M > 2048 and N <= 2048 else pow2(N))"
            " // (1024 if N % 8 > 0 and N > 2048 else 512)))",
        },
        constraints=(
            "SWEEP == 0 or (ROWS == 1 and PROGRAMS == 0 and N > 8192 and STREAM + LOAD == 0)",
            "SWEEP > 0 or N <= 32768",
            "(PROGRAMS > 0) == (STAGES > 1) and LOAD % 6 * PROGRAMS == 0",
            # what fits in L2 may be wanted from there next
            "STREAM + LOAD % 6 == 0 or M * N * itemsize > 33554432",
            "LOAD < 6 or (ROWS == 1 and STREAM == 0 and N % (16 // itemsize) > 0)",
            "LOAD < 6 or (N > 512 and N <= 16384)",
            # a walking program keeps w as well
            "PROGRAMS == 0 or (N >= 2048 and N <= 16384 and M > 132 * ROWS * PROGRAMS)",
            "ROWS == 1 or (M >= 264 * ROWS and ROWS * pow2(N) <= 8192)",
            # 8 to 32 values a thread: fewer waste threads, more spill
            "SWEEP > 0 or num_warps == 1 or 256 * num_warps <= ROWS * pow2(N)",
            "SWEEP > 0 or ROWS * pow2(N) <= 1024 * num_warps",
            "SWEEP == 0 or (128 * num_warps <= SWEEP and SWEEP <= 1024 * num_warps)",
            # the rows in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * ROWS * pow2(N) * itemsize <= 232448",
        ),
    ),
    backward="rms_norm_backward",
)
