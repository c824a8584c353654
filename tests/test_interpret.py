"""Candidates run by Triton's interpreter in a process of their own: right ones pass, each kind of
wrong one is rejected with a reason that says what is wrong and nothing that is hidden.
"""

from dataclasses import replace

import pytest
import torch
from isolates import run_in_fork

from evaluator import aten
from evaluator.errors import CandidateError, LabError
from evaluator.graphs import trace
from evaluator.hidden import INTERPRETED
from evaluator.inputs import Case, draw
from evaluator.interpret.judge import check_interpreted
from evaluator.interpret.wire import RULES, Answer, Result, Returned, answer_json, pack, raw
from evaluator.isolate import Died, Done
from evaluator.matrix import matrix, smoke
from evaluator.play.check import same_bits
from evaluator.unsaid import fault
from kernel_library.candidate import Candidate
from kernel_library.graph import Graph, Node
from kernel_library.spec import OpSpec, Reference, Tensor, Workload, grid

HEAD = """
import torch
import triton
import triton.language as tl

"""
SOFTMAX = (
    HEAD
    + """
@triton.jit
def _row(x_ptr, y_ptr, x_row, x_col, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < N
    x = tl.load(x_ptr + row * x_row + col * x_col, mask=inside, other=-float("inf"))
    e = tl.exp(x.to(tl.float32) - tl.max(x.to(tl.float32), axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * N + col, y.to(y_ptr.dtype.element_ty), mask=inside)


def softmax(x):
    assert x.is_cuda and x.device.type == "cuda"
    M, N = x.shape
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    _row[(M,)](x, y, x.stride(0), x.stride(1), N, BLOCK=triton.next_power_of_2(N))
    return y
"""
)
GEMM = (
    HEAD
    + """
@triton.jit
def _tile(a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        a = tl.load(a_ptr + m[:, None] * am + k * ak, mask=(m[:, None] < M) & (k < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * bk + n * bn, mask=(k[:, None] < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m[:, None] * N + n, c, mask=(m[:, None] < M) & (n < N))


def gemm(a, b, *, BLOCK):
    M, K = a.shape
    N = b.shape[1]
    c = a.new_empty((M, N))
    tiles = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    _tile[tiles](a, b, c, M, N, K, *a.stride(), *b.stride(), B=BLOCK)
    return c
"""
)


def with_graph(op: OpSpec, workloads, *nodes: Node) -> OpSpec:
    """The op with one graph for all workloads: the last node's result is the output."""
    graph = Graph(tuple(op.inputs), nodes, (nodes[-1].name,))
    return replace(op, reference=Reference("", graphs={str(at): graph for at in workloads}))


def traced(op: OpSpec, function) -> OpSpec:
    graphs = {
        str(at): trace(function, list(draw(op, at, Case(0), "cpu").values()), op.option_values(at))
        for at in op.workloads
    }
    return replace(op, reference=Reference("", graphs=graphs))


TRUE_SOFTMAX = Node("y", "aten.softmax.int", ({"ref": "x"}, -1))
TRUE_PRODUCT = Node("c", "aten.matmul.default", ({"ref": "a"}, {"ref": "b"}))


def softmax_op(check, dtypes=("float32", "bfloat16")) -> OpSpec:
    return OpSpec(
        "softmax",
        {"x": Tensor("M N")},
        {"y": Tensor("M N")},
        grid("M N", {"check": check, "measure": [(4096, 4096)]}, dtypes),
    )


SMALL = softmax_op([(3, 40)], ("float32",))
AT = SMALL.workloads[0]
SMOKE = [smoke(SMALL)]
POINTS = [*SMOKE, (AT, Case(1, poison=1)), (AT, Case(2, "transposed"))]


def judge(source: str, points=POINTS, entry="softmax", isolate=run_in_fork, **limits):
    op = with_graph(SMALL, [at for at, _ in points], TRUE_SOFTMAX)
    return check_interpreted(op, Candidate("softmax", source, entry), points, isolate, **limits)


def rejected(source: str, points=POINTS, **limits) -> CandidateError:
    with pytest.raises(CandidateError) as error:
        judge(source, points, **limits)
    return error.value


def test_a_right_softmax_passes_the_whole_matrix():
    op = softmax_op([(1, 1), (5, 33)])
    points = [smoke(op), *matrix(op, SOFTMAX, 11, INTERPRETED)]
    op = with_graph(op, [at for at, _ in points], TRUE_SOFTMAX)
    checked = check_interpreted(op, Candidate("softmax", SOFTMAX, "softmax"), points, run_in_fork)
    assert {str(c.at) for c in checked} == {str(at) for at in op.workloads if at.role == "check"}
    assert sum(c.cases for c in checked) > 20
    assert all(c.error < 1e-2 for c in checked)


def test_a_bfloat16_product_comes_out_right_in_the_interpreter():
    op = OpSpec(
        "gemm",
        {"a": Tensor("M K"), "b": Tensor("K N")},
        {"c": Tensor("M N")},
        grid("M N K", {"check": [(17, 33, 40)]}, ("bfloat16", "float16", "float32")),
    )
    points = [(at, case) for at in op.workloads for case in (Case(1), Case(2, "transposed"))]
    op = with_graph(op, op.workloads, TRUE_PRODUCT)
    found = check_interpreted(
        op, Candidate("gemm", GEMM, "gemm", config={"BLOCK": 16}), points, run_in_fork
    )
    assert [c.cases for c in found] == [2, 2, 2]
    assert all(c.error < 5e-3 for c in found)


def test_bfloat16_arithmetic_is_not_done_on_its_bits():
    source = (
        HEAD
        + """
@triton.jit
def _k(x_ptr, y_ptr, o_ptr, N, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    y = tl.load(y_ptr + i, mask=i < N, other=0.0)
    z = tl.where(x > y, x * y, x - 2.0 * y) + tl.sum(x * 0.25, axis=0) + tl.max(y, axis=0)
    z += tl.cumsum(x, 0) * 0.0 + tl.maximum(x, y)
    tl.store(o_ptr + i, -z, mask=i < N)


def f(x, y):
    o = torch.empty_like(x)
    _k[(1,)](x, y, o, x.numel(), B=64)
    return o
"""
    )

    def reference(x, y):
        z = torch.where(x > y, x * y, x - 2.0 * y) + (x * 0.25).sum() + y.max()
        return -(z + torch.maximum(x, y))

    tensor = Tensor("N")
    op = OpSpec(
        "f", {"x": tensor, "y": tensor}, {"o": tensor}, grid("N", {"check": [(50,)]}, ("bfloat16",))
    )
    points = [(at, Case(3)) for at in op.workloads]
    op = traced(op, reference)
    (found,) = check_interpreted(op, Candidate("f", source, "f"), points, run_in_fork)
    assert found.error < 0.02


def test_an_8_bit_float_is_rounded_as_the_hardware_does():
    source = (
        HEAD
        + """
@triton.jit
def _k(x_ptr, o_ptr, N, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(o_ptr + i, x.to(tl.float8e4nv), mask=i < N)


def f(x):
    o = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    _k[(1,)](x, o, x.numel(), B=1024)
    return o
"""
    )
    eight = {"o": Tensor("N", "float8_e4m3fn")}
    each = ("float32", "float16", "bfloat16")
    op = OpSpec("f", {"x": Tensor("N")}, eight, grid("N", {"check": [(1000,)]}, each))
    points = [(at, case) for at in op.workloads for case in (Case(3), Case(4, values="ramp"))]
    op = traced(op, lambda x: x.to(torch.float8_e4m3fn))
    found = check_interpreted(op, Candidate("f", source, "f"), points, run_in_fork)
    assert [c.cases for c in found] == [2, 2, 2]
    assert all(c.error == c.torch_error for c in found)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("    y = e / tl.sum(e, axis=0)", "    y = e * 0.0"), "off by"),
        (('other=-float("inf")', "other=0.0"), "off by"),
        (("mask=inside)\n", "mask=col < N - 1)\n"), "never written"),
        (("_row[(M,)]", "_row[(M - 1,)]"), "never written"),
        (("    return y", "    return y.double()"), "float64, not float32"),
        (("    return y", "    return y[:, :-1]"), "wrong shape"),
        (("    return y", "    return y, y"), "returned more outputs, 1 output wanted"),
        (("    return y", "    return [1.0]"), "no plain tensor"),
        (("return y", "return y.as_subclass(type('T', (torch.Tensor,), {}))"), "a T that"),
        (("    return y", "    x.zero_()\n    return y"), "writes to input 'x', which"),
        (("mask=inside)\n", "mask=inside)\n    tl.store(x_ptr + 128, 0.0)\n"), "outside of"),
        (("x_ptr + row * x_row + col * x_col", "x_ptr + row * N + col"), "with transposed inputs"),
        (("y.to(y_ptr", "z.to(y_ptr"), "line 15: raises NameError: .*z"),
        (("    M, N", "    M, N, K"), "line 20: raises ValueError: not enough values"),
        (("def softmax", "raise SystemExit(0)\ndef softmax"), "raises SystemExit"),
        (("def softmax", "def hardmax"), "raises AttributeError.*softmax"),
        (("    return y", "    return torch.exp(x)"), "Barred: calls aten.exp.default, which"),
        (("    return y", "    return y * x.tolist()[0][0]"), "Barred: host code needs .*tolist"),
        (("    return y", "    return y if x[0, 0] else x"), "Barred: host code needs .*bool"),
    ],
)  # fmt: skip
def test_a_wrong_softmax_is_rejected_for_what_is_wrong(change, reason):
    assert change[0] in SOFTMAX
    found = rejected(SOFTMAX.replace(*change))
    assert pytest.raises(CandidateError, match=reason).matches(found), found.reason
    assert found.at == AT


def test_a_grids_function_is_the_launchers_own():
    launched = "_row[(M,)]("
    assert launched in SOFTMAX
    source = SOFTMAX.replace(launched, "_row[lambda meta: (len(torch.exp(x)),)](")
    assert "Barred: calls aten.exp.default, which" in rejected(source).reason
    judge(SOFTMAX.replace(launched, "_row[lambda meta: (len(x.clone()),)]("))


def test_a_launcher_may_ask_whether_a_graph_is_being_captured():
    asks = "    if torch.cuda.is_current_stream_capturing():\n        raise RuntimeError\n"
    judge(SOFTMAX.replace("    M, N = x.shape\n", asks + "    M, N = x.shape\n"))


def test_a_cached_output_is_found_by_fresh_contents_at_the_same_address():
    cache = "    key = x.data_ptr()\n    if key in SEEN:\n        return SEEN[key]\n"
    source = SOFTMAX.replace("    M, N = x.shape\n", cache + "    M, N = x.shape\n")
    source = source.replace("    return y", "    SEEN[key] = y\n    return y")
    points = [*SMOKE, (AT, Case(1)), (AT, Case(2))]
    found = rejected(source.replace("@triton.jit", "SEEN = {}\n\n@triton.jit"), points)
    assert found.stage == "correct"
    assert "off by" in found.reason


def test_the_setting_that_was_picked_is_interpreted():
    halves = "[triton.Config({'SHARE': s}) for s in (1.0, 0.5)], key=['N']"
    source = SOFTMAX.replace("@triton.jit", f"@triton.autotune({halves})\n@triton.jit")
    source = source.replace("N, BLOCK: tl", "N, SHARE: tl.constexpr, BLOCK: tl")
    source = source.replace("tl.sum(e, axis=0)", "tl.sum(e, axis=0) * SHARE")
    op = with_graph(SMALL, [AT], TRUE_SOFTMAX)
    first, second = (Candidate("softmax", source, "softmax", pick=pick) for pick in (0, 1))
    assert check_interpreted(op, first, SMOKE, run_in_fork)
    with pytest.raises(CandidateError, match="off by"):
        check_interpreted(op, second, SMOKE, run_in_fork)


def test_numbers_that_are_assigned_by_twos_are_tensors_as_in_a_kernel():
    division = """    total, count = 0.0, 0.0
    for i in range(0, N - 40):
        total, count = total + i, count + 1.0
    mean = total / count
    y = tl.where(mean == mean, 0.0, e / tl.sum(e, axis=0))
"""
    judge(SOFTMAX.replace("    y = e / tl.sum(e, axis=0)\n", division))


def test_a_repeat_must_give_the_same_bits():
    source = SOFTMAX.replace("e / tl.sum(e, axis=0)", "e / tl.sum(e, axis=0) * (1 + 3e-7 * CALL)")
    source = source.replace("N, BLOCK: tl", "N, CALL, BLOCK: tl").replace(
        "    _row[(M,)](", "    CALLS.append(1)\n    _row[(M,)]("
    )
    source = source.replace("N, BLOCK=", "N, len(CALLS), BLOCK=")
    source = source.replace("@triton.jit", "CALLS = []\n\n@triton.jit")
    judge(source)
    found = rejected(source, [*SMOKE, (AT, Case(1, repeat=True))])
    assert "gives other bits" in found.reason


def test_the_smoke_test_comes_first_and_names_its_stage():
    assert rejected(SOFTMAX.replace("e / tl.sum(e, axis=0)", "e")).stage == "smoke"


def test_a_hidden_size_is_not_told():
    hidden = Workload({"M": 7, "N": 61}, {"T": "float32"})
    source = SOFTMAX.replace("    M, N = x.shape\n", "    M, N = x.shape\n    assert N == 40, N\n")
    found = rejected(source, [*SMOKE, (hidden, Case(1))])
    assert found.reason == "raises an exception at a hidden size in float32"
    assert found.at is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("raise type(f'E{N}', (Exception,), {})()", "raises an exception at a hidden"),
        ("return (x,) * N", "returned more outputs, 1 output wanted at a hidden size"),
    ],
)
def test_a_candidate_cannot_spell_a_hidden_size(line, told):
    hidden = Workload({"M": 7, "N": 61}, {"T": "float32"})
    source = SOFTMAX.replace(
        "    M, N = x.shape\n", f"    M, N = x.shape\n    if N == 61:\n        {line}\n"
    )
    found = rejected(source, [*SMOKE, (hidden, Case(1))])
    assert told in found.reason and "61" not in found.reason and "line" not in found.reason


def test_a_broken_rule_is_told_in_the_judges_words_at_a_hidden_size():
    assert fault("writes to input 'x61'", RULES) == "writes to input"
    assert fault("raises E61", RULES) == "raises an exception"
    assert fault("61", RULES) == "breaks a rule of the call"


def test_a_hanging_candidate_is_stopped():
    source = SOFTMAX.replace("    M, N = x.shape\n", "    while True:\n        pass\n")
    calls = []

    def impatient(job, request, seconds):
        calls.append(seconds)
        return run_in_fork(job, request, 8.0)

    found = rejected(source, isolate=impatient, seconds=1.0)
    assert found.reason == "takes more than 1 s a call when interpreted"
    assert calls == [21.0]


@pytest.mark.parametrize(
    ("reply", "error", "reason"),
    [
        (Died("killed", ""), CandidateError, "was killed"),
        (Died("overflow", ""), CandidateError, "more data"),
        (Died("raised", "boom", "ValueError"), LabError, "ValueError"),
        (Done(b""), CandidateError, "no answer"),
        (Done(b"\xff" * 40), CandidateError, "no answer"),
        (Done((2).to_bytes(8, "little") + b"{}"), CandidateError, "no answer"),
    ],
)
def test_a_lost_job_is_somebodys_fault(reply, error, reason):
    with pytest.raises(error, match=reason):
        judge(SOFTMAX, isolate=lambda job, request, seconds: reply)


@pytest.mark.parametrize(
    ("results", "blob", "reason"),
    [
        ((), b"", "left calls unanswered"),
        ((Result((Returned((3, 40), "float32"),)),), b"1234", "half an answer"),
        ((Result((Returned((-3, -40), "float32"),)),), bytes(480), "half an answer"),
        ((Result((Returned((0, 1 << 70), "float32"),)),), b"", "half an answer"),
        ((Result((Returned((3, 40), "complex64"),)),), bytes(960), "half an answer"),
        ((Result((Returned((3, 40), "float32"),)),), bytes(480), "off by"),
        ((Result((Returned((0,), "float32"),)),), b"", "wrong shape"),
        ((Result(),), b"", "returned 0 outputs"),
    ],
)
def test_an_answer_is_a_strangers_word(results, blob, reason):
    forged = pack(answer_json.dump_json(Answer(results)), [blob])
    with pytest.raises(CandidateError, match=reason):
        judge(SOFTMAX, isolate=lambda job, request, seconds: Done(forged))


def test_inputs_written_in_place_are_outputs():
    source = (
        HEAD
        + """
@triton.jit
def _k(p_ptr, g_ptr, N, lr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    p = tl.load(p_ptr + i, mask=i < N)
    g = tl.load(g_ptr + i, mask=i < N)
    tl.store(p_ptr + i, p - lr * g, mask=i < N)


def sgd(p, g):
    for each, grad in zip(p, g):
        _k[(triton.cdiv(each.numel(), 32),)](each, grad, each.numel(), 0.1, B=32)
"""
    )

    def reference(p, g):
        for each, grad in zip(p, g, strict=True):
            each.sub_(0.1 * grad)

    lists = Tensor("S", "float32", count="2")
    at = Workload({"S": (5, 70)}, {})
    op = OpSpec("sgd", {"p": lists, "g": lists}, {}, (at,), mutates=("p",))
    op = traced(op, reference)
    points = [(at, Case(1)), (at, Case(2, repeat=True))]
    (found,) = check_interpreted(op, Candidate("sgd", source, "sgd"), points, run_in_fork)
    assert found.cases == 2
    wrong = Candidate("sgd", source.replace("zip(p, g)", "zip(p[:1], g)"), "sgd")
    with pytest.raises(CandidateError, match=r"output 'p\[1\]' is off by"):
        check_interpreted(op, wrong, points, run_in_fork)


def test_a_workload_that_was_not_exported_is_our_fault():
    op = replace(SMALL, reference=Reference(""))
    with pytest.raises(LabError, match="not been exported"):
        check_interpreted(op, Candidate("softmax", SOFTMAX, "softmax"), SMOKE, run_in_fork)


def test_a_single_element_is_sent_whatever_its_stride():
    """torch calls it contiguous, and leaves it the stride that it has."""
    one = torch.tensor([1.5, 2.0, 2.5])[::2][:1]
    assert one.stride() == (2,) and one.is_contiguous()
    assert raw(one) == raw(torch.tensor([1.5]))
    assert aten.unpack("one", aten.pack(one)).tolist() == [1.5]
    assert same_bits((one,), (one.clone(),)) and not same_bits((one,), (one + 1,))
    turned = torch.arange(6.0).reshape(2, 3).t()
    assert raw(turned) == raw(turned.contiguous())
