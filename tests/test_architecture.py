"""Imports point one way: cli -> api -> worker -> {agent, evaluator, seeds} -> kernel_library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "kernel_library": set(),
    "seeds": {"kernel_library"},
    "evaluator": {"kernel_library"},
    "agent": {"kernel_library"},
    "worker": {"kernel_library", "evaluator", "agent", "seeds"},
    "api": {"kernel_library", "worker"},
    "cli": {"kernel_library", "evaluator", "agent", "seeds", "worker", "api"},
}
LONGEST_FILE = 300


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names & MAY_IMPORT.keys()


@pytest.mark.parametrize(("folder", "allowed"), MAY_IMPORT.items())
def test_imports_point_one_way(folder: str, allowed: set[str]):
    for path in (ROOT / folder).rglob("*.py"):
        assert imported(path) <= allowed | {folder}, path


@pytest.mark.parametrize("folder", ["kernel_library", "agent", "api"])
def test_light_folders_load_without_torch(folder: str):
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / folder).rglob("*.py")
        if not {"migrations", "templates"} & set(path.parts)
    ]
    check = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_files_hold_one_idea(folder: str):
    for path in (ROOT / folder).rglob("*.py"):
        assert len(path.read_text().splitlines()) <= LONGEST_FILE, path
