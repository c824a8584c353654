"""Cross-entropy of a linear layer's outputs, with all gradients, and never all of the logits.

    z[i, v] = sum_h x[i, h] * w[v, h], or softcap * tanh(that / softcap)
    lse[i]  = log sum_v exp(z[i, v]),  p[i, v] = exp(z[i, v] - lse[i])
    row[i]  = lse[i] - (1 - a) * z[i, target[i]] - a * mean_v z[i, v] + z_loss * lse[i]^2
    loss    = row, its sum, or its mean over the rows that count; a = label_smoothing
    g[i, v] = d_loss[i] * (p[i, v] * (1 + 2 * z_loss * lse[i]) - (1 - a) * [v = target[i]] - a / V)
              * (1 - (z[i, v] / softcap)^2), the last under a cap alone; rounded to x's dtype
    d_x     = g @ w,  d_w = g^T @ x

x, d_x  (M, H), any row stride; w, d_w (V, H), likewise; target (M,), int64 below V;
        loss, d_loss float32, (M,) with reduction="none", else (1,), d_loss what will flow back: 1,
        or a loss scale. Rows whose label is ignore_index, or negative, count for nothing
dtype   float32 (in full precision, never tf32), float16, bfloat16; sums in float32
moves   reads x and w once, writes the gradients once; the workspace is a chunk's rows of V values
plan    CHUNK rows at a time, or M / 4: a kernel multiplies, and stores exp of how far each logit
        is below the largest of its tile, which bfloat16 holds to 0.4 % where it would round a
        logit of 1000 by 2, with the tile's sums; a second joins a row's tiles and turns what was
        stored into g, in place; the library multiplies g by w and by x, what is left of V past
        whole vectors apart: three products in all, where a backward pass would need a fourth
"""

import torch
import triton
import triton.language as tl

from kernel_library.recipe import Index, Normal
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

LOSS = Tensor("M*(reduction=='none')+(reduction!='none')", "float32")
OP = OpSpec(
    name="fused_linear_cross_entropy", allows=("mm", "addmm_"),
    inputs={"x": Tensor("M H"), "w": Tensor("V H", recipe=Normal(std=0.05)), "d_loss": LOSS,
            "target": Tensor("M", "int64", Index("V", ignored=-100, share=0.1))},
    outputs={"loss": LOSS, "d_x": Tensor("M H"), "d_w": Tensor("V H")},
    options={
        "ignore_index": Option(-100, (-100, 0)), "label_smoothing": Option(0.0, (0.0, 0.1)),
        "z_loss": Option(0.0, (0.0, 1e-3)), "softcap": Option(0.0, (0.0, 30.0)),
        "reduction": Option("mean", ("mean", "sum", "none")),
    },
    flops="10 * M * V", matmul_flops="6 * M * V * H", constraints=("M >= 0", "V >= 2", "H >= 1"),
    workloads=(
        *grid("M V H", {"check": [(3, 127, 33), (70, 300, 64), (5, 781, 40)]},
              dtypes=("float32", "float16", "bfloat16")),
        Workload({"M": 1040, "V": 24, "H": 16}, {"T": "float32"}),  # more rows than a chunk has
        Workload({"M": 9, "V": 257, "H": 48}, {"T": "float32"}, options={"reduction": "none"}),
        Workload({"M": 6, "V": 65, "H": 72}, {"T": "bfloat16"}, options={"ignore_index": 0,
            "label_smoothing": 0.1, "z_loss": 1e-3, "softcap": 30.0, "reduction": "sum"}),
        *grid("M V H", {"measure": [(4096, 128256, 4096), (16, 128256, 4096), (2047, 50257, 1600)]},
              dtypes=("bfloat16",)),
    ),
)  # fmt: skip


def reference(
    x: torch.Tensor, w: torch.Tensor, d_loss: torch.Tensor, target: torch.Tensor, *,
    ignore_index: int, label_smoothing: float, z_loss: float, softcap: float, reduction: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """PyTorch's linear layer and cross-entropy, and their gradients as autograd takes them."""
    z = torch.nn.functional.linear(x, w).float()
    z = softcap * torch.tanh(z / softcap) if softcap > 0 else z
    lse, counts = torch.logsumexp(z, -1), (target != ignore_index) & (target >= 0)
    row = torch.nn.functional.cross_entropy(
        z, torch.where(counts, target, 0), reduction="none", label_smoothing=label_smoothing
    )
    row = torch.where(counts, row + z_loss * lse.square(), 0.0)
    g = torch.exp(z - lse[:, None]) * (1 + 2 * z_loss * lse[:, None])
    labels = (torch.arange(w.shape[0], device=w.device)[None, :] == target[:, None]).float()
    g = g - (1 - label_smoothing) * labels - label_smoothing / w.shape[0]
    g = g * (1 - (z / softcap).square()) if softcap > 0 else g
    up = d_loss / counts.sum() if reduction == "mean" else d_loss
    g = torch.where(counts[:, None], up[:, None] * g, 0.0).to(x.dtype)
    total = row.sum().reshape(1)
    loss = {"none": row, "sum": total, "mean": total / counts.sum()}[reduction]
    return loss, g @ w, g.t() @ x


def ignored_rows_get_nothing(*tensors: torch.Tensor, ignore_index: int, **_: object) -> bool:
    """A row with an ignored label has no part in the loss."""
    return bool((tensors[5][(tensors[3] == ignore_index) | (tensors[3] < 0)] == 0).all())


@triton.jit
def _capped(raw, softcap):
    # tanh(t) = 2 sigmoid(2 t) - 1, which no large t can break
    return softcap * (2.0 * tl.sigmoid(2.0 * (raw.to(tl.float32) / softcap)) - 1.0)


@triton.jit
def _logits(
    x_ptr, w_ptr, e_ptr, peak_ptr, total_ptr, sum_ptr, rounded_ptr,
    M, V, H, x_stride, w_stride, e_stride, softcap,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, SCALE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    x_tiles = tl.make_tensor_descriptor(x_ptr, [M, H], [x_stride, 1], [BLOCK_M, BLOCK_K])
    w_tiles = tl.make_tensor_descriptor(w_ptr, [V, H], [w_stride, 1], [BLOCK_N, BLOCK_K])
    e_tiles = tl.make_tensor_descriptor(e_ptr, [M, V], [e_stride, 1], [BLOCK_M, BLOCK_N])
    high, wide = tl.cdiv(M, BLOCK_M), tl.cdiv(V, BLOCK_N)
    EXACT: tl.constexpr = x_ptr.dtype.element_ty == tl.float32
    # down the rows first: a chunk of x stays in L2, and w is read once
    for index in tl.range(tl.program_id(0), high * wide, tl.num_programs(0), flatten=not EXACT):
        m, n, tile = (index % high) * BLOCK_M, index // high * BLOCK_N, index // high
        z = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if EXACT:
            # in two steps: in one, the rounding of thousands of sums is more than 3 times cuBLAS's
            for start in range(0, H, 8 * BLOCK_K):
                part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
                for k in range(start, tl.minimum(start + 8 * BLOCK_K, H), BLOCK_K):
                    part = tl.dot(x_tiles.load([m, k]), w_tiles.load([n, k]).T, part, "ieee")
                z += part
        else:
            for k in range(0, H, BLOCK_K):
                z = tl.dot(x_tiles.load([m, k]), w_tiles.load([n, k]).T, z)
        row, col = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
        at, known, raw = row * wide + tile, (col < V)[None, :], z.to(e_ptr.dtype.element_ty)
        if CAPPED:
            z = _capped(z, softcap)
        if SMOOTH:
            tl.store(sum_ptr + at, tl.sum(tl.where(known, z, 0.0), axis=1), mask=row < M)
        z = tl.where(known, z, -float("inf"))
        peak = tl.max(z, axis=1)
        # -inf must not be taken from itself
        e = tl.exp(z - tl.where(peak == -float("inf"), 0.0, peak)[:, None])
        tl.store(peak_ptr + at, peak, mask=row < M)
        tl.store(total_ptr + at, tl.sum(e, axis=1), mask=row < M)
        if CAPPED:
            # where tanh is flat its slope needs the logit, rounded as torch rounds it, and sums
            # of what was rounded, for a row's p to add up to 1
            e = tl.exp(_capped(raw, softcap) - peak[:, None])
            tl.store(rounded_ptr + at, tl.sum(tl.where(known, e, 0.0), axis=1), mask=row < M)
            e_tiles.store([m, n], raw)
        else:
            e_tiles.store([m, n], (e * SCALE).to(e_ptr.dtype.element_ty))


@triton.jit
def _label(x_ptr, w_ptr, top_ptr, known, H, softcap, CAPPED: tl.constexpr):
    # the label's logit again: to pick it out of all takes 70 registers a thread
    products = tl.zeros((1024,), dtype=tl.float32)
    for start in range(0, H, 1024):
        k = start + tl.arange(0, 1024)
        x = tl.load(x_ptr + k, mask=known & (k < H), other=0.0).to(tl.float32)
        products += x * tl.load(w_ptr + k, mask=known & (k < H), other=0.0).to(tl.float32)
    z, off = tl.sum(products, axis=0), 1e-6 * tl.sum(tl.abs(products), axis=0)
    low, high = z - off, z + off
    if CAPPED:
        z, low, high = _capped(z, softcap), _capped(low, softcap), _capped(high, softcap)
    # where it may well be the largest of its tile it is: no loss is just above 0
    top = tl.load(top_ptr, mask=known, other=0.0)
    return tl.where((low <= top) & (top <= high), top, z)


@triton.jit
def _row(
    x_ptr, w_ptr, d_loss_ptr, target_ptr, e_ptr, peak_ptr, total_ptr, sum_ptr, rounded_ptr,
    count_ptr, row_ptr, V, H, TILES, SPAN, x_stride, w_stride, e_stride,
    softcap, smoothing, z_loss, IGNORED,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, MEAN: tl.constexpr, EACH: tl.constexpr,
    SCALE: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    row, share, tile = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, ALL)
    at, inside = row * TILES + tile, tile < TILES
    peaks = tl.load(peak_ptr + at, mask=inside, other=-float("inf"))
    totals = tl.load(total_ptr + at, mask=inside, other=0.0)
    base = tl.where(tl.max(peaks, axis=0) == -float("inf"), 0.0, tl.max(peaks, axis=0))
    log_total = tl.log(tl.sum(totals * tl.exp(peaks - base), axis=0))
    lse, target = base + log_total, tl.load(target_ptr + row)
    counts = (target != IGNORED) & (target >= 0)
    if share == 0:
        known = counts & (target < V)
        own, top = w_ptr + target * w_stride, peak_ptr + row * TILES + target // BLOCK_N
        z = _label(x_ptr + row * x_stride, own, top, known, H, softcap, CAPPED)
        # differences first: a large level common to all logits then costs no precision
        loss = tl.where(known, log_total + (base - z) + z_loss * lse * lse, float("nan"))
        if SMOOTH:
            loss += smoothing * (z - tl.sum(tl.load(sum_ptr + at, inside, 0.0), axis=0) / V)
        tl.store(row_ptr + row, tl.where(counts, loss, 0.0))
    if CAPPED:
        totals = tl.load(rounded_ptr + at, mask=inside, other=0.0)
        log_total = tl.log(tl.sum(totals * tl.exp(peaks - base), axis=0))
    up = tl.load(d_loss_ptr + (row if EACH else 0)) / (tl.load(count_ptr) if MEAN else 1.0)
    for first in range(share * SPAN, tl.minimum((share + 1) * SPAN, TILES), WIDE):
        wide = first + tl.arange(0, WIDE)[:, None]
        col = wide * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        e = tl.load(e_ptr + row * e_stride + col, mask=col < V, other=0.0).to(tl.float32)
        slope = 1.0
        if CAPPED:
            # 1 - tanh(t)^2 = 4 s (1 - s) with s = sigmoid(2 t), and 1 - s = sigmoid(-2 t)
            slope = 4.0 * tl.sigmoid(2.0 * e / softcap) * tl.sigmoid(-2.0 * e / softcap)
            p = tl.exp(_capped(e, softcap) - base - log_total)
        else:
            top = tl.load(peak_ptr + row * TILES + wide, mask=wide < TILES, other=0.0)
            top = tl.where(top == -float("inf"), 0.0, top)
            p = e * (tl.exp(top - base - log_total) / SCALE)
        hot = tl.where(col == target, 1.0 - smoothing, 0.0)
        g = (p * (1.0 + 2.0 * z_loss * lse) - smoothing / V - hot) * slope
        g = tl.where(counts, g * up, 0.0).to(e_ptr.dtype.element_ty)
        tl.store(e_ptr + row * e_stride + col, g, mask=col < V)


@triton.jit
def _add_rows(row_ptr, target_ptr, count_ptr, out_ptr, M, IGNORED, MEAN: tl.constexpr):
    total = tl.zeros((4096,), dtype=tl.float32)
    for start in range(0, M, 4096):
        row = start + tl.arange(0, 4096)
        target = tl.load(target_ptr + row, mask=row < M, other=-1)
        each = tl.load(row_ptr + row, mask=row < M, other=0.0)
        total += tl.where((target != IGNORED) & (target >= 0), each, 0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) / (tl.load(count_ptr) if MEAN else 1.0))


def _empty(rows: int, columns: int, like: torch.Tensor) -> torch.Tensor:
    """Unwritten memory whose rows begin at multiples of 128 bytes, as TMA and cuBLAS like them."""
    return like.new_empty((rows, triton.cdiv(columns, 64) * 64))[:, :columns]


def _aligned(t: torch.Tensor) -> torch.Tensor:
    """The matrix itself where TMA can read its rows; else a copy where it can."""
    step = t.stride(0) * t.element_size()
    fits = t.stride(1) == 1 and step > 0 and step % 16 == 0 and t.data_ptr() % 16 == 0
    return t if fits else _empty(t.shape[0], t.shape[1], t).copy_(t)


def fused_linear_cross_entropy(
    x: torch.Tensor, w: torch.Tensor, d_loss: torch.Tensor, target: torch.Tensor, *,
    ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0,
    softcap: float = 0.0, reduction: str = "mean",
    CHUNK: int, BLOCK_M: int, BLOCK_N: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Take the rows in even chunks, and add up the gradient of w over them."""
    (M, H), V = x.shape, w.shape[0]
    d_loss, target = d_loss.contiguous(), target.contiguous()
    x, w, mean, each = _aligned(x), _aligned(w), reduction == "mean", reduction == "none"
    SMS = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
    row, (loss, count) = d_loss.new_ones((M,)), d_loss.new_empty((2, 1))
    # these ones count the rows, and then become the rows' losses
    _add_rows[(1,)](row, target, count, count, M, ignore_index, MEAN=False)
    d_x, d_w = x.new_empty((M, H)), x.new_empty((V, H)) if M > 0 else x.new_zeros((V, H))
    # each chunk rounds d_w once more: in a simulation, 8 in bfloat16 were too many
    TILES, step = triton.cdiv(V, BLOCK_N), triton.cdiv(M, min(4, triton.cdiv(M, CHUNK)) or 1)
    whole = V // 64 * 64 or V
    parted = [slice(v, min(V, v + whole)) for v in range(0, V, whole)]
    e, parts = _empty(step, V, x), row.new_empty((4, step, TILES))
    SCALE = 16384.0 if x.dtype == torch.float16 else 1.0  # which holds nothing below 6e-8
    terms = {"CAPPED": softcap > 0, "SMOOTH": label_smoothing > 0, "SCALE": SCALE}
    WIDE = min(4096 // BLOCK_N, triton.next_power_of_2(TILES))
    for first in range(0, M, max(1, step)):
        n = min(step, M - first)
        rows, g = slice(first, first + n), e[:n]
        _logits[(min(triton.cdiv(n, BLOCK_M) * TILES, SMS),)](
            x[rows], w, g, parts[0], parts[1], parts[2], parts[3],
            n, V, H, x.stride(0), w.stride(0), g.stride(0), softcap, **terms,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=64 if x.element_size() < 4 else 16,
            num_warps=num_warps,
        )  # fmt: skip
        # few rows are split until they fill the SMs
        SPAN = triton.cdiv(triton.cdiv(TILES, max(1, 8 * SMS // n)), WIDE) * WIDE
        _row[(n, triton.cdiv(TILES, SPAN))](
            x[rows], w, d_loss[rows] if each else d_loss, target[rows], g,
            parts[0], parts[1], parts[2], parts[3], count, row[rows], V, H, TILES, SPAN,
            x.stride(0), w.stride(0), g.stride(0), softcap, label_smoothing, z_loss, ignore_index,
            **terms, MEAN=mean, EACH=each, BLOCK_N=BLOCK_N, WIDE=WIDE,
            ALL=triton.next_power_of_2(TILES), num_warps=8,
        )  # fmt: skip
        for cols in parted:
            part = g[:, cols]
            d_x[rows].addmm_(part, w[cols], beta=int(cols.start > 0))
            d_w[cols].addmm_(part.t(), x[rows], beta=int(first > 0))
    if not each:
        _add_rows[(1,)](row, target, count, loss, M, ignore_index, MEAN=mean)
    return row if each else loss, d_x, d_w


UNIT = Unit(
    op=OP, reference=reference, laws=(ignored_rows_get_nothing,), kernel=fused_linear_cross_entropy,
    space=Space(
        {
            # a pass over d_w costs as much as the product of some 350 rows does (H200)
            "CHUNK": (1024, 512, 2048, 4096), "num_warps": (8, 4),
            "BLOCK_M": (128, 64), "BLOCK_N": (256, 128, 64),
        },
        # as gemm's; with a tail of columns to mask, wider tiles spill on sm_100
        rule={
            "BLOCK_M": "128 if M > 64 and itemsize < 4 else 64",
            "BLOCK_N": "64 if itemsize == 4 else 256 if M > 64 and V % 16 == 0 else 128",
            "num_warps": "8 if M > 64 and itemsize < 4 else 4",
        },
        constraints=(
            # 32 to 128 float32 sums a thread: fewer starve the tensor cores, more spill
            "BLOCK_M * BLOCK_N <= (128 if itemsize < 4 else 64) * 32 * num_warps",
            "BLOCK_M * BLOCK_N >= 32 * 32 * num_warps",
            "(M > 64 or BLOCK_M == 64) and (M > 512 or CHUNK == 1024)",
        ),
    ),
)  # fmt: skip
