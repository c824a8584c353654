"""The scoreboard shows its losses, and calls a tie a tie."""

import pytest

from evaluator.play.statistics import outcome
from kernel_library.device import Ceilings, Device, Target
from kernel_library.spec import Workload
from kernel_library.verdict import Measurement, Passed, Record, Rejected, Versus
from worker.scoreboard import Entry, markdown, result

CEILINGS = Ceilings(4000.0, {"bfloat16": 700.0}, 60.0, 1.0)
DEVICE = Device(
    "NVIDIA H200", Target(), 132, 60 << 20, CEILINGS, CEILINGS,
    versions={"driver": "580", "torch": "2.11.0"}, noise={4.0: 0.01, 40.0: 0.001},
)  # fmt: skip
AT = Workload({"N": 8}, {"T": "bfloat16"}, "measure")
RECORD = Record("replayed", "namespaces", device="NVIDIA H200")


def timed(us: float, **baselines: float) -> Measurement:
    ratios = {name: theirs / us for name, theirs in baselines.items()}
    versus = {name: Versus(r, r, outcome(r, r, 0.01)) for name, r in ratios.items()}
    return Measurement(AT, us, us, us, 30.0, "memory", baselines, versus)


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (timed(40, eager=80, liger=41), "win"),
        (timed(40, eager=80, liger=40.3), "tie"),
        (timed(40, eager=80, liger=39), "loss"),
        (timed(40), "alone"),
    ],
    ids=["win", "tie", "loss", "alone"],
)
def test_a_time_stands_to_the_best_baseline_alone(measured, told):
    assert result(measured) == told


def test_losses_and_rejections_are_on_the_page_with_the_machine():
    good = Entry("softmax", Passed((), RECORD, (timed(60, liger=30), timed(40, eager=80))))
    bad = Entry("rope", Rejected("correct", "output 'q' is wrong", RECORD))
    page = markdown([good, bad], DEVICE, "2026-11-29")
    assert "NVIDIA H200, 2026-11-29, driver 580, torch 2.11.0" in page
    assert "beyond 3.0% at 4 µs, 1.0% at 40 µs" in page
    assert "1 win, 1 loss" in page and "**loss**" in page and "worst 50%, softmax" in page
    assert "**rope was rejected** at correct" in page
