"""The few small ops that the red team's candidates claim to compute, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from evaluator.redteam.forms import ROWS, small, written
from evaluator.redteam.masked import MASKED
from kernel_library.recipe import Index, Normal, Uniform
from kernel_library.spec import OpSpec, Option, Tensor, Tolerance, Workload, grid

_SOFTMAX = OpSpec(
    "softmax",
    {"x": Tensor("M N")},
    {"y": Tensor("M N")},
    grid("M N", {"check": [(3, 40), (5, 127)], "measure": [(8192, 2048)]}, ("float32",)),
    flops="5 * M * N",
    constraints=ROWS,
    reference=written("x", "return torch.softmax(x, -1)"),
)
_SCALE = OpSpec(
    "scale",
    {"x": Tensor("M N"), "s": Tensor("M")},
    {"y": Tensor("M N")},
    grid("M N", {"check": [(3, 40), (5, 127)], "measure": [(8192, 2048)]}, ("float32",)),
    flops="M * N",
    constraints=ROWS,
    reference=written("x, s", "return x * s[:, None]"),
)
_MATMUL = OpSpec(
    "matmul",
    {"a": Tensor("M K"), "b": Tensor("K N")},
    {"c": Tensor("M N")},
    grid("M N K", {"check": [(17, 33, 40), (4, 16, 8192)]}, ("float16",))
    + grid("M N K", {"measure": [(2048, 2048, 2048)]}, ("float16",)),
    matmul_flops="2 * M * N * K",
    reference=written("a, b", "return a @ b"),
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
    constraints=ROWS,
    reference=written("a, x", "return a @ x"),
)
_ACCUMULATE = OpSpec(
    "accumulate",
    {"p": Tensor("N"), "g": Tensor("N")},
    {},
    grid("N", {"check": [(40,), (127,)], "measure": [(1 << 24,)]}, ("float32",)),
    mutates=("p",),
    flops="N",
    reference=written("p, g", "p.add_(g)"),
)
_SIGMOID = OpSpec(
    "sigmoid",
    {"x": Tensor("N")},
    {"y": Tensor("N")},
    grid("N", {"check": [(40,), (127,)], "measure": [(1 << 24,)]}, ("float32",)),
    flops="4 * N",
    reference=written("x", "return torch.sigmoid(x)"),
)
_LAYER_NORM = OpSpec(
    "layer_norm",
    {"x": Tensor("M N")},
    {"y": Tensor("M N")},
    small("float32"),
    flops="6 * M * N",
    constraints=(*ROWS, "N >= 2"),
    reference=written("x", "return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)"),
)
_LAYER_NORM16 = replace(_LAYER_NORM, name="layer_norm16", workloads=small("float16"))
_RMS_NORM = replace(
    _LAYER_NORM,
    name="rms_norm",
    options={"eps": Option(1e-6)},
    reference=written("x, *, eps", "return x * torch.rsqrt(x.square().mean(-1, True) + eps)"),
)
#: Of any number of rows, as many as columns too; a smaller epsilon shows, whatever the values are.
_SCALED_NORM = replace(
    _RMS_NORM,
    name="scaled_norm",
    inputs={"x": Tensor("M N"), "s": Tensor("M")},
    options={"eps": Option(1e-3)},
    constraints=(),
    reference=written(
        "x, s, *, eps", "return x * torch.rsqrt(x.square().mean(-1, True) + eps) * s[:, None]"
    ),
)
_ROW_DOT = OpSpec(
    "row_dot",
    {"x": Tensor("M N"), "w": Tensor("N")},
    {"y": Tensor("M")},
    small("float32"),
    flops="2 * M * N",
    constraints=ROWS,
    reference=written("x, w", "return (x * w).sum(-1)"),
)
_OUTER = OpSpec(
    "outer",
    {"d": Tensor("M"), "w": Tensor("N")},
    {"y": Tensor("M N")},
    small("float32"),
    flops="M * N",
    constraints=ROWS,
    reference=written("d, w", "return d[:, None] * w"),
)
_GAIN = OpSpec(
    "gain",
    {"x": Tensor("M N"), "w": Tensor("N", recipe=Normal(-1.0, 0.02))},
    {"y": Tensor("M N")},
    small("float16"),
    flops="2 * M * N",
    constraints=ROWS,
    reference=written("x, w", "return (x.float() * (1 + w.float())).to(x.dtype)"),
)
_QUANTISE = OpSpec(
    "quantise",
    {"x": Tensor("M N")},
    {"q": Tensor("M N", "int8"), "scale": Tensor("M", "float32")},
    small("float32"),
    flops="4 * M * N",
    constraints=ROWS,
    tolerance=Tolerance(loosen=2.0),
    reference=written(
        "x",
        "scale = x.abs().amax(-1) / 127.0",
        "safe = torch.where(scale == 0, 1.0, scale)",
        "return torch.round(x / safe[:, None]).to(torch.int8), scale.to(torch.float32)",
    ),
)
_TOP2 = OpSpec(
    "top2",
    {"x": Tensor("M N")},
    {"values": Tensor("M 2")},
    small("float32"),
    flops="2 * M * N",
    constraints=(*ROWS, "N >= 2"),
    reference=written("x", "return torch.topk(x, 2, -1).values"),
)
_CAPPED = OpSpec(
    "capped_lse",
    {"x": Tensor("M N")},
    {"lse": Tensor("M")},
    grid("M N", {"check": [(3, 40), (5, 129)]}, ("float32",)),
    flops="8 * M * N",
    constraints=ROWS,
    reference=written("x", "return torch.logsumexp(30.0 * torch.tanh(x / 30.0), -1)"),
)
_HISTOGRAM = OpSpec(
    "histogram",
    {"ids": Tensor("N", "int64", Index("16"))},
    {"counts": Tensor("16", "int32")},
    (Workload({"N": 200}, {}), Workload({"N": 61}, {})),
    reference=written(
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
    constraints=ROWS,
    reference=written("x", "return x.argmax(-1)"),
)
_ARGMAX8 = replace(
    _ARGMAX,
    name="argmax8",
    inputs={"x": Tensor("M N", "int8", Uniform(-128.0, 127.0))},
    workloads=small("float32"),
)
_ORDER = OpSpec(
    "order",
    {"ids": Tensor("N", "int32", Index("4"))},
    {"at": Tensor("N", "int64")},
    (Workload({"N": 40}, {}), Workload({"N": 127}, {})),
    reference=written("ids", "return torch.argsort(ids, stable=True)"),
)
_TOTALS = OpSpec(
    "totals",
    {"n": Tensor("M N", "int64", Uniform(-1000.0, 1000.0))},
    {"y": Tensor("M", "int64")},
    (Workload({"M": 3, "N": 40}, {}), Workload({"M": 5, "N": 127}, {})),
    flops="M * N",
    constraints=ROWS,
    reference=written("n", "return n.sum(-1)"),
)
_TWINS = OpSpec(
    "twins",
    {"x": Tensor("M N")},
    {"a": Tensor("M N"), "b": Tensor("M N")},
    grid("M N", {"check": [(3, 40), (5, 127)], "measure": [(8192, 2048)]}, ("float32",)),
    flops="M * N",
    constraints=ROWS,
    reference=written("x", "y = 2 * x", "return y, y.clone()"),
)
_TURNED = replace(
    _TWINS,
    name="turned",
    outputs={"y": Tensor("N M")},
    reference=written("x", "return (2 * x).transpose(0, 1).contiguous()"),
)
_IMAGES = OpSpec(
    "images",
    {"x": Tensor("B C H W"), "g": Tensor("B C H W")},
    {"y": Tensor("B C H W")},
    grid("B C H W", {"check": [(2, 3, 5, 4), (1, 5, 7, 6)]}, ("float32",)),
    flops="B * C * H * W",
    constraints=("C >= 2", "W >= 2"),
    reference=written("x, g", "return x * g"),
)

OPS: Mapping[str, OpSpec] = {
    op.name: op
    for op in (
        _SOFTMAX, _SCALE, _MATMUL, _MATMUL32, _MATMUL_ANY, _MATVEC, _ACCUMULATE, _SIGMOID,
        _LAYER_NORM, _LAYER_NORM16, _RMS_NORM, _SCALED_NORM, _ROW_DOT, _OUTER, _GAIN,
        _QUANTISE, _TOP2, _CAPPED, _HISTOGRAM, _ARGMAX, _ARGMAX8, _ORDER, _TOTALS, _TWINS, _TURNED,
        _IMAGES, *MASKED,
    )
}  # fmt: skip
