"""LayerNorm's one round of sums is as right as two, whatever value of a row it is about."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = (ROOT / "seeds" / "layer_norm.py").read_text()
#: The largest error of y over the largest |y|, for rows whose first value is as others or not.
SCRIPT = """
import json
import torch
from layer_norm import layer_norm, reference

rows = torch.randn(1, 2048, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
first = torch.zeros_like(rows)
first[:, 0] = 1
kinds = {
    "plain": rows, "far from zero": rows + 1000, "an outlier": rows + 60000 * first,
    "nothing else": 3.1 * first, "constant": torch.ones_like(rows), "small": rows * 1e-3 + first,
}

def error(x, rounds):
    ones = torch.ones(2048, dtype=torch.float16)
    knobs = dict(ROWS=1, PROGRAMS=0, STAGES=1, SWEEP=0, STREAM=0, LOAD=0, num_warps=4)
    y = layer_norm(x, ones, 0 * ones, **knobs, ROUNDS=rounds).double()
    true = reference(x.double(), ones.double(), 0 * ones.double(), eps=1e-5)
    return float((y - true).abs().max() / true.abs().max().clamp_min(1e-3))

print(json.dumps({name: [error(x.half(), 1), error(x.half(), 2)] for name, x in kinds.items()}))
"""
SECOND_LOOK = "if tl.max(mean * mean - 16.0 * variance) > 0.0:"
#: A few roundings of float16.
BOUND = 1e-3


def errors(source: str, room: Path) -> dict[str, list[float]]:
    (room / "layer_norm.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=room, capture_output=True, text=True, timeout=300,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{room}{os.pathsep}{ROOT}"},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def right(tmp_path_factory) -> dict[str, list[float]]:
    return errors(SOURCE, tmp_path_factory.mktemp("right"))


def test_one_round_is_as_right_as_two(right):
    assert all(one < BOUND and one <= two + BOUND / 4 for one, two in right.values()), right


def test_without_a_second_look_an_outlier_in_front_shows(right, tmp_path):
    assert SOURCE.count(SECOND_LOOK) == 1
    wrong = errors(SOURCE.replace(SECOND_LOOK, "if BLOCK == 0:"), tmp_path)
    assert wrong["nothing else"][0] > BOUND
    assert wrong["plain"] == right["plain"]
