"""The few small ops that the red team's candidates claim to compute, by name.

Row counts stay below 25 or above 1023, so that Triton's interpreter, which runs one program after
another, never meets a size that a GPU is needed for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernel_library.recipe import Index, Normal, Offsets, Uniform
from kernel_library.spec import DType, OpSpec, Option, Reference, Tensor, Tolerance, Workload, grid

_ROWS = ("M <= 24 or M >= 1024",)


def _written(arguments: str, *lines: str) -> Reference:
    body = "".join(f"    {line}\n" for line in lines)
    return Reference(f"import torch\n\ndef reference({arguments}):\n{body}")


def _small(dtype: DType) -> tuple[Workload, ...]:
    return grid("M N", {"check": [(3, 40), (5, 127)]}, (dtype,))


_SOFTMAX = OpSpec(
    "softmax",
    {"x": Tensor("M N")},
    {"y": Tensor("M N")},
    grid("M N", {"check": [(3, 40), (5, 127)], "measure": [(8192, 2048)]}, ("float32",)),
    flops="5 * M * N",
    constraints=_ROWS,
    reference=_written("x", "return torch.softmax(x, -1)"),
)
_SCALE = OpSpec(
    "scale",
    {"x": Tensor("M N"), "s": Tensor("M")},
    {"y": Tensor("M N")},
    grid("M N", {"check": [(3, 40), (5, 127)], "measure": [(8192, 2048)]}, ("float32",)),
    flops="M * N",
    constraints=_ROWS,
    reference=_written("x, s", "return x * s[:, None]"),
)
_MATMUL = OpSpec(
    "matmul",
    {"a": Tensor("M K"), "b": Tensor("K N")},
    {"c": Tensor("M N")},
    grid("M N K", {"check": [(17, 33, 40), (4, 16, 8192)]}, ("float16",))
    + grid("M N K", {"measure": [(2048, 2048, 2048)]}, ("float16",)),
    matmul_flops="2 * M * N * K",
    reference=_written("a, b", "return a @ b"),
)
_MATMUL32 = replace(
    _MATMUL,
    name="matmul32",
    workloads=grid("M N K", {"check": [(17, 33, 40), (8, 16, 1024)]}, ("float32",)),
)
#: Measured in float32, where products have no matrix unit, and checked in float16 as well.
_MATMUL_ANY = replace(
    _MATMUL,
    name="matmul_any",
    workloads=grid("M N K", {"check": [(17, 33, 40)]}, ("float32", "float16"))
    + grid("M N K", {"measure": [(1024, 1024, 512)]}, ("float32",)),
)
_MATVEC = OpSpec(
    "matvec",
    {"a": Tensor("M K"), "x": Tensor("K")},
    {"y": Tensor("M")},
    grid("M K", {"check": [(17, 40), (5, 1024)], "measure": [(8192, 4096)]}, ("float16",)),
    matmul_flops="2 * M * K",
    constraints=_ROWS,
    reference=_written("a, x", "return a @ x"),
)
_ACCUMULATE = OpSpec(
    "accumulate",
    {"p": Tensor("N"), "g": Tensor("N")},
    {},
    grid("N", {"check": [(40,), (127,)], "measure": [(1 << 24,)]}, ("float32",)),
    mutates=("p",),
    flops="N",
    reference=_written("p, g", "p.add_(g)"),
)
_SIGMOID = OpSpec(
    "sigmoid",
    {"x": Tensor("N")},
    {"y": Tensor("N")},
    grid("N", {"check": [(40,), (127,)], "measure": [(1 << 24,)]}, ("float32",)),
    flops="4 * N",
    reference=_written("x", "return torch.sigmoid(x)"),
)
_LAYER_NORM = OpSpec(
    "layer_norm",
    {"x": Tensor("M N")},
    {"y": Tensor("M N")},
    _small("float32"),
    flops="6 * M * N",
    constraints=(*_ROWS, "N >= 2"),
    reference=_written("x", "return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)"),
)
_LAYER_NORM16 = replace(_LAYER_NORM, name="layer_norm16", workloads=_small("float16"))
_RMS_NORM = replace(
    _LAYER_NORM,
    name="rms_norm",
    options={"eps": Option(1e-6)},
    reference=_written("x, *, eps", "return x * torch.rsqrt(x.square().mean(-1, True) + eps)"),
)
_ROW_DOT = OpSpec(
    "row_dot",
    {"x": Tensor("M N"), "w": Tensor("N")},
    {"y": Tensor("M")},
    _small("float32"),
    flops="2 * M * N",
    constraints=_ROWS,
    reference=_written("x, w", "return (x * w).sum(-1)"),
)
_OUTER = OpSpec(
    "outer",
    {"d": Tensor("M"), "w": Tensor("N")},
    {"y": Tensor("M N")},
    _small("float32"),
    flops="M * N",
    constraints=_ROWS,
    reference=_written("d, w", "return d[:, None] * w"),
)
_GAIN = OpSpec(
    "gain",
    {"x": Tensor("M N"), "w": Tensor("N", recipe=Normal(-1.0, 0.02))},
    {"y": Tensor("M N")},
    _small("float16"),
    flops="2 * M * N",
    constraints=_ROWS,
    reference=_written("x, w", "return (x.float() * (1 + w.float())).to(x.dtype)"),
)
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
    reference=_written(
        "logits, target, *, ignore_index",
        "picked = logits.gather(-1, target.clamp(min=0)[:, None])[:, 0]",
        "each = torch.logsumexp(logits, -1) - picked",
        "keep = (target != ignore_index) & (target >= 0)",
        "return torch.where(keep, each, 0.0).sum() / keep.sum()",
    ),
)
_QUANTISE = OpSpec(
    "quantise",
    {"x": Tensor("M N")},
    {"q": Tensor("M N", "int8"), "scale": Tensor("M", "float32")},
    _small("float32"),
    flops="4 * M * N",
    constraints=_ROWS,
    tolerance=Tolerance(loosen=2.0),
    reference=_written(
        "x",
        "scale = x.abs().amax(-1) / 127.0",
        "safe = torch.where(scale == 0, 1.0, scale)",
        "return torch.round(x / safe[:, None]).to(torch.int8), scale.to(torch.float32)",
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
    reference=_written(
        "x, bounds",
        "at = torch.arange(x.shape[0], device=x.device)",
        "inside = (at >= bounds[:-1, None]) & (at < bounds[1:, None])",
        "return torch.where(inside[:, :, None], x, 0.0).sum(1)",
    ),
)
_TOP2 = OpSpec(
    "top2",
    {"x": Tensor("M N")},
    {"values": Tensor("M 2")},
    _small("float32"),
    flops="2 * M * N",
    constraints=(*_ROWS, "N >= 2"),
    reference=_written("x", "return torch.topk(x, 2, -1).values"),
)
_CAPPED = OpSpec(
    "capped_lse",
    {"x": Tensor("M N")},
    {"lse": Tensor("M")},
    grid("M N", {"check": [(3, 40), (5, 129)]}, ("float32",)),
    flops="8 * M * N",
    constraints=_ROWS,
    reference=_written("x", "return torch.logsumexp(30.0 * torch.tanh(x / 30.0), -1)"),
)
_HISTOGRAM = OpSpec(
    "histogram",
    {"ids": Tensor("N", "int64", Index("16"))},
    {"counts": Tensor("16", "int32")},
    (Workload({"N": 200}, {}), Workload({"N": 61}, {})),
    reference=_written(
        "ids",
        "return (ids[:, None] == torch.arange(16, device=ids.device)).sum(0).to(torch.int32)",
    ),
)
_ARGMAX = OpSpec(
    "argmax",
    {"x": Tensor("M N")},
    {"i": Tensor("M", "int64")},
    grid("M N", {"check": [(3, 40), (5, 127)]}, ("float32", "float16")),
    flops="M * N",
    constraints=_ROWS,
    reference=_written("x", "return x.argmax(-1)"),
)
_ARGMAX8 = replace(
    _ARGMAX,
    name="argmax8",
    inputs={"x": Tensor("M N", "int8", Uniform(-128.0, 127.0))},
    workloads=_small("float32"),
)
_ORDER = OpSpec(
    "order",
    {"ids": Tensor("N", "int32", Index("4"))},
    {"at": Tensor("N", "int64")},
    (Workload({"N": 40}, {}), Workload({"N": 127}, {})),
    reference=_written("ids", "return torch.argsort(ids, stable=True)"),
)
_TOTALS = OpSpec(
    "totals",
    {"n": Tensor("M N", "int64", Uniform(-1000.0, 1000.0))},
    {"y": Tensor("M", "int64")},
    (Workload({"M": 3, "N": 40}, {}), Workload({"M": 5, "N": 127}, {})),
    flops="M * N",
    constraints=_ROWS,
    reference=_written("n", "return n.sum(-1)"),
)
_TWINS = OpSpec(
    "twins",
    {"x": Tensor("M N")},
    {"a": Tensor("M N"), "b": Tensor("M N")},
    grid("M N", {"check": [(3, 40), (5, 127)], "measure": [(8192, 2048)]}, ("float32",)),
    flops="M * N",
    constraints=_ROWS,
    reference=_written("x", "y = 2 * x", "return y, y.clone()"),
)
_TURNED = replace(
    _TWINS,
    name="turned",
    outputs={"y": Tensor("N M")},
    reference=_written("x", "return (2 * x).transpose(0, 1).contiguous()"),
)
_ATTENTION = OpSpec(
    "attention",
    {"bias": Tensor("L S"), "q": Tensor("L 16"), "k": Tensor("S 16"), "v": Tensor("S 16")},
    {"y": Tensor("L 16"), "lse": Tensor("L")},
    grid("L S", {"check": [(3, 40), (7, 97), (12, 12)]}, ("float32",)),
    flops="4 * L * S * 16",
    constraints=("L <= 12",),
    reference=_written(
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

OPS: Mapping[str, OpSpec] = {
    op.name: op
    for op in (
        _SOFTMAX, _SCALE, _MATMUL, _MATMUL32, _MATMUL_ANY, _MATVEC, _ACCUMULATE, _SIGMOID,
        _LAYER_NORM, _LAYER_NORM16, _RMS_NORM, _ROW_DOT, _OUTER, _GAIN, _CROSS_ENTROPY, _QUANTISE,
        _SEGMENT_SUM, _TOP2, _CAPPED, _HISTOGRAM, _ARGMAX, _ARGMAX8, _ORDER, _TOTALS, _TWINS,
        _TURNED, _ATTENTION,
    )
}  # fmt: skip
