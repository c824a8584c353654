"""Gradient of cross-entropy, from the logits and each row's log-sum-exp.

    p[i, j]        = exp(z[i, j] - lse[i]), with z as in cross_entropy
    g[i, j]        = p[i, j] * (1 + 2 * z_loss * lse[i]) - (1 - a) * [j = target[i]] - a / V
    d_logits[i, j] = d_loss[i] * g[i, j] * dz[i, j], and 0 in rows that count for nothing

logits, d_logits  (M, V), any row stride; target (M,), int64; lse (M,), float32; d_loss float32,
        (M,) for reduction="none", else (1,), where "mean" divides it by the rows that count;
        dz = 1, or 1 - (z / softcap)^2 where softcap > 0; a = label_smoothing; no gradient is taken
        of lse
dtype   float32, float16, bfloat16; float32 inside
moves   reads logits, target, lse and d_loss once, writes d_logits once
plan    one program per BLOCK neighbouring values of a row: with lse known, no value waits for
        another; a small kernel first counts the rows that a mean is over, or each program does
        where they are few; STREAM asks L2 to let go of d_logits first, LOAD says how logits come,
        SKIP leaves unread what counts for nothing, for which labels must come before logits
"""

import torch
import triton
import triton.language as tl

from kernel_library.recipe import Index
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="cross_entropy_backward",
    inputs={
        "d_loss": Tensor("M*(reduction=='none')+(reduction!='none')", "float32"),
        "logits": Tensor("M V"),
        "target": Tensor("M", "int64", Index("V", ignored=-100, share=0.1)),
        "lse": Tensor("M", "float32"),
    },
    outputs={"d_logits": Tensor("M V")},
    options={
        "ignore_index": Option(-100, (-100, 0)),
        "label_smoothing": Option(0.0, (0.0, 0.1)),
        "z_loss": Option(0.0, (0.0, 1e-3)),
        "softcap": Option(0.0, (0.0, 30.0)),
        "reduction": Option("mean", ("mean", "sum", "none")),
    },
    flops="6 * M * V",
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
    d_loss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    *,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    reduction: str,
) -> torch.Tensor:
    """The gradient as autograd takes it, in float32."""
    z = logits.float()
    z = softcap * torch.tanh(z / softcap) if softcap > 0 else z
    counts = (target != ignore_index) & (target >= 0)
    g = torch.exp(z - lse[:, None]) * (1 + 2 * z_loss * lse[:, None])
    labels = torch.arange(logits.shape[1], device=logits.device)[None, :] == target[:, None]
    g = g - (1 - label_smoothing) * labels.float() - label_smoothing / logits.shape[1]
    g = g * (1 - (z / softcap).square()) if softcap > 0 else g
    up = d_loss / counts.sum() if reduction == "mean" else d_loss
    return torch.where(counts[:, None], up[:, None] * g, 0.0).to(logits.dtype)


def rows_that_do_not_count_get_nothing(
    d_loss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    d_logits: torch.Tensor,
    *,
    ignore_index: int,
    **_: object,
) -> bool:
    """A row with an ignored label has no part in the loss."""
    return bool((d_logits[(target == ignore_index) | (target < 0)] == 0).all())


@triton.jit
def _count_rows(target_ptr, count_ptr, M, IGNORED, BLOCK: tl.constexpr):
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, M, BLOCK):
        row = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + row, mask=row < M, other=-1)
        count += tl.where((target != IGNORED) & (target >= 0), 1.0, 0.0)
    tl.store(count_ptr, tl.sum(count, axis=0))


@triton.jit
def _exp(t):
    # exp2 lets what is below 2^-126 be zero; tl.exp spends three instructions on each to keep it
    return tl.exp2(t * 1.4426950408889634)


@triton.jit
def _cross_entropy_backward_block(
    d_loss_ptr, logits_ptr, target_ptr, lse_ptr, count_ptr, d_logits_ptr, M, V, stride,
    softcap, smoothing, z_loss, IGNORED,
    CAPPED: tl.constexpr, MEAN: tl.constexpr, EACH: tl.constexpr, FEW: tl.constexpr,
    SKIP: tl.constexpr, BLOCK: tl.constexpr,
    CACHE: tl.constexpr, HINT: tl.constexpr, OUT_HINT: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(V, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    target, lse = tl.load(target_ptr + row), tl.load(lse_ptr + row)
    counts = (target != IGNORED) & (target >= 0)
    inside = (col < V) & counts if SKIP else col < V
    at = logits_ptr + row * stride + col
    z = tl.load(at, inside, 0.0, cache_modifier=CACHE, eviction_policy=HINT).to(tl.float32)
    up = tl.load(d_loss_ptr + (row if EACH else 0))
    if MEAN:
        if FEW > 0:
            each = tl.arange(0, FEW)
            label = tl.load(target_ptr + each, mask=each < M, other=-1)
            up /= tl.sum(tl.where((label != IGNORED) & (label >= 0), 1.0, 0.0), axis=0)
        else:
            up /= tl.load(count_ptr)
    slope = 1.0
    if CAPPED:
        # tanh(t) = 2 s - 1 and 1 - tanh(t)^2 = 4 s (1 - s), with s = sigmoid(2 t); of |t|, for then
        # 1 - s = s exp(-2 t) takes no difference, and nothing overflows
        e = _exp(tl.abs(z) * (-2.0 / softcap))
        s = 1.0 / (1.0 + e)
        capped = softcap * (2.0 * s - 1.0)
        z = tl.where(z < 0.0, -capped, capped)
        slope = 4.0 * s * s * e
    # a label is one of V columns: 32 bits
    hot = tl.where(col == target.to(tl.int32), 1.0 - smoothing, 0.0)
    g = _exp(z - lse) * (1.0 + 2.0 * z_loss * lse) - smoothing / V - hot
    # last, as torch does: of an infinite one, a difference of products would be NaN
    g = g * slope * up
    d_logits = tl.where(counts, g, 0.0).to(d_logits_ptr.dtype.element_ty)
    tl.store(d_logits_ptr + row * V + col, d_logits, mask=col < V, eviction_policy=OUT_HINT)


#: By LOAD: the cache modifier and the eviction policy of logits.
_LOADS = (("", ""), (".cg", ""), ("", "evict_first"))


def cross_entropy_backward(
    d_loss: torch.Tensor, logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, *,
    ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0,
    softcap: float = 0.0, reduction: str = "mean",
    BLOCK: int, STREAM: int, LOAD: int, SKIP: int, num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Launch one program for each block of each row."""
    M, V = logits.shape
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    d_loss, target, lse = d_loss.contiguous(), target.contiguous(), lse.contiguous()
    d_logits = torch.empty((M, V), dtype=logits.dtype, device=logits.device)
    if M == 0:
        return d_logits
    count = torch.empty((1,), dtype=torch.float32, device=logits.device)
    few = triton.next_power_of_2(M) if M <= 128 else 0
    if reduction == "mean" and few == 0:
        _count_rows[(1,)](target, count, M, ignore_index, BLOCK=4096, num_warps=8)
    cache, hint = _LOADS[LOAD]
    _cross_entropy_backward_block[(M * triton.cdiv(V, BLOCK),)](
        d_loss, logits, target, lse, count, d_logits, M, V, logits.stride(0),
        softcap, label_smoothing, z_loss, ignore_index,
        CAPPED=softcap > 0, MEAN=reduction == "mean", EACH=reduction == "none", FEW=few,
        SKIP=SKIP > 0, BLOCK=BLOCK, CACHE=cache, HINT=hint,
        OUT_HINT="evict_first" if STREAM else "", num_warps=num_warps,
    )  # fmt: skip
    return d_logits


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(rows_that_do_not_count_get_nothing,),
    kernel=cross_entropy_backward,
    space=Space(
        {
            "BLOCK": (2048, 1024, 4096, 8192),
            "STREAM": (0, 1),
            "LOAD": (0, 1, 2),
            "SKIP": (0, 1),
            "num_warps": (4, 2, 8, 16),
        },
        # 16 values a thread: two or more loads of 16 bytes in flight
        constraints=(
            # what fits in L2 may be wanted from there next
            "STREAM + LOAD == 0 or M * V * itemsize > 33554432",
            # 8 to 32 values a thread: fewer waste threads, more spill
            "256 * num_warps <= BLOCK and BLOCK <= 1024 * num_warps",
        ),
    ),
)
