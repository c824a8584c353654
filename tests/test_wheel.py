"""Kernelwright's own wheel holds everything that it runs on."""

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent
FOLDERS = ["agent", "api", "cli", "evaluator", "kernel_library", "seeds", "worker"]


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """The names in the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def test_the_wheel_holds_every_file_of_every_folder(held):
    kept = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert kept - held == set()


def test_the_wheel_holds_what_is_no_python(held):
    for name in (
        "api/templates/base.html",
        "api/static/style.css",
        "kernel_library/store/migrations/env.py",
        "kernel_library/export/templates/verify.py",
        "seeds/tuned/softmax.json",
        "kernelwright-0.1.0.dist-info/entry_points.txt",
        "kernelwright-0.1.0.dist-info/licenses/LICENSE",
    ):
        assert name in held
    assert not [name for name in held if name.startswith(("tests", "examples", "docs"))]
