"""A reference becomes a graph, and the graph alone computes what the reference did."""

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from evaluator import aten
from evaluator.errors import LabError, ProblemError
from evaluator.graphs import check, run, trace, trace_writes
from kernel_library.codec import graph_json
from kernel_library.graph import Constant, Graph, Node

F = torch.nn.functional


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def one_call(op: str, *args: object) -> Graph:
    return Graph(("x",), (Node("y", op, ({"ref": "x"}, *args)),), ("y",))


def test_a_graph_computes_what_the_reference_does():
    def reference(x, w, *, eps):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w, x.amax(-1)

    x, w = drawn(3, 7), drawn(7)
    graph = trace(reference, [x, w], {"eps": 1e-5})
    for got, want in zip(run(graph, [x, w]), reference(x, w, eps=1e-5), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_a_graph_survives_json():
    graph = trace(lambda x: x.masked_fill(x > 0, float("-inf")).to(torch.float16), [drawn(3)], {})
    again = graph_json.validate_json(graph_json.dump_json(graph))
    assert again == graph
    assert again.digest == graph.digest
    assert run(again, [drawn(3)])[0].dtype == torch.float16


def test_a_fake_trace_is_the_real_one():
    with FakeTensorMode():
        fake = torch.empty(4, 8, dtype=torch.bfloat16)
    real = drawn(4, 8, dtype=torch.bfloat16)
    assert trace(F.silu, [fake], {}) == trace(F.silu, [real], {})


def test_ops_keep_the_level_at_which_they_were_called():
    graph = trace(lambda q: F.scaled_dot_product_attention(q, q, q), [drawn(1, 2, 4, 8)], {})
    assert [n.op for n in graph.nodes] == ["aten.scaled_dot_product_attention.default"]


def test_widening_gives_the_float64_truth():
    def reference(x):
        y = x.float() + torch.full((8,), 0.1, dtype=torch.float32)
        return torch.softmax(y.to(torch.bfloat16), -1).half()

    x = drawn(4, 8, dtype=torch.bfloat16)
    [wide] = run(trace(reference, [x], {}), [x], widen=True)
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide, torch.softmax(x.double() + 0.1, -1), rtol=1e-15, atol=0)


def test_widening_keeps_the_eps_that_rms_norm_takes_from_its_dtype():
    x = drawn(2, 8, dtype=torch.bfloat16) * 1e-2
    graph = trace(lambda x: F.rms_norm(x, (8,)), [x], {})
    truth = F.rms_norm(x.double(), (8,), eps=torch.finfo(torch.bfloat16).eps)
    torch.testing.assert_close(run(graph, [x], widen=True)[0], truth, rtol=1e-14, atol=0)
    torch.testing.assert_close(run(graph, [x])[0].double(), truth, rtol=2e-2, atol=1e-3)


def test_fp8_inputs_widen_to_their_exact_values():
    x = drawn(4, 4, dtype=torch.float8_e4m3fn)
    [wide] = run(trace(lambda x: x.float() * 2, [x], {}), [x], widen=True)
    assert torch.equal(wide, x.double() * 2)


@pytest.mark.parametrize("scales", [((), ()), ((4, 1), (1, 6)), ((4, 2), (2, 6))], ids=str)
def test_a_scaled_product_has_a_float64_form(scales):
    a, b = drawn(4, 32, dtype=torch.float8_e4m3fn), drawn(6, 32, dtype=torch.float8_e4m3fn).t()
    sa, sb = (drawn(*s).abs() + 0.1 for s in scales)
    refs = [{"ref": name} for name in ("a", "b", "sa", "sb")]
    kwargs = {"out_dtype": {"dtype": "bfloat16"}}
    node = Node("y", "aten._scaled_mm.default", tuple(refs), kwargs)
    [y] = run(Graph(("a", "b", "sa", "sb"), (node,), ("y",)), [a, b, sa, sb], widen=True)
    spread_a = sa.repeat_interleave(16, 1) if sa.shape == (4, 2) else sa
    spread_b = sb.repeat_interleave(16, 0) if sb.shape == (2, 6) else sb
    truth = (a.double() * spread_a.double()) @ (b.double() * spread_b.double())
    torch.testing.assert_close(y, truth, rtol=1e-13, atol=1e-13)


def test_a_view_of_an_input_needs_no_layout_of_it():
    x = torch.randn(3, 5, 7)
    graph = trace(lambda x: x.view(3, 35).sum(1), [x], {})
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(RuntimeError, match="view size"):
        turned.view(3, 35)
    for given in (turned, x[..., ::2].repeat_interleave(2, -1)[..., :7]):
        assert torch.equal(run(graph, [given])[0], given.reshape(3, 35).sum(1))


def test_an_input_of_any_offset_can_be_seen_as_pairs():
    x = torch.randn(4 * 6 + 1)[1:].view(4, 6)
    graph = trace(lambda x: torch.view_as_complex(x.view(4, 3, 2)).abs(), [x.clone()], {})
    torch.testing.assert_close(run(graph, [x])[0], x.view(4, 3, 2).norm(dim=-1))


def test_an_in_place_write_becomes_an_output_and_the_input_stays():
    def reference(p, g, steps):
        for step in steps:
            step.add_(1)
        p.sub_(g, alpha=0.5)

    p, g, steps = drawn(3), torch.ones(3), [torch.zeros(2), torch.ones(2)]
    traced = trace_writes(reference, [p, g, steps], {})
    assert traced.mutated == (0, 2, 3)
    assert len(traced.graph.inputs) == 4
    before = p.clone()
    new_p, first, second = run(traced.graph, [p, g, *steps])
    assert torch.equal(p, before)
    assert torch.equal(new_p, p - 0.5)
    assert (first.tolist(), second.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_no_grad_and_autocast_regions_leave_no_trace():
    @torch.no_grad()
    def reference(x):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x

    x = drawn(4, 4)
    assert run(trace(reference, [x], {}), [x])[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    "forward",
    [
        lambda x, w: F.gelu(x) * w,
        lambda x, w: F.softmax(x, -1) * w,
        lambda x, w: F.layer_norm(x, x.shape[-1:], w),
        lambda x, w: F.rms_norm(x, x.shape[-1:], w),
        lambda x, w: x * w / x.norm(dim=-1, keepdim=True),
        lambda x, w: x * w * x.topk(1, -1).values,
        lambda x, w: w * F.cross_entropy(x, torch.tensor([2, 0, 1]), reduction="none")[:, None],
    ],
    ids=["gelu", "softmax", "layer_norm", "rms_norm", "norm", "topk", "cross_entropy"],
)
def test_a_gradient_that_autograd_takes_is_traced_with_what_it_had_saved(forward):
    def reference(d_y, tensors, *, scale):
        with torch.enable_grad():
            x, w = (tensor.detach().requires_grad_() for tensor in tensors)
            return torch.autograd.grad(scale * forward(x, w), (x, w), d_y)

    args = [drawn(3, 7).flip(0), [drawn(3, 7), drawn(7)]]
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(args[0]), [mode.from_tensor(each) for each in args[1]]]
    graph = trace(reference, fake, {"scale": 2.0})
    check(graph)
    other = [args[0] + 1, args[1][0] * 3, args[1][1] - 1]
    want = reference(other[0], other[1:], scale=2.0)
    truth = reference(other[0].double(), [t.double() for t in other[1:]], scale=2.0)
    for got, wide, one, exact in zip(
        run(graph, other), run(graph, other, widen=True), want, truth, strict=True
    ):
        torch.testing.assert_close(got, one)
        torch.testing.assert_close(wide, exact)
        assert wide.dtype == torch.float64


@pytest.mark.parametrize("asked", ["backward", "vjp", "grad"])
def test_a_gradient_is_traced_however_it_is_asked_for(asked):
    def reference(d_y, x):
        if asked == "vjp":
            return torch.func.vjp(lambda x: F.softmax(x, -1), x)[1](d_y)[0]
        if asked == "grad":
            return torch.func.grad(lambda x: (F.softmax(x, -1) * d_y).sum())(x)
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            F.softmax(x, -1).backward(d_y)
        return x.grad

    with FakeTensorMode():
        fake = [torch.empty(3, 7), torch.empty(3, 7)]
    args = [drawn(3, 7).flip(0), drawn(3, 7)]
    torch.testing.assert_close(run(trace(reference, fake, {}), args)[0], reference(*args))


def test_a_gradient_of_what_only_a_cpu_calls_is_refused():
    def reference(d_y, q):
        with torch.enable_grad():
            q = q.detach().requires_grad_()
            return torch.autograd.grad(F.scaled_dot_product_attention(q, q, q), q, d_y)

    with FakeTensorMode():
        q = torch.empty(1, 2, 8, 16)
    with pytest.raises(ProblemError, match="only a CPU has: write it out"):
        trace(reference, [q, q], {})


def test_small_closed_over_tensors_are_constants_and_large_ones_are_refused():
    table, large = torch.tensor([1.5, 2.5, -3.0]), torch.ones(1 << 19)
    graph = trace(lambda x: x * table, [drawn(3)], {})
    assert torch.equal(run(graph, [torch.ones(3)])[0], table)
    assert run(graph, [torch.ones(3)], widen=True)[0].dtype == torch.float64
    with pytest.raises(ProblemError, match="1 MiB"):
        trace(lambda x: x + large, [drawn(1)], {})


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x + torch.rand_like(x),
        lambda x: F.dropout(x, 0.5, True),
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1),
    ],
)
def test_random_numbers_are_refused(reference):
    with pytest.raises(ProblemError, match="draws random numbers"):
        trace(reference, [drawn(2, 3, 4)], {})


def test_dropout_that_is_off_is_no_random_number():
    graph = trace(lambda x: F.dropout(x, 0.5, False) + F.dropout(x, 0.0, True), [drawn(3)], {})
    assert torch.equal(run(graph, [torch.ones(3)])[0], torch.full((3,), 2.0))
    cell = torch.nn.LSTM(4, 5)
    x = torch.randn(3, 2, 4)
    assert torch.equal(run(trace(lambda x: cell(x)[0], [x], {}), [x])[0], cell(x)[0])


@pytest.mark.parametrize(
    "op",
    [
        "aten.from_file.default",
        "aten.save.default",
        "aten.add_.Tensor",
        "aten.add.out",
        "aten.item.default",
        "aten._print.default",
        "aten.__class__.mro",
        "aten.relu.__class__",
        "prims.sin.default",
        "os.system",
        "aten.nothing.default",
    ],
)
def test_a_hostile_graph_cannot_call_more_than_aten(op):
    with pytest.raises(ProblemError):
        run(one_call(op), [drawn(2)])


@pytest.mark.parametrize(
    "graph",
    [
        Graph(("x",), (Node("y", "aten.neg.default", ({"ref": "z"},)),), ("y",)),
        Graph(("x",), (Node("x", "aten.neg.default", ({"ref": "x"},)),), ("x",)),
        Graph(("x", "x"), (), ("x",)),
        Graph(("x",), (), ()),
        Graph(("x",), (), ("y",)),
        one_call("getitem", "__class__"),
        one_call("aten.add.Tensor", {"python": "1"}),
        one_call("aten.add.Tensor", {"ref": "x", "more": 1}),
        one_call("aten.mm.default", {"ref": "x"}),
        replace(one_call("aten.neg.default"), constants={"c": Constant("float32", (3,), "AAAA")}),
        replace(one_call("aten.neg.default"), constants={"c": Constant("float32", (1,), "?")}),
        replace(one_call("aten.neg.default"), constants={"c": Constant("device", (0,), "")}),
    ],
)
def test_a_malformed_graph_is_the_problems_fault(graph):
    with pytest.raises(ProblemError):
        run(graph, [drawn(2)])


def test_a_wrong_number_of_tensors_is_our_fault():
    with pytest.raises(LabError):
        run(one_call("aten.neg.default"), [])


def test_reinterpreted_bits_have_no_float64_truth():
    graph = trace(lambda x: x.view(torch.int32), [drawn(2)], {})
    assert run(graph, [drawn(2)])[0].dtype == torch.int32
    with pytest.raises(ProblemError, match="reinterprets bits"):
        run(graph, [drawn(2)], widen=True)


def test_constants_keep_every_dtype():
    for name, dtype in aten.GRAPH_DTYPES.items():
        tensor = torch.zeros((), dtype=dtype)
        assert aten.unpack("c", aten.pack(tensor)).dtype == getattr(torch, name)


@pytest.mark.parametrize("result", [lambda x: 3, lambda x: None, lambda x: (x, "text")])
def test_a_reference_must_return_tensors(result):
    with pytest.raises(ProblemError, match="tensor"):
        trace(result, [drawn(2)], {})


def test_dead_code_is_dropped():
    graph = trace(lambda x: (x.exp(), x + 1)[1], [drawn(2)], {})
    assert len(graph.nodes) == 1
    check(graph)


def test_a_turned_matrix_by_its_capital_letter_can_be_exported():
    graph = trace(lambda x: x.T @ x, [torch.ones(3, 2)], {})
    (out,) = run(graph, [torch.ones(3, 2)])
    assert torch.equal(out, torch.full((2, 2), 3.0))


def test_a_product_takes_nothing_from_between_rows():
    # where a processor has AMX, oneDNN did, until it was told to leave that
    rows = torch.full((65, 256), torch.nan, dtype=torch.bfloat16)[:, :254]
    rows.copy_(drawn(65, 254))
    graph = trace(lambda x, y: x @ y, [rows, drawn(254, 13, dtype=torch.bfloat16)], {})
    (out,) = run(graph, [rows, drawn(254, 13, dtype=torch.bfloat16)])
    assert out.isfinite().all()
