"""A residual taken in, then the sum's RMS norm in 8 bits with a scale for each row.

    s[i, j]  = x[i, j] + residual[i, j]
    r[i]     = rsqrt(mean_j s[i, j]^2 + eps)
    n[i, j]  = s[i, j] * r[i] * (offset + w[j])
    scale[i] = max(max_j |n[i, j]| / 448, 1e-12)
    y[i, j]  = n[i, j] / scale[i], in float8_e4m3fn, whose largest value is 448

x, residual, y, s  (M, N), any row stride; w (N,); scale (M,); eps = 1e-6, offset = 0 (Gemma: 1)
dtype    x, residual, w, s float32, float16, bfloat16; scale float32; float32 inside: n is of the
         sum as it is before s is rounded, and is itself rounded once, to 8 bits; sm_89 or newer
moves    reads x, residual and w once, writes y, scale and s once
plan     a program keeps ROWS rows in registers from load to store; or it walks on (PROGRAMS on each
         SM, loads STAGES deep; LOAD 5: as many as rows), by whole vectors from the first boundary
         in each row; rows too long for registers are swept three times; STREAM asks L2 to let go of
         s first: y is wanted next; LOAD says how x, residual and w come; what is known before a
         launch costs no instruction: no mask where rows fill their blocks
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="add_rms_norm_fp8",
    inputs={"x": Tensor("M N"), "residual": Tensor("M N"), "w": Tensor("N")},
    outputs={
        "y": Tensor("M N", "float8_e4m3fn"),
        "scale": Tensor("M", "float32"),
        "s": Tensor("M N"),
    },
    options={
        "eps": Option(1e-6),
        "offset": Option(0.0, (0.0, 1.0)),
    },
    flops="8 * M * N",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N",
            {"check": [(1, 1), (3, 127), (37, 781), (5, 1536)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 2, "N": 40000}, {"T": "float32"}),
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"offset": 1.0}),
        *grid("M N", {"measure": [(8192, 4096), (16, 4096), (2047, 5001)]}, dtypes=("bfloat16",)),
    ),
)


def reference(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, *, eps: float, offset: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sum, its RMS norm in float32, and a quantiser of that by rows."""
    s = x.float() + residual.float()
    n = s * torch.rsqrt(s.square().mean(-1, keepdim=True) + eps) * (w.float() + offset)
    scale = (n.abs().amax(-1) / 448.0).clamp_min(1e-12)
    return (n / scale[:, None]).to(torch.float8_e4m3fn), scale, s.to(x.dtype)


def rows_fill_the_range(*tensors: torch.Tensor, **_: object) -> bool:
    """The largest of a row that is not next to nothing is 448 or -448."""
    _x, _residual, _w, y, scale, _s = tensors
    full = y.float().abs().amax(-1) == 448.0
    return bool((full | (scale <= 1.01e-12)).all())


@triton.jit
def _scale(largest):
    return tl.maximum(largest * (1.0 / 448.0), 1e-12)


@triton.jit
def _weight(w, offset, SHIFTED: tl.constexpr):
    return w.to(tl.float32) + offset if SHIFTED else w.to(tl.float32)


@triton.jit
def _add_rms_norm_fp8_rows(
    x_ptr, residual_ptr, w_ptr, y_ptr, scale_ptr, s_ptr, M, N, x_stride, residual_stride,
    out_stride, eps, offset, SHIFTED: tl.constexpr, FULL: tl.constexpr,
    EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    X_CACHE: tl.constexpr, X_HINT: tl.constexpr, W_HINT: tl.constexpr, S_HINT: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    of_row = None if FULL else col < N
    # what a full row's block holds of rows past M is not stored: it needs no zeros
    OUTSIDE: tl.constexpr = None if FULL else 0.0
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
    x_at, residual_at = x_ptr + row * x_stride + col, residual_ptr + row * residual_stride + col
    x = tl.load(x_at, inside, OUTSIDE, cache_modifier=X_CACHE, eviction_policy=X_HINT)
    residual = tl.load(residual_at, inside, OUTSIDE, cache_modifier=X_CACHE, eviction_policy=X_HINT)
    w = tl.load(w_ptr + col, mask=of_row, other=OUTSIDE, eviction_policy=W_HINT)
    s = x.to(tl.float32) + residual.to(tl.float32)
    narrow = s.to(s_ptr.dtype.element_ty)
    tl.store(s_ptr + row * out_stride + col, narrow, mask=inside, eviction_policy=S_HINT)
    w = _weight(w, offset, SHIFTED)
    squares = tl.sum(s * s, axis=1, keep_dims=True)
    # a row that fills its block is of a power of two: its mean takes no division
    n = s * tl.rsqrt((squares * (1.0 / BLOCK) if FULL else squares / N) + eps) * w
    scale = _scale(tl.max(tl.abs(n), axis=1, keep_dims=True))
    y = (n * (1.0 / scale)).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * out_stride + col, y, mask=inside)
    tl.store(scale_ptr + row, scale, mask=None if EVEN else row < M)


@triton.jit
def _sum(x_ptr, residual_ptr, at, inside):
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    return x + tl.load(residual_ptr + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _boundary(row, N, VECTOR: tl.constexpr):
    return (tl.cast(row, tl.int64) * N + VECTOR - 1) // VECTOR * VECTOR


@triton.jit
def _add_rms_norm_fp8_skewed_rows(
    x_ptr, residual_ptr, w_ptr, y_ptr, scale_ptr, s_ptr, M, N, eps, offset,
    SHIFTED: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, VECTOR: tl.constexpr,
    ENDS: tl.constexpr, S_HINT: tl.constexpr,
):  # fmt: skip
    wide: tl.constexpr = s_ptr.dtype.element_ty
    narrow: tl.constexpr = y_ptr.dtype.element_ty
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
    s_end = _sum(x_ptr + at, residual_ptr + at, end, part)
    for each in tl.range(row, M, step, num_stages=STAGES):
        at, after = _boundary(each, N, VECTOR), _boundary(each + step, N, VECTOR)
        s = _sum(x_ptr + at, residual_ptr + at, lane, whole)
        # Triton loads nothing narrower than 4 bytes ahead of its use
        next_end = _sum(x_ptr + after, residual_ptr + after, end, part & (each + step < M))
        r = tl.rsqrt((tl.sum(s * s) + tl.sum(s_end * s_end)) / N + eps)
        tl.store(s_ptr + at + lane, s.to(wide), mask=whole, eviction_policy=S_HINT)
        tl.store(s_ptr + at + end, s_end.to(wide), mask=part, eviction_policy=S_HINT)
        n, n_end = s * r * _weight(w, offset, SHIFTED), s_end * r * _weight(w_end, offset, SHIFTED)
        scale = _scale(tl.maximum(tl.max(tl.abs(n)), tl.max(tl.abs(n_end))))
        tl.store(y_ptr + at + lane, (n * (1.0 / scale)).to(narrow), mask=whole)
        tl.store(y_ptr + at + end, (n_end * (1.0 / scale)).to(narrow), mask=part)
        tl.store(scale_ptr + each, scale)
        s_end = next_end


@triton.jit
def _add_rms_norm_fp8_long_row(
    x_ptr, residual_ptr, w_ptr, y_ptr, scale_ptr, s_ptr, N, x_stride, residual_stride, out_stride,
    eps, offset, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr, residual_ptr = x_ptr + row * x_stride, residual_ptr + row * residual_stride
    y_ptr, s_ptr = y_ptr + row * out_stride, s_ptr + row * out_stride
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        s = _sum(x_ptr, residual_ptr, col, col < N)
        tl.store(s_ptr + col, s.to(s_ptr.dtype.element_ty), mask=col < N)
        squares += s * s
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    largest = tl.zeros((BLOCK,), dtype=tl.float32)
    blocks = tl.cdiv(N, BLOCK)
    for block in range(0, blocks):
        # backwards, so that a sweep begins with what the last one left in the caches
        col = (blocks - 1 - block) * BLOCK + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + col, mask=col < N, other=0.0).to(tl.float32) + offset
        largest = tl.maximum(largest, tl.abs(_sum(x_ptr, residual_ptr, col, col < N) * r * w))
    scale = _scale(tl.max(largest, axis=0))
    tl.store(scale_ptr + row, scale)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + col, mask=col < N, other=0.0).to(tl.float32) + offset
        y = _sum(x_ptr, residual_ptr, col, col < N) * r * w * (1.0 / scale)
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=col < N)


#: By LOAD: the cache modifier and the eviction policy of x and residual, and the policy of w.
_LOADS = (
    ("", "", ""), (".cg", "", ""), ("", "evict_first", ""), ("", "evict_last", ""),
    ("", "", "evict_last"), ("", "", ""),
)  # fmt: skip


def _programs(blocks: int, per_sm: int, device: torch.device, of: int) -> int:
    """One program for each block, or `per_sm` on each multiprocessor (a multiple of `of`)."""
    if per_sm == 0 or device.type != "cuda":
        return blocks
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    return min(blocks, max(1, per_sm * sms // of) * of)


def add_rms_norm_fp8(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, *,
    eps: float = 1e-6, offset: float = 0.0,
    ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, STREAM: int, LOAD: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Normalise in registers, or with SWEEP > 0 in three sweeps of blocks of that many columns."""
    M, N = x.shape
    x, residual = (t if t.stride(1) == 1 else t.contiguous() for t in (x, residual))
    w = w.contiguous()
    y = torch.empty((M, N), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty((M,), dtype=torch.float32, device=x.device)
    s = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if M == 0:
        return y, scale, s
    strides = x.stride(0), residual.stride(0), y.stride(0)
    BLOCK = triton.next_power_of_2(N)
    if SWEEP > 0 or BLOCK > 32768:
        _add_rms_norm_fp8_long_row[(M,)](
            x, residual, w, y, scale, s, N, *strides, eps, offset,
            BLOCK=SWEEP or 4096, num_warps=num_warps,
        )  # fmt: skip
        return y, scale, s
    # a setting that was tuned at another size must fit here too: registers, then shared memory
    ROWS = max(1, min(ROWS, 32768 // BLOCK))
    num_warps = max(num_warps, ROWS * BLOCK // 2048)
    STAGES = min(STAGES, 1 + 81920 // (ROWS * BLOCK * x.element_size())) if PROGRAMS > 0 else 1
    s_hint = "evict_first" if STREAM else ""
    vector = 16 // x.element_size()
    if (PROGRAMS > 0 or LOAD == 5) and vector <= N <= 16384 and strides == (N, N, N):
        # 5001 is 4096 by vectors and the rest by elements: 5120 lanes for 8192
        ends = triton.next_power_of_2(N - BLOCK // 2 + vector + 1)
        block, ends = (BLOCK // 2, ends) if 4 * ends <= BLOCK else (BLOCK, 2 * vector)
        _add_rms_norm_fp8_skewed_rows[(_programs(M, PROGRAMS, x.device, vector),)](
            x, residual, w, y, scale, s, M, N, eps, offset, SHIFTED=offset != 0.0, BLOCK=block,
            STAGES=STAGES, VECTOR=vector, ENDS=ends, S_HINT=s_hint, num_warps=num_warps,
        )  # fmt: skip
        return y, scale, s
    x_cache, x_hint, w_hint = _LOADS[LOAD]
    _add_rms_norm_fp8_rows[(triton.cdiv(M, ROWS),)](
        x, residual, w, y, scale, s, M, N, *strides, eps, offset,
        SHIFTED=offset != 0.0, FULL=N == BLOCK, EVEN=M % ROWS == 0, ROWS=ROWS, BLOCK=BLOCK,
        X_CACHE=x_cache, X_HINT=x_hint, W_HINT=w_hint, S_HINT=s_hint, num_warps=num_warps,
    )  # fmt: skip
    return y, scale, s


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(rows_fill_the_range,),
    kernel=add_rms_norm_fp8,
    space=Space(
        {
            "ROWS": (1, 2, 4, 8, 16),
            "PROGRAMS": (0, 1, 2, 4),
            "STAGES": (1, 2, 3),
            "SWEEP": (0, 2048, 4096, 8192),
            "STREAM": (0, 1),
            "LOAD": (0, 1, 2, 3, 4, 5),
            "num_warps": (4, 1, 2, 8, 16, 32),
        },
        # what was best for rms_norm on an H200, where the loads are half as many
        rule={
            "ROWS": "max(1, min(8, 4096 // pow2(N))) if M > 2048 else 1",
            "PROGRAMS": "1 if N > 8192 and N <= 16384 and M > 132"
            " else 2 if N % 8 > 0 and N > 2048 and N <= 8192 and M > 264 else 0",
            "STAGES": "min(3, 1 + 116224 // (pow2(N) * itemsize))"
            " if N > 8192 and N <= 16384 and M > 132"
            " else min(3, 1 + 116224 // (2 * pow2(N) * itemsize))"
            " if N % 8 > 0 and N > 2048 and N <= 8192 and M > 264 else 1",
            "SWEEP": "0 if N <= 32768 else 4096",
            "LOAD": "5 if N % (16 // itemsize) > 0 and N > 512 and N <= 16384"
            " and M <= (132 if N > 8192 else 264 if N > 2048 else 2048) else 0",
            "num_warps": "8 if N > 32768 else max(1, min(32,"
            " (min(8 * pow2(N), 4096) if M > 2048 and N <= 2048 else pow2(N))"
            " // (1024 if N % 8 > 0 and N > 2048 else 512)))",
        },
        constraints=(
            "SWEEP == 0 or (ROWS == 1 and PROGRAMS == 0 and N > 8192 and STREAM + LOAD == 0)",
            "SWEEP > 0 or N <= 32768",
            "(PROGRAMS > 0) == (STAGES > 1) and LOAD * PROGRAMS == 0",
            # what fits in L2 may be wanted from there next
            "STREAM + LOAD % 5 == 0 or M * N * itemsize > 33554432",
            "LOAD < 5 or (ROWS == 1 and N % (16 // itemsize) > 0 and N > 512 and N <= 16384)",
            # a walking program keeps w as well
            "PROGRAMS == 0 or (ROWS == 1 and N >= 2048 and N <= 16384 and M > 132 * PROGRAMS)",
            "ROWS == 1 or (M >= 264 * ROWS and ROWS * pow2(N) <= 8192)",
            # 8 to 32 values a thread: fewer waste threads, more spill
            "SWEEP > 0 or num_warps == 1 or 256 * num_warps <= ROWS * pow2(N)",
            "SWEEP > 0 or ROWS * pow2(N) <= 1024 * num_warps",
            "SWEEP == 0 or (128 * num_warps <= SWEEP and SWEEP <= 1024 * num_warps)",
            # the rows in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * pow2(N) * 2 * itemsize <= 232448",
        ),
    ),
)
