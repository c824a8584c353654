"""A stranger's file becomes a contract, or an error that says where and what to do."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evaluator.admission import admit
from evaluator.errors import LabError, ProblemError
from evaluator.graphs import run
from evaluator.inputs import Case, draw, flat
from evaluator.intake import export, read
from evaluator.intake.asking import JOB, TOGETHER, ask, exports
from evaluator.intake.axes import bound, formula
from evaluator.intake.recipes import Hints, recipe_of
from evaluator.intake.sizes import MOST_ROWS, Axis, _shrunk
from evaluator.intake.wire import Ask, Call, Exports, Failure, ask_json, reply_json
from evaluator.isolate import Died, Done, run_here
from kernel_library.codec import op_json
from kernel_library.recipe import (
    Index,
    Normal,
    Offsets,
    Permutation,
    Simplex,
    Sorted,
    Structured,
    Uniform,
)
from kernel_library.spec import OpSpec, Option, Reference, Tensor, Workload

ROOT = Path(__file__).parent.parent
HEAD = "import torch\nfrom torch import nn\n\n"


def problem(source: str) -> OpSpec:
    return read("level1/12_My_Problem.py", HEAD + source, run_here).op


def refused(source: str, path: str = "problem.py", extra: str | None = None) -> str:
    with pytest.raises(ProblemError) as caught:
        read(path, source, run_here, extra=extra)
    return str(caught.value)


def test_a_kernelbench_file_becomes_a_contract_with_parameters_as_inputs():
    op = read("examples/rms_norm.py", (ROOT / "examples/rms_norm.py").read_text(), run_here).op
    assert op.name == "rms_norm"
    assert {name: t.axes for name, t in op.inputs.items()} == {
        "hidden": "tokens width",
        "scale": "width",
    }
    assert op.outputs == {"y": Tensor("tokens width")}
    assert op.inputs["scale"].recipe == Normal(1.0, 0.02)
    assert [at.dims for at in op.workloads if at.role == "measure"] == [
        {"tokens": 8192, "width": 4096}
    ]
    checks = [at for at in op.workloads if at.role == "check"]
    assert {at.dtypes["T"] for at in checks} == {"float32", "float16", "bfloat16"}
    assert all(max(at.dims.values()) < 300 for at in checks)
    assert op.cost(op.workloads[-1]).bytes == 2 * (2 * 8192 * 4096 + 4096)
    for at in checks:
        hidden, scale = flat(draw(op, at, Case(seed=1), "cpu"))
        [y] = run(op.reference.graphs[str(at)], [hidden, scale], widen=True)
        power = hidden.double().pow(2).mean(-1, keepdim=True)
        truth = hidden.double() / (power + 1e-6).sqrt() * scale.double()
        torch.testing.assert_close(y, truth, rtol=1e-12, atol=1e-12)
    assert op_json.validate_json(op_json.dump_json(op)) == op


def test_the_reference_of_a_model_stands_alone():
    op = problem("""
class Model(nn.Module):
    def __init__(self, wide, factor):
        super().__init__()
        self.linear = nn.Linear(wide, 48)
        self.bn = nn.BatchNorm1d(48)
        self.factor = factor

    def forward(self, x, power: float):
        return torch.relu(self.bn(self.linear(x))) ** power * self.factor

def get_inputs():
    return [torch.rand(32, 64), 2.0]

def get_init_inputs():
    return [64, 3.0]
""")
    assert list(op.inputs)[:3] == ["x", "linear_weight", "linear_bias"]
    assert op.inputs["x"].recipe == Uniform(0.0, 1.0)
    assert op.options == {"power": Option(2.0)}
    assert op.mutates == ()
    scope: dict = {}
    exec(op.reference.source, scope)
    args = flat(draw(op, op.workloads[0], Case(seed=1), "cpu"))
    [want] = run(op.reference.graphs[str(op.workloads[0])], args)
    torch.testing.assert_close(scope["reference"](*args, power=2.0), want)


def test_a_buffer_of_a_model_without_parameters_keeps_its_mean_and_spread():
    op = problem("""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("slopes", torch.tensor([0.5, 0.25, 0.125, 0.0625]))

    def forward(self, x):
        return x * self.slopes[:, None]

def get_inputs():
    return [torch.randn(4, 48)]
""")
    assert op.inputs["slopes"].recipe == Normal(0.2344, 0.1935)


def test_a_size_that_the_reference_insists_on_is_a_number():
    op = problem("""
def reference(x, w):
    return nn.functional.layer_norm(x, (48,), w)

INPUTS = [torch.randn(16, 48), torch.randn(48)]
""")
    assert {name: t.axes for name, t in op.inputs.items()} == {"x": "M 48", "w": "48"}
    assert op.outputs == {"y": Tensor("M 48")}
    assert all(at.dims.keys() == {"M"} for at in op.workloads)


@pytest.mark.parametrize(
    ("body", "left_out"),
    [
        # no kernel of torch's takes it
        ("torch.cdist(x, x.flip(0))", {"bfloat16"}),
        # a mean of ones and of what rounds to 1: nothing that a null answer could get wrong
        ("(1 + 1e-3 * x).mean(-1)", {"bfloat16"}),
        ("torch.softmax(x, -1)", set()),
    ],
    ids=["cdist", "mean", "softmax"],
)
def test_a_dtype_that_nobody_asked_for_refuses_no_problem(body, left_out):
    op = problem(f"""
def reference(x):
    return {body}

INPUTS = [torch.randn(64, 48)]
""")
    dtypes = {at.dtypes["T"] for at in op.workloads}
    assert "float32" in dtypes and left_out & dtypes == set()
    assert admit(op) and (left_out or dtypes == {"float32", "float16", "bfloat16"})


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("x[x > 0]", "the size of something depends on values"),
        ("x[: x.argmax().item()]", "depends on values"),
        ("torch.nn.functional.gelu(x.requires_grad_()).sum().backward()", "torch.enable_grad()"),
        ("torch.autocast('cuda')(torch.relu)(x)", "line 7: autocast has no effect"),
    ],
    ids=["nonzero", "item", "backward", "autocast"],
)
def test_what_no_contract_can_say_is_refused_with_what_to_do(body, told):
    source = f"{HEAD}\n\ndef reference(x):\n    return {body}\n\nINPUTS = [torch.randn(64)]\n"
    assert told in refused(source)


def test_what_an_axis_of_one_makes_trivial_is_checked_at_others_in_each_dtype():
    for dim, shape in ((-1, "64, 64"), (0, "64, 48")):
        op = problem(f"""
def reference(x):
    return torch.softmax(x, {dim})

INPUTS = [torch.randn({shape})]
""")
        assert "ones" in admit(op)
        others = [at for at in op.workloads if at.dtypes["T"] != "float32"]
        assert len(others) == 2 and all(at.dims["M"] > 1 for at in others)


def test_rows_of_a_deep_tensor_are_long_and_few():
    op = problem("""
def reference(x, w):
    return x * w

INPUTS = [torch.randn(4, 16, 96), torch.randn(96)]
""")
    assert op.inputs["x"].axes == "B S H"
    checks = [tuple(at.dims.values()) for at in op.workloads if at.role == "check"]
    assert (3, 5, 127) in checks and max(h for _, _, h in checks) == 257
    # an interpreter runs one program after another, and one for each row is common
    assert max(b * s for b, s, _ in checks) <= 256


def test_of_two_tensors_with_as_many_rows_both_get_fewer():
    op = OpSpec("sum", {"x": Tensor("A B N"), "y": Tensor("C D N")}, {"z": Tensor("")}, ())
    sizes = {"A": 64, "B": 32, "C": 64, "D": 32, "N": 4}
    small = _shrunk(op, sizes, dict.fromkeys(sizes, Axis()))
    assert small["A"] * small["B"] == small["C"] * small["D"] == MOST_ROWS and small["N"] == 4


def test_heads_keep_a_multiple():
    op = problem("""
def reference(x):
    return x.view(x.shape[0], -1, 8).flip(-1).reshape(x.shape)

INPUTS = [torch.randn(20, 64)]
""")
    assert op.inputs["x"].axes == "M N"
    assert op.constraints == ("N % 8 == 0",)
    assert all(at.dims["N"] % 8 == 0 for at in op.workloads)


@pytest.mark.parametrize(
    ("body", "inputs", "constraints"),
    [
        # the best two of one are none
        ("torch.topk(x, 2).values", "48, 64", ["N >= 2"]),
        ("x[:, 20:21] + x", "48, 64", ["N >= 32"]),
        # eight heads over two: ten are right as well, nine are not
        ("x.unflatten(1, (2, -1)).sum(1).repeat(1, 2) + x", "16, 8", ["N % 2 == 0"]),
        ("x.unflatten(1, (2, -1))[:, :, 4:5].sum(1) + x", "16, 64", ["N % 2 == 0", "N >= 10"]),
        # one row has another shape than many
        ("x.squeeze() + 1", "48, 64", ["M >= 2", "N >= 2"]),
        ("x + 1", "48, 64", []),
    ],
    ids=["best two", "a column", "groups", "both", "squeezed", "none"],
)  # fmt: skip
def test_what_the_reference_cannot_take_is_a_constraint(body, inputs, constraints):
    op = problem(f"""
def reference(x):
    return {body}

INPUTS = [torch.randn({inputs})]
""")
    assert list(op.constraints) == constraints
    assert all(op.is_legal(at) for at in op.workloads) and len(op.workloads) > 3


ALIKE = """
batch, features, outputs, steps = 16, 16, 16, 16

class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x):
        return self.linear(x)

def get_inputs():
    return [torch.randn(batch, features)]

def get_init_inputs():
    return [features, outputs]
"""


def test_equal_sizes_that_follow_different_numbers_are_different_axes():
    op = problem(ALIKE)
    assert {name: tensor.axes for name, tensor in op.inputs.items()} == {
        "x": "batch features",
        "linear_weight": "outputs features",
        "linear_bias": "outputs",
    }
    assert op.outputs["y"].axes == "batch outputs"
    assert len(set(op.workloads[0].dims.values())) == 3


def test_equal_sizes_that_follow_no_number_are_one_axis():
    op = problem("""
n, m = 24, 24

def reference(x, w, v):
    return x @ w @ v

def get_inputs():
    assert n == 24
    return [torch.randn(n, m), torch.randn(m, n), torch.randn(24, 24)]
""")
    assert [tensor.axes for tensor in op.inputs.values()] == ["M m", "m M", "M M"]


def test_a_number_that_the_reference_has_by_heart_too_is_no_axis():
    op = problem("""
n, m = 24, 24

def reference(x, w):
    return x @ w.T + torch.eye(24)

def get_inputs():
    return [torch.randn(n, m), torch.randn(n, m)]
""")
    assert [tensor.axes for tensor in op.inputs.values()] == ["24 m", "24 m"]


def test_a_reference_that_is_compiled_is_read_as_it_is_written():
    op = problem("""
@torch.compile(mode="max-autotune")
def reference(x):
    return torch.compile(torch.exp)(x)

INPUTS = [torch.randn(6, 20)]
""")
    assert [node.op for node in op.reference.graphs[str(op.workloads[0])].nodes] == [
        "aten.exp.default"
    ]


def test_options_targets_and_a_scalar_output_are_read_from_a_plain_file():
    op = problem("""
def reference(logits, target, *, ignored=-100):
    return nn.functional.cross_entropy(logits, target, ignore_index=ignored)

def get_inputs():
    target = torch.randint(0, 500, (64,))
    target[::4] = -100
    return {"logits": torch.randn(64, 500), "target": target}
""")
    assert op.options == {"ignored": Option(-100)}
    assert op.inputs["target"] == Tensor("M", "int64", Index("N", ignored=-100, share=0.25))
    assert op.outputs == {"y": Tensor("")}
    assert op.cost(op.workloads[-1]).bytes == 64 * 500 * 4 + 64 * 8 + 4


def test_a_switch_that_can_be_turned_has_both_values_as_choices():
    op = problem("""
def reference(
    x, *, reverse=False, keep=True, whole=True, three=False, count=3, mode="a", bound=None
):
    if not whole:
        raise ValueError("whole rows only")
    x = torch.cumsum(x.flip(-1), -1) if reverse else torch.cumsum(x, -1)
    x = x[:3] if three else x
    return x if keep else x[:, 0]

INPUTS = [torch.randn(48, 64)]
""")
    assert op.options == {
        "reverse": Option(False, (False, True)), "keep": Option(True), "whole": Option(True),
        "three": Option(False),
        "count": Option(3), "mode": Option("a"), "bound": Option(None),
    }  # fmt: skip
    op = problem("""
def reference(x, *, negated=False):
    return (-x if negated else x).view(48, 64) + 1

INPUTS = [torch.randn(48, 64)]
""")
    # of one size alone: there is none where it could be turned unseen
    assert op.inputs["x"].axes == "48 64" and op.options == {"negated": Option(False)}


def test_a_scalar_of_a_definition_that_is_a_switch_has_both_values_as_choices():
    text = definition(
        inputs={**DEFINITION["inputs"], "negated": {"shape": None, "dtype": "bool"}},
        reference="def run(x, negated):\n    return (-x if negated else x).softmax(-1)\n",
    )
    line = {"axes": {"M": 64}, "inputs": {"negated": {"type": "scalar", "value": True}}}
    op = read("d.json", text, run_here, extra=json.dumps(line)).op
    assert op.options == {"negated": Option(True, (False, True))}


def test_inputs_written_in_place_and_lists_are_read():
    op = problem("""
def reference(params, grads, *, lr=0.1):
    for p, g in zip(params, grads):
        p.sub_(g, alpha=lr)

def get_inputs():
    return [[torch.randn(40), torch.randn(7)], [torch.randn(40), torch.randn(7)]]
""")
    assert (op.mutates, op.outputs) == (("params",), {})
    assert op.inputs["params"] == Tensor("N", count="2")
    assert op.flops == "sum(N)"
    assert op.cost(op.workloads[-1]).bytes == 3 * 47 * 4


def test_a_written_input_that_is_handed_back_is_no_output():
    op = problem("""
def reference(cache, new):
    cache.add_(new)
    return cache, new + 1, new

INPUTS = [torch.randn(64, 24), torch.randn(64, 24)]
""")
    assert (op.mutates, list(op.outputs)) == (("cache",), ["y0", "y1"])
    assert op.outputs["y0"] == op.inputs["new"]
    at = op.workloads[0]
    args = flat(draw(op, at, Case(seed=1), "cpu"))
    first, second, cache = run(op.reference.graphs[str(at)], args)
    torch.testing.assert_close((first, second), (args[1] + 1, args[1]))
    torch.testing.assert_close(cache, args[0] + args[1])
    bare = replace(op, reference=Reference(op.reference.source))
    assert export(bare, [at], run_here).reference.graphs[str(at)].outputs == (
        op.reference.graphs[str(at)].outputs
    )


def test_the_extent_of_a_window_is_a_number_as_its_padding_is():
    op = problem("""
class Model(nn.Module):
    def __init__(self, channels, *, extent):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, extent, padding=extent // 2, groups=channels)

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.randn(4, 24, 20, 20)]

def get_init_inputs():
    return {"channels": 24, "extent": 7}
""")
    assert op.inputs["conv_weight"].axes.endswith(" 1 7 7")
    assert op.outputs["y"].axes == op.inputs["x"].axes
    assert op.matmul_flops == "0"


def test_the_width_of_a_causal_window_is_a_number_where_its_neighbours_would_do():
    op = problem("""
def reference(x, w):
    return nn.functional.conv1d(x, w, padding=3, groups=x.shape[1])[..., :x.shape[-1]]

INPUTS = [torch.randn(8, 24, 96), torch.randn(24, 1, 4)]
""")
    assert (op.inputs["w"].axes, op.outputs["y"].axes) == ("S 1 4", "B S H")


def test_offsets_have_two_bounds_or_more():
    op = problem("""
def reference(x, offsets):
    return torch.segment_reduce(x, "sum", offsets=offsets)

INPUTS = [torch.randn(60, 8), torch.tensor([0, 10, 25, 40, 60])]
""")
    bounds = op.inputs["offsets"].axes
    assert f"{bounds} >= 2" in op.constraints
    assert min(at.dims[bounds] for at in op.workloads) >= 2


@pytest.mark.parametrize("ends", ["raises", "takes too long"])
def test_what_ends_far_above_leaves_its_axis_free(ends):
    def isolate(job: str, raw: bytes, seconds: float) -> Done | Died:
        request = ask_json.validate_json(raw)
        tensors = [t for call in request.calls for slot in call.args for t in slot.tensors]
        far = any(size > 300 for t in tensors for size in t.shape)
        slow = far and ends == "takes too long"
        return Died("timeout", "") if slow else run_here(job, raw, seconds)

    source = """
TABLE = torch.arange(99.0)

def reference(x):
    return x * TABLE[:x.shape[1]]

INPUTS = [torch.randn(96, 48)]
"""
    assert read("p.py", HEAD + source, isolate).op.inputs["x"].axes == "M N"


@pytest.mark.parametrize(("picked", "loosen"), [("codes", 2.0), ("(x > 0).to(torch.int8)", 1.0)])
def test_only_what_is_rounded_to_8_bits_may_be_a_step_off(picked, loosen):
    op = problem(f"""
def reference(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    codes = torch.round(x / scale).to(torch.int8)
    return {picked}, torch.round(x)

INPUTS = [torch.randn(512, 1024)]
""")
    assert op.tolerance.loosen == loosen


def test_gigabytes_of_example_are_never_made_and_cuda_is_not_needed():
    op = problem("""
def get_inputs():
    return [torch.rand(1 << 20, 1 << 17, device="cuda")]

class Model(nn.Module):
    def forward(self, x):
        return x * torch.arange(x.shape[1], device="cuda", dtype=x.dtype)
""")
    assert op.inputs["x"] == Tensor("M N", recipe=Uniform(0.0, 1.0))
    assert op.workloads[-1].dims == {"M": 1 << 20, "N": 1 << 17}


def test_a_definition_and_its_workloads_are_read():
    text = (ROOT / "examples/softmax.json").read_text()
    lines = (ROOT / "examples/softmax.jsonl").read_text()
    op = read("softmax.json", text, run_here, extra=lines).op
    measured = [at.dims for at in op.workloads if at.role == "measure"]
    assert measured == [{"N": 4096, "M": 8192}, {"N": 4096, "M": 131072}]
    assert op.constraints == ("N == 4096",)
    assert op.cost(op.workloads[-1]).bytes == 2 * 4 * 4096 * 131072
    x = torch.randn(3, 4096)
    [y] = run(op.reference.graphs[str(op.workloads[0])], [x], widen=True)
    torch.testing.assert_close(y, torch.softmax(x.double(), -1))


def test_a_unit_gives_its_contract_and_its_kernel():
    source = (ROOT / "seeds/softmax.py").read_text()
    found = read("softmax.py", source, run_here)
    assert found.op.name == "softmax"
    assert found.candidate is not None
    assert "triton.jit" in found.candidate.source
    assert "def reference" not in found.candidate.source
    at = found.op.workloads[0]
    assert str(at) in export(found.op, [at], run_here).reference.graphs


def test_a_unit_that_leaves_a_dtype_open_is_told_which():
    source = (ROOT / "seeds/softmax.py").read_text()
    source += """

from dataclasses import replace

UNIT = replace(UNIT, op=replace(OP, matmul_flops="M * N", matmul_dtype="U"))
"""
    assert "`matmul_dtype`: is 'U'" in refused(source, "softmax.py")


DEFINITION = json.loads((ROOT / "examples/softmax.json").read_text())


def definition(**changes: object) -> str:
    return json.dumps({**DEFINITION, **changes})


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def f(:\n", ["line 1", "not Python"]),
        ("x = 1\x00", ["not Python"]),
        ("x = 1\n" * 2_000_000, ["12000000 bytes", "262144"]),
        ("import torch\n", ["`Model`", "`reference`"]),
        ("class Model: pass\n", ["get_inputs"]),
        ("def reference(x): return x\n", ["example inputs"]),
        ("import nothing_known\ndef reference(x): return x\nINPUTS = []\n",
         ["line 1", "nothing_known"]),
        ("def reference(x): return x\nINPUTS = [3]\n", ["no tensor"]),
        ("def reference(x): return x\nINPUTS = [object()]\n", ["'x'", "object"]),
        ("def reference(x): return x\nINPUTS = 7\n", ["get_inputs", "int"]),
        ("import torch\ndef reference(x): return x\nINPUTS = [torch.ones(2)] * 2\n",
         ["does not fit"]),
        ("import torch\n\ndef reference(x):\n    y = x + 1\n    raise ValueError('too bad')\n"
         "INPUTS = [torch.randn(4)]\n", ["line 5", "too bad"]),
        ("import torch\ndef reference(x):\n    return x if x.sum() > 0 else -x\n"
         "INPUTS = [torch.randn(4)]\n", ["line 3", "depends on values"]),
        ("import torch\ndef reference(x): return x.real\n"
         "INPUTS = [torch.randn(4, dtype=torch.complex64)]\n", ["'x'", "complex64"]),
        ("import torch\ndef reference(x): return torch.rand_like(x)\nINPUTS = [torch.ones(4)]\n",
         ["random numbers"]),
        ("import torch\ndef reference(x): return 3\nINPUTS = [torch.ones(4)]\n", ["returns 3"]),
        ("{", ["Definition"]),
        (definition(surprise=1), ["surprise"]),
        (definition(inputs={"x": {"shape": ["M"], "dtype": "float3"}}), ["inputs.x", "float3"]),
        (definition(inputs={"x": {"shape": ["Q"], "dtype": "float32"}}), ["inputs.x", "'Q'"]),
        (definition(inputs={"x": {"shape": ["M"], "dtype": "int64"}}), ["inputs.x", "x < AXIS"]),
        (definition(reference="def run(:"), ["reference", "line 1"]),
        (definition(reference="x = 1"), ["`run`"]),
        (definition(constraints=["M.real > 2"]), ["constraints.0"]),
        (definition(outputs={"y": {"shape": ["N", "M"], "dtype": "float32"}}), ["contract says"]),
    ],
)  # fmt: skip
def test_a_bad_problem_is_refused_with_the_place_and_the_reason(source, says):
    message = refused(source)
    for part in says:
        assert part in message, message
    assert len(message) < 2000


def test_a_workload_that_reads_files_is_refused_by_its_line():
    line = {"axes": {"M": 2}, "inputs": {"x": {"type": "safetensors", "path": "/etc/passwd",
            "tensor_key": "x"}}}  # fmt: skip
    assert "workloads line 1" in refused(definition(), "d.json", json.dumps(line))


@pytest.mark.parametrize(
    ("died", "says"),
    [
        (Died("timeout", ""), "did not finish in 60 s"),
        (Died("killed", ""), "killed"),
        (Died("overflow", ""), "too large"),
        (Died("raised", "", "SystemExit"), "SystemExit"),
    ],
)
def test_a_job_that_dies_of_the_strangers_code_is_the_problems_fault(died, says):
    with pytest.raises(ProblemError, match=says):
        read("p.py", "def reference(x): pass\nINPUTS = 1\n", lambda *_: died)


def test_a_job_that_dies_of_ours_is_our_fault():
    with pytest.raises(LabError):
        read(
            "p.py", "def reference(x): pass\nINPUTS = 1\n", lambda *_: Died("raised", "", "OSError")
        )


@pytest.mark.parametrize("body", [b"", b"{}", b'{"kind": "exports", "each": []}', b"\xff"])
def test_a_forged_reply_is_refused(body):
    with pytest.raises(ProblemError):
        read("p.py", "def reference(x): pass\nINPUTS = 1\n", lambda *_: Done(body))


def test_the_strangers_code_is_not_run_outside_the_job():
    asked = []

    def isolate(job: str, request: bytes, seconds: float) -> Died:
        asked.append((job, seconds))
        return Died("timeout", "")

    refusing = "raise SystemError\ndef reference(x): pass\nINPUTS = 1\n"
    with pytest.raises(ProblemError):
        read("p.py", refusing, isolate)
    assert asked == [(JOB, 60.0)]


def test_a_reference_that_breaks_its_contract_is_refused():
    op = OpSpec(
        "op", {"x": Tensor("M")}, {"y": Tensor("M")},
        (Workload({"M": 3}, {"T": "float32"}),),
    )  # fmt: skip
    for body, says in (("x.add_(1)", "mutates"), ("x[1:] + 1", "contract says")):
        source = f"def reference(x):\n    return {body}\n"
        bad = op_json.validate_python({**op_json.dump_python(op), "reference": {"source": source}})
        with pytest.raises(ProblemError, match=says):
            export(bad, bad.workloads, run_here)


@pytest.mark.parametrize(
    ("example", "recipe"),
    [
        (torch.linspace(3, -1, 1000), Uniform(-1.0, 3.0)),
        (torch.linspace(-1, 3, 1000), Sorted(Uniform(-1.0, 3.0))),
        (torch.tensor([-1.0, 0.5, 0.75]), Normal()),
        (torch.tensor([[0.25, 0.75], [0.5, 0.5]]), Simplex()),
        (torch.zeros(9), Normal()),
        (torch.tensor([0.0, 1.0, 1.0]), Index("2")),
        (torch.tensor([0, 5, 9, 20]), Offsets("20")),
        (torch.tensor([[2, 0, 1], [1, 2, 0]]), Permutation()),
        (torch.tensor([3, 1, 4]), Index("5")),
        (torch.tensor([3, -100, 4]), Index("5", ignored=-100, share=1 / 3)),
        (torch.tensor([-128, 5, 127], dtype=torch.int8), Uniform(-128.0, 127.0)),
        (torch.tensor([True, False, True, True]), Uniform(0.0, 0.75)),
    ],
)
def test_recipes_are_read_off_examples(example, recipe):
    assert recipe_of("x", example) == recipe


def test_triangles_and_mirrors_are_read_off_examples():
    square = torch.randn(2, 40, 40, generator=torch.Generator().manual_seed(0))
    assert recipe_of("a", square.triu()) == Structured(Normal(), "upper")
    assert recipe_of("a", square.tril()) == Structured(Normal(), "lower")
    assert recipe_of("a", square + square.mT).form == "symmetric"
    for other in (
        square,
        square[0].diag().diag(),
        square[..., :30].triu(),
        torch.ones(9, 9).triu(),
    ):
        assert not isinstance(recipe_of("a", other), Structured)


def test_of_two_axes_that_are_told_apart_no_matrix_is_square():
    op = problem("""
n, m = 24, 24

def reference(x, y):
    return x.T @ x, y @ y

def get_inputs():
    return [torch.randn(n, m).triu(), torch.randn(n, n).triu()]
""")
    assert [type(tensor.recipe) for tensor in op.inputs.values()] == [Normal, Structured]


def within(*bounds, shuffled=(), sizes=()):
    return Hints(frozenset(bounds), frozenset(shuffled), frozenset(sizes))


def test_the_bounds_of_randint_are_the_bounds():
    below = within((0, 1000), (0, 4), (0, 7))
    assert recipe_of("x", torch.tensor([3, 1, 4]), below) == Index("7")
    assert recipe_of("x", torch.tensor([3, 1, 4]), within((1, 7))) == Index("7", low=1)
    # whichever of two it was drawn within
    assert recipe_of("x", torch.tensor([3, 1, 4]), within((1, 7), (0, 7))) == Index("7")
    assert recipe_of("x", torch.tensor([3, 0, 4]), within((1, 5))) == Index("5")


def test_the_bound_of_another_tensors_randint_is_not_a_masks():
    assert recipe_of("mask", torch.tensor([[1, 1, 1, 0]] * 4), within((0, 129))) == Index("2")
    # four draws, each repeated: four hundred of their own would have come nearer to 500
    repeated = torch.tensor([3, 301, 210, 77]).repeat_interleave(100)
    assert recipe_of("ids", repeated, within((0, 500))) == Index("500")
    # two values say little, and an ignored label nothing
    assert recipe_of("ids", torch.tensor([4, 9]), within((0, 1000))) == Index("1000")
    labels = torch.tensor([4, 9] + [-100] * 6)
    told = recipe_of("labels", labels, within((0, 1000)))
    assert told == Index("1000", ignored=-100, share=0.75)


def test_what_was_shuffled_is_distinct():
    slots = torch.randperm(384, generator=torch.Generator().manual_seed(0))[:40]
    assert recipe_of("slots", slots, within(shuffled=[384])) == Index("384", distinct=True)
    assert not recipe_of("slots", slots, within((0, 384))).distinct
    slots[1] = slots[0]
    assert not recipe_of("slots", slots, within(shuffled=[384])).distinct


def test_offsets_end_with_an_axis_or_start_with_zero():
    ends = torch.tensor([9, 30, 30, 64])
    assert recipe_of("ends", ends, within(sizes=[64])) == Offsets("64", first=False)
    assert recipe_of("x", ends, within(sizes=[63])) == Index("65")
    assert recipe_of("x", ends[1:], within(sizes=[64])) == Index("65")
    starts = torch.tensor([0, 9, 30, 58])
    assert recipe_of("starts", starts, within(sizes=[64, 100])) == Offsets("64", last=False)
    assert recipe_of("bounds", starts, within(sizes=[58, 64])) == Offsets("58")
    assert recipe_of("bounds", starts, within(sizes=[1 << 20])) == Offsets("58")


def test_what_rises_where_chance_would_not_have_it_so_is_sorted():
    ids = torch.tensor([0] * 9 + [1] * 4 + [2] * 9)
    assert recipe_of("ids", ids) == Sorted(Index("3"))
    assert recipe_of("ids", torch.stack([ids, ids])) == Sorted(Index("3"))
    assert recipe_of("ids", torch.stack([ids, ids.flip(0)])) == Index("3")
    assert recipe_of("x", torch.tensor([1, 3, 4])) == Index("5")
    # a mask to the left is a mask
    assert recipe_of("mask", torch.tensor([[0] * 30 + [1] * 30] * 2)) == Index("2")
    assert recipe_of("x", torch.full((50,), 2.0)) == Normal()


@pytest.mark.parametrize(
    ("value", "formula"),
    [
        (96, "P"), (97, "P+1"), (192, "MAXB*BS"), (193, "MAXB*BS+1"), (96 * 16, "P*BS"),
        (5, "5"), (9, "B+1"), (8, "B"), (95, "95"), (1000, "1000"),
    ],
)  # fmt: skip
def test_a_bound_is_an_axis_one_more_or_a_product(value, formula):
    axes = {"B": 8, "MAXB": 12, "P": 96, "BS": 16}
    assert bound(value, axes, [["P", "BS", "H"], ["B", "MAXB"]]) == formula


def test_an_index_of_two_axes_as_long_as_each_other_is_below_the_one_that_it_lacks():
    axes = {"B": 16, "E": 16, "K": 16}
    assert bound(16, axes, [], ["B", "K"]) == "E"
    assert bound(16, axes, [], ["B"]) == "16"
    assert bound(16, {"B": 16}, [], ["B"]) == "B"


def test_a_mask_is_below_no_axis():
    assert bound(2, {"B": 2}, [["B"]]) == "2"


def test_a_product_of_two_pairs_is_a_number_unless_one_are_neighbours():
    axes = {"A": 4, "B": 16, "C": 8, "D": 8}
    assert bound(64, axes, [["A"], ["B"]]) == "64"
    assert bound(64, axes, [["A", "B"]]) == "A*B"


PAGED = """
B, MAXB, P, BS, D = 6, 12, 96, 16, 8

def reference(q, cache, table, lens):
    k = cache[table].reshape(q.shape[0], -1, q.shape[1])
    s = (k * q[:, None]).sum(-1)
    seen = torch.arange(k.shape[1], device=q.device) < lens[:, None]
    return torch.where(seen, s, 0.0)

def get_inputs():
    table, lens = torch.randint(0, P, (B, MAXB)), torch.randint(1, MAXB * BS + 1, (B,))
    return [torch.randn(B, D), torch.randn(P, BS, D), table, lens]
"""
SLOTS = """
T, P, BS, D = 40, 24, 16, 8

def reference(key, cache, slots):
    out = cache.reshape(-1, cache.shape[2]).clone()
    out[slots] = key
    return out.reshape(cache.shape)

def get_inputs():
    return [torch.randn(T, D), torch.randn(P, BS, D), torch.randperm(P * BS)[:T]]
"""


def test_no_public_size_is_one_at_which_the_reference_cannot_take_its_values():
    op = problem("""
def reference(x, table, positions):
    return x * table[positions]

def get_inputs():
    return [torch.randn(6, 20), torch.randn(64), torch.arange(20).expand(6, 20)]
""")
    assert op.inputs["positions"].recipe == Permutation()
    checks = [at.dims for at in op.workloads if at.role == "check"]
    assert checks and all(at["N"] <= at["K"] for at in checks)


def test_lengths_and_slots_follow_the_pages_of_a_cache():
    op = problem(PAGED)
    assert op.inputs["table"].recipe == Index("P")
    assert op.inputs["lens"].recipe == Index("BS*MAXB+1", low=1)
    op = problem(SLOTS)
    assert op.inputs["slots"].recipe == Index("P*BS", distinct=True)
    assert "T <= P*BS" in op.constraints and all(op.is_legal(at) for at in op.workloads)
    at = op.workloads[0]
    ran = run(op.reference.graphs[str(at)], flat(draw(op, at, Case(1, "transposed"), "cpu")))
    assert [tuple(t.shape) for t in ran] == [op.outputs["y"].shape(op.names(at))]


@pytest.mark.parametrize(
    ("seen", "written"),
    [
        ([({"H": 64}, 32), ({"H": 61}, 31), ({"H": 5}, 3)], "(H+1)//2"),
        ([({"M": 4, "N": 6}, 24), ({"M": 5, "N": 6}, 30)], "6*M"),
        ([({"M": 4, "N": 6}, 24), ({"M": 5, "N": 7}, 35)], "M*N"),
        ([({"M": 4, "N": 6}, 10), ({"M": 5, "N": 7}, 12)], "M+N"),
        ([({"H": 9, "K": 3}, 7), ({"H": 9, "K": 5}, 5)], "H-K+1"),
        ([({"H": 9, "K": 3}, 18), ({"H": 11, "K": 4}, 23), ({"H": 9, "K": 5}, 20)], "2*H+K-3"),
        ([({"H": 8, "W": 12}, 24), ({"H": 4, "W": 8}, 8)], "H*W//4"),
        ([({"B": 2, "H": 8, "W": 12}, 12), ({"B": 3, "H": 4, "W": 8}, 6)], "B*H*W//16"),
        ([({"H": 64}, 8), ({"H": 81}, 9), ({"H": 100}, 10)], None),
    ],
)
def test_output_sizes_become_formulas(seen, written):
    assert formula(seen) == written


def test_a_stranger_cannot_answer_for_another_task():
    with pytest.raises(ProblemError):
        ask(lambda *_: Done(b"[]"), Ask("plain", "p.py", ""))


def test_many_sizes_are_exported_a_few_at_a_time_in_order():
    sizes = []

    def isolate(job, raw, seconds):
        request = ask_json.validate_json(raw)
        sizes.append(len(request.calls))
        each = tuple(Failure(str(call.options["n"])) for call in request.calls)
        return Done(reply_json.dump_json(Exports(each)))

    calls = [Call((), {"n": n}) for n in range(2 * TOGETHER + 1)]
    told = exports(isolate, "", "reference", calls)
    assert [int(each.message) for each in told] == list(range(len(calls)))
    assert sizes == [TOGETHER, TOGETHER, 1]
    assert exports(isolate, "", "reference", []) == ()
