"""Cross-entropy of logits against labels, and each row's log-sum-exp, which its gradient needs.

    z[i, j] = logits[i, j], or softcap * tanh(logits[i, j] / softcap) where softcap > 0
    lse[i]  = log sum_j exp(z[i, j])
    row[i]  = lse[i] - (1 - a) * z[i, target[i]] - a * mean_j z[i, j] + z_loss * lse[i]^2
    loss    = row, its sum, or its mean over the rows that count; a = label_smoothing

logits  (M, V), any row stride; target (M,), int64 below V; lse (M,), float32; loss float32, one
        for each row with reduction="none", else (1,). A row whose label is ignore_index, or
        negative, counts for nothing: it adds 0, and the mean over no rows is NaN, as torch has it
dtype   float32, float16, bfloat16; float32 inside
moves   reads logits and target once, writes loss and lse once
plan    SPLIT programs per row sweep their columns in tiles of BLOCK with one running maximum, so
        that each logit costs one exponential, and a sum for each lane; loads run STAGES tiles
        ahead, and only the last tile has a mask; a second kernel joins the shares of a row and
        looks up its label, a third adds the rows in a fixed order, or the second where one program
        of it has them all (WHOLE); LOAD says how logits come where they are not copied ahead
"""

import torch
import triton
import triton.language as tl

from kernel_library.recipe import Index
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="cross_entropy",
    inputs={
        "logits": Tensor("M V"),
        "target": Tensor("M", "int64", Index("V", ignored=-100, share=0.1)),
    },
    outputs={
        "loss": Tensor("M*(reduction=='none')+(reduction!='none')", "float32"),
        "lse": Tensor("M", "float32"),
    },
    options={
        "ignore_index": Option(-100, (-100, 0)),
        "label_smoothing": Option(0.0, (0.0, 0.1)),
        "z_loss": Option(0.0, (0.0, 1e-3)),
        "softcap": Option(0.0, (0.0, 30.0)),
        "reduction": Option("mean", ("mean", "sum", "none")),
    },
    flops="4 * M * V",
    constraints=("M >= 0", "V >= 1"),
    workloads=(
        *grid(
            "M V",
            {"check": [(3, 127), (7, 781), (2, 4097)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 5, "V": 257}, {"T": "float32"}, options={"reduction": "none"}),
        Workload(
            {"M": 6, "V": 65},
            {"T": "bfloat16"},
            options={
                "ignore_index": 0, "label_smoothing": 0.1, "z_loss": 1e-3, "softcap": 30.0,
                "reduction": "sum",
            },
        ),
        *grid(
            "M V",
            {"measure": [(4096, 128256), (16, 128256), (2047, 50257)]},
            dtypes=("bfloat16",),
        ),
    ),
)  # fmt: skip


def reference(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    reduction: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's cross-entropy in float32, with the terms that language models add."""
    z = logits.float()
    z = softcap * torch.tanh(z / softcap) if softcap > 0 else z
    lse = torch.logsumexp(z, -1)
    counts = (target != ignore_index) & (target >= 0)
    row = torch.nn.functional.cross_entropy(
        z, torch.where(counts, target, 0), reduction="none", label_smoothing=label_smoothing
    )
    row = torch.where(counts, row + z_loss * lse.square() if z_loss > 0 else row, 0.0)
    if reduction == "none":
        return row, lse
    total = row.sum().reshape(1)
    return (total / counts.sum() if reduction == "mean" else total), lse


def no_loss_is_negative(
    logits: torch.Tensor, target: torch.Tensor, loss: torch.Tensor, lse: torch.Tensor, **_: object
) -> bool:
    """No share of a sum is more than the sum, so each row's loss is 0 or more, or NaN of none."""
    return bool((loss.isnan() | (loss >= -1e-5)).all())


@triton.jit
def _exp(t):
    # exp2 lets what is below 2^-126 be zero; tl.exp spends three instructions on each to keep it
    return tl.exp2(t * 1.4426950408889634)


@triton.jit
def _capped(z, softcap, CAPPED: tl.constexpr):
    z = z.to(tl.float32)
    if CAPPED:
        # tanh(t) = 2 sigmoid(2 t) - 1, which no large t can break
        z = softcap * (2.0 / (1.0 + _exp(z * (-2.0 / softcap))) - 1.0)
    return z


@triton.jit
def _absorb(z, peak, total):
    higher = tl.maximum(peak, tl.max(z, axis=0))
    # where all was -inf so far, -inf must not be taken from itself
    base = tl.where(higher == -float("inf"), 0.0, higher)
    return higher, total * _exp(peak - base) + _exp(z - base)


@triton.jit
def _sweep(
    logits_ptr, peak_ptr, total_ptr, sum_ptr, V, SHARE, stride, softcap,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    CACHE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    row, share = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = share * SHARE, tl.minimum((share + 1) * SHARE, V)
    tail = begin + tl.maximum(end - begin, 0) // BLOCK * BLOCK
    peak = tl.full((), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    added = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(begin, tail, BLOCK, num_stages=STAGES):
        at = logits_ptr + row * stride + start + tl.arange(0, BLOCK)
        z = tl.load(at, cache_modifier=CACHE, eviction_policy=HINT)
        z = _capped(z, softcap, CAPPED)
        if SMOOTH:
            added += z
        peak, total = _absorb(z, peak, total)
    if tail < end:
        col = tail + tl.arange(0, BLOCK)
        z = tl.load(logits_ptr + row * stride + col, mask=col < end, other=0.0)
        z = _capped(z, softcap, CAPPED)
        if SMOOTH:
            added += tl.where(col < end, z, 0.0)
        peak, total = _absorb(tl.where(col < end, z, -float("inf")), peak, total)
    at = row * tl.num_programs(1) + share
    tl.store(peak_ptr + at, peak)
    tl.store(total_ptr + at, tl.sum(total, axis=0))
    if SMOOTH:
        tl.store(sum_ptr + at, tl.sum(added, axis=0))


@triton.jit
def _join_shares(
    logits_ptr, target_ptr, peak_ptr, total_ptr, sum_ptr, row_ptr, lse_ptr, loss_ptr,
    M, V, SHARES, stride, softcap, smoothing, z_loss, IGNORED,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WHOLE: tl.constexpr, MEAN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    share = tl.arange(0, BLOCK)[None, :]
    at, inside = row[:, None] * SHARES + share, (row[:, None] < M) & (share < SHARES)
    peaks = tl.load(peak_ptr + at, mask=inside, other=-float("inf"))
    totals = tl.load(total_ptr + at, mask=inside, other=0.0)
    peak = tl.max(peaks, axis=1)
    base = tl.where(peak == -float("inf"), 0.0, peak)
    log_total = tl.log(tl.sum(totals * _exp(peaks - base[:, None]), axis=1))
    target = tl.load(target_ptr + row, mask=row < M, other=-1)
    counts = (target != IGNORED) & (target >= 0)
    z = tl.load(logits_ptr + row * stride + target, mask=counts & (target < V), other=float("nan"))
    z = _capped(z, softcap, CAPPED)
    # differences first: a large level common to all logits then costs no precision
    loss = log_total + (base - z)
    if SMOOTH:
        mean = tl.sum(tl.load(sum_ptr + at, mask=inside, other=0.0), axis=1) / V
        loss = (1.0 - smoothing) * loss + smoothing * (log_total + (base - mean))
    lse = base + log_total
    loss = tl.where(counts, loss + z_loss * lse * lse, 0.0)
    tl.store(lse_ptr + row, lse, mask=row < M)
    if WHOLE:
        loss = tl.sum(loss, axis=0)
        if MEAN:
            loss = loss / tl.sum(tl.where(counts, 1.0, 0.0), axis=0)
        tl.store(loss_ptr, loss)
    else:
        tl.store(row_ptr + row, loss, mask=row < M)


@triton.jit
def _add_rows(row_ptr, target_ptr, loss_ptr, M, IGNORED, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, M, BLOCK):
        row = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + row, mask=row < M, other=-1)
        total += tl.load(row_ptr + row, mask=row < M, other=0.0)
        count += tl.where((target != IGNORED) & (target >= 0), 1.0, 0.0)
    loss = tl.sum(total, axis=0)
    if MEAN:
        loss = loss / tl.sum(count, axis=0)
    tl.store(loss_ptr, loss)


#: By LOAD: the cache modifier and the eviction policy of logits.
_LOADS = (("", ""), (".cg", ""), ("", "evict_first"))


def cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, *,
    ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0,
    softcap: float = 0.0, reduction: str = "mean",
    BLOCK: int, SPLIT: int, STAGES: int, LOAD: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Sweep the rows, join what their shares found, and add the rows."""
    M, V = logits.shape
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    target = target.contiguous()
    SPLIT = min(SPLIT, triton.cdiv(V, BLOCK))
    share = triton.cdiv(V, SPLIT * BLOCK) * BLOCK
    parts = torch.empty((3, M, SPLIT), dtype=torch.float32, device=logits.device)
    row = torch.empty((M,), dtype=torch.float32, device=logits.device)
    lse = torch.empty((M,), dtype=torch.float32, device=logits.device)
    loss = torch.empty((1,), dtype=torch.float32, device=logits.device)
    mean, whole = reduction == "mean", reduction != "none" and 0 < M <= 32
    cache, hint = _LOADS[LOAD]
    if M > 0:
        _sweep[(M, SPLIT)](
            logits, parts[0], parts[1], parts[2], V, share, logits.stride(0), softcap,
            CAPPED=softcap > 0, SMOOTH=label_smoothing > 0, BLOCK=BLOCK, STAGES=STAGES,
            CACHE=cache, HINT=hint, num_warps=num_warps,
        )  # fmt: skip
        _join_shares[(triton.cdiv(M, 32),)](
            logits, target, parts[0], parts[1], parts[2], row, lse, loss,
            M, V, SPLIT, logits.stride(0), softcap, label_smoothing, z_loss, ignore_index,
            CAPPED=softcap > 0, SMOOTH=label_smoothing > 0, WHOLE=whole, MEAN=mean,
            ROWS=32, BLOCK=triton.next_power_of_2(SPLIT), num_warps=1,
        )  # fmt: skip
    if reduction == "none":
        return row, lse
    if not whole:
        _add_rows[(1,)](row, target, loss, M, ignore_index, MEAN=mean, BLOCK=4096, num_warps=8)
    return loss, lse


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(no_loss_is_negative,),
    kernel=cross_entropy,
    space=Space(
        {
            "BLOCK": (4096, 1024, 2048, 8192),
            "SPLIT": (1, 2, 4, 8, 16, 32),
            "STAGES": (3, 1, 2, 4),
            "LOAD": (0, 1, 2),
            "num_warps": (8, 4, 16),
        },
        # a program for each row while they are many; few rows are split until they fill the SMs
        # of an H200, four programs on each
        rule={
            "BLOCK": "min(4096, max(1024, pow2(V)))",
            "SPLIT": "1 if M >= 528 else max(1, min(16, 528 // max(M, 1), V // 4096))",
            "num_warps": "min(8, max(4, pow2(V) // 512))",
        },
        constraints=(
            "SPLIT == 1 or (SPLIT * BLOCK < V and M < 1056)",
            "BLOCK <= max(1024, pow2(V))",
            # what fits in L2 may be wanted from there next
            "LOAD == 0 or (STAGES == 1 and M * V * itemsize > 33554432)",
            # 8 to 32 values a thread: fewer waste threads, more spill
            "256 * num_warps <= BLOCK and BLOCK <= 1024 * num_warps",
        ),
    ),
    backward="cross_entropy_backward",
)
