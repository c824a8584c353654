"""An op is found in the library by what it computes, and called through a readable adapter."""

from dataclasses import replace

import pytest
import torch

from evaluator.binding import Filled, Given
from evaluator.intake import read
from evaluator.isolate import run_here
from evaluator.labs import DEFAULT_ARCH
from evaluator.match import Match, adapt, same_function
from evaluator.matrix import smoke
from evaluator.record import record
from kernel_library.candidate import Candidate
from kernel_library.space import Tuned
from kernel_library.spec import OpSpec, Option, Reference, Tensor, Workload, grid
from seeds import cross_entropy, gemm, layer_norm, rms_norm

HEAD = "import torch\n\n"


def library(name: str, inputs: dict, body: str, options: dict | None = None) -> OpSpec:
    arguments = ", ".join([*inputs, *(["*", *options] if options else [])])
    return OpSpec(
        name=name,
        inputs=inputs,
        outputs={"y": Tensor("M N")},
        options=options or {},
        workloads=grid("M N", {"check": [(3, 127)]}, ("float32",)),
        reference=Reference(f"{HEAD}def reference({arguments}):\n    return {body}\n"),
    )


RMS = library(
    "rms_norm",
    {"x": Tensor("M N"), "w": Tensor("N")},
    "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (w + offset)",
    {"eps": Option(1e-6), "offset": Option(0.0, (0.0, 1.0))},
)
SWIGLU = library(
    "swiglu",
    {"gate": Tensor("M N"), "up": Tensor("M N")},
    "torch.nn.functional.silu(gate) * up",
)
SOFTMAX = library(
    "softmax", {"x": Tensor("M N")}, "torch.softmax(x * scale, -1)", {"scale": Option(1.0)}
)


def problem(source: str) -> OpSpec:
    return read("problem.py", HEAD + source, run_here).op


def test_a_norm_spelled_otherwise_is_found_with_its_eps_and_its_order():
    op = problem(
        "def reference(scale, hidden):\n"
        "    power = torch.pow(hidden, 2).mean(dim=-1, keepdim=True)\n"
        "    return hidden / torch.sqrt(power + 1e-5) * (1 + scale)\n"
        "INPUTS = [torch.randn(96), torch.randn(40, 96)]\n"
    )
    match = same_function(op, RMS, run_here)
    assert match is not None
    assert match.inputs == (Given("hidden"), Given("scale"))
    assert match.options == {"eps": 1e-5, "offset": 1.0}
    assert same_function(op, SWIGLU, run_here) is None


def test_leading_axes_are_flattened_and_arguments_swapped_where_that_is_what_it_takes():
    op = problem(
        "def reference(up, gate):\n    return up * gate * torch.sigmoid(gate)\n"
        "INPUTS = [torch.randn(4, 10, 300), torch.randn(4, 10, 300)]\n"
    )
    match = same_function(op, SWIGLU, run_here)
    assert match is not None
    assert (match.inputs, match.lead, match.axes["M"]) == ((Given("gate"), Given("up")), 2, "B*S")
    kernel = Candidate(
        "swiglu",
        HEAD + "def swiglu(gate, up, *, BLOCK):\n"
        "    assert gate.dim() == up.dim() == 2\n"
        "    return torch.nn.functional.silu(gate) * up\n",
        "swiglu",
        {"BLOCK": 64},
    )
    adapted = adapt(match, op, kernel)
    up, gate = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    scope: dict = {}
    exec(adapted.source, scope)
    got = scope[adapted.entry](up, gate, **adapted.config)
    torch.testing.assert_close(got, torch.nn.functional.silu(gate) * up)
    assert (adapted.op, adapted.config) == ("problem", {"BLOCK": 64})


def test_an_option_of_the_ops_own_is_passed_on():
    op = problem(
        "def reference(x, *, temperature=2.0):\n"
        "    e = torch.exp(x * temperature - (x * temperature).amax(-1, keepdim=True))\n"
        "    return e / e.sum(-1, keepdim=True)\n"
        "INPUTS = [torch.randn(40, 96)]\n"
    )
    match = same_function(op, SOFTMAX, run_here)
    assert match is not None
    assert match.forwarded == {"scale": "temperature"}
    source = adapt(match, op, Candidate("softmax", "", "softmax")).source
    assert "def as_problem(x, *, temperature=2.0):" in source
    assert "softmax(x, scale=temperature)" in source


@pytest.mark.parametrize(
    ("unit", "arguments", "body", "shapes", "inputs"),
    [
        (gemm, "a, b", "a @ b", [(32, 48), (48, 64)],
         (Given("a"), Given("b"), Filled("b", 1, 0.0))),
        (gemm, "x, w, b", "torch.relu(torch.nn.functional.linear(x, w, b))",
         [(2, 15, 48), (64, 48), (64,)], (Given("x"), Given("w", turned=True), Given("b"))),
        (layer_norm, "x", "torch.nn.functional.layer_norm(x, (96,))", [(40, 96)],
         (Given("x"), Filled("x", 1, 1.0), Filled("x", 1, 0.0))),
        (rms_norm, "x", "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)",
         # a weight of 0 beside an offset of 1
         [(4, 10, 96)], (Given("x"), Filled("x", 2, 0.0))),
    ],
    ids=["a product without a bias", "a linear layer", "no weight and no bias", "no weight"],
)  # fmt: skip
def test_what_an_op_has_not_is_filled_and_a_matrix_turned(
    unit, arguments, body, shapes, inputs, zygote
):
    drawn = ", ".join(f"torch.randn{shape}" for shape in shapes)
    op = problem(f"def reference({arguments}):\n    return {body}\nINPUTS = [{drawn}]\n")
    match = same_function(op, unit.UNIT.spec, run_here)
    assert match is not None and match.inputs == inputs
    plain = Candidate(op.name, unit.UNIT.spec.reference.source, "reference")
    scope: dict = {}
    adapted = adapt(match, op, plain)
    exec(adapted.source, scope)
    exec(f"def wanted({arguments}):\n    return {body}", scope)
    given = [torch.randn(shape) for shape in shapes]
    torch.testing.assert_close(scope[adapted.entry](*given), scope["wanted"](*given))
    # what the adapter makes can be recorded
    (tape,) = record(op, adapt(match, op, unit.UNIT.candidate()), [smoke(op)], zygote, DEFAULT_ARCH)
    assert tape.tape.launches


def test_a_scalar_is_the_one_element_of_a_kernel_that_tells_more(zygote):
    op = problem("def reference(x, t):\n    return torch.nn.functional.cross_entropy(x, t)\n"
                 "INPUTS = [torch.randn(40, 96), torch.randint(0, 96, (40,))]\n")  # fmt: skip
    match = same_function(op, cross_entropy.UNIT.spec, run_here)
    assert match is not None
    assert (match.outputs, match.returns, match.scalars) == ((0,), 2, (0,))
    adapted = adapt(
        match, op, Candidate(op.name, cross_entropy.UNIT.spec.reference.source, "reference")
    )
    scope: dict = {}
    exec(adapted.source, scope)
    x, t = torch.randn(40, 96).half(), torch.randint(0, 96, (40,))
    loss = scope[adapted.entry](x, t)
    assert (loss.shape, loss.dtype) == ((), torch.float16)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(x, t))
    kernel = adapt(match, op, cross_entropy.UNIT.candidate())
    (tape,) = record(op, kernel, [smoke(op)], zygote, DEFAULT_ARCH)
    assert tape.tape.launches


@pytest.mark.parametrize(
    ("eps", "written"),
    [("None", "eps=torch.finfo(x.dtype).eps"), ("1.1920928955078125e-07", "eps=1.19209289550")],
)
def test_a_number_that_follows_the_dtype_is_told_from_one_that_does_not(eps, written):
    op = problem(f"def reference(x, w):\n    return torch.rms_norm(x, (96,), w, {eps})\n"
                 "INPUTS = [torch.randn(40, 96), torch.randn(96)]\n")  # fmt: skip
    match = same_function(op, rms_norm.UNIT.spec, run_here)
    assert match is not None
    assert written in adapt(match, op, rms_norm.UNIT.candidate()).source
    half = next(at for at in op.workloads if at.dtypes["T"] == "float16")
    assert (match.workload(op, half).options["eps"] > 1e-4) == (eps == "None")


@pytest.mark.parametrize(
    "body",
    [
        "torch.softmax(x, 0)",
        "torch.softmax(x, -1) * 1.0001",
        "torch.log_softmax(x, -1)",
        "torch.softmax(x.tril(2), -1)",
        "torch.full_like(x, 0.5)",
    ],
)
def test_what_only_looks_alike_is_not_the_same(body):
    op = problem(f"def reference(x):\n    return {body}\nINPUTS = [torch.randn(40, 96)]\n")
    assert same_function(op, SOFTMAX, run_here) is None


def test_a_function_that_ignores_its_inputs_matches_nothing():
    ones = library("ones", {"x": Tensor("M N")}, "torch.ones_like(x)")
    op = problem("def reference(x):\n    return x * 0 + 1\nINPUTS = [torch.randn(40, 96)]\n")
    assert same_function(op, ones, run_here) is None


def test_a_function_that_refuses_another_value_of_an_option_matches_nothing():
    op = problem(
        "def reference(x, *, whole=True):\n"
        "    if not whole:\n"
        "        raise ValueError('only whole rows')\n"
        "    return torch.softmax(x, -1)\n"
        "INPUTS = [torch.randn(40, 96)]\n"
    )
    assert same_function(op, SOFTMAX, run_here) is None


def test_another_dtype_is_another_op():
    op = problem("def reference(x):\n    return torch.softmax(x.float(), -1)\n"
                 "INPUTS = [torch.randn(40, 96).half()]\n")  # fmt: skip
    assert same_function(op, SOFTMAX, run_here) is None


def test_tuned_settings_come_along_by_the_ops_own_axes():
    row = Tuned({"M": 8, "N": 64}, {"T": "float32"}, {"BLOCK": 128})
    kernel = Candidate("softmax", "", "softmax", {"BLOCK": 64}, (row,))
    match = Match("softmax", (Given("x"),), axes={"M": "rows", "N": "columns"}, dtypes={"T": "T"})
    at = Workload({"rows": 8, "columns": 64}, {"T": "float32"}, "measure")
    op = replace(SOFTMAX, inputs={"x": Tensor("rows columns")}, workloads=(at,), options={})
    adapted = adapt(match, op, kernel)
    assert adapted.config_at(at) == {"BLOCK": 128}
    assert match.workload(op, at).dims == {"M": 8, "N": 64}
    flattened = replace(match, axes={"M": "rows*columns", "N": "columns"})
    assert adapt(flattened, op, kernel).config == {"BLOCK": 128}
    assert adapt(flattened, op, kernel).tuned == ()
