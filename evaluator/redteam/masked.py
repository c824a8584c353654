"""Those of the red team's small ops in which some elements do not count: masked, or ignored."""

from __future__ import annotations

from evaluator.redteam.forms import ROWS, written
from kernel_library.recipe import Index, Offsets, Uniform
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid

_CROSS_ENTROPY = OpSpec(
    "cross_entropy",
    {
        "logits": Tensor("M V"),
        "target": Tensor("M", "int64", Index("V", ignored=-100, share=0.7)),
    },
    {"loss": Tensor("")},
    (
        Workload({"M": 6, "V": 33}, {"T": "float32"}),
        Workload({"M": 1, "V": 7}, {"T": "float32"}),
        Workload({"M": 1, "V": 40}, {"T": "float32"}),
        Workload({"M": 1, "V": 65}, {"T": "float32"}),
        Workload({"M": 1, "V": 11}, {"T": "float32"}),
        Workload({"M": 1, "V": 13}, {"T": "float32"}),
        Workload({"M": 24, "V": 2}, {"T": "float32"}, options={"ignore_index": 1}),
    ),
    options={"ignore_index": Option(-100, (-100, 1))},
    flops="4 * M * V",
    constraints=("M <= 24", "V >= 2"),
    reference=written(
        "logits, target, *, ignore_index",
        "picked = logits.gather(-1, target.clamp(min=0)[:, None])[:, 0]",
        "each = torch.logsumexp(logits, -1) - picked",
        "keep = (target != ignore_index) & (target >= 0)",
        "return torch.where(keep, each, 0.0).sum() / keep.sum()",
    ),
)
_SEGMENT_SUM = OpSpec(
    "segment_sum",
    {"x": Tensor("T D", "float32"), "bounds": Tensor("B+1", "int32", Offsets("T"))},
    {"y": Tensor("B D", "float32")},
    (
        Workload({"T": 19, "D": 24, "B": 5}, {}),
        Workload({"T": 40, "D": 40, "B": 9}, {}),
    ),
    flops="T * D",
    constraints=("B <= 24", "T <= 64"),
    reference=written(
        "x, bounds",
        "at = torch.arange(x.shape[0], device=x.device)",
        "inside = (at >= bounds[:-1, None]) & (at < bounds[1:, None])",
        "return torch.where(inside[:, :, None], x, 0.0).sum(1)",
    ),
)
_ATTENTION = OpSpec(
    "attention",
    {"bias": Tensor("L S"), "q": Tensor("L 16"), "k": Tensor("S 16"), "v": Tensor("S 16")},
    {"y": Tensor("L 16"), "lse": Tensor("L")},
    grid("L S", {"check": [(3, 40), (7, 97), (12, 12)]}, ("float32",)),
    flops="4 * L * S * 16",
    constraints=("L <= 12",),
    reference=written(
        "bias, q, k, v",
        "s = q @ k.transpose(0, 1) * 0.25 + bias",
        "top = s.amax(-1, keepdim=True)",
        "top = torch.where(top == -float('inf'), 0.0, top)",
        "p = torch.exp(s - top)",
        "total = p.sum(-1, keepdim=True)",
        "y = (p @ v) / torch.where(total == 0, 1.0, total)",
        "return y, (torch.log(total) + top)[:, 0]",
    ),
)
#: A row of 64 has some element that counts, unless a mask is made that has none.
_MASKED_MEAN = OpSpec(
    "masked_mean",
    {"mask": Tensor("M 64", "bool", Uniform(0.0, 0.7)), "x": Tensor("M 64")},
    {"y": Tensor("M")},
    grid("M", {"check": [(3,), (17,)]}, ("float32",)),
    flops="64 * M",
    constraints=ROWS,
    reference=written(
        "mask, x", "return torch.where(mask, x, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)"
    ),
)
#: Whatever the scores are, some of what is right are infinities.
_CAUSAL = OpSpec(
    "causal",
    {"s": Tensor("L S")},
    {"y": Tensor("L S")},
    grid("L S", {"check": [(5, 40), (12, 12)]}, ("float32",)),
    flops="L * S",
    constraints=("L <= 24", "S >= L"),
    reference=written(
        "s",
        "later = torch.ones_like(s, dtype=torch.bool).triu(s.shape[1] - s.shape[0] + 1)",
        "return torch.where(later, -float('inf'), s * 0.125)",
    ),
)

MASKED = (_CROSS_ENTROPY, _SEGMENT_SUM, _ATTENTION, _MASKED_MEAN, _CAUSAL)
