"""A unit: one op and one kernel for it, in one file that explains itself.

A file in `seeds/` is a unit, and so is a kernel that the library exports. The contract half is the
docstring, the `OpSpec`, the reference and the laws; the kernel half is what `kernel` needs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_library.candidate import Candidate
from kernel_library.codec import tuned_json
from kernel_library.space import Space, Tuned
from kernel_library.spec import ITEMSIZE, OpSpec, Reference, Workload


@dataclass(frozen=True, slots=True)
class Unit:
    """A contract (op, reference, laws) and what meets it (kernel, space).

    `backward` names the unit that is this one's gradient: its inputs are called `d_<output>` and,
    by their own names, the forward's inputs and outputs that it needs; its outputs `d_<input>`.
    """

    op: OpSpec
    reference: Callable[..., Any]
    kernel: Callable[..., Any]
    space: Space = Space({})
    laws: tuple[Callable[..., bool], ...] = ()
    backward: str | None = None

    @property
    def module(self) -> ModuleType:
        """The file that the unit stands in."""
        module = inspect.getmodule(self.reference)
        if module is None:
            raise ValueError(f"unit {self.op.name!r} has no module")
        return module

    @property
    def doc(self) -> str:
        """The file's own words: the maths, the shapes, the traffic."""
        return inspect.getdoc(self.module) or ""

    @property
    def spec(self) -> OpSpec:
        """The contract with the reference's own source in it."""
        source = keep_only(inspect.getsource(self.module), self.reference.__name__)
        return replace(self.op, reference=Reference(source, self.reference.__name__))

    @property
    def kernel_source(self) -> str:
        """The kernel half of the file alone: what the agent sees, and what it writes back."""
        return keep_only(inspect.getsource(self.module), self.kernel.__name__)

    def candidate(self, device: str | None = None) -> Candidate:
        """The kernel half as a candidate: tuned for this device where it was, else by rule."""
        table = tuned_table(self, device) if device else ()
        measured = {str(row.dims) + str(row.dtypes) for row in table}
        by_rule = tuple(
            Tuned(at.dims, at.dtypes, self.space.default(space_names(self.op, at)))
            for at in self.op.workloads
            if str(at.dims) + str(at.dtypes) not in measured
        )
        return Candidate(
            op=self.op.name,
            source=self.kernel_source,
            entry=self.kernel.__name__,
            config=self.space.default(space_names(self.op, self.op.workloads[0])),
            tuned=table + by_rule,
            proposer="library",
            why=f"the library's {self.op.name}",
        )


def space_names(op: OpSpec, at: Workload) -> dict[str, object]:
    """What a space's formulas may ask for: the contract's names, and the first input's itemsize."""
    first = next(iter(op.inputs.values()))
    return op.names(at) | {"itemsize": ITEMSIZE[op.dtype(first, at)]}


def tuned_table(unit: Unit, device: str) -> tuple[Tuned, ...]:
    """The rows of `tuned/<op>.json` beside the unit that were measured on this device."""
    path = Path(inspect.getfile(unit.module)).parent / "tuned" / f"{unit.op.name}.json"
    if not path.exists():
        return ()
    rows = json.loads(path.read_text()).get(device, {}).get("rows", [])
    return tuned_json.validate_python(rows)


def discover(package: ModuleType) -> Iterator[Unit]:
    """All units of a package, by file name: to add a kernel, add a file."""
    for module in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{module.name}").UNIT


def keep_only(source: str, entry: str) -> str:
    """The part of a module that one of its functions needs: itself, its helpers, its imports."""
    body = ast.parse(source).body
    defines = {name: node for node in body for name in _names_defined(node)}
    needed: set[ast.stmt] = set()
    wanted = [entry]
    while wanted:
        node = defines.get(wanted.pop())
        if node is not None and node not in needed:
            needed.add(node)
            wanted += [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    lines = source.splitlines()
    return "\n".join(_as_written(node, lines) for node in body if node in needed).strip("\n")


def line_in(whole: str, half: str, number: int) -> int:
    """Which line of a module is this line of what `keep_only` kept of it; both count from 1."""
    at, lines = number, iter(enumerate(whole.splitlines(), 1))
    for kept in half.splitlines()[:number]:
        at = next((there for there, line in lines if line == kept), at)
    return at


def _as_written(node: ast.stmt, lines: Sequence[str]) -> str:
    """A statement's lines, with its decorators, and the comments and blank lines above it."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    while first > 0 and not lines[first - 1]:
        first -= 1
    return "\n".join(lines[first : node.end_lineno])


def _names_defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name.split(".")[0] for alias in names]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []
