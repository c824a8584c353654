"""Each op of this package as it stands in `tables/`: its contract, and where its kernel holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernel_library.recipe import (
    Index,
    Normal,
    Offsets,
    Permutation,
    Recipe,
    Scales,
    Simplex,
    Uniform,
)
from kernel_library.space import Tuned
from kernel_library.spec import OpSpec, Option, Reference, Tensor, Tolerance, Workload

HERE = Path(__file__).parent
RECIPES: tuple[type[Any], ...] = (Normal, Uniform, Index, Offsets, Scales, Simplex, Permutation)


@dataclass(frozen=True, slots=True)
class Op:
    """One op: its contract, how its kernel is launched, and what was proven of that kernel.

    `archs` are the targets (`"sm_90"`) that the kernel was compiled and judged for; none means
    that it never was. `pick` is the setting of the kernel's own autotuner that was judged, if it
    has one. `dtypes` are the choices of free dtypes it was right on. `rows` are tuned
    settings by device name. `strided` says whether it was judged on inputs with gaps.
    """

    name: str
    spec: OpSpec
    schema: str
    entry: str
    config: Mapping[str, int]
    pick: int | None
    rows: Mapping[str, tuple[Tuned, ...]]
    archs: tuple[str, ...]
    dtypes: tuple[Mapping[str, str], ...]
    strided: bool
    backward: str | None


@cache
def names() -> tuple[str, ...]:
    """The ops of this package."""
    return tuple(sorted(path.stem for path in (HERE / "tables").glob("*.json")))


@cache
def load(name: str) -> Op:
    """The op of that name. Raises KeyError where this package has none."""
    if name not in names():
        raise KeyError(f"no op {name!r} here; there are {', '.join(names())}")
    table = json.loads((HERE / "tables" / f"{name}.json").read_text("utf-8"))
    return Op(
        name=name,
        spec=_spec(table["contract"]),
        schema=table["schema"],
        entry=table["entry"],
        config=table["config"],
        pick=table["pick"],
        rows={device: tuple(map(_tuned, rows)) for device, rows in table["rows"].items()},
        archs=tuple(table["archs"]),
        dtypes=tuple(table["dtypes"]),
        strided=table["strided"],
        backward=table["backward"],
    )


def _spec(facts: Mapping[str, Any]) -> OpSpec:
    return OpSpec(
        name=facts["name"],
        inputs={name: _tensor(t) for name, t in facts["inputs"].items()},
        outputs={name: _tensor(t) for name, t in facts["outputs"].items()},
        options={
            name: Option(o["default"], tuple(o["choices"])) for name, o in facts["options"].items()
        },
        mutates=tuple(facts["mutates"]),
        constraints=tuple(facts["constraints"]),
        tolerance=Tolerance(**facts["tolerance"]),
        workloads=tuple(map(_workload, facts["workloads"])),
        reference=Reference("", facts["entry"]),
    )


def _tensor(facts: Mapping[str, Any]) -> Tensor:
    return Tensor(facts["axes"], facts["dtype"], _recipe(facts["recipe"]), facts["count"])


def _recipe(facts: Mapping[str, Any]) -> Recipe:
    (kind,) = (r for r in RECIPES if r.__name__.lower() == facts["kind"])
    recipe: Recipe = kind(**facts)
    return recipe


def _workload(facts: Mapping[str, Any]) -> Workload:
    return Workload(
        _sizes(facts["dims"]), facts["dtypes"], facts["role"], facts["options"], facts["weight"]
    )


def _tuned(facts: Mapping[str, Any]) -> Tuned:
    return Tuned(_sizes(facts["dims"]), facts["dtypes"], facts["config"], facts["options"])


def _sizes(dims: Mapping[str, int | Sequence[int]]) -> dict[str, int | tuple[int, ...]]:
    return {axis: size if isinstance(size, int) else tuple(size) for axis, size in dims.items()}
