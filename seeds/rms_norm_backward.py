"""Gradient of RMS norm, from its inputs.

    r[i]      = rsqrt(mean_j x[i, j]^2 + eps)
    g[i, j]   = d_y[i, j] * (offset + w[j])
    d_x[i, j] = r[i] * (g[i, j] - x[i, j] * r[i]^2 * mean_k g[i, k] * x[i, k])
    d_w[j]    = sum_i d_y[i, j] * x[i, j] * r[i]

d_y, x, w  (M, N), (M, N), (N,), any row stride; d_x, d_w as x, w; eps, offset, cast as rms_norm's
dtype      float32, float16, bfloat16; float32 inside, d_w summed in float32 in a fixed order; x * r
           is not rounded on its way to d_w, whatever cast says: that took a convert for each value
           at a quarter of the rate, and only lost precision
moves      reads d_y, x and w once, writes d_x and d_w once
plan       PROGRAMS on each SM share the rows, loads STAGES deep (0 where none takes a second turn),
           and keep their part of d_w in registers; a second kernel adds the parts. Rows too long
           for registers: one kernel for the two row means, one that walks down blocks of SWEEP
           columns; no mask where rows fill their blocks and ROWS divides M; rows that begin
           anywhere move by whole vectors from the first boundary in each
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="rms_norm_backward",
    inputs={"d_y": Tensor("M N"), "x": Tensor("M N"), "w": Tensor("N")},
    outputs={"d_x": Tensor("M N"), "d_w": Tensor("N")},
    options={
        "eps": Option(1e-6),
        "offset": Option(0.0, (0.0, 1.0)),
        "cast": Option("llama", ("llama", "gemma")),
    },
    flops="11 * M * N",
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
    d_y: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *, eps: float, offset: float, cast: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients as autograd takes them, with the sums in float32."""
    wide = x.float()
    r = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    normed = wide * r
    g = d_y.float() * (w.float() + offset)
    d_x = r * (g - normed * (g * normed).mean(-1, keepdim=True))
    rounded = normed.to(x.dtype).float() if cast == "llama" else normed
    return d_x.to(x.dtype), (d_y.float() * rounded).sum(0).to(w.dtype)


def no_gradient_along_x(
    d_y: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    d_x: torch.Tensor,
    d_w: torch.Tensor,
    **_: object,
) -> bool:
    """Scaling a row of x changes nothing, so d_x is orthogonal to x (where x outweighs eps)."""
    along = (d_x.double() * x.double()).sum(-1).abs()
    return bool((along <= 2e-2 * d_x.double().norm(dim=-1) * x.double().norm(dim=-1) + 1e-2).all())


@triton.jit
def _load(ptr, at, inside, OTHER: tl.constexpr = 0.0):
    return tl.load(ptr + at, mask=inside, other=OTHER).to(tl.float32)


@triton.jit
def _store(d_x_ptr, at, inside, d_y, x, g, r, inner):
    """Store d_x; what the rows add to d_w."""
    normed = x * r
    d_x = ((g - normed * inner) * r).to(d_x_ptr.dtype.element_ty)
    tl.store(d_x_ptr + at, d_x, mask=inside)
    return d_y * normed


@triton.jit
def _rms_norm_backward_rows(
    d_y_ptr, x_ptr, w_ptr, d_x_ptr, part_ptr, M, N, d_y_stride, x_stride, eps, offset,
    FULL: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
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
        x = _load(x_ptr, row * x_stride + col, inside, OUTSIDE)
        d_y = _load(d_y_ptr, row * d_y_stride + col, inside, OUTSIDE)
        g = d_y * w
        square, product = tl.split(tl.sum(tl.join(x * x, g * x), axis=1, keep_dims=True))
        r = tl.rsqrt(square * share + eps)
        d_w = _store(d_x_ptr, row * N + col, inside, d_y, x, g, r, product * share * r)
        part += tl.sum(d_w, axis=0, keep_dims=True)
    tl.store(part_ptr + tl.program_id(0).to(tl.int64) * N + col, part, mask=of_row)


@triton.jit
def _by_thread(x, LANES: tl.constexpr, VECTOR: tl.constexpr):
    return tl.sum(tl.sum(tl.reshape(x, (x.numel // LANES // VECTOR, LANES, VECTOR)), 2), 0)


@triton.jit
def _rms_norm_backward_skewed_rows(
    d_y_ptr, x_ptr, w_ptr, d_x_ptr, part_ptr, M, N, eps, offset,
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
    x_end, at = tl.load(x_ptr + start + end, mask=part, other=0.0), start
    for each in tl.range(row, M, step, num_stages=STAGES):
        d_y, x = _load(d_y_ptr + at, lane, whole), _load(x_ptr + at, lane, whole)
        # Triton loads nothing narrower than 4 bytes ahead of its use, nor of its conversion
        after, more = at + stride, part & (each + step < M)
        d_y_next = tl.load(d_y_ptr + after + end, mask=more, other=0.0)
        x_next = tl.load(x_ptr + after + end, mask=more, other=0.0)
        d_y_end, x_end = d_y_end.to(tl.float32), x_end.to(tl.float32)
        g, g_end = d_y * w, d_y_end * w_end
        # a thread adds what it has of both parts, then both means take one round of barriers
        square = _by_thread(x * x, LANES, VECTOR) + _by_thread(x_end * x_end, LANES, 1)
        product = _by_thread(g * x, LANES, VECTOR) + _by_thread(g_end * x_end, LANES, 1)
        square, product = tl.split(tl.sum(tl.join(square, product), axis=0))
        r = tl.rsqrt(square * share + eps)
        inner = product * share * r
        d_w += _store(d_x_ptr + at, lane, whole, d_y, x, g, r, inner)
        d_w_end += _store(d_x_ptr + at, end, part, d_y_end, x_end, g_end, r, inner)
        d_y_end, x_end, at = d_y_next, x_next, after
    tl.store(part_ptr + start + lane, d_w, mask=whole)
    tl.store(part_ptr + start + end, d_w_end, mask=part)


@triton.jit
def _row_means(
    d_y_ptr, x_ptr, w_ptr, r_ptr, inner_ptr, N, d_y_stride, x_stride, eps, offset,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    squares, products = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = _load(x_ptr + row * x_stride, col, col < N)
        squares += x * x
        w = _load(w_ptr, col, col < N) + offset
        products += _load(d_y_ptr + row * d_y_stride, col, col < N) * w * x
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(r_ptr + row, r)
    tl.store(inner_ptr + row, tl.sum(products, axis=0) / N * r)


@triton.jit
def _rms_norm_backward_columns(
    d_y_ptr, x_ptr, w_ptr, r_ptr, inner_ptr, d_x_ptr, part_ptr, M, N,
    d_y_stride, x_stride, offset, BLOCK: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = col < N
    w, part = _load(w_ptr, col, inside) + offset, tl.zeros((BLOCK,), tl.float32)
    for index in range(tl.program_id(1), M, tl.num_programs(1)):
        row = tl.cast(index, tl.int64)
        r, inner = tl.load(r_ptr + row), tl.load(inner_ptr + row)
        x = _load(x_ptr + row * x_stride, col, inside)
        d_y = _load(d_y_ptr + row * d_y_stride, col, inside)
        part += _store(d_x_ptr, row * N + col, inside, d_y, x, d_y * w, r, inner)
    tl.store(part_ptr + tl.program_id(1).to(tl.int64) * N + col, part, mask=inside)


@triton.jit
def _add_parts(part_ptr, d_w_ptr, PARTS, N, BLOCK_PARTS: tl.constexpr, BLOCK_N: tl.constexpr):
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_PARTS, BLOCK_N), dtype=tl.float32)
    for start in range(0, PARTS, BLOCK_PARTS):
        part = (start + tl.arange(0, BLOCK_PARTS)[:, None]).to(tl.int64)
        total += tl.load(part_ptr + part * N + col, mask=(part < PARTS) & (col < N), other=0.0)
    tl.store(d_w_ptr + col, tl.sum(total, axis=0, keep_dims=True), mask=col < N)


def rms_norm_backward(
    d_y: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *,
    eps: float = 1e-6, offset: float = 0.0, cast: str = "llama",
    ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
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
    d_w = torch.empty_like(w)
    # on a CPU, where Triton interprets, any number of programs will do
    SMS = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    parts = min(triton.cdiv(M, ROWS), max(1, PROGRAMS * SMS // of) * of)
    part = torch.empty((parts, N), dtype=torch.float32, device=x.device)
    if M > 0 and SWEEP > 0:
        r, inner = torch.empty((2, M), dtype=torch.float32, device=x.device)
        _row_means[(M,)](
            d_y, x, w, r, inner, N, *strides, eps, offset, BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
        _rms_norm_backward_columns[(triton.cdiv(N, SWEEP), parts)](
            d_y, x, w, r, inner, d_x, part, M, N, *strides, offset,
            BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
    elif M > 0:
        # 5001 is 4096 by vectors and the rest by elements: 5120 lanes for 8192
        ends = triton.next_power_of_2(N - BLOCK // 2 + vector)
        block, ends = (BLOCK // 2, ends) if skewed and 4 * ends <= BLOCK else (BLOCK, 2 * vector)
        num_warps = max(num_warps, ROWS * block // 1024)
        STAGES = min(STAGES, 1 + 81920 // (ROWS * block * x.element_size()))
        if skewed:
            LANES = min(32 * num_warps, block // vector)
            _rms_norm_backward_skewed_rows[(parts,)](
                d_y, x, w, d_x, part, M, N, eps, offset,
                VECTOR=vector, BLOCK=block, ENDS=max(ends, LANES), LANES=LANES,
                STAGES=STAGES if parts < M else 1, num_warps=LANES // 32,
            )  # fmt: skip
        else:
            _rms_norm_backward_rows[(parts,)](
                d_y, x, w, d_x, part, M, N, *strides, eps, offset,
                FULL=N == BLOCK, EVEN=M % ROWS == 0, ROWS=ROWS, BLOCK=BLOCK,
                STAGES=STAGES if parts * ROWS < M else 0, num_warps=num_warps,
            )  # fmt: skip
    BLOCK_PARTS = min(64, triton.next_power_of_2(max(1, parts)))
    _add_parts[(triton.cdiv(N, 32),)](part, d_w, parts, N, BLOCK_PARTS, 32, num_warps=4)
    return d_x, d_w


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(no_gradient_along_x,),
    kernel=rms_norm_backward,
    space=Space(
        {
            "ROWS": (1, 2, 4, 8),
            "PROGRAMS": (1, 2, 4),
            "STAGES": (3, 1, 2, 4),
            "SWEEP": (0, 512, 1024, 2048),
            "num_warps": (8, 1, 2, 4, 16, 32),
        },
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
            # the rows of x and d_y in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * ROWS * pow2(N) * 2 * itemsize <= 232448",
        ),
    ),
)
