"""A problem on which doing nothing would pass is refused, and says which nothing."""

from dataclasses import replace

import pytest

import seeds
from evaluator.admission import NULLS, admit
from evaluator.errors import LabError, ProblemError
from evaluator.intake import export
from evaluator.isolate import run_here
from kernel_library.recipe import Index
from kernel_library.spec import OpSpec, Reference, Tensor, Tolerance, grid
from kernel_library.unit import discover

SIZES = {"check": [(4, 40), (1, 1)]}


def problem(body: str, inputs=None, outputs=None, dtype="float32", **more) -> OpSpec:
    op = OpSpec(
        "problem",
        inputs or {"x": Tensor("M N")},
        outputs or {"y": Tensor("M N")},
        grid("M N", SIZES, (dtype,)),
        reference=Reference(f"import torch\n\ndef reference(x):\n    return {body}\n"),
        **more,
    )
    return export(op, op.workloads, run_here)


def test_an_ordinary_problem_is_admitted_and_every_null_answer_was_tried():
    assert set(admit(problem("torch.softmax(x, -1)"))) == set(NULLS)


def test_where_the_reference_raises_it_is_told_what_was_drawn():
    def picking(below: str) -> OpSpec:
        op = OpSpec(
            "problem",
            {"x": Tensor("M N"), "at": Tensor("M 1", "int64", Index(below))},
            {"y": Tensor("M 1")},
            grid("M N", SIZES, ("float32",)),
            reference=Reference("def reference(x, at):\n    return x.gather(1, at)\n"),
        )
        return export(op, op.workloads, run_here)

    assert admit(picking("N"))
    with pytest.raises(ProblemError) as raised:
        admit(picking("N + 99"))
    drawn = "drawn at M4-N40-float32: x as Normal(), at as Index(below='N + 99');"
    assert drawn in str(raised.value)


def test_outputs_far_below_one_do_not_let_zeros_pass():
    assert "zeros" in admit(problem("torch.softmax(x, -1) * 1e-6"))


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ("torch.zeros_like(x)", "zeros"),
        ("torch.ones_like(x)", "ones"),
        ("x.clone()", "an input, returned"),
        ("torch.arange(x.shape[1]).expand(x.shape).to(x.dtype)", "the answer to other inputs"),
    ],
)
def test_a_problem_that_a_null_answer_solves_is_refused(body, passes):
    with pytest.raises(ProblemError, match=passes):
        admit(problem(body))


def test_an_answer_that_a_lower_precision_holds_exactly_is_no_null_answer():
    tried = admit(problem("torch.sign(x) * 2"))
    assert "zeros" in tried and "an answer in a lower precision" not in tried


def test_an_output_is_no_finer_than_what_the_reference_rounds_to_on_the_way():
    rounded = "torch.softmax((x + 0.1).bfloat16(), -1, dtype=torch.float32)"
    assert "an answer in a lower precision" in admit(problem(rounded))
    with pytest.raises(ProblemError, match="lower precision would pass"):
        admit(problem("torch.round(x).bfloat16().float() + 1e-9 * x"))


def test_a_tolerance_that_admits_anything_is_refused():
    with pytest.raises(ProblemError, match="would pass"):
        admit(problem("torch.softmax(x, -1)", tolerance=Tolerance(loosen=1e6)))


def test_a_reference_that_torch_itself_cannot_compute_is_refused():
    with pytest.raises(ProblemError, match="torch's own answer fails"):
        admit(problem("(x + 1e6) * 60000.0 / 60000.0 - 1e6", dtype="float16"))


def test_whole_numbers_are_compared_exactly():
    tried = admit(
        problem(
            "x.flip(-1) + 1",
            {"x": Tensor("M N", "int64", Index("N"))},
            {"y": Tensor("M N", "int64")},
        )
    )
    assert {"zeros", "ones", "an input, returned"} <= set(tried)


def test_a_problem_without_a_small_workload_is_admitted_by_its_smallest():
    op = problem("torch.zeros_like(x)")
    large = replace(op, workloads=grid("M N", {"check": [(520, 520), (600, 600)]}, ("float32",)))
    with pytest.raises(ProblemError, match="zeros would pass"):
        admit(export(large, large.workloads, run_here))
    with pytest.raises(LabError, match="not been exported"):
        admit(large)


def test_an_output_that_nothing_can_fail_is_found_behind_one_that_something_can():
    op = problem(
        "torch.softmax(x, -1), (x > 0).to(torch.int8)",
        outputs={"y": Tensor("M N"), "flag": Tensor("M N", "int8")},
        tolerance=Tolerance(loosen=2.0),
    )
    with pytest.raises(ProblemError, match="output 1 may hold anything"):
        admit(op)


@pytest.mark.parametrize("unit", list(discover(seeds)), ids=lambda unit: unit.op.name)
def test_every_seeds_problem_is_admitted(unit):
    small = [at for at in unit.op.workloads if at.role == "check"][:6]
    assert "zeros" in admit(export(unit.spec, small, run_here))


def test_an_output_whose_columns_lie_in_a_row_has_a_last_column_too():
    tried = admit(problem("x.exp().T.contiguous().T"))
    assert "an answer without its last column" in tried


def test_a_last_column_near_zero_on_one_draw_refuses_no_problem(monkeypatch):
    """A sigmoid's gate is 0.1 below its lowest: some draws of one row end where that is crossed."""
    one_row = grid("M N", {"check": [(1, 64)]}, ("float16",))
    op = replace(problem("x * torch.sigmoid(1.7 * x) + 0.1"), workloads=one_row)
    op = export(op, one_row, run_here)
    for first in range(11, 400):
        monkeypatch.setattr("evaluator.admission.DRAWS", [first])
        try:
            admit(op)
        except ProblemError as error:
            assert "without its last column would pass" in str(error)
            break
    else:
        pytest.fail("no draw was near enough to zero")
    monkeypatch.setattr("evaluator.admission.DRAWS", range(first, first + 4))
    assert "an answer without its last column" in admit(op)
