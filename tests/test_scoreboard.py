"""The scoreboard shows its losses, and calls a tie a tie."""

import pytest

from kernel_library.device import Ceilings, Device, Target
from kernel_library.spec import Workload
from kernel_library.verdict import Measurement, Passed, Record, Rejected
from worker.scoreboard import Entry, markdown, result, tie_margin

CEILINGS = Ceilings(4000.0, {"bfloat16": 700.0}, 60.0, 1.0)
DEVICE = Device(
    "NVIDIA H200", Target(), 132, 60 << 20, CEILINGS, CEILINGS,
    versions={"driver": "580", "torch": "2.11.0"}, noise={"40us": 0.001},
)  # fmt: skip
AT = Workload({"N": 8}, {"T": "bfloat16"}, "measure")
RECORD = Record("replayed", "namespaces", device="NVIDIA H200")


def timed(us: float, **baselines: float) -> Measurement:
    return Measurement(AT, us, us, us, 30.0, "memory", baselines)


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
    assert result(measured, 0.01) == told


def test_a_noisy_machine_needs_a_wider_margin():
    noisy = Device("A", Target(), 1, 1, CEILINGS, CEILINGS, noise={"40us": 0.02})
    assert tie_margin(noisy) == pytest.approx(0.06) and tie_margin(DEVICE) == 0.01


def test_losses_and_rejections_are_on_the_page_with_the_machine():
    good = Entry("softmax", Passed((), RECORD, (timed(60, liger=30), timed(40, eager=80))))
    bad = Entry("rope", Rejected("correct", "output 'q' is wrong", RECORD))
    page = markdown([good, bad], DEVICE, "2026-11-29")
    assert "NVIDIA H200, 2026-11-29, driver 580, torch 2.11.0" in page
    assert "1 win, 1 loss" in page and "**loss**" in page and "worst 50%, softmax" in page
    assert "**rope was rejected** at correct" in page
