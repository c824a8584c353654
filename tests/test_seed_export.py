"""Every seed can be exported, its gradient with it, and torch takes it for an op of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import seeds
from cli.main import app
from kernel_library.unit import discover

UNITS = {unit.op.name: unit for unit in discover(seeds)}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[tuple[str, str], str]:
    """What an installed package of all seeds says of itself: a status by op and check."""
    room: Path = tmp_path_factory.mktemp("seeds")
    environment = {**os.environ, "KERNELWRIGHT_HOME": str(room / "home")}
    command = ["export", *UNITS, "--package", "all_seeds", "--out", str(room / "out")]
    made = CliRunner().invoke(app, command, env=environment)
    assert made.exit_code == 0, made.output
    (wheel,) = (room / "out").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(room / "site"), str(wheel)], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "all_seeds", "verify", "--json"],
        env=environment | {"PYTHONPATH": str(room / "site")}, cwd=room,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return {(f["op"], f["what"]): f["status"] for f in json.loads(done.stdout)["findings"]}


@pytest.mark.parametrize("name", UNITS)
def test_torch_takes_a_seed_for_an_op(found, name):
    assert found[name, "opcheck"] == "ok"
    assert found[name, "correct"] == "ok"


@pytest.mark.parametrize("name", [name for name, unit in UNITS.items() if unit.backward])
def test_a_seed_with_a_gradient_is_differentiable(found, name):
    assert found[name, "gradient"] == "ok"
