"""The scoreboard shows its losses, and calls a tie a tie."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from evaluator.errors import LabError
from evaluator.play.statistics import outcome
from kernel_library.candidate import Candidate
from kernel_library.device import Ceilings, Device, Target
from kernel_library.spec import OpSpec, Tensor, Workload
from kernel_library.verdict import Measurement, Passed, Record, Rejected, Versus
from worker.retrieval import Known
from worker.scoreboard import TRIED, Board, Entry, add, judged, markdown, result

CEILINGS = Ceilings(4000.0, {"bfloat16": 700.0}, 60.0, 1.0)
DEVICE = Device(
    "NVIDIA H200", Target(), 132, 60 << 20, CEILINGS, CEILINGS,
    versions={"driver": "580", "torch": "2.11.0"}, noise={4.0: 0.01, 40.0: 0.001},
)  # fmt: skip
AT = Workload({"N": 8}, {"T": "bfloat16"}, "measure")
OP = OpSpec("softmax", {"x": Tensor("N")}, {"y": Tensor("N")}, (AT,))
RECORD = Record("replayed", "namespaces", device="NVIDIA H200")


def timed(us: float, **baselines: float) -> Measurement:
    ratios = {name: theirs / us for name, theirs in baselines.items()}
    versus = {name: Versus(r, r, outcome(r, r, 0.01), r) for name, r in ratios.items()}
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


GOOD = Entry(
    "softmax", Passed((), RECORD, (timed(60, liger=30), timed(40, eager=80))), "2026-11-28"
)
BAD = Entry("rope", Rejected("correct", "output 'q' is wrong", RECORD), "2026-11-29")


def test_losses_and_rejections_are_on_the_page_with_the_machine(tmp_path: Path):
    board = Board(DEVICE.name, DEVICE.software).having(GOOD).having(BAD)
    page = markdown(board, DEVICE)
    assert "NVIDIA H200, 2026-11-28 to 2026-11-29, driver 580, torch 2.11.0." in page
    assert "beyond 3.0% at 4 µs, 1.0% at 40 µs" in page
    assert "1 win, 1 loss" in page and "worst 50%, softmax" in page
    assert "1.00x the best baseline of each row; worst 0.50x" in page
    assert "| softmax | N8-bfloat16 | 60.0 | 50% (memory) | 30.0 |  | 0.50x liger" in page
    assert "**loss**" in page and "| 2.00x eager (2.000 to 2.000), win |" in page
    assert "**rope was rejected** at correct" in page


def test_both_passes_are_told_as_sums_of_their_rows():
    ahead = Entry("swiglu", Passed((), RECORD, (timed(40, eager=80, compile=50),)), "2026-11-29")
    back = Entry("swiglu_backward", Passed((), RECORD, (timed(60, compile=75),)), "2026-11-29")
    page = markdown(Board("NVIDIA H200", {}, (ahead, back)), DEVICE)
    assert "| swiglu | N8-bfloat16 | 100.0 | 60% | 1.25x compile |" in page
    assert "together" not in markdown(Board("NVIDIA H200", {}, (ahead,)), DEVICE)


def test_rows_whose_speed_up_is_not_the_contests_own_are_counted():
    (row,) = GOOD.verdict.measured[:1]
    older = replace(row, versus={"liger": replace(row.versus["liger"], times=None)})
    entry = replace(GOOD, verdict=replace(GOOD.verdict, measured=(older, row)))
    assert "In 1 rows, of before 2026-12" in markdown(Board("NVIDIA H200", {}, (entry,)), DEVICE)
    assert "of before" not in markdown(Board("NVIDIA H200", {}, (GOOD,)), DEVICE)


def test_a_board_without_entries_says_so():
    assert "no entries yet" in markdown(Board("NVIDIA H200", {}), DEVICE)


def test_what_a_person_wrote_below_stays(tmp_path: Path):
    page = tmp_path / "board.md"
    add(GOOD, DEVICE, page)
    page.write_text(page.read_text() + f"{TRIED}\n\nNothing helped.\n")
    add(BAD, DEVICE, page)
    assert "**rope was rejected**" in page.read_text()
    assert page.read_text().endswith(f"{TRIED}\n\nNothing helped.\n")
    assert page.read_text().count(TRIED) == 1


def test_entries_stay_until_they_are_made_again(tmp_path: Path):
    page = tmp_path / "docs" / "board.md"
    add(GOOD, DEVICE, page)
    add(BAD, DEVICE, page)
    again = replace(GOOD, verdict=Passed((), RECORD, (timed(20, liger=30),)))
    known = replace(DEVICE, versions=DEVICE.versions | {"bandwidth": "4"})
    board = add(again, known, page)
    assert board.entries == (BAD, again)
    assert page.read_text() == markdown(board, DEVICE, "board.svg")


def test_two_may_fill_one_page_at_the_same_time(tmp_path: Path):
    page, names = tmp_path / "board.md", [f"op{n}" for n in range(24)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: add(replace(GOOD, name=name), DEVICE, page), names))
    board = add(BAD, DEVICE, page)
    assert [entry.name for entry in board.entries] == sorted([*names, "rope"])


def test_entries_of_another_machine_are_no_company(tmp_path: Path):
    page = tmp_path / "board.md"
    data = page.with_suffix(".json")
    for other in (
        replace(DEVICE, name="NVIDIA H100"),
        replace(DEVICE, versions=DEVICE.versions | {"torch": "2.13.0"}),
    ):
        assert add(GOOD, other, page).entries == (GOOD,)
        assert add(BAD, DEVICE, page).entries == (BAD,)
    data.write_text("{}")
    assert add(GOOD, DEVICE, page).entries == (GOOD,)


def test_kernels_are_judged_side_by_side_and_a_failure_of_ours_costs_no_other():
    both = threading.Barrier(2, timeout=20)
    known = [Known(OP, Candidate(name, "", name)) for name in ("softmax", "rope")]

    def judge(op, candidate):
        both.wait()
        if candidate.entry == "rope":
            raise LabError("the player was lost")
        return GOOD.verdict

    told = [each for _, each in judged(known, judge, 2)]
    assert GOOD.verdict in told and [str(each) for each in told if isinstance(each, LabError)] == [
        "the player was lost"
    ]


def test_a_picture_lies_beside_the_page_with_a_dot_for_each_race(tmp_path: Path):
    page = tmp_path / "board.md"
    add(GOOD, DEVICE, page)
    alone = Entry("gemm", Passed((), RECORD, (timed(40),)), "2026-11-29")
    add(alone, DEVICE, page)
    root = ElementTree.parse(tmp_path / "board.svg").getroot()
    dots = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert [dot.get("class") for dot in dots] == ["loss", "win"]
    # 0.5x, 1x and 2x lie evenly, and a loss is left of the middle
    loss, win = (float(dot.get("cx")) for dot in dots)
    even = root.find(".//*[@class='even']")
    assert loss < float(even.get("x1")) < win and loss + win == 2 * float(even.get("x1"))
    assert "](board.svg)" in page.read_text()


def test_without_a_race_there_is_no_picture(tmp_path: Path):
    page = tmp_path / "board.md"
    add(BAD, DEVICE, page)
    assert not page.with_suffix(".svg").exists() and ".svg" not in page.read_text()
