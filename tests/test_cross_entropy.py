"""The gradient of a soft cap far from zero, where 1 - tanh^2 is a small difference."""

from dataclasses import replace

from evaluator.inputs import Case
from evaluator.intake import export
from evaluator.interpret.judge import check_interpreted
from kernel_library.spec import Tolerance, Workload
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
