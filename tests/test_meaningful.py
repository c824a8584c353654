"""Where torch's own answer is rounding and nothing else, nobody is held to its luck."""

import pytest
import torch

from evaluator.compare import Mismatch, compare
from evaluator.graphs import trace
from evaluator.inputs import Case, draw
from evaluator.meaningful import FEW, noise
from evaluator.picked import answers
from kernel_library.spec import Tolerance, Workload
from seeds import layer_norm_backward, rms_norm_backward

OP, K = rms_norm_backward.OP, Tolerance()
OPTIONS = {"eps": 1e-6, "offset": 0.0, "cast": "llama"}
LAYER = {"eps": 1e-5}


def drawn(m: int, n: int, seed: int):
    """A graph of RMS norm's gradient, and inputs; over one value, all that it sums cancels."""
    inputs = list(
        draw(OP, Workload({"M": m, "N": n}, {"T": "float32"}), Case(seed), "cpu").values()
    )
    return trace(rms_norm_backward.reference, inputs, OPTIONS), inputs


def fused(d_y, x, w):
    """The gradient as a kernel takes it: with a product that is not rounded before it is added."""
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + OPTIONS["eps"])
    g, normed = d_y * w, x * r
    inner = (g * x).mean(-1, keepdim=True) * r
    return (g.double() - normed.double() * inner.double()).float() * r, (d_y * normed).sum(0)


def is_passed(got, graph, inputs) -> bool:
    try:
        compare(got, answers(graph, inputs), K)
    except Mismatch:
        return False
    return True


def test_a_right_answer_with_other_luck_is_excused_and_a_wrong_one_is_not():
    unlucky = 0
    for seed in range(40):
        graph, inputs = drawn(3, 1, seed)
        right = fused(*inputs)
        if not is_passed(right, graph, inputs):
            unlucky += 1
            assert noise(right, graph, inputs, K)
        d_y, _, w = inputs
        assert not noise((d_y * w, right[1]), graph, inputs, K)
        assert not noise((right[0], 1.01 * right[1]), graph, inputs, K)
    assert unlucky > 4


def fused_layer_norm(d_y, x, w):
    """The gradient over one value: all but the product that a compiler fuses is exact, and 0."""
    r = torch.full_like(x, LAYER["eps"] ** -0.5)
    left = d_y.double() * w.double() - (d_y * w).double()
    return left.float() * r, torch.zeros_like(w), d_y.sum(0)


@pytest.mark.parametrize(("dtype", "m"), [("float32", 5), ("float32", 16384), ("bfloat16", 61)])
def test_where_torchs_own_is_exact_by_chance_alone_a_fused_product_is_excused(dtype, m):
    at = Workload({"M": m, "N": 1}, {"T": dtype})
    inputs = list(draw(layer_norm_backward.OP, at, Case(3), "cpu").values())
    graph = trace(layer_norm_backward.reference, inputs, LAYER)
    d_x, d_w, d_b = (t.to(inputs[0].dtype) for t in fused_layer_norm(*(t.float() for t in inputs)))
    if dtype == "float32":
        assert not is_passed((d_x, d_w, d_b), graph, inputs)
        assert noise((d_x, d_w, d_b), graph, inputs, K)
    for wrong in ((d_x + 1e-3, d_w, d_b), (d_x, d_w + 0.1, d_b), (d_x, d_w, 1.05 * d_b)):
        assert not noise(wrong, graph, inputs, K)


def test_no_row_is_excused_for_what_may_be_rounding_in_another():
    graph, inputs = drawn(6, 1, 5)
    # the first row a million times larger, and so its rounding, too
    inputs[0] = inputs[0] * torch.tensor([[1e6], *[[1.0]] * 5])
    d_x, d_w = fused(*inputs)
    assert noise((d_x, d_w), graph, inputs, K) or is_passed((d_x, d_w), graph, inputs)
    off = torch.zeros_like(d_x)
    off[1:] = 1e3 * d_x[1:].abs().amax() + 1e-3
    assert not noise((d_x + off, d_w), graph, inputs, K)


@pytest.mark.parametrize(("m", "n"), [(3, 40), (1, FEW)])
def test_nothing_is_excused_where_torch_keeps_its_bounds_or_luck_cannot_be(m, n):
    graph, inputs = drawn(m, n, 7)
    d_x, d_w = fused(*inputs)
    assert is_passed((d_x, d_w), graph, inputs)
    for wrong in ((1.0001 * d_x, d_w), (d_x, d_w[:1]), (d_x[:1], d_w), (d_x * torch.nan, d_w)):
        assert not noise(wrong, graph, inputs, K)
