"""The vocabulary holds the hard cases: contracts whose kernels come later, as test data."""

import pytest
import torch

from evaluator.graphs import run
from evaluator.inputs import Case, draw, flat
from evaluator.intake import export
from evaluator.isolate import run_here
from kernel_library.codec import op_json
from kernel_library.recipe import Index, Normal, Scales, Simplex, Uniform
from kernel_library.spec import Count, OpSpec, Option, Reference, Tensor, Workload

F = torch.nn.functional

RMS_NORM = OpSpec(
    name="rms_norm",
    inputs={"x": Tensor("M N"), "w": Tensor("N")},
    outputs={"y": Tensor("M N")},
    options={"eps": Option(1e-6), "offset": Option(0.0, (0.0, 1.0))},
    workloads=(
        Workload({"M": 3, "N": 127}, {"T": "bfloat16"}),
        Workload({"M": 2, "N": 64}, {"T": "float32"}, options={"offset": 1.0, "eps": 1e-5}),
    ),
    flops="4 * M * N",
    reference=Reference("""
import torch

def reference(x, w, *, eps, offset):
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * (w.float() + offset)).to(x.dtype)
"""),
)

CROSS_ENTROPY = OpSpec(
    name="cross_entropy",
    inputs={
        "logits": Tensor("M V"),
        "target": Tensor("M", "int64", Index("V", ignored=-100, share=0.25)),
    },
    outputs={"loss": Tensor("", "float32")},
    options={"ignored": Option(-100), "reduction": Option("mean", ("mean", "sum"))},
    workloads=(Workload({"M": 37, "V": 101}, {"T": "bfloat16"}),),
    flops="6 * M * V",
    reference=Reference("""
import torch

def reference(logits, target, *, ignored, reduction):
    return torch.nn.functional.cross_entropy(
        logits.float(), target, ignore_index=ignored, reduction=reduction
    )
"""),
)

ATTENTION = OpSpec(
    name="attention",
    inputs={"q": Tensor("B Hq S D"), "k": Tensor("B Hkv S D"), "v": Tensor("B Hkv S D")},
    outputs={"o": Tensor("B Hq S D"), "lse": Tensor("B Hq S", "float32")},
    options={"causal": Option(True, (True, False))},
    workloads=(
        Workload({"B": 2, "Hq": 4, "Hkv": 2, "S": 7, "D": 16}, {"T": "float16"}),
        Workload(
            {"B": 2, "Hq": 4, "Hkv": 2, "S": 7, "D": 16}, {"T": "float16"},
            options={"causal": False},
        ),
    ),
    matmul_flops="4 * B * Hq * D * (S * (S + 1) // 2 if causal else S * S)",
    flops="8 * B * Hq * (S * (S + 1) // 2 if causal else S * S)",
    constraints=("Hq % Hkv == 0",),
    reference=Reference('''
import torch

def reference(q, k, v, *, causal):
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1).float() for t in (k, v))
    scores = q.float() @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(ahead, float("-inf"))
    lse = scores.logsumexp(-1)
    return ((scores - lse[..., None]).exp() @ v).to(q.dtype), lse
'''),
)  # fmt: skip

BLOCK_SCALED_GEMM = OpSpec(
    name="block_scaled_gemm",
    inputs={
        "a": Tensor("M K", "float8_e4m3fn"),
        "b": Tensor("N K", "float8_e4m3fn"),
        "a_scale": Tensor("M K//128", "float32", Scales()),
        "b_scale": Tensor("N//128 K//128", "float32", Scales()),
    },
    outputs={"c": Tensor("M N")},
    workloads=(Workload({"M": 5, "N": 256, "K": 384}, {"T": "bfloat16"}),),
    matmul_flops="2 * M * N * K",
    matmul_dtype="float8_e4m3fn",
    constraints=("N % 128 == 0", "K % 128 == 0"),
    reference=Reference("""
import torch

def reference(a, b, a_scale, b_scale):
    a = a.float() * a_scale.repeat_interleave(128, 1)
    b = b.float() * b_scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return (a @ b.t()).to(torch.bfloat16)
"""),
)

MOE = OpSpec(
    name="moe",
    inputs={
        "x": Tensor("T0 H"),
        "gate_up": Tensor("E 2*I H", recipe=Normal(0.0, 0.05)),
        "down": Tensor("E H I", recipe=Normal(0.0, 0.05)),
        "ids": Tensor("T0 K", "int64", Index("E", distinct=True)),
        "weights": Tensor("T0 K", "float32", Simplex()),
    },
    outputs={"y": Tensor("T0 H")},
    workloads=(Workload({"T0": 3, "H": 16, "I": 8, "E": 8, "K": 2}, {"T": "float32"}),),
    counts={"hit": Count("distinct", "ids", "min(E, T0 * K)")},
    matmul_flops="6 * T0 * K * H * I",
    bytes="2 * T0 * H * T_bytes + 3 * hit * H * I * T_bytes + T0 * K * 12",
    constraints=("K <= E",),
    reference=Reference("""
import torch

def reference(x, gate_up, down, ids, weights):
    gate, up = torch.einsum("th,tkih->tki", x, gate_up[ids]).chunk(2, -1)
    each = torch.einsum("tki,tkhi->tkh", torch.nn.functional.silu(gate) * up, down[ids])
    return (each * weights[..., None]).sum(1).to(x.dtype)
"""),
)

ADAMW = OpSpec(
    name="adamw",
    inputs={
        "p": Tensor("N", count="P"),
        "g": Tensor("N", count="P"),
        "m": Tensor("N", "float32", count="P"),
        "v": Tensor("N", "float32", Uniform(0.0, 1.0), count="P"),
    },
    outputs={"norm": Tensor("", "float32")},
    options={"lr": Option(1e-3), "step": Option(3), "decay": Option(0.1)},
    mutates=("m", "v", "p"),
    workloads=(Workload({"N": (5, 33, 1), "P": 3}, {"T": "float32"}),),
    flops="15 * sum(N)",
    reference=Reference("""
import torch

def reference(p, g, m, v, *, lr, step, decay):
    total = 0.0
    for p_, g_, m_, v_ in zip(p, g, m, v):
        wide = g_.float()
        total = total + wide.square().sum()
        m_.mul_(0.9).add_(wide, alpha=0.1)
        v_.mul_(0.999).addcmul_(wide, wide, value=0.001)
        moved = (m_ / (1 - 0.9**step)) / ((v_ / (1 - 0.999**step)).sqrt() + 1e-8)
        p_.copy_(p_.float() * (1 - lr * decay) - lr * moved)
    return total.sqrt()
"""),
)

#: Each contract, and the cost of its first workload as worked out by hand: bytes, flops, matmul.
#: rms_norm: (2 * 3*127 + 127) * 2. cross_entropy: 37*101*2 + 37*8 + 4. attention: o and q 2*896,
#: k and v 2*448 halves; lse 56 floats. gemm: 5*384 + 256*384 + (5*3 + 2*3)*4 + 5*256*2.
#: moe: 2*3*16*4 + 3*6*128*4 + 6*12. adamw: 39 elements, g read, p, m, v read and written; a norm.
CONTRACTS = [
    (RMS_NORM, (1778, 1524, 0)),
    (CROSS_ENTROPY, (7774, 22422, 0)),
    (ATTENTION, (2 * (2 * 896 + 2 * 448) + 224, 8 * 8 * 28, 4 * 8 * 16 * 28)),
    (BLOCK_SCALED_GEMM, (1920 + 98304 + 84 + 2560, 0, 2 * 5 * 256 * 384)),
    (MOE, (384 + 9216 + 72, 0, 6 * 6 * 128)),
    (ADAMW, (7 * 39 * 4 + 4, 585, 0)),
]
IDS = [op.name for op, _ in CONTRACTS]


@pytest.mark.parametrize(("op", "by_hand"), CONTRACTS, ids=IDS)
def test_the_cost_is_what_it_is_by_hand(op: OpSpec, by_hand: tuple[int, int, int]):
    cost = op.cost(op.workloads[0])
    assert (cost.bytes, cost.flops, cost.matmul_flops) == by_hand
    assert all(op.is_legal(at) for at in op.workloads)


@pytest.mark.parametrize("op", [op for op, _ in CONTRACTS], ids=IDS)
def test_a_contract_exports_runs_widened_and_survives_json(op: OpSpec):
    full = export(op, op.workloads, run_here)
    again = op_json.validate_json(op_json.dump_json(full))
    assert again == full
    assert again.digest == op.digest
    for at in op.workloads:
        names = op.names(at)
        wanted = [shape for t in op.written().values() for shape in t.shapes(names)]
        args = flat(draw(op, at, Case(seed=1), "cpu"))
        narrow = run(again.reference.graphs[str(at)], args)
        wide = run(again.reference.graphs[str(at)], args, widen=True)
        assert [tuple(t.shape) for t in wide] == [tuple(t.shape) for t in narrow] == wanted
        assert all(t.dtype == torch.float64 and bool(t.isfinite().all()) for t in wide)
        for got, truth in zip(narrow, wide, strict=True):
            torch.testing.assert_close(got.double(), truth, rtol=2e-2, atol=2e-2)


def test_attention_costs_what_its_mask_lets_meet():
    causal, full = (ATTENTION.cost(at).matmul_flops for at in ATTENTION.workloads)
    assert (causal, full) == (4 * 8 * 16 * 28, 4 * 8 * 16 * 49)


def test_moe_moves_only_the_experts_that_are_hit():
    at = MOE.workloads[0]
    few = MOE.cost(at, {"hit": 2}).bytes
    assert MOE.cost(at).bytes - few == 4 * 3 * 128 * 4


def test_the_draws_keep_each_contracts_promises():
    at = MOE.workloads[0]
    drawn = draw(MOE, at, Case(seed=3), "cpu")
    ids, weights = drawn["ids"], drawn["weights"]
    assert int(ids.max()) < at.dims["E"]
    assert all(len(set(row)) == len(row) for row in ids.tolist())
    torch.testing.assert_close(weights.sum(-1), torch.ones(3))
    target = draw(CROSS_ENTROPY, CROSS_ENTROPY.workloads[0], Case(seed=3), "cpu")["target"]
    assert set(target[target < 0].tolist()) == {-100}
    assert int(target.max()) < 101


def test_written_inputs_come_in_the_order_of_the_contract():
    at = ADAMW.workloads[0]
    full = export(ADAMW, [at], run_here)
    args = flat(draw(ADAMW, at, Case(seed=1), "cpu"))
    norm, *written = run(full.reference.graphs[str(at)], args)
    p, g, m, v = (args[i : i + 3] for i in range(0, 12, 3))
    torch.testing.assert_close(norm, torch.cat(g).norm())
    for got, old, grad in zip(written[:3], m, g, strict=True):
        torch.testing.assert_close(got, 0.9 * old + 0.1 * grad)
    for got, old, grad in zip(written[3:6], v, g, strict=True):
        torch.testing.assert_close(got, 0.999 * old + 0.001 * grad * grad)
    assert [tuple(t.shape) for t in written[6:]] == [tuple(t.shape) for t in p]
