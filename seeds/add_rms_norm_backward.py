"""Gradient of the residual taken in and the sum's RMS norm, from the sum.

    r[i]             = rsqrt(mean_j s[i, j]^2 + eps)
    g[i, j]          = d_y[i, j] * (offset + w[j])
    d_x[i, j]        = d_s[i, j] + r[i] * (g[i, j] - s[i, j] * r[i]^2 * mean_k g[i, k] * s[i, k])
    d_residual[i, j] = d_x[i, j]
    d_w[j]           = sum_i d_y[i, j] * s[i, j] * r[i]

d_y, d_s, s, w  (M, N) and (N,), any row stride; d_x, d_residual as s, d_w as w; eps, offset, cast
         as add_rms_norm's
dtype    float32, float16, bfloat16; float32 inside, d_w summed in float32 in a fixed order; s * r
         is not rounded on its way to d_w, whatever cast says: it only costs time and precision
moves    reads d_y, d_s, s and w once, writes d_x, d_residual and d_w once; the two gradients are
         equal, but outputs of one op may not share memory
plan     PROGRAMS on each SM share the rows, loads STAGES deep (0 where none takes a second turn),
         and keep their part of d_w in registers; a second kernel adds the parts. Rows too long
         for registers: one kernel for the two row means, one that walks down blocks of SWEEP
         columns; no mask where rows fill their blocks and ROWS divides M
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="add_rms_norm_backward",
    inputs={
        "d_y": Tensor("M N"),
        "d_s": Tensor("M N"),
        "s": Tensor("M N"),
        "w": Tensor("N"),
    },
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
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"offset": 1.0, "cast": "gemma"}),
        *grid("M N", {"measure": [(8192, 4096), (16, 4096), (2047, 5001)]}, dtypes=("bfloat16",)),
    ),
)


def reference(
    d_y: torch.Tensor,
    d_s: torch.Tensor,
    s: torch.Tensor,
    w: torch.Tensor,
    *,
    eps: float,
    offset: float,
    cast: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients as autograd takes them, with the sums in float32."""
    wide = s.float()
    r = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    normed = wide * r
    g = d_y.float() * (w.float() + offset)
    d_x = (d_s.float() + r * (g - normed * (g * normed).mean(-1, keepdim=True))).to(s.dtype)
    rounded = normed.to(s.dtype).float() if cast == "llama" else normed
    return d_x, d_x.clone(), (d_y.float() * rounded).sum(0).to(w.dtype)


def both_terms_get_the_same(
    d_y: torch.Tensor,
    d_s: torch.Tensor,
    s: torch.Tensor,
    w: torch.Tensor,
    d_x: torch.Tensor,
    d_residual: torch.Tensor,
    d_w: torch.Tensor,
    **_: object,
) -> bool:
    """A sum passes its gradient on to both terms."""
    return torch.equal(d_x, d_residual)


@triton.jit
def _means(a, b, N, FULL: tl.constexpr, BLOCK: tl.constexpr):
    # both in one round of barriers; a row that fills its block is of a power of two: no division
    one, other = tl.split(tl.sum(tl.join(a, b), axis=1, keep_dims=True))
    return (one * (1.0 / BLOCK), other * (1.0 / BLOCK)) if FULL else (one / N, other / N)


@triton.jit
def _gradients(
    d_y_ptr, d_s_ptr, s_ptr, w, d_x_ptr, d_residual_ptr, start, M, N,
    d_y_stride, d_s_stride, s_stride, out_stride, eps,
    FULL: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store d_x and d_residual of the rows from `start`; what they add to d_w."""
    col = tl.arange(0, BLOCK)[None, :]
    row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    of_row = None if FULL else col < N
    inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
    # rows past M must add nothing
    OUTSIDE: tl.constexpr = None if FULL and EVEN else 0.0
    s = tl.load(s_ptr + row * s_stride + col, mask=inside, other=OUTSIDE).to(tl.float32)
    d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=OUTSIDE).to(tl.float32)
    d_s = tl.load(d_s_ptr + row * d_s_stride + col, mask=inside, other=OUTSIDE).to(tl.float32)
    g = d_y * w
    square, product = _means(s * s, g * s, N, FULL, BLOCK)
    r = tl.rsqrt(square + eps)
    normed = s * r
    d_w = tl.sum(d_y * normed, axis=0, keep_dims=True)
    d_x = (d_s + (g - normed * (product * r)) * r).to(d_x_ptr.dtype.element_ty)
    tl.store(d_x_ptr + row * out_stride + col, d_x, mask=inside)
    tl.store(d_residual_ptr + row * out_stride + col, d_x, mask=inside)
    return d_w


@triton.jit
def _add_rms_norm_backward_rows(
    d_y_ptr, d_s_ptr, s_ptr, w_ptr, d_x_ptr, d_residual_ptr, part_ptr, M, N,
    d_y_stride, d_s_stride, s_stride, out_stride, eps, offset,
    SHIFTED: tl.constexpr, FULL: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    of_row = None if FULL else col < N
    w = tl.load(w_ptr + col, mask=of_row, other=None if FULL else 0.0).to(tl.float32)
    if SHIFTED:
        w += offset
    if STAGES == 0:
        part = _gradients(
            d_y_ptr, d_s_ptr, s_ptr, w, d_x_ptr, d_residual_ptr, tl.program_id(0) * ROWS, M, N,
            d_y_stride, d_s_stride, s_stride, out_stride, eps, FULL, EVEN, ROWS, BLOCK,
        )  # fmt: skip
    else:
        part = tl.zeros((1, BLOCK), dtype=tl.float32)
        step = tl.num_programs(0) * ROWS
        for start in tl.range(tl.program_id(0) * ROWS, M, step, num_stages=STAGES):
            part += _gradients(
                d_y_ptr, d_s_ptr, s_ptr, w, d_x_ptr, d_residual_ptr, start, M, N,
                d_y_stride, d_s_stride, s_stride, out_stride, eps, FULL, EVEN, ROWS, BLOCK,
            )  # fmt: skip
    tl.store(part_ptr + tl.program_id(0).to(tl.int64) * N + col, part, mask=of_row)


@triton.jit
def _row_means(
    d_y_ptr, s_ptr, w_ptr, r_ptr, inner_ptr, N, d_y_stride, s_stride, eps, offset,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        s = tl.load(s_ptr + row * s_stride + col, mask=col < N, other=0.0).to(tl.float32)
        d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=col < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + col, mask=col < N, other=0.0).to(tl.float32) + offset
        squares += s * s
        products += d_y * w * s
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(r_ptr + row, r)
    tl.store(inner_ptr + row, tl.sum(products, axis=0) / N * r)


@triton.jit
def _add_rms_norm_backward_columns(
    d_y_ptr, d_s_ptr, s_ptr, w_ptr, r_ptr, inner_ptr, d_x_ptr, d_residual_ptr, part_ptr, M, N,
    d_y_stride, d_s_stride, s_stride, out_stride, offset, BLOCK: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = col < N
    w = tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32) + offset
    part = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(tl.program_id(1), M, tl.num_programs(1)):
        row = tl.cast(index, tl.int64)
        r, inner = tl.load(r_ptr + row), tl.load(inner_ptr + row)
        s = tl.load(s_ptr + row * s_stride + col, mask=inside, other=0.0).to(tl.float32)
        d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=0.0).to(tl.float32)
        d_s = tl.load(d_s_ptr + row * d_s_stride + col, mask=inside, other=0.0).to(tl.float32)
        normed = s * r
        d_x = (d_s + (d_y * w - normed * inner) * r).to(d_x_ptr.dtype.element_ty)
        tl.store(d_x_ptr + row * out_stride + col, d_x, mask=inside)
        tl.store(d_residual_ptr + row * out_stride + col, d_x, mask=inside)
        part += d_y * normed
    tl.store(part_ptr + tl.program_id(1).to(tl.int64) * N + col, part, mask=inside)


@triton.jit
def _add_parts(
    part_ptr, d_w_ptr, PARTS, N, BLOCK_PARTS: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_PARTS, BLOCK_N), dtype=tl.float32)
    for start in range(0, PARTS, BLOCK_PARTS):
        part = (start + tl.arange(0, BLOCK_PARTS)[:, None]).to(tl.int64)
        total += tl.load(part_ptr + part * N + col, mask=(part < PARTS) & (col < N), other=0.0)
    d_w = tl.sum(total, axis=0, keep_dims=True).to(d_w_ptr.dtype.element_ty)
    tl.store(d_w_ptr + col, d_w, mask=col < N)


def _sms(device: torch.device) -> int:
    """Multiprocessors; on a CPU, where Triton interprets, any number of programs will do."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def add_rms_norm_backward(
    d_y: torch.Tensor, d_s: torch.Tensor, s: torch.Tensor, w: torch.Tensor, *,
    eps: float = 1e-6, offset: float = 0.0, cast: str = "llama",
    ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Differentiate rows in registers, or with SWEEP > 0 row means first, then columns."""
    M, N = s.shape
    BLOCK = triton.next_power_of_2(N)
    if BLOCK > 16384:
        SWEEP = SWEEP or 1024
    else:
        # a setting that was tuned at another size must fit here too
        ROWS = max(1, min(ROWS, 16384 // BLOCK))
    d_y, d_s, s = (t if t.stride(1) == 1 else t.contiguous() for t in (d_y, d_s, s))
    w = w.contiguous()
    d_x = torch.empty((M, N), dtype=s.dtype, device=s.device)
    d_residual = torch.empty((M, N), dtype=s.dtype, device=s.device)
    d_w = torch.empty((N,), dtype=w.dtype, device=w.device)
    parts = min(triton.cdiv(M, ROWS), PROGRAMS * _sms(s.device))
    part = torch.empty((parts, N), dtype=torch.float32, device=s.device)
    strides = d_y.stride(0), d_s.stride(0), s.stride(0), d_x.stride(0)
    if M > 0 and SWEEP > 0:
        r = torch.empty((M,), dtype=torch.float32, device=s.device)
        inner = torch.empty_like(r)
        _row_means[(M,)](
            d_y, s, w, r, inner, N, d_y.stride(0), s.stride(0), eps, offset,
            BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
        _add_rms_norm_backward_columns[(triton.cdiv(N, SWEEP), parts)](
            d_y, d_s, s, w, r, inner, d_x, d_residual, part, M, N, *strides, offset,
            BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
    elif M > 0:
        _add_rms_norm_backward_rows[(parts,)](
            d_y, d_s, s, w, d_x, d_residual, part, M, N, *strides, eps, offset,
            SHIFTED=offset != 0.0, FULL=N == BLOCK, EVEN=M % ROWS == 0, ROWS=ROWS, BLOCK=BLOCK,
            STAGES=min(STAGES, 1 + 54613 // (ROWS * BLOCK * s.element_size()))
            if parts * ROWS < M else 0,
            num_warps=max(num_warps, ROWS * BLOCK // 1024),
        )  # fmt: skip
    _add_parts[(triton.cdiv(N, 32),)](
        part, d_w, parts, N,
        BLOCK_PARTS=min(64, triton.next_power_of_2(max(1, parts))), BLOCK_N=32, num_warps=4,
    )  # fmt: skip
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
            "ROWS": "max(1, min(8, 8192 // pow2(N)))"
            " if M > 2111 and N % 8 == 0 and N <= 8192 else 1",
            "SWEEP": "0 if N <= 2048 or (N <= 8192 and N % 8 == 0) else 1024",
            "STAGES": "min(3, 1 + 77482 // (8192 * itemsize))"
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
            # the rows of d_y, d_s and s in flight fit in an SM's shared memory, 227 KiB on Hopper
            "STAGES == 1 or PROGRAMS * (STAGES - 1) * ROWS * pow2(N) * 3 * itemsize <= 232448",
        ),
    ),
)
