"""Where a loss takes care: a soft cap far from zero, and infinite gradients from above."""

from dataclasses import replace

import pytest

from evaluator.errors import CandidateError
from evaluator.inputs import Case
from evaluator.intake import export
from evaluator.interpret.judge import check_interpreted
from kernel_library.spec import Tolerance, Workload
from seeds import fused_linear_cross_entropy as linear
from seeds.cross_entropy_backward import UNIT

CAPPED = Workload(
    {"M": 60, "V": 300}, {"T": "float32"}, options={"ignore_index": 0, "softcap": 30.0}
)
#: Logits about 100, in place of 0.
POINTS = [(CAPPED, Case(seed, values="offset", on=1)) for seed in range(3)]
EXACT = "slope = 4.0 * s * s * e\n"


def of_torchs(judge, source: str) -> float:
    """The error of a kernel with this source, as a share of torch's own there."""
    loose = replace(UNIT.spec, tolerance=Tolerance(times_torch=100.0))
    op = export(loose, [CAPPED], judge.rooms.recorder)
    candidate = replace(UNIT.candidate(), source=source, tuned=())
    (checked,) = check_interpreted(op, candidate, POINTS, judge.rooms.interpreter)
    return checked.error / checked.torch_error


def test_a_caps_slope_takes_no_difference_of_what_is_almost_one(judge):
    source = UNIT.candidate().source
    assert source.count(EXACT) == 1
    assert of_torchs(judge, source) < 0.5
    assert of_torchs(judge, source.replace(EXACT, "slope = 4.0 * s * (1.0 - s)\n")) > 1.0


def judged(judge, unit, point, source: str) -> None:
    op = export(unit.spec, [point[0]], judge.rooms.recorder)
    candidate = replace(unit.candidate(), source=source, tuned=())
    check_interpreted(op, candidate, [point], judge.rooms.interpreter)


def test_an_infinite_gradient_from_above_multiplies_last(judge):
    options = {"ignore_index": 0, "label_smoothing": 0.1, "reduction": "none"}
    at = Workload({"M": 60, "V": 40}, {"T": "float32"}, options=options)
    point, source = (at, Case(1, values="infinite")), UNIT.candidate().source
    judged(judge, UNIT, point, source)
    last, early = "smoothing / V - hot\n", "smoothing / V * up - hot * up\n"
    assert source.count(last) == source.count("slope * up\n") == 1
    source = source.replace(last, early).replace("slope * up\n", "slope\n")
    source = source.replace("2.0 * z_loss * lse) - ", "2.0 * z_loss * lse) * up - ")
    with pytest.raises(CandidateError, match="has NaN where the truth has none"):
        judged(judge, UNIT, point, source)


def test_a_capped_label_is_its_tiles_largest_only_where_the_cap_leaves_that_open(judge):
    """Products of thousands: at 100 the cap is not flat yet, and is less sure than it was."""
    at = Workload({"M": 60, "V": 5, "H": 127}, {"T": "float32"}, options={
        "ignore_index": 0, "softcap": 30.0, "reduction": "none",
    })  # fmt: skip
    point, source = (at, Case(20, values="large")), linear.UNIT.candidate().source
    judged(judge, linear.UNIT, point, source)
    within = "(low <= top) & (top <= high)"
    assert source.count(within) == 1
    with pytest.raises(CandidateError, match="'loss' is off"):
        judged(judge, linear.UNIT, point, source.replace(within, "tl.abs(z - top) <= off"))
