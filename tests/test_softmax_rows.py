"""Rows of odd width: no row of softmax or masked_softmax begins at a boundary of 16 bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Rows plain, with a head and a tail of -inf, with nothing else, all -inf, with a NaN; N of which a
#: row has no whole vector to spare, a whole one, and one element more than all threads' vectors.
ODD = """
import importlib, json, sys, torch
from unittest import mock
module = importlib.import_module("seeds.%s")
kernel, INF, worst = getattr(module, "%s"), float("inf"), 0.0
setting = dict(ROWS=1, PROGRAMS=0, STAGES=1, SWEEP=0, SPLIT=0, STREAM=0, LOAD=1, num_warps=1)
half, bfloat, single = torch.float16, torch.bfloat16, torch.float32
for N, dtype, scale in [
    (9, bfloat, 1.0), (15, half, -0.5), (257, bfloat, 2.0),
    (515, half, 1.0), (5, single, -1.0), (387, single, 1.0),
]:
    for expanded in (False, True):
        drawn = torch.randn(2, 9, N, generator=torch.Generator().manual_seed(0))
        x, mask = drawn.to(dtype)
        x[1, :3], x[1, -3:], x[2, 4:], x[3, :4], x[4] = 5, 5, -INF, -INF, -INF
        x[5, N - 1], x[6, 0], x[7, 0] = float("nan"), 90.0, -INF
        mask[8] = -INF
        inputs = [x, mask[:1].expand(9, N) if expanded else mask][:len(module.OP.inputs)]
        room = torch.full((9 * N + 2,), 7.0, dtype=dtype)
        with mock.patch("torch.empty", lambda *a, **k: room[1:-1].view(9, N)):
            y = kernel(*inputs, scale=scale, **setting)
        assert room[0] == room[-1] == 7.0
        want = module.reference(*(t.float() for t in inputs), scale=scale)
        assert torch.equal(y.isnan(), want.isnan()), (N, dtype, scale)
        worst = max(worst, (y.float() - want).nan_to_num().abs().max().item())
print(json.dumps(worst))
"""


@pytest.mark.parametrize("name", ["softmax", "masked_softmax"])
def test_rows_that_begin_anywhere_are_right_to_their_ends(name: str):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ODD % (name, name)], cwd=ROOT, text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) < 4e-3
