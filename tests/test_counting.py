"""Work is counted from the graph, and becomes a formula only if that formula is exact."""

from fractions import Fraction

import pytest
import torch

from evaluator.counting import count, fit, tabulate
from evaluator.graphs import trace
from kernel_library.formula import FormulaError, evaluate

F = torch.nn.functional


def counted(reference, *inputs: torch.Tensor):
    return count(trace(reference, list(inputs), {}), inputs)


def test_a_product_counts_two_flops_a_multiply_add():
    a, b = torch.empty(8, 16, dtype=torch.bfloat16), torch.empty(16, 4, dtype=torch.bfloat16)
    cost = counted(lambda a, b: a @ b, a, b).cost
    assert cost.matmul_flops == 2 * 8 * 16 * 4
    assert cost.matmul_dtype == "bfloat16"
    assert cost.bytes == 2 * (8 * 16 + 16 * 4 + 8 * 4)


def test_a_linear_layer_is_a_product_and_its_bias_is_read_once():
    cost = counted(F.linear, torch.empty(2, 3, 8), torch.empty(5, 8), torch.empty(5)).cost
    assert cost.matmul_flops == 2 * 6 * 8 * 5
    assert cost.bytes == 4 * (48 + 40 + 5 + 30)


def test_pointwise_and_reduction_work_is_for_vector_units():
    cost = counted(lambda x: (x.exp() + 1).sum(-1), torch.empty(3, 8)).cost
    assert (cost.flops, cost.matmul_flops) == (24 * (4 + 1 + 1), 0)


@pytest.mark.parametrize(("causal", "pairs"), [(False, 7 * 7), (True, 7 * 8 // 2)])
def test_attention_counts_the_pairs_that_its_mask_lets_meet(causal, pairs):
    q = torch.empty(2, 3, 7, 16)
    cost = counted(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=causal), q).cost
    assert cost.matmul_flops == 4 * 6 * 16 * pairs
    assert cost.flops == 8 * 6 * pairs


def test_grouped_queries_multiply_by_their_own_heads():
    q, k = torch.empty(1, 8, 5, 16), torch.empty(1, 2, 5, 16)
    cost = counted(lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), q, k).cost
    assert cost.matmul_flops == 4 * 8 * 25 * 16


@pytest.mark.parametrize(("groups", "product"), [(1, True), (32, False), (4, False), (2, True)])
def test_a_convolution_by_narrow_groups_is_for_vector_units(groups, product):
    x, w = torch.empty(2, 32, 9, 9), torch.empty(32, 32 // groups, 3, 3)
    cost = counted(lambda x, w: F.conv2d(x, w, padding=1, groups=groups), x, w).cost
    flops = 2 * 2 * 81 * 9 * 32 * 32 // groups
    assert (cost.matmul_flops, cost.flops) == ((flops, 0) if product else (0, flops))


def test_an_unused_input_is_not_read():
    assert counted(lambda x, y: x + 1, torch.empty(4), torch.empty(100)).cost.bytes == 2 * 16


def test_of_a_table_only_the_rows_that_are_looked_up_are_read():
    ids, table = torch.zeros(3, dtype=torch.int64), torch.empty(1000, 8)
    cost = counted(lambda ids, table: F.embedding(ids, table), ids, table).cost
    assert cost.bytes == 3 * 8 + 2 * 3 * 8 * 4


def test_an_expanded_output_is_written_once():
    assert counted(lambda x: (x + 1).expand(100, 4), torch.empty(4)).cost.bytes == 2 * 16


def test_counts_at_a_few_sizes_become_a_formula():
    def attend(q):
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    points = []
    for b, s in ((1, 5), (2, 7), (3, 11)):
        points.append(({"B": b, "S": s}, counted(attend, torch.empty(b, 4, s, 16)).matmul_flops))
    formula = fit(points)
    assert formula == "128 * B * S * S + 128 * B * S"
    assert evaluate(formula, {"B": 2, "S": 64}) == 4 * 2 * 4 * 16 * 64 * 65 // 2


def test_what_is_no_product_of_axes_has_no_formula_but_a_table():
    points = [({"N": n}, counted(lambda x: x[2:].exp(), torch.empty(n)).flops) for n in (5, 9, 17)]
    assert fit(points) is None
    table = tabulate(points)
    assert [evaluate(table, {"N": n}) for n in (5, 9, 17, 100)] == [12, 28, 60, 0]


def test_a_formula_is_exact_even_where_its_terms_are_halves():
    points = [({"S": s}, [Fraction(s * s, 2), Fraction(s, 2)]) for s in (3, 8, 13)]
    assert fit(points) == "(S * S + S) // 2"


def test_no_work_is_a_formula_too():
    assert fit([({"N": 3}, ()), ({"N": 4}, ())]) == "0"


@pytest.mark.parametrize("formula", ["'a' * 10000000000", "N * 1000000000", "M ** 9"])
def test_a_formula_computes_with_numbers_alone(formula):
    with pytest.raises(FormulaError):
        evaluate(formula, {"N": (1, 2), "M": 3})
