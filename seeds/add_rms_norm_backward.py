"""Gradient of the residual taken in and the sum's RMS norm, from the sum.

    r[i]             = rsqrt(mean_j s[i, j]^2 + eps)
    g[i, j]          = d_y[i, j] * (offset + w[j])
    d_x[i, j]        = d_s[i, j] + r[i] * (g[i, j] - s[i, j] * r[i]^2 * mean_k g[i, k] * s[i, k])
    d_residual[i, j] = d_x[i, j]
    d_w[j]           = sum_i d_y[i, j] * s[i, j] * r[i]

d_y, d_s, s, w  (M, N) and (N,), any row stride; outputs as s, d_w as w; options as add_rms_norm's
dtype    float32, float16, bfloat16; float32 inside, d_w summed in float32 in a fixed order; s * r
         is not rounded on its way to d_w, whatever cast says: it only costs time and precision
moves    reads d_y, d_s, s and w once, writes d_x, its copy d_residual and d_w once
plan     PROGRAMS on each SM share the rows, loads STAGES deep (0 where none takes a second turn),
         and keep their part of d_w in registers; a second kernel adds the parts. Rows too long
         for registers: one kernel for the two row means, one that walks down blocks of SWEEP
         columns. Rows that begin anywhere move by whole vectors from the first boundary in each
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="add_rms_norm_backward",
    inputs={"d_y": Tensor("M N"), "d_s": Tensor("M N"), "s": Tensor("M N"), "w": Tensor("N")},
    outputs={"d_x": Tensor("M N"), "d_residual": Tensor("M N"), "d_w": Tensor("N")},
    options={
        "eps": Option(1e-6),
        "offset": Option(0.0, (0.0, 1.0)),
        "cast": Option("llama", ("llama", "gemma")),
    },
    flops="12 * M * N",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N",
            {"check": [(1, 2), (3, 127), (37, 781), (5, 1024)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 2, "N": 9000}, {"T": "float32"}),
        Workload({"M": 19, "N": 1037}, {"T": "bfloat16"}),
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"offset": 1.0, "cast": "gemma"}),
        *grid("M N", {"measure": [(8192, 4096), (16, 4096), (2047, 5001)]}, dtypes=("bfloat16",)),
    ),
)


def reference(
    d_y: torch.Tensor, d_s: torch.Tensor, s: torch.Tensor, w: torch.Tensor, *,
    eps: float, offset: float, cast: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients as autograd takes them, with the sums in float32."""
    wide = s.float()
    r = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    normed = wide * r
    g = d_y.float() * (w.float() + offset)
    d_x = (d_s.float() + r * (g - normed * (g * normed).mean(-1, keepdim=True))).to(s.dtype)
    rounded = normed.to(s.dtype).float() if cast == "llama" else normed
    return d_x, d_x.clone(), (d_y.float() * rounded).sum(0).to(w.dtype)


def both_terms_get_the_same(*tensors: torch.Tensor, **_: object) -> bool:
    """A sum passes its gradient on to both terms."""
    return torch.equal(*tensors[4:6])


@triton.jit
def _load(ptr, at, inside, OTHER: tl.constexpr = 0.0):
    return tl.load(ptr + at, mask=inside, other=OTHER).to(tl.float32)


@triton.jit
def _store(d_x_ptr, d_residual_ptr, at, inside, d_y, d_s, s, g, r, inner):
    """Store d_x, twice since outputs share no memory; what the rows add to d_w."""
    normed = s * r
    d_x = (d_s.to(tl.float32) + (g - normed * inner) * r).to(d_x_ptr.dtype.element_ty)
    tl.store(d_x_ptr + at, d_x, mask=inside)
    tl.store(d_residual_ptr + at, d_x, mask=inside)
    return d_y * normed


@triton.jit
def _add_rms_norm_backward_rows(
    d_y_ptr, d_s_ptr, s_ptr, w_ptr, d_x_ptr, d_residual_ptr, part_ptr, M, N,
    d_y_stride, d_s_stride, s_stride, eps, offset, FULL: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    of_row = None if FULL else col < N
    # rows past M must add nothing
    OUTSIDE: tl.constexpr = None if FULL and EVEN else 0.0
    w = _load(w_ptr, col, of_row, None if FULL else 0.0) + offset
    part, share, first = tl.zeros((1, BLOCK), tl.float32), 1.0 / N, tl.program_id(0) * ROWS
    # a loop of one turn is none to the compiler: w is then on its way with the rest
    stop, step = (first + 1, 1) if STAGES == 0 else (M, tl.num_programs(0) * ROWS)
    for start in tl.range(first, stop, step, num_stages=max(1, STAGES)):
        row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
        s = _load(s_ptr, row * s_stride + col, inside, OUTSIDE)
        d_y = _load(d_y_ptr, row * d_y_stride + col, inside, OUTSIDE)
        d_s = tl.load(d_s_ptr + row * d_s_stride + col, mask=inside, other=OUTSIDE)
        g, at = d_y * w, row * N + col
        square, product = tl.split(tl.sum(tl.join(s * s, g * s), axis=1, keep_dims=True))
        r = tl.rsqrt(square * share + eps)
        d_w = _store(d_x_ptr, d_residual_ptr, at, inside, d_y, d_s, s, g, r, product * share * r)
        part += tl.sum(d_w, axis=0, keep_dims=True)
    tl.store(part_ptr + tl.program_id(0).to(tl.int64) * N + col, part, mask=of_row)


@triton.jit
def _by_thread(x, LANES: tl.constexpr, VECTOR: tl.constexpr):
    return tl.sum(tl.sum(tl.reshape(x, (x.numel // LANES // VECTOR, LANES, VECTOR)), 2), 0)


@triton.jit
def _add_rms_norm_backward_skewed_rows(
    d_y_ptr, d_s_ptr, s_ptr, w_ptr, d_x_ptr, d_residual_ptr, part_ptr, M, N, eps, offset,
    VECTOR: tl.constexpr, BLOCK: tl.constexpr, ENDS: tl.constexpr, LANES: tl.constexpr,
    STAGES: tl.constexpr,
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
    w, w_end = _load(w_ptr + head, lane, whole) + offset, _load(w_ptr + head, end, part) + offset
    d_w, d_w_end = tl.zeros((BLOCK,), tl.float32), tl.zeros((ENDS,), tl.float32)
    d_y_end = tl.load(d_y_ptr + start + end, mask=part, other=0.0)
    d_s_end = tl.load(d_s_ptr + start + end, mask=part, other=0.0)
    s_end, at = tl.load(s_ptr + start + end, mask=part, other=0.0), start
    for each in tl.range(row, M, step, num_stages=STAGES):
        d_y, s = _load(d_y_ptr + at, lane, whole), _load(s_ptr + at, lane, whole)
        d_s = tl.load(d_s_ptr + at + lane, mask=whole, other=0.0)
        # Triton loads nothing narrower than 4 bytes ahead of its use, nor of its conversion
        after, more = at + stride, part & (each + step < M)
        d_y_next = tl.load(d_y_ptr + after + end, mask=more, other=0.0)
        d_s_next = tl.load(d_s_ptr + after + end, mask=more, other=0.0)
        s_next = tl.load(s_ptr + after + end, mask=more, other=0.0)
        d_y_end, s_end = d_y_end.to(tl.float32), s_end.to(tl.float32)
        g, g_end = d_y * w, d_y_end * w_end
        # a thread adds what it has of both parts, then both means take one round of barriers
        square = _by_thread(s * s, LANES, VECTOR) + _by_thread(s_end * s_end, LANES, 1)
        product = _by_thread(g * s, LANES, VECTOR) + _by_thread(g_end * s_end, LANES, 1)
        square, product = tl.split(tl.sum(tl.join(square, product), axis=0))
        r = tl.rsqrt(square * share + eps)
        x_at, r_at, inner = d_x_ptr + at, d_residual_ptr + at, product * share * r
        d_w += _store(x_at, r_at, lane, whole, d_y, d_s, s, g, r, inner)
        d_w_end += _store(x_at, r_at, end, part, d_y_end, d_s_end, s_end, g_end, r, inner)
        d_y_end, d_s_end, s_end, at = d_y_next, d_s_next, s_next, after
    tl.store(part_ptr + start + lane, d_w, mask=whole)
    tl.store(part_ptr + start + end, d_w_end, mask=part)


@triton.jit
def _row_means(
    d_y_ptr, s_ptr, w_ptr, r_ptr, inner_ptr, N, d_y_stride, s_stride, eps, offset,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    squares, products = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        s = _load(s_ptr + row * s_stride, col, col < N)
        squares += s * s
        w = _load(w_ptr, col, col < N) + offset
        products += _load(d_y_ptr + row * d_y_stride, col, col < N) * w * s
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(r_ptr + row, r)
    tl.store(inner_ptr + row, tl.sum(products, axis=0) / N * r)


@triton.jit
def _add_rms_norm_backward_columns(
    d_y_ptr, d_s_ptr, s_ptr, w_ptr, r_ptr, inner_ptr, d_x_ptr, d_residual_ptr, part_ptr, M, N,
    d_y_stride, d_s_stride, s_stride, offset, BLOCK: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = col < N
    w, part = _load(w_ptr, col, inside) + offset, tl.zeros((BLOCK,), tl.float32)
    for index in range(tl.program_id(1), M, tl.num_programs(1)):
        row = tl.cast(index, tl.int64)
        r, inner = tl.load(r_ptr + row), tl.load(inner_ptr + row)
        s = _load(s_ptr + row * s_stride, col, inside)
        d_y = _load(d_y_ptr + row * d_y_stride, col, inside)
        d_s = _load(d_s_ptr + row * d_s_stride, col, inside)
        at = row * N + col
        part += _store(d_x_ptr, d_residual_ptr, at, inside, d_y, d_s, s, d_y * w, r, inner)
    tl.store(part_ptr + tl.program_id(1).to(tl.int64) * N + col, part, mask=inside)


@triton.jit
def _add_parts(part_ptr, d_w_ptr, PARTS, N, BLOCK_PARTS: tl.constexpr, BLOCK_N: tl.constexpr):
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_PARTS, BLOCK_N), dtype=tl.float32)
    for start in range(0, PARTS, BLOCK_PARTS):
        part = (start + tl.arange(0, BLOCK_PARTS)[:, None]).to(tl.int64)
        total += tl.load(part_ptr + part * N + col, mask=(part < PARTS) & (col < N), other=0.0)
    tl.store(d_w_ptr + col, tl.sum(total, axis=0, keep_dims=True), mask=col < N)


def add_rms_norm_backward(
    d_y: torch.Tensor, d_s: torch.Tensor, s: torch.Tensor, w: torch.Tensor, *,
    eps: float = 1e-6, offset: float = 0.0, cast: str = "llama",
    ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Differentiate rows in registers, or with SWEEP > 0 row means first, then columns."""
    M, N = s.shape
    BLOCK, vector = triton.next_power_of_2(N), 16 // s.element_size()
    d_y, d_s, s, w = (t if t.stride(-1) == 1 else t.contiguous() for t in (d_y, d_s, s, w))
    strides = d_y.stride(0), d_s.stride(0), s.stride(0)
    # Triton sees whole vectors in rows that are a multiple of 16 apart, and in no others
    skewed = N % 16 > 0 and 512 < N <= 8192 and set(strides) == {N}
    if BLOCK > 16384 or (N % 16 > 0 and N > 2048 and not skewed):
        SWEEP = SWEEP or 1024
    # a setting that was tuned at another size must fit here too
    ROWS, of = (1, vector) if skewed else (max(1, min(ROWS, 16384 // BLOCK)), 1)
    d_x, d_residual = (torch.empty((M, N), dtype=s.dtype, device=s.device) for _ in range(2))
    d_w = torch.empty_like(w)
    # on a CPU, where Triton interprets, any number of programs will do
    SMS = torch.cuda.get_device_properties(s.device).multi_processor_count if s.is_cuda else 2
    parts = min(triton.cdiv(M, ROWS), max(1, PROGRAMS * SMS // of) * of)
    part = torch.empty((parts, N), dtype=torch.float32, device=s.device)
    if M > 0 and SWEEP > 0:
        r, inner = torch.empty((2, M), dtype=torch.float32, device=s.device)
        _row_means[(M,)](
            d_y, s, w, r, inner, N, *strides[::2], eps, offset, BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
        _add_rms_norm_backward_columns[(triton.cdiv(N, SWEEP), parts)](
            d_y, d_s, s, w, r, inner, d_x, d_residual, part, M, N, *strides, offset,
            BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
    elif M > 0:
        # 5001 is 4096 by vectors and the rest by elements: 5120 lanes for 8192
        ends = triton.next_power_of_2(N - BLOCK // 2 + vector)
        block, ends = (BLOCK // 2, ends) if skewed and 4 * ends <= BLOCK else (BLOCK, 2 * vector)
        num_warps = max(num_warps, ROWS * block // 1024)
        STAGES = min(STAGES, 1 + 54613 // (ROWS * block * s.element_size()))
        if skewed:
            LANES = min(32 * num_warps, block // vector)
            _add_rms_norm_backward_skewed_rows[(parts,)](
                d_y, d_s, s, w, d_x, d_residual, part, M, N, eps, offset,
                VECTOR=vector, BLOCK=block, ENDS=max(ends, LANES), LANES=LANES,
                STAGES=STAGES if parts < M else 1, num_warps=LANES // 32,
            )  # fmt: skip
        else:
            _add_rms_norm_backward_rows[(parts,)](
                d_y, d_s, s, w, d_x, d_residual, part, M, N, *strides, eps, offset,
                FULL=N == BLOCK, EVEN=M % ROWS == 0, ROWS=ROWS, BLOCK=BLOCK,
                STAGES=STAGES if parts * ROWS < M else 0, num_warps=num_warps,
            )  # fmt: skip
    BLOCK_PARTS = min(64, triton.next_power_of_2(max(1, parts)))
    _add_parts[(triton.cdiv(N, 32),)](part, d_w, parts, N, BLOCK_PARTS, 32, num_warps=4)
    return d_x, d_residual, d_w


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(both_terms_get_the_same,),
    kernel=add_rms_norm_backward,
    space=Space(
        {
            "ROWS": (1, 2, 4, 8),
            "PROGRAMS": (1, 2, 4),
            "STAGES": (3, 1, 2, 4),
            "SWEEP": (0, 512, 1024, 2048),
            "num_warps": (8, 1, 2, 4, 16, 32),
        },
        # what was best for rms_norm_backward on an H200, which has one tensor less in flight
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
            "ROWS == 1 or (M >= 264 * ROWS and (N % 16 == 0 or N <= 512))",
            # 4 to 32 values of each tensor a thread: fewer waste threads, more spill
            "SWEEP > 0 or num_warps == 1 or 256 * num_warps <= ROWS * pow2(N)",
            "SWEEP > 0 or ROWS * pow2(N) <= 1024 * num_warps",
            "SWEEP == 0 or (128 * num_warps <= SWEEP and SWEEP <= 1024 * num_warps)",
            "PROGRAMS * num_warps <= 64",
            # the rows of d_y, d_s and s in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * ROWS * pow2(N) * 3 * itemsize <= 232448",
        ),
    ),
)
