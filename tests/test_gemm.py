"""gemm is right in every layout, whether K is cut, inputs are copied or read as they are."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.inputs import Case
from evaluator.labs import DEFAULT_ARCH
from evaluator.record import record
from kernel_library.spec import Workload
from kernel_library.tape import Call
from kernel_library.unit import space_names
from seeds.gemm import UNIT

ROOT = Path(__file__).parent.parent
SOURCE = (ROOT / "seeds" / "gemm.py").read_text()
#: Each layout's largest error over its largest value, infinite where bits differ from run to run.
#: Gaps hold NaN.
SCRIPT = """
import json, sys
import torch
from gemm import gemm, reference

def gapped(t):
    wide = torch.full((t.shape[0], t.shape[1] + 3), float("nan"), dtype=t.dtype)
    wide[:, : t.shape[1]] = t
    return wide[:, : t.shape[1]]

layouts = {
    "plain": lambda t: t, "turned": lambda t: t.t().contiguous().t(),
    "gapped": gapped, "turned and gapped": lambda t: gapped(t.t()).t(),
    "every other": lambda t: torch.stack([t, t * float("nan")], dim=-1)[..., 0],
    "one row": lambda t: t[:1].expand(t.shape), "one column": lambda t: t[:, :1].expand(t.shape),
}
(M, N, K), knobs = json.loads(sys.argv[1])
knobs |= {"BLOCK_N": 64, "GROUP": 4, "PROGRAMS": 1, "num_warps": 4, "num_stages": 3}
random, found = torch.Generator().manual_seed(1), {}
a, b, bias = (torch.randn(s, generator=random).half() for s in ((M, K), (K, N), (N,)))
for name, laid in layouts.items():
    c, again = (gemm(laid(a), laid(b), bias, act="gelu", **knobs) for _ in range(2))
    true = reference(laid(a).double(), laid(b).double(), bias.double(), act="gelu")
    error = float((c.double() - true).abs().max() / true.abs().max())
    found[name] = error if torch.equal(c, again) else float("inf")
print(json.dumps(found))
"""
#: A few roundings of float16.
BOUND = 2e-3
#: Sizes and knobs: pieces of K that are even, uneven, and more than K has; then copies of a and b.
CASES = [
    ((5, 72, 128), {"SPLIT": 2, "BLOCK_M": 16, "BLOCK_K": 64, "PAD": 0}),
    ((33, 65, 200), {"SPLIT": 4, "BLOCK_M": 64, "BLOCK_K": 32, "PAD": 0}),
    ((2, 70, 17), {"SPLIT": 8, "BLOCK_M": 64, "BLOCK_K": 32, "PAD": 1}),
    ((65, 72, 136), {"SPLIT": 8, "BLOCK_M": 64, "BLOCK_K": 64, "PAD": 1}),
    ((70, 129, 77), {"SPLIT": 1, "BLOCK_M": 128, "BLOCK_K": 32, "PAD": 1}),
    ((3, 40, 0), {"SPLIT": 2, "BLOCK_M": 64, "BLOCK_K": 32, "PAD": 1}),
]


def errors(source: str, room: Path, sizes: tuple[int, ...], knobs: dict) -> dict[str, float]:
    (room / "gemm.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([sizes, knobs])], cwd=room,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{room}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(("sizes", "knobs"), CASES)
def test_every_way_is_right_in_every_layout(tmp_path, sizes, knobs):
    found = errors(SOURCE, tmp_path, sizes, knobs)
    assert len(found) == 7
    assert all(error < BOUND for error in found.values()), found


@pytest.mark.parametrize(
    ("case", "right", "wrong"),
    [
        (1, "tl.static_range(SPLIT)", "tl.static_range(SPLIT - 1)"),
        (1, "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT)", "tl.cdiv(K, BLOCK_K) // SPLIT"),
        (4, "[:, : t.shape[1]].copy_(t)", ".fill_(0.0)[:, : t.shape[1]]"),
    ],
)
def test_a_piece_or_a_copy_left_out_shows(tmp_path, case, right, wrong):
    assert right in SOURCE
    found = errors(SOURCE.replace(right, wrong), tmp_path, *CASES[case])
    assert max(found.values()) > BOUND


def launched(zygote, **dims: int) -> tuple[list[str], int]:
    """The kernels that the untuned setting launches at a size, and how many copies it makes."""
    at = Workload(dims, {"T": "bfloat16"})
    config = UNIT.space.default(space_names(UNIT.op, at))
    candidate = replace(UNIT.candidate(), config=config, tuned=())
    (recording,) = record(UNIT.spec, candidate, [(at, Case(0))], zygote, DEFAULT_ARCH)
    copies = [step for step in recording.tape.steps if isinstance(step, Call)]
    return sorted(kernel.name for kernel in recording.tape.kernels), len(copies)


def test_few_rows_are_joined_and_odd_strides_copied_for_tma(zygote):
    assert launched(zygote, M=16, N=2048, K=2048) == (["_gemm_tma", "_join"], 0)
    assert launched(zygote, M=100, N=200, K=300) == (["_gemm_tma"], 1)
    assert launched(zygote, M=100, N=201, K=301) == (["_gemm_tma"], 2)
    assert launched(zygote, M=100, N=201, K=31) == (["_gemm_pointers"], 0)
