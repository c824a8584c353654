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
           columns; no mask where rows fill their blocks and ROWS divides M
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
        Workload({"M": 7, "N": 96}, {"T": "float16"}, options={"offset": 1.0, "cast": "gemma"}),
        *grid("M N", {"measure": [(8192, 4096), (2047, 5001)]}, dtypes=("bfloat16",)),
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
def _means(a, b, N, FULL: tl.constexpr, BLOCK: tl.constexpr):
    # both in one round of barriers; a row that fills its block is of a power of two: no division
    one, other = tl.split(tl.sum(tl.join(a, b), axis=1, keep_dims=True))
    return (one * (1.0 / BLOCK), other * (1.0 / BLOCK)) if FULL else (one / N, other / N)


@triton.jit
def _gradients(
    d_y_ptr, x_ptr, w, d_x_ptr, start, M, N, d_y_stride, x_stride, d_x_stride, eps,
    FULL: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store d_x of the rows from `start`; what they add to d_w."""
    col = tl.arange(0, BLOCK)[None, :]
    row = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    of_row = None if FULL else col < N
    inside = of_row if EVEN else row < M if FULL else (row < M) & of_row
    # rows past M must add nothing
    OUTSIDE: tl.constexpr = None if FULL and EVEN else 0.0
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=OUTSIDE).to(tl.float32)
    d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=OUTSIDE).to(tl.float32)
    g = d_y * w
    square, product = _means(x * x, g * x, N, FULL, BLOCK)
    r = tl.rsqrt(square + eps)
    normed = x * r
    d_x = ((g - normed * (product * r)) * r).to(d_x_ptr.dtype.element_ty)
    tl.store(d_x_ptr + row * d_x_stride + col, d_x, mask=inside)
    return tl.sum(d_y * normed, axis=0, keep_dims=True)


@triton.jit
def _rms_norm_backward_rows(
    d_y_ptr, x_ptr, w_ptr, d_x_ptr, part_ptr, M, N, d_y_stride, x_stride, d_x_stride, eps, offset,
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
            d_y_ptr, x_ptr, w, d_x_ptr, tl.program_id(0) * ROWS, M, N,
            d_y_stride, x_stride, d_x_stride, eps, FULL, EVEN, ROWS, BLOCK,
        )  # fmt: skip
    else:
        part = tl.zeros((1, BLOCK), dtype=tl.float32)
        step = tl.num_programs(0) * ROWS
        for start in tl.range(tl.program_id(0) * ROWS, M, step, num_stages=STAGES):
            part += _gradients(
                d_y_ptr, x_ptr, w, d_x_ptr, start, M, N,
                d_y_stride, x_stride, d_x_stride, eps, FULL, EVEN, ROWS, BLOCK,
            )  # fmt: skip
    tl.store(part_ptr + tl.program_id(0).to(tl.int64) * N + col, part, mask=of_row)


@triton.jit
def _row_means(
    d_y_ptr, x_ptr, w_ptr, r_ptr, inner_ptr, N, d_y_stride, x_stride, eps, offset,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + col, mask=col < N, other=0.0).to(tl.float32)
        d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=col < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + col, mask=col < N, other=0.0).to(tl.float32) + offset
        squares += x * x
        products += d_y * w * x
    r = tl.rsqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(r_ptr + row, r)
    tl.store(inner_ptr + row, tl.sum(products, axis=0) / N * r)


@triton.jit
def _rms_norm_backward_columns(
    d_y_ptr, x_ptr, w_ptr, r_ptr, inner_ptr, d_x_ptr, part_ptr,
    M, N, d_y_stride, x_stride, d_x_stride, offset, BLOCK: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = col < N
    w = tl.load(w_ptr + col, mask=inside, other=0.0).to(tl.float32) + offset
    part = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(tl.program_id(1), M, tl.num_programs(1)):
        row = tl.cast(index, tl.int64)
        r, inner = tl.load(r_ptr + row), tl.load(inner_ptr + row)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        d_y = tl.load(d_y_ptr + row * d_y_stride + col, mask=inside, other=0.0).to(tl.float32)
        normed = x * r
        d_x = ((d_y * w - normed * inner) * r).to(d_x_ptr.dtype.element_ty)
        tl.store(d_x_ptr + row * d_x_stride + col, d_x, mask=inside)
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


def rms_norm_backward(
    d_y: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *,
    eps: float = 1e-6, offset: float = 0.0, cast: str = "llama",
    ROWS: int, PROGRAMS: int, STAGES: int, SWEEP: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
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
    d_w = torch.empty((N,), dtype=w.dtype, device=w.device)
    parts = min(triton.cdiv(M, ROWS), PROGRAMS * _sms(x.device))
    part = torch.empty((parts, N), dtype=torch.float32, device=x.device)
    strides = d_y.stride(0), x.stride(0), d_x.stride(0)
    if M > 0 and SWEEP > 0:
        r = torch.empty((M,), dtype=torch.float32, device=x.device)
        inner = torch.empty_like(r)
        _row_means[(M,)](
            d_y, x, w, r, inner, N, d_y.stride(0), x.stride(0), eps, offset,
            BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
        _rms_norm_backward_columns[(triton.cdiv(N, SWEEP), parts)](
            d_y, x, w, r, inner, d_x, part, M, N, *strides, offset,
            BLOCK=SWEEP, num_warps=num_warps,
        )  # fmt: skip
    elif M > 0:
        _rms_norm_backward_rows[(parts,)](
            d_y, x, w, d_x, part, M, N, *strides, eps, offset,
            SHIFTED=offset != 0.0, FULL=N == BLOCK, EVEN=M % ROWS == 0, ROWS=ROWS, BLOCK=BLOCK,
            STAGES=min(STAGES, 1 + 81920 // (ROWS * BLOCK * x.element_size()))
            if parts * ROWS < M else 0,
            num_warps=max(num_warps, ROWS * BLOCK // 1024),
        )  # fmt: skip
    _add_parts[(triton.cdiv(N, 32),)](
        part, d_w, parts, N,
        BLOCK_PARTS=min(64, triton.next_power_of_2(max(1, parts))), BLOCK_N=32, num_warps=4,
    )  # fmt: skip
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
