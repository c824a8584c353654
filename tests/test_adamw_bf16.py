"""AdamW's stochastic rounding moves parameters on average by their updates, and no other does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = (ROOT / "seeds" / "adamw_bf16.py").read_text()
#: p = 1 decays by 1/64 of a bfloat16 step, 2^-8 below 1; then p that are not finite.
SCRIPT = """
import json
import torch
from adamw_bf16 import UNIT, adamw_bf16
from run_unit import cases, run_case

def moved(seed, lists, **config):
    params = [torch.full((n,), value, dtype=torch.bfloat16) for n, value in lists]
    zeros = [torch.zeros(p.shape, dtype=p.dtype) for p in params]
    m, v = ([torch.zeros(p.shape) for p in params] for _ in range(2))
    options = {"lr": 0.5, "weight_decay": 2.0**-13}
    adamw_bf16(params, zeros, m, v, torch.tensor([seed]), **options, **config)
    return [((1 - p.double()) * 256).tolist() for p in params]

small = {"BLOCK": 256, "TENSORS": 1, "num_warps": 1}
large = {"BLOCK": 1024, "TENSORS": 16, "num_warps": 4}
halves = [(4091, 1.0), (4101, 1.0)]
nan, inf = float("nan"), float("inf")
print(json.dumps({
    "moved": moved(1, halves, **large),
    "again": moved(1, halves, **small),
    "cut": [moved(1, [(n, 1.0) for n in (9, 0, 4091, 1, 17)], **{**large, "TENSORS": count})
            for count in (16, 4, 3, 2, 1)],
    "other": moved(2, halves, **large),
    "far": moved(1 + 2**40, halves, **large),
    "special": moved(1, [(3, nan), (3, inf), (3, -inf), (3, 0.0)], **small),
    "laws": [run_case(UNIT, *case, "cpu")["broken_laws"] for case in cases(UNIT)],
}))
"""
LAW = "rounding_is_a_fair_draw"
WRONG = {
    "to nearest": "0x7FFF + ((x.to(tl.uint32, bitcast=True) >> 16) & 1)",
    "towards zero": "0",
    "with 15 of 16 bits": "(draw >> 1)",
    "either way by a coin": "((draw & 1) * 0xFFFF)",
}


def run(source: str, room: Path) -> dict:
    """What a unit of this source does in Triton's interpreter."""
    (room / "adamw_bf16.py").write_text(source)
    path = os.pathsep.join(map(str, (room, ROOT, ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=room, capture_output=True, text=True, timeout=300,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def replaced(old: str, new: str) -> str:
    assert SOURCE.count(old) == 1
    return SOURCE.replace(old, new)


def is_fair(moved: list[list[float]]) -> bool:
    """Whether, of p that are due 1/64 of a step, as many took a whole one, to 5 sigma."""
    each = [steps for one in moved for steps in one]
    expected = len(each) / 64
    return set(each) <= {0.0, 1.0} and abs(sum(each) - expected) < 5 * (expected * 63 / 64) ** 0.5


@pytest.fixture(scope="module")
def right(tmp_path_factory) -> dict:
    return run(SOURCE, tmp_path_factory.mktemp("right"))


def test_a_small_update_moves_parameters_on_average(right):
    assert is_fair(right["moved"])
    assert right["laws"] == [[]] * len(right["laws"])


def test_another_seed_draws_other_bits(right):
    draws = [right["moved"], right["other"], right["far"]]
    assert all(is_fair(draw) for draw in draws)
    assert all(a != b for i, a in enumerate(draws) for b in draws[:i])


def test_the_setting_does_not_change_the_draw(right):
    assert right["again"] == right["moved"]


def test_how_a_list_is_cut_does_not_change_the_draw(right):
    whole, *parts = right["cut"]
    assert [len(tensor) for tensor in whole] == [9, 0, 4091, 1, 17]
    assert is_fair(whole)
    assert parts == [whole] * 4


def test_two_tensors_of_a_list_draw_apart(right):
    first, second = right["moved"]
    assert first != second[: len(first)]


def test_what_is_not_finite_and_zero_stay(right):
    nan, low, high, zero = right["special"]
    assert str([nan, low, high]) == str([[x] * 3 for x in (float("nan"), -1e400, 1e400)])
    assert zero == [256.0] * 3


@pytest.mark.parametrize("rounding", WRONG)
def test_another_rounding_breaks_the_law(rounding: str, tmp_path):
    wrong = run(replaced("+ draw\n", f"+ {WRONG[rounding]}\n"), tmp_path)
    assert wrong["laws"] == [[LAW]] * len(wrong["laws"])
    assert not is_fair(wrong["moved"])


def test_a_kernel_deaf_to_its_seed_is_told(tmp_path):
    deaf = run(replaced("tl.load(seed_ptr)", "tl.load(seed_ptr) * 0"), tmp_path)
    assert deaf["moved"] == deaf["other"]
