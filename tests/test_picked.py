"""Indices are read from the graph, and judged by what they pick."""

import pytest
import torch

from evaluator.compare import Mismatch, compare
from evaluator.graphs import trace
from evaluator.picked import Pick, answers, picks
from kernel_library.spec import Tolerance

PLAIN = Tolerance()
#: Two largest values in the first row, one NaN in the second.
X = torch.tensor([[1.0, 3.0, 2.0, 3.0], [0.0, float("nan"), 5.0, 1.0]])


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        (lambda x: x.argmax(-1), [(0, "args_0", -1)]),
        (lambda x: x.argmin(0, keepdim=True), [(0, "args_0", 0)]),
        (lambda x: x.argmax(), [(0, "args_0", None)]),
        (lambda x: x.argmax(1).to(torch.int32), [(0, "args_0", 1)]),
        (lambda x: torch.topk(x, 2), [(1, "args_0", -1)]),
        (lambda x: torch.topk(x, 2)[1].int(), [(0, "args_0", -1)]),
        (lambda x: x.max(1), [(1, "args_0", 1)]),
        (lambda x: x.sort(descending=True), [(1, "args_0", -1)]),
        (lambda x: x.argsort(0), [(0, "args_0", 0)]),
        (lambda x: x.sum(-1).long(), []),
        (lambda x: x.max(1)[0], []),
        (lambda x: x, []),
    ],
)
def test_a_graph_tells_which_outputs_are_indices_and_of_what(reference, wanted):
    graph = trace(lambda x: reference(x), [torch.randn(3, 4)], {})
    assert [(p.output, p.source, p.axis) for p in picks(graph)] == wanted


def test_indices_of_something_computed_are_of_that():
    graph = trace(
        lambda x, w: (x @ w).softmax(-1).topk(2), [torch.randn(3, 4), torch.randn(4, 8)], {}
    )
    (pick,) = picks(graph)
    assert pick == Pick(1, next(n.name for n in graph.nodes if "softmax" in n.op), -1)


def judged(reference, got, x=X, dtype=torch.float32):
    return compare(got, answers(trace(reference, [x.to(dtype)], {}), [x.to(dtype)]), PLAIN)


def test_another_of_several_equals_is_as_right():
    for first in (1, 3):
        judged(lambda x: x.argmax(-1), [torch.tensor([first, 1])])
    judged(lambda x: x.argmax(-1, keepdim=True), [torch.tensor([[3], [1]])])
    for two in ([1, 3], [3, 1]):
        judged(
            lambda x: x.topk(2),
            [torch.tensor([[3.0, 3.0]]), torch.tensor([two])],
            X[:1],
        )
    judged(lambda x: x.argmax(), [torch.tensor(3)], X[:1])


@pytest.mark.parametrize(
    ("reference", "got", "reason"),
    [
        (lambda x: x.argmax(-1), [2], "picks other values"),
        (lambda x: x.argmax(-1), [4], "outside of what it indexes"),
        (lambda x: x.argmax(-1), [-1], "outside of what it indexes"),
        (lambda x: x.topk(2)[1], [[1, 1]], "an index twice"),
        (lambda x: x.topk(2)[1], [[1, 2]], "picks other values"),
        (lambda x: x.argsort(-1), [[0, 2, 1, 1]], "an index twice"),
        (lambda x: x.argsort(-1), [[2, 0, 1, 3]], "picks other values"),
        (lambda x: x.argmax(), 2, "picks other values"),
    ],
)
def test_an_index_of_anything_else_is_wrong(reference, got, reason):
    with pytest.raises(Mismatch, match=reason):
        judged(reference, [torch.tensor(got)], X[:1])


def test_an_index_that_only_rounding_tells_apart_is_right_and_one_beyond_is_not():
    scores = torch.tensor([[1.0, 1.0 + 2**-9, 0.0]])  # one and the same in bfloat16, once halved

    def reference(x):
        return ((x.bfloat16() * 0.5).float() + 1e-9).argmax(-1)

    for either in (0, 1):
        judged(reference, [torch.tensor([either])], scores)
    with pytest.raises(Mismatch, match="picks other"):
        judged(reference, [torch.tensor([2])], scores)


def test_an_index_that_is_cast_to_a_float_is_still_a_whole_number():
    judged(lambda x: x.argmax(-1).float(), [torch.tensor([3.0])], X[:1])
    for between in (3.5, float("nan")):
        with pytest.raises(Mismatch, match="no whole number"):
            judged(lambda x: x.argmax(-1).float(), [torch.tensor([between])], X[:1])


def test_whole_numbers_are_picked_exactly_however_their_difference_wraps():
    eighths = torch.tensor([[28, -100, 3]], dtype=torch.int8)
    judged(lambda x: x.argmax(-1), [torch.tensor([0])], eighths, torch.int8)
    with pytest.raises(Mismatch, match="picks other"):
        judged(lambda x: x.argmax(-1), [torch.tensor([1])], eighths, torch.int8)


def test_a_mask_can_be_sorted():
    mask = torch.tensor([True, False, True])
    judged(lambda x: x.argsort(), [torch.tensor([1, 2, 0])], mask, torch.bool)
    with pytest.raises(Mismatch, match="picks other"):
        judged(lambda x: x.argsort(), [torch.tensor([0, 1, 2])], mask, torch.bool)


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x.argsort(stable=True),
        lambda x: x.sort(stable=True)[1].int().long(),
        lambda x: x.neg().argsort(descending=True, stable=True),
    ],
)
def test_a_stable_order_keeps_equals_as_they_stood(reference):
    ids = torch.tensor([1, 0, 1, 0])
    judged(reference, [torch.tensor([1, 3, 0, 2])], ids, torch.int64)
    with pytest.raises(Mismatch, match="equals in another order"):
        judged(reference, [torch.tensor([3, 1, 0, 2])], ids, torch.int64)
    judged(lambda x: x.argsort(), [torch.tensor([3, 1, 0, 2])], ids, torch.int64)


def test_dtypes_and_shapes_of_indices_are_asked_for_as_ever():
    with pytest.raises(Mismatch, match="int32, not int64"):
        judged(lambda x: x.argmax(-1), [torch.tensor([1, 1], dtype=torch.int32)])
    with pytest.raises(Mismatch, match="wrong shape"):
        judged(lambda x: x.argmax(-1), [torch.tensor([1])])
