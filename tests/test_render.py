"""Verdicts as a terminal shows them: a loss is seen, a tie is not sold as a win."""

import pytest

from cli.render import beside, times
from kernel_library.spec import Workload
from kernel_library.verdict import Measurement, Versus

AT = Workload({"N": 8}, {"T": "bfloat16"}, "measure")


def measured(us: float, eager: float, versus: Versus) -> Measurement:
    return Measurement(AT, us, us, us, 30.0, "memory", {"eager": eager}, {"eager": versus})


@pytest.mark.parametrize(
    ("eager", "versus", "told"),
    [
        (80.0, Versus(1.9, 2.1, "win"), "80.0 (2.00x)"),
        (40.1, Versus(0.99, 1.02, "tie"), "40.1 (1.00x) tie"),
        (20.0, Versus(0.49, 0.51, "loss"), "20.0 (0.50x) loss"),
    ],
)
def test_a_baseline_is_shown_with_its_outcome(eager, versus, told):
    shown = beside(measured(40.0, eager, versus), "eager")
    assert told in shown and ("red" in shown) == (versus.outcome == "loss")


def test_a_workload_without_a_baseline_leaves_its_cell_empty():
    alone = Measurement(AT, 40.0, 39.0, 41.0, 30.0, "memory")
    table = times([measured(40.0, 80.0, Versus(1.9, 2.1, "win")), alone])
    assert list(table.columns[-1].cells) == ["80.0 (2.00x)", ""]
