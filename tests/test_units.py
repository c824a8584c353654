"""Every seed keeps its contract, and no contract is so loose that anything keeps it."""

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from compile_unit import FLOAT8, has_float8

import seeds
from evaluator.inputs import Case, draw, size_of
from kernel_library.spec import Workload
from kernel_library.unit import Unit, discover, keep_only, space_names, tuned_table

ROOT = Path(__file__).parent.parent
UNITS = {unit.op.name: unit for unit in discover(seeds)}
WITH_BACKWARD = [name for name, unit in UNITS.items() if unit.backward]
MATMULS = [name for name, unit in UNITS.items() if unit.op.matmul_flops != "0"]
#: sm_80 has no TMA, sm_90 has wgmma, sm_100 has tcgen05.
SHARED_LIMIT = {80: 166912, 90: 232448, 100: 232448}


@cache
def run(script: str, *arguments: str, interpret: bool = False) -> tuple[dict, ...]:
    """What a script beside this file prints of all units, one JSON object a line."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / script), *arguments, *UNITS],
        env={**os.environ, "TRITON_INTERPRET": str(int(interpret))},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return tuple(json.loads(line) for line in done.stdout.splitlines())


def of(name: str, printed: tuple[dict, ...]) -> list[dict]:
    return [each for each in printed if each["unit"] == name]


def interpreted(name: str) -> list[dict]:
    return of(name, run("run_unit.py", interpret=True))


def wrong(cases: list[dict]) -> list[dict]:
    """The cases that are not right to within a few roundings, in the right dtype, by every law."""
    return [
        case
        for case in cases[:-1]
        if not case["error"] <= case["bound"]
        or case["dtypes"] != case["want_dtypes"]
        or case["broken_laws"]
    ]


@pytest.mark.parametrize("name", UNITS)
def test_kernel_matches_its_reference_and_laws_in_the_interpreter(name: str):
    assert wrong(interpreted(name)) == []


@pytest.mark.parametrize("name", UNITS)
def test_zeros_do_not_pass(name: str):
    assert all(case["error_of_zeros"] > case["bound"] for case in interpreted(name)[:-1])


@pytest.mark.parametrize("name", UNITS)
def test_no_rows_are_an_answer_too(name: str):
    assert interpreted(name)[-1]["right"]


OUTSIDE = """
import torch
from seeds.rope_in_place import rope_in_place
q, k, table = torch.randn(1, 4, 3, 8), torch.randn(1, 4, 1, 8), torch.ones(5, 3)
positions = torch.tensor([[0, 5, -1, 4]])
rope_in_place(q, k, table, table, positions, interleaved=%s, SPLIT=1, num_warps=1)
print([x.isnan().sum((0, 2, 3)).tolist() for x in (q, k)])
"""


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_position_outside_the_tables_gives_nan(interleaved: bool):
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE % interleaved], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"}, check=True, timeout=100,
    )  # fmt: skip
    assert json.loads(done.stdout) == [[0, 18, 18, 0], [0, 6, 6, 0]]


FAR_BELOW = """
import torch
from seeds.geglu_backward import geglu_backward
gate = torch.tensor([[-2e4, -11.0, -1.0, 2e4]])
other = torch.full_like(gate, -2e4)
setting = dict(BLOCK=4, STREAM=0, LOAD=0, num_warps=1)
answers = geglu_backward(other, gate, other, approximate="tanh", **setting)
print([x[0].eq(0).int().tolist() for x in answers])
"""


def test_gelu_of_a_gate_far_below_zero_has_no_gradient_at_all():
    # 2^-126 for zero there became 2e-24 of inputs of 2e4
    done = subprocess.run(
        [sys.executable, "-c", FAR_BELOW], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"}, check=True, timeout=100,
    )  # fmt: skip
    assert json.loads(done.stdout) == [[1, 1, 0, 0], [1, 1, 0, 0]]


@pytest.mark.gpu
@pytest.mark.parametrize("name", UNITS)
def test_kernel_matches_its_reference_and_laws_on_the_gpu(name: str):
    *cases, empty = of(name, run("run_unit.py", "--device=cuda"))
    large = [case for case in cases if "dtypes" not in case]
    assert wrong([case for case in cases if case not in large] + [empty]) == []
    assert all(case["error"] <= case["bound"] for case in large)
    assert empty["right"]


@pytest.mark.parametrize("name", UNITS)
def test_kernel_half_stands_alone(name: str):
    source = UNITS[name].kernel_source
    imports = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert {alias.name for node in imports for alias in node.names} <= {
        "torch", "triton", "triton.language",
    }  # fmt: skip
    assert "reference" not in source
    assert f"def {name}(" in source


def test_a_half_of_a_file_is_laid_out_as_it_was_written():
    source = (
        "import torch\nimport triton\n\n\n#: What is\n#: told of it.\nKEPT = 1\n\n\ndef other():\n"
        "    return torch\n\n\n# why so\n@triton.jit\ndef kernel():\n    return KEPT\n\n\n"
        "def entry():\n    return kernel()\n"
    )
    assert keep_only(source, "entry") == (
        "import triton\n\n\n#: What is\n#: told of it.\nKEPT = 1\n\n\n"
        "# why so\n@triton.jit\ndef kernel():\n    return KEPT\n\n\n"
        "def entry():\n    return kernel()"
    )


@pytest.mark.parametrize("name", UNITS)
def test_the_untuned_setting_is_legal_everywhere(name: str):
    op, space = UNITS[name].op, UNITS[name].space
    sizes = [1, 2, 40, 1000, 2500, 4096, 5001, 20001, 40000, 131072]
    points = [
        Workload(dict.fromkeys(at.dims, size) | {"M": m}, {"T": dtype})
        for at in op.workloads[:1]
        for m in sizes
        for size in sizes
        for dtype in ("float32", "float16")
    ]
    names = [space_names(op, at) for at in (*op.workloads, *points)]
    illegal = [n for n in names if not space.is_legal(space.default(n), n)]
    assert illegal == []


@pytest.mark.parametrize("name", UNITS)
def test_tuned_settings_are_of_the_space(name: str):
    unit = UNITS[name]
    for row in tuned_table(unit, "NVIDIA H200"):
        at = Workload(row.dims, row.dtypes, options=row.options)
        assert row.config.keys() == unit.space.knobs.keys()
        assert unit.space.is_legal(row.config, space_names(unit.op, at)), row


@pytest.mark.parametrize("name", UNITS)
def test_cost_is_positive(name: str):
    for at in UNITS[name].op.workloads:
        cost = UNITS[name].op.cost(at)
        assert cost.bytes > 0
        assert cost.flops > 0


def cost_at(name: str, dtype: str, **dims: int | tuple[int, ...]) -> tuple[int, int, int]:
    cost = UNITS[name].op.cost(Workload(dims, {"T": dtype}))
    return cost.bytes, cost.flops, cost.matmul_flops


def test_costs_worked_by_hand():
    assert cost_at("rms_norm", "bfloat16", M=3, N=5) == (2 * (15 + 5 + 15), 60, 0)
    assert cost_at("rms_norm_backward", "float32", M=3, N=5) == (4 * (15 * 3 + 5 * 2), 165, 0)
    assert cost_at("softmax", "float16", M=3, N=5) == (60, 75, 0)
    assert cost_at("masked_softmax", "float16", M=3, N=5) == (90, 90, 0)
    assert cost_at("swiglu_backward", "float32", M=3, N=5) == (300, 180, 0)
    assert cost_at("layer_norm", "bfloat16", M=3, N=5) == (2 * (15 + 5 * 2 + 15), 105, 0)
    assert cost_at("layer_norm_backward", "float32", M=3, N=5) == (4 * (15 * 3 + 5 * 3), 240, 0)
    assert cost_at("add_rms_norm", "bfloat16", M=3, N=5) == (2 * (15 * 4 + 5), 75, 0)
    moved = 3 * 2 * 15 + 15 + 2 * 5 + 4 * 3
    assert cost_at("add_rms_norm_fp8", "bfloat16", M=3, N=5) == (moved, 120, 0)
    assert cost_at("add_rms_norm_backward", "float32", M=3, N=5) == (4 * (15 * 5 + 10), 180, 0)
    assert cost_at("geglu", "float16", M=3, N=5) == (90, 150, 0)
    assert cost_at("geglu_backward", "float32", M=3, N=5) == (300, 315, 0)
    rope = {"B": 2, "S": 3, "Hq": 4, "Hk": 1, "D": 6}
    assert cost_at("rope", "bfloat16", **rope) == (2 * (2 * (144 + 36) + 2 * 9), 540, 0)
    # positions take 8 bytes; of D, only R entries move, and one row of each table at least
    rope |= {"R": 4, "P": 9}
    assert cost_at("rope_in_place", "bfloat16", **rope) == (2 * 2 * 30 * 4 + 2 * 4 + 48, 360, 0)
    # labels take 8 bytes; loss and lse are float32
    assert cost_at("cross_entropy", "bfloat16", M=2, V=5) == (20 + 16 + 4 + 8, 40, 0)
    assert cost_at("cross_entropy_backward", "bfloat16", M=2, V=5) == (4 + 20 + 16 + 8 + 20, 60, 0)
    sizes = {"M": 2, "V": 5, "H": 3}
    written = 4 + 2 * (2 * 3 + 5 * 3)
    assert cost_at("fused_linear_cross_entropy", "bfloat16", **sizes) == (
        2 * (2 * 3 + 5 * 3) + 2 * 8 + 4 + written, 100, 180
    )  # fmt: skip
    assert cost_at("adamw", "float32", n=(2, 3)) == (5 * 7 * 4, 75, 0)
    bytes_moved = 2 * (2 * 4 + 4 * 3 + 3 + 2 * 3)
    assert cost_at("gemm", "bfloat16", M=2, N=3, K=4) == (bytes_moved, 12, 48)


@pytest.mark.parametrize("name", WITH_BACKWARD)
def test_backward_speaks_of_the_forwards_tensors(name: str):
    ahead, back = UNITS[name].op, UNITS[UNITS[name].backward].op
    gradients = {f"d_{output}" for output in ahead.outputs}
    assert gradients & back.inputs.keys()
    assert back.inputs.keys() <= gradients | ahead.inputs.keys() | ahead.outputs.keys()
    asked = [f"d_{name}" for name in ahead.inputs if f"d_{name}" in back.outputs]
    assert list(back.outputs) == asked
    assert back.options == ahead.options


def options_of(unit: Unit) -> list[dict]:
    """The default options, and each other choice of one of them."""
    default = {name: option.default for name, option in unit.op.options.items()}
    return [default] + [
        {**default, name: choice}
        for name, option in unit.op.options.items()
        for choice in option.choices or (0.5,)
        if choice != option.default
    ]


@pytest.mark.parametrize("name", WITH_BACKWARD)
def test_backward_agrees_with_autograd(name: str):
    ahead, back = UNITS[name], UNITS[UNITS[name].backward]
    rng = torch.Generator().manual_seed(1)
    checks = [at for at in ahead.op.workloads if size_of(ahead.op, at) > 100]
    at = min(checks, key=lambda at: size_of(ahead.op, at))
    inputs = {
        n: t.double().requires_grad_() if t.is_floating_point() else t
        for n, t in draw(ahead.op, at, Case(1), "cpu").items()
    }
    asked = [inputs[n.removeprefix("d_")] for n in back.op.outputs]
    for options in options_of(ahead):
        out = ahead.reference(*inputs.values(), **options)
        named = dict(zip(ahead.op.outputs, (out,) if torch.is_tensor(out) else out, strict=True))
        # an output whose gradient the backward does not take has none
        taken = {n: t for n, t in named.items() if f"d_{n}" in back.op.inputs}
        ups = [torch.randn(t.shape, generator=rng, dtype=torch.float64) for t in taken.values()]
        want = torch.autograd.grad(list(taken.values()), asked, ups)
        held = {n: t.detach() for n, t in {**inputs, **named}.items()}
        held |= {f"d_{n}": up for n, up in zip(taken, ups, strict=True)}
        got = back.reference(*(held[n] for n in back.op.inputs), **options)
        for g, w in zip((got,) if torch.is_tensor(got) else got, want, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", UNITS)
def test_reference_exports(name: str):
    unit = UNITS[name]
    at = next(at for at in unit.op.workloads if at.role == "measure")
    args = [
        each if t.count is not None else each[0]
        for t in unit.op.inputs.values()
        for dtype in [getattr(torch, unit.op.dtype(t, at))]
        for shapes in [t.shapes(unit.op.names(at))]
        for each in [[torch.empty(s, dtype=dtype, device="meta") for s in shapes]]
    ]

    class Module(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor | list[torch.Tensor]):
            return unit.reference(*tensors, **unit.op.option_values(at))

    graph = torch.export.export(Module(), tuple(args)).graph
    assert any(node.op == "call_function" for node in graph.nodes)


@pytest.mark.parametrize("arch", SHARED_LIMIT)
@pytest.mark.parametrize("name", UNITS)
def test_unit_compiles_without_a_gpu_and_without_spills(name: str, arch: int):
    kernels = of(name, run("compile_unit.py", str(arch)))
    assert bool(kernels) == (arch >= FLOAT8 or not has_float8(UNITS[name]))
    for kernel in kernels:
        assert kernel["spills"] == 0, kernel
        assert kernel["registers"] <= 65536 // (32 * kernel["num_warps"]), kernel
        assert kernel["shared_bytes"] <= SHARED_LIMIT[arch], kernel
    for at in {kernel["at"] for kernel in kernels}:
        multiplies = any(k["matmul_instructions"] > 0 for k in kernels if k["at"] == at)
        assert multiplies == (name in MATMULS), at


@pytest.mark.parametrize("name", UNITS)
def test_unit_compiles_for_an_amd_gpu_too(name: str):
    kernels = of(name, run("compile_unit.py", "gfx942"))
    assert kernels
    for kernel in kernels:
        assert kernel["linked_bytes"] > 0
        assert kernel["spills"] == 0, kernel
        # 512 registers of 64 lanes on each of four SIMDs, 64 KiB of shared memory
        assert kernel["registers"] <= 512 * 4 // max(4, kernel["num_warps"]), kernel
        assert kernel["shared_bytes"] <= 65536, kernel
