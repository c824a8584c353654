"""Reads the three banks. To add a trial, add a file: a candidate whose docstring says what is due.

    row          2                  of the catalogue, or of the list of bug reports
    op           softmax            one of `ops.OPS`; also the name of the function to call
    interpreted  correct            the stage that must reject it, without a GPU
    replayed     record, correct    and with one; of several, any

A stage may also be `passes`: the file then says why that is right. `unseen` marks what one way of
judging is blind to by its nature, such as a race in an interpreter that runs programs in turn.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from evaluator.redteam.ops import OPS
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec
from kernel_library.verdict import Evidence, Stage

BANKS = ("cheats", "wrong", "honest")
PASSES, UNSEEN = "passes", "unseen"
WAYS: tuple[Evidence, ...] = get_args(Evidence)
_KNOWN = {*get_args(Stage), PASSES, UNSEEN}
_FACT = re.compile(r"^(row|op|interpreted|replayed|slow) {2,}(\S.*)$", re.MULTILINE)
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and what must be said of it: by way of judging, the stages that may reject it.

    `slow` says why judging it takes a minute; absent where it does not.
    """

    bank: str
    name: str
    row: str
    what: str
    op: OpSpec
    source: str
    due: Mapping[Evidence, tuple[str, ...]]
    slow: str | None = None

    @property
    def candidate(self) -> Candidate:
        """What the judge is given."""
        return Candidate(self.op.name, self.source, self.op.name, proposer="red team")

    def __str__(self) -> str:
        return f"{self.bank}/{self.name}"


def trials(only: str = "") -> list[Trial]:
    """All trials whose name has `only` in it, bank by bank."""
    return [t for bank in BANKS for t in _bank(bank, _folder(bank)) if only in str(t)]


def read(bank: str, name: str, source: str) -> Trial:
    """One trial. Raises ValueError where its docstring leaves something unsaid."""
    doc = ast.get_docstring(ast.parse(source)) or ""
    facts = dict(_FACT.findall(doc))
    missing = {"row", "op", *WAYS} - facts.keys()
    if missing:
        raise ValueError(f"{bank}/{name}: its docstring does not say {sorted(missing)}")
    if facts["op"] not in OPS:
        raise ValueError(f"{bank}/{name}: there is no op {facts['op']!r}")
    due = {way: tuple(re.split(r",\s*", facts[way])) for way in WAYS}
    unknown = {stage for stages in due.values() for stage in stages} - _KNOWN
    if unknown:
        raise ValueError(f"{bank}/{name}: there is no stage {sorted(unknown)}")
    what = doc.partition("\n")[0]
    op = OPS[facts["op"]]
    return Trial(bank, name, facts["row"], what, op, source, due, facts.get("slow"))


def _bank(bank: str, folder: Path) -> Iterator[Trial]:
    for path in sorted(folder.glob("*.py")):
        yield read(bank, path.stem, path.read_text())


def _folder(bank: str) -> Path:
    """In a wheel the banks lie beside this file; in a checkout, with the tests."""
    shipped = _HERE / bank
    return shipped if shipped.is_dir() else _HERE.parent.parent / "tests" / bank
