"""Reads a problem: whatever form its author wrote it in, a contract comes out.

Four forms, told apart by what they hold: a KernelBench-style file (`Model`, `get_inputs`), a plain
file (`reference` and example inputs), a unit file (`UNIT`) and a FlashInfer Definition (JSON). The
author's Python runs only in the isolated job; here it is parsed, never run.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from evaluator.errors import ProblemError
from evaluator.intake.asking import ask
from evaluator.intake.contract import contract
from evaluator.intake.flashinfer import read_definition
from evaluator.intake.wire import Ask, Described, ReadUnit
from evaluator.isolate import Isolate
from kernel_library.candidate import Candidate
from kernel_library.spec import DTYPES, OpSpec

MOST_SOURCE = 256 << 10
Form = Literal["model", "plain", "unit"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be made fast, and the kernel that came along, if it was a unit."""

    op: OpSpec
    candidate: Candidate | None = None


def read(path_name: str, source: str, isolate: Isolate, *, extra: str | None = None) -> Problem:
    """The problem in a file. `extra` is the workloads (JSON lines) of a FlashInfer Definition.

    The op carries its graphs at its workloads, unless it came as a unit. Integer inputs are drawn
    within the bounds of the `randint` that made them, or below their largest value + 1; where such
    a bound is a free axis, one more, or a product of two, it follows them. What is sorted,
    distinct, offsets, triangular or symmetric in the example is so in each draw. Raises
    `ProblemError` naming the line or field.
    """
    size = len(source.encode(errors="replace"))
    if size > MOST_SOURCE:
        raise ProblemError(f"has {size} bytes; at most {MOST_SOURCE} are read", path_name)
    if PurePath(path_name).suffix == ".json" or source.lstrip().startswith("{"):
        return Problem(read_definition(source, extra, isolate))
    form = form_of(source)
    reply = ask(isolate, Ask(form, path_name, source))
    match reply:
        case ReadUnit(op=op, candidate=candidate) if form == "unit":
            _check_dtypes(op)
            return Problem(op, candidate)
        case Described() if form != "unit":
            return Problem(contract(op_name(path_name), reply, isolate))
    raise ProblemError("its answer is not what a problem can be", path_name)


def _check_dtypes(op: OpSpec) -> None:
    """Raise `ProblemError` for a dtype that some workload leaves open."""
    named = {f"tensor {name!r}": t.dtype for name, t in (*op.inputs.items(), *op.outputs.items())}
    if op.matmul_flops != "0":
        named["`matmul_dtype`"] = op.matmul_dtype
    for at in op.workloads:
        for where, dtype in named.items():
            if dtype not in DTYPES and dtype not in at.dtypes:
                raise ProblemError(f"is {dtype!r}, a dtype that workload {at} leaves open", where)


def form_of(source: str) -> Form:
    """Which form a Python file has. Raises `ProblemError` for none, and for what is not Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ProblemError(f"not Python: {error.msg}", f"line {error.lineno or 1}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"not Python: {error}", "line 1") from error
    _refuse_autocast(tree)
    names = _defined(tree)
    if "UNIT" in names:
        return "unit"
    if "Model" in names:
        if "get_inputs" not in names:
            raise ProblemError("has `Model` but no `get_inputs()` that gives its example inputs")
        return "model"
    if "reference" in names:
        if not names & {"get_inputs", "INPUTS"}:
            raise ProblemError("has `reference` but no example inputs: add `get_inputs()`")
        return "plain"
    raise ProblemError(
        "no problem here: define a class `Model` or a function `reference`, and `get_inputs()`"
    )


def _refuse_autocast(tree: ast.Module) -> None:
    """References are exported without a GPU, where autocast turns itself off and only warns."""
    for node in ast.walk(tree):
        if "autocast" in (getattr(node, "attr", ""), getattr(node, "id", "")):
            told = (
                "autocast has no effect where a graph is made: write its casts out, as x.bfloat16()"
            )
            raise ProblemError(told, f"line {getattr(node, 'lineno', 1)}")


def _defined(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names |= {alias.asname or alias.name for alias in imported}
    return names


def op_name(path_name: str) -> str:
    """An op's name from its file's: `"level1/36_RMSNorm_.py"` is `"rmsnorm"`."""
    stem = re.sub(r"[^a-z0-9]+", "_", PurePath(path_name).stem.lower()).strip("_")
    return re.sub(r"^\d+_", "", stem) or "problem"
