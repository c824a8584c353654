"""Rows that are cut among programs, which wait for each other."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.inputs import Case
from evaluator.intake import export
from evaluator.interpret.judge import check_interpreted
from evaluator.record import record
from kernel_library.spec import Workload

ROOT = Path(__file__).parent.parent
SPLIT = ("softmax", "masked_softmax")


def test_a_row_is_right_in_whatever_order_its_pieces_start():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "tests" / "run_pieces.py"), *SPLIT],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["unit"] for each in printed] == ["softmax"] * 2 + ["masked_softmax"] * 2
    for each in printed:
        # of a row, the largest value is 0.02 at least
        assert each["error"] < 1e-6, each
        assert each["nan_rows"] == [False, False, True, True, False], each
        assert each["finite_rows"] == [True, True, False, False, True], each
        assert each["same_bits"], each


#: Half of the SMs must do for the pieces of a row: 42 of an RTX 3090, 66 of an H200.
@pytest.mark.parametrize(("arch", "columns", "kernel"), [
    (86, 40 * 8192, "pieces"), (86, 43 * 8192, "long_row"),
    (90, 64 * 8192, "pieces"), (90, 64 * 8192 + 1, "long_row"),
])  # fmt: skip
@pytest.mark.parametrize("name", SPLIT)
def test_a_row_is_swept_where_its_pieces_might_wait_for_ever(zygote, name, arch, columns, kernel):
    unit = importlib.import_module(f"seeds.{name}").UNIT
    at = Workload({"M": 2, "N": columns}, {"T": "bfloat16"})
    (recording,) = record(unit.op, unit.candidate(), [(at, Case(0))], zygote, arch)
    assert [launch.function for launch in recording.tape.launches] == [f"_{name}_{kernel}"]


@pytest.mark.parametrize("name", SPLIT)
def test_the_judges_interpreter_waits_for_no_piece(judge, name):
    """It runs programs one after another, and says so: one SM."""
    unit = importlib.import_module(f"seeds.{name}").UNIT
    at = Workload({"M": 2, "N": 40000}, {"T": "float32"})
    op = export(unit.spec, [at], judge.rooms.recorder)
    check_interpreted(op, unit.candidate(), [(at, Case(0))], judge.rooms.interpreter)
