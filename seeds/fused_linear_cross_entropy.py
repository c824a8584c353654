"""Cross-entropy of a linear layer's outputs, with all gradients, and never all of the logits.

    z[i, v]   = sum_h x[i, h] * w[v, h] + bias[v], or softcap * tanh(that / softcap)
    lse[i]    = log sum_v exp(z[i, v])
    row[i]    = lse[i] - (1 - a) * z[i, target[i]] - a * mean_v z[i, v] + z_loss * lse[i]^2
    loss      = row, its sum, or its mean over the rows that count; a = label_smoothing
    p[i, v]   = exp(z[i, v] - lse[i]) * (1 + 2 * z_loss * lse[i])
    g[i, v]   = d_loss[i] * (p[i, v] - (1 - a) * [v = target[i]] - a / V) * dz[i, v], in x's dtype
    dz[i, v]  = 1, or 1 - (z[i, v] / softcap)^2 where softcap > 0
    d_x = g @ w,  d_w = g^T @ x,  d_bias = sum_i g[i]

x, d_x  (M, H); w, d_w (V, H); bias, d_bias (V,) where biased, else (0,); target (M,), int64 below
        V; loss, d_loss float32, one for each row with reduction="none", else (1,). d_loss is the
        gradient that the loss will be given: 1, or the loss scale. A row whose label is
        ignore_index, or negative, counts for nothing, and the mean over no rows is NaN
dtype   float32 (in full precision, never tf32), float16, bfloat16; sums in float32
moves   reads x, w, bias once, writes the gradients once; the rest is workspace, CHUNK * V values
plan    CHUNK rows at a time: a kernel multiplies, and stores how far each logit is below the
        largest of its tile, with the tile's sums; a small one joins a row's tiles; a third turns
        what was stored into g, in place; the library multiplies g by w and by x. So there are
        three products, where a backward pass of its own would need a fourth. A distance is
        rounded most where its exp counts least; a logit of 1000 would be rounded by 2
"""

import torch
import triton
import triton.language as tl

from kernel_library.recipe import Index, Normal
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="fused_linear_cross_entropy",
    inputs={
        "x": Tensor("M H"),
        "w": Tensor("V H", recipe=Normal(std=0.05)),
        "bias": Tensor("V*biased"),
        "target": Tensor("M", "int64", Index("V", ignored=-100, share=0.1)),
        "d_loss": Tensor("M*(reduction=='none')+(reduction!='none')", "float32"),
    },
    outputs={
        "loss": Tensor("M*(reduction=='none')+(reduction!='none')", "float32"),
        "d_x": Tensor("M H"),
        "d_w": Tensor("V H"),
        "d_bias": Tensor("V*biased"),
    },
    options={
        "biased": Option(False, (False, True)),
        "ignore_index": Option(-100, (-100, 0)),
        "label_smoothing": Option(0.0, (0.0, 0.1)),
        "z_loss": Option(0.0, (0.0, 1e-3)),
        "softcap": Option(0.0, (0.0, 30.0)),
        "reduction": Option("mean", ("mean", "sum", "none")),
    },
    flops="10 * M * V",
    matmul_flops="6 * M * V * H",
    constraints=("M >= 0", "V >= 1", "H >= 1"),
    workloads=(
        *grid(
            "M V H",
            {"check": [(3, 127, 33), (70, 300, 64), (5, 781, 40)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        # more rows than a chunk has
        Workload({"M": 1040, "V": 24, "H": 16}, {"T": "float32"}, options={"biased": True}),
        Workload({"M": 9, "V": 257, "H": 48}, {"T": "float32"}, options={"reduction": "none"}),
        Workload(
            {"M": 6, "V": 65, "H": 72},
            {"T": "bfloat16"},
            options={
                "biased": True, "ignore_index": 0, "label_smoothing": 0.1, "z_loss": 1e-3,
                "softcap": 30.0, "reduction": "sum",
            },
        ),
        *grid(
            "M V H",
            {"measure": [(4096, 128256, 4096), (16, 128256, 4096), (2047, 50257, 1600)]},
            dtypes=("bfloat16",),
        ),
    ),
    allows=("mm", "addmm_"),
)  # fmt: skip


def reference(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, target: torch.Tensor,
    d_loss: torch.Tensor, *, biased: bool, ignore_index: int, label_smoothing: float,
    z_loss: float, softcap: float, reduction: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """PyTorch's linear layer and cross-entropy, and their gradients as autograd takes them."""
    z = torch.nn.functional.linear(x, w, bias if biased else None).float()
    z = softcap * torch.tanh(z / softcap) if softcap > 0 else z
    lse = torch.logsumexp(z, -1)
    counts = (target != ignore_index) & (target >= 0)
    row = torch.nn.functional.cross_entropy(
        z, torch.where(counts, target, 0), reduction="none", label_smoothing=label_smoothing
    )
    row = torch.where(counts, row + z_loss * lse.square(), 0.0)
    g = torch.exp(z - lse[:, None]) * (1 + 2 * z_loss * lse[:, None])
    labels = torch.arange(w.shape[0], device=w.device)[None, :] == target[:, None]
    g = g - (1 - label_smoothing) * labels.float() - label_smoothing / w.shape[0]
    g = g * (1 - (z / softcap).square()) if softcap > 0 else g
    up = d_loss / counts.sum() if reduction == "mean" else d_loss
    g = torch.where(counts[:, None], up[:, None] * g, 0.0).to(x.dtype)
    loss = row if reduction == "none" else row.sum().reshape(1)
    loss = loss / counts.sum() if reduction == "mean" else loss
    return loss, g @ w, g.t() @ x, g.sum(0) if biased else torch.zeros_like(bias)


def rows_that_do_not_count_get_nothing(
    *tensors: torch.Tensor, ignore_index: int, **_: object
) -> bool:
    """A row with an ignored label has no part in the loss, and no loss is negative."""
    target, loss, d_x = tensors[3], tensors[5], tensors[6]
    ignored = (target == ignore_index) | (target < 0)
    return bool((d_x[ignored] == 0).all() and (loss.isnan() | (loss >= -1e-5)).all())


@triton.jit
def _capped(raw, softcap):
    # tanh(t) = 2 sigmoid(2 t) - 1, which no large t can break
    return softcap * (2.0 * tl.sigmoid(2.0 * (raw.to(tl.float32) / softcap)) - 1.0)


@triton.jit
def _logits(
    x_ptr, w_ptr, bias_ptr, gap_ptr, peak_ptr, total_ptr, sum_ptr,
    M, V, H, x_stride, w_stride, gap_stride, softcap,
    BIASED: tl.constexpr, CAPPED: tl.constexpr, SMOOTH: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    x_tiles = tl.make_tensor_descriptor(x_ptr, [M, H], [x_stride, 1], [BLOCK_M, BLOCK_K])
    w_tiles = tl.make_tensor_descriptor(w_ptr, [V, H], [w_stride, 1], [BLOCK_N, BLOCK_K])
    gap_tiles = tl.make_tensor_descriptor(gap_ptr, [M, V], [gap_stride, 1], [BLOCK_M, BLOCK_N])
    high, wide = tl.cdiv(M, BLOCK_M), tl.cdiv(V, BLOCK_N)
    # down the rows first: a chunk of x stays in L2, and w is read once
    for index in tl.range(tl.program_id(0), high * wide, tl.num_programs(0), flatten=True):
        m, tile = (index % high) * BLOCK_M, index // high
        n = tile * BLOCK_N
        z = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(H, BLOCK_K)):
            k = step * BLOCK_K
            z = tl.dot(x_tiles.load([m, k]), w_tiles.load([n, k]).T, z, input_precision=PRECISION)
        row, col = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
        if BIASED:
            z += tl.load(bias_ptr + col, mask=col < V, other=0.0).to(tl.float32)[None, :]
        if CAPPED:
            # tanh has a slope only near 0, so these are kept as they are, and all else is of them
            raw = z.to(gap_ptr.dtype.element_ty)
            gap_tiles.store([m, n], raw)
            z = _capped(raw, softcap)
        at, known = row * wide + tile, (col < V)[None, :]
        if SMOOTH:
            tl.store(sum_ptr + at, tl.sum(tl.where(known, z, 0.0), axis=1), mask=row < M)
        z = tl.where(known, z, -float("inf"))
        peak = tl.max(z, axis=1)
        # where all is -inf, -inf must not be taken from itself
        gap = z - tl.where(peak == -float("inf"), 0.0, peak)[:, None]
        tl.store(peak_ptr + at, peak, mask=row < M)
        tl.store(total_ptr + at, tl.sum(tl.exp(gap), axis=1), mask=row < M)
        if not CAPPED:
            gap_tiles.store([m, n], gap.to(gap_ptr.dtype.element_ty))


@triton.jit
def _label_logits(
    x_ptr, w_ptr, bias_ptr, row, target, known, H, x_stride, w_stride,
    BIASED: tl.constexpr, ROWS: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """Each row's product with its label's row of w; NaN where there is none."""
    z = tl.zeros((ROWS,), dtype=tl.float32)
    x_ptr += row[:, None].to(tl.int64) * x_stride
    w_ptr += target[:, None] * w_stride
    for start in range(0, H, DEEP):
        k = start + tl.arange(0, DEEP)[None, :]
        x = tl.load(x_ptr + k, mask=known[:, None] & (k < H), other=0.0)
        w = tl.load(w_ptr + k, mask=known[:, None] & (k < H), other=0.0)
        z += tl.sum(x.to(tl.float32) * w.to(tl.float32), axis=1)
    if BIASED:
        z += tl.load(bias_ptr + target, mask=known, other=0.0).to(tl.float32)
    return tl.where(known, z, float("nan"))


@triton.jit
def _join_tiles(
    x_ptr, w_ptr, bias_ptr, target_ptr, peak_ptr, total_ptr, sum_ptr, row_ptr, lse_ptr,
    M, V, H, TILES, x_stride, w_stride, softcap, smoothing, z_loss, IGNORED,
    BIASED: tl.constexpr, CAPPED: tl.constexpr, SMOOTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    row, tile = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)[None, :]
    at, inside = row[:, None] * TILES + tile, (row[:, None] < M) & (tile < TILES)
    peaks = tl.load(peak_ptr + at, mask=inside, other=-float("inf"))
    totals = tl.load(total_ptr + at, mask=inside, other=0.0)
    peak = tl.max(peaks, axis=1)
    base = tl.where(peak == -float("inf"), 0.0, peak)
    log_total = tl.log(tl.sum(totals * tl.exp(peaks - base[:, None]), axis=1))
    target = tl.load(target_ptr + row, mask=row < M, other=-1)
    counts = (target != IGNORED) & (target >= 0)
    # a second product for one logit of a row: to pick it out of the tiles of the first would take
    # 70 registers a thread there, and spill (sm_90, Triton 3.6.0)
    z = _label_logits(
        x_ptr, w_ptr, bias_ptr, row, target, counts & (target < V), H, x_stride, w_stride,
        BIASED, ROWS, DEEP,
    )  # fmt: skip
    if CAPPED:
        z = _capped(z.to(x_ptr.dtype.element_ty), softcap)
    # differences first: a large level common to all logits then costs no precision
    loss = log_total + (base - z)
    if SMOOTH:
        mean = tl.sum(tl.load(sum_ptr + at, mask=inside, other=0.0), axis=1) / V
        loss = (1.0 - smoothing) * loss + smoothing * (log_total + (base - mean))
    lse = base + log_total
    tl.store(row_ptr + row, tl.where(counts, loss + z_loss * lse * lse, 0.0), mask=row < M)
    tl.store(lse_ptr + row, lse, mask=row < M)
    # what makes a gap the logarithm of its share of the row
    shift = tl.where(peaks == -float("inf"), 0.0, peaks) - base[:, None] - log_total[:, None]
    tl.store(peak_ptr + at, shift, mask=inside)


@triton.jit
def _gradients(
    gap_ptr, shift_ptr, lse_ptr, target_ptr, d_loss_ptr, count_ptr, M, V, TILES, gap_stride,
    softcap, smoothing, z_loss, IGNORED,
    CAPPED: tl.constexpr, MEAN: tl.constexpr, EACH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tile, row = tl.program_id(0), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    col = (tile * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row[:, None] < M) & (col < V)
    gap_ptr += row[:, None].to(tl.int64) * gap_stride + col
    gap = tl.load(gap_ptr, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(shift_ptr + row * TILES + tile, mask=row < M, other=0.0)
    lse = tl.load(lse_ptr + row, mask=row < M, other=0.0)
    target = tl.load(target_ptr + row, mask=row < M, other=-1)
    up = tl.load(d_loss_ptr + (row if EACH else row * 0), mask=row < M, other=0.0)
    if MEAN:
        up = up / tl.load(count_ptr)
    slope = 1.0
    if CAPPED:
        # 1 - tanh(t)^2 = 4 s (1 - s) with s = sigmoid(2 t), and 1 - s = sigmoid(-2 t)
        t = gap / softcap
        slope = 4.0 * tl.sigmoid(2.0 * t) * tl.sigmoid(-2.0 * t)
        p = tl.exp(_capped(gap, softcap) - lse[:, None])
    else:
        p = tl.exp(gap + shift[:, None])
    g = p * (1.0 + 2.0 * z_loss * lse)[:, None] - smoothing / V
    g = (g - tl.where(col == target[:, None], 1.0 - smoothing, 0.0)) * slope
    counts = (target != IGNORED) & (target >= 0)
    g = tl.where(counts[:, None], g * up[:, None], 0.0)
    tl.store(gap_ptr, g.to(gap_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _add_columns(
    g_ptr, sums_ptr, d_bias_ptr, M, V, stride,
    FIRST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add a chunk's columns to the sums, and round what they then are."""
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    if not FIRST:
        total = tl.load(sums_ptr + col, mask=col < V, other=0.0)
    for start in range(0, M, ROWS):
        row = (start + tl.arange(0, ROWS))[:, None].to(tl.int64)
        inside = (row < M) & (col < V)[None, :]
        g = tl.load(g_ptr + row * stride + col[None, :], mask=inside, other=0.0)
        total += tl.sum(g.to(tl.float32), axis=0)
    tl.store(sums_ptr + col, total, mask=col < V)
    tl.store(d_bias_ptr + col, total.to(d_bias_ptr.dtype.element_ty), mask=col < V)


@triton.jit
def _add_rows(
    row_ptr, target_ptr, out_ptr, M, IGNORED, COUNT: tl.constexpr, MEAN: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum or mean of the rows, or with COUNT how many there are to a mean."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, M, BLOCK):
        row = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + row, mask=row < M, other=-1)
        count += tl.where((target != IGNORED) & (target >= 0), 1.0, 0.0)
        if not COUNT:
            total += tl.load(row_ptr + row, mask=row < M, other=0.0)
    result = tl.sum(count if COUNT else total, axis=0)
    if MEAN:
        result = result / tl.sum(count, axis=0)
    tl.store(out_ptr, result)


def _padded(rows: int, columns: int, like: torch.Tensor) -> torch.Tensor:
    """Unwritten memory whose rows begin at multiples of 128 bytes, as TMA and cuBLAS like them."""
    wide = triton.cdiv(columns, 64) * 64
    return torch.empty((rows, wide), dtype=like.dtype, device=like.device)[:, :columns]


def _aligned(t: torch.Tensor) -> torch.Tensor:
    """The matrix itself where TMA can read its rows; else a copy where it can."""
    step = t.stride(0) * t.element_size()
    if t.stride(1) == 1 and step > 0 and step % 16 == 0 and t.data_ptr() % 16 == 0:
        return t
    copy = _padded(t.shape[0], t.shape[1], t)
    copy.copy_(t)
    return copy


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Where Triton builds the descriptors: device memory, aligned to 512 bytes as torch has it."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _sms(device: torch.device) -> int:
    """Multiprocessors; on a CPU, where Triton interprets, any number of programs will do."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def fused_linear_cross_entropy(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, target: torch.Tensor,
    d_loss: torch.Tensor, *, biased: bool = False, ignore_index: int = -100,
    label_smoothing: float = 0.0, z_loss: float = 0.0, softcap: float = 0.0,
    reduction: str = "mean",
    CHUNK: int, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Take the rows in even chunks, and add up the gradient of w over them."""
    (M, H), V = x.shape, w.shape[0]
    x, w, bias, target, d_loss = (
        _aligned(x), _aligned(w), bias.contiguous(), target.contiguous(), d_loss.contiguous()
    )  # fmt: skip
    triton.set_allocator(_scratch)
    row = torch.empty((M,), dtype=torch.float32, device=x.device)
    count = torch.empty((1,), dtype=torch.float32, device=x.device)
    d_x = torch.empty((M, H), dtype=x.dtype, device=x.device)
    d_w = (torch.empty if M else torch.zeros)((V, H), dtype=x.dtype, device=x.device)
    d_bias = torch.zeros((V if biased else 0,), dtype=x.dtype, device=x.device)
    columns = torch.empty((V if biased else 0,), dtype=torch.float32, device=x.device)
    if reduction == "mean":
        _add_rows[(1,)](
            row, target, count, M, ignore_index, COUNT=True, MEAN=False, BLOCK=4096, num_warps=8
        )
    step, TILES = triton.cdiv(M, max(1, triton.cdiv(M, CHUNK))), triton.cdiv(V, BLOCK_N)
    gap = _padded(step, V, x)
    peak, total, sums = torch.empty((3, step, TILES), dtype=torch.float32, device=x.device)
    lse = torch.empty((step,), dtype=torch.float32, device=x.device)
    terms = {"BIASED": biased, "CAPPED": softcap > 0, "SMOOTH": label_smoothing > 0}
    for first in range(0, M, max(1, step)):
        n = min(step, M - first)
        rows = slice(first, first + n)
        tiles = triton.cdiv(n, BLOCK_M) * TILES
        _logits[(min(tiles, _sms(x.device)),)](
            x[rows], w, bias, gap, peak, total, sums, n, V, H,
            x.stride(0), w.stride(0), gap.stride(0), softcap, **terms,
            PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
            num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
        BLOCK = triton.next_power_of_2(TILES)
        ROWS = max(1, min(16, 2048 // BLOCK))
        _join_tiles[(triton.cdiv(n, ROWS),)](
            x[rows], w, bias, target[rows], peak, total, sums, row[rows], lse,
            n, V, H, TILES, x.stride(0), w.stride(0), softcap, label_smoothing, z_loss,
            ignore_index, **terms, ROWS=ROWS, BLOCK=BLOCK, DEEP=4096 // ROWS, num_warps=4,
        )  # fmt: skip
        ROWS = 4096 // BLOCK_N
        _gradients[(TILES, triton.cdiv(n, ROWS))](
            gap, peak, lse, target[rows], d_loss[rows] if reduction == "none" else d_loss,
            count, n, V, TILES, gap.stride(0), softcap, label_smoothing, z_loss, ignore_index,
            CAPPED=softcap > 0, MEAN=reduction == "mean", EACH=reduction == "none",
            ROWS=ROWS, BLOCK=BLOCK_N, num_warps=4,
        )  # fmt: skip
        torch.mm(gap[:n], w, out=d_x[rows])
        if first == 0:
            torch.mm(gap[:n].t(), x[rows], out=d_w)
        else:
            d_w.addmm_(gap[:n].t(), x[rows])
        if biased:
            _add_columns[(triton.cdiv(V, 128),)](
                gap, columns, d_bias, n, V, gap.stride(0),
                FIRST=first == 0, ROWS=32, BLOCK=128, num_warps=4,
            )  # fmt: skip
    if reduction == "none":
        return row, d_x, d_w, d_bias
    loss = torch.empty((1,), dtype=torch.float32, device=x.device)
    _add_rows[(1,)](
        row, target, loss, M, ignore_index,
        COUNT=False, MEAN=reduction == "mean", BLOCK=4096, num_warps=8,
    )  # fmt: skip
    return loss, d_x, d_w, d_bias


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(rows_that_do_not_count_get_nothing,),
    kernel=fused_linear_cross_entropy,
    space=Space(
        {
            # a pass over d_w costs as much as the product of some 350 rows does (H200)
            "CHUNK": (1024, 512, 2048, 4096),
            "BLOCK_M": (128, 64),
            "BLOCK_N": (256, 128, 64),
            "BLOCK_K": (64, 32, 128, 16),
            "num_warps": (8, 4),
            "num_stages": (3, 4),
        },
        # as gemm's
        rule={
            "BLOCK_M": "128 if M > 64 and itemsize < 4 else 64",
            "BLOCK_N": "64 if itemsize == 4 else 256 if M > 64 and V % 16 == 0 else 128",
            "BLOCK_K": "64 if itemsize < 4 else 16",
            "num_warps": "8 if M > 64 and itemsize < 4 else 4",
        },
        constraints=(
            # staged tiles and the tile on its way out fit in 227 KiB, an SM of Hopper's
            "(num_stages * (BLOCK_M + BLOCK_N) * BLOCK_K + BLOCK_M * BLOCK_N) * itemsize <= 232448",
            # 32 to 128 float32 sums a thread: fewer starve the tensor cores, more spill
            "BLOCK_M * BLOCK_N <= 128 * 32 * num_warps",
            "BLOCK_M * BLOCK_N >= 32 * 32 * num_warps",
            "M > 64 or BLOCK_M == 64",
            "itemsize < 4 or BLOCK_M * BLOCK_N <= 8192",
            "CHUNK == 1024 or M > 512",
        ),
    ),
)
