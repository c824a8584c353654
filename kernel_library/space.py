"""The knobs of a kernel, the settings of them that make sense, and the tuned ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf, log2

from kernel_library.formula import Value, evaluate

Config = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Space:
    """The choices for each knob, as data.

    `rule` gives a sane value as a formula over axes, options and `itemsize` (bytes of the first
    input's dtype) where there is no tuned table; a knob without a rule starts at its first choice.
    `constraints` are formulas over axes, options, `itemsize` and knobs.
    """

    knobs: Mapping[str, tuple[int, ...]]
    rule: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()

    def default(self, names: Mapping[str, object]) -> dict[str, int]:
        """The setting to start from at these sizes."""
        return {
            knob: int(evaluate(self.rule[knob], names)) if knob in self.rule else choices[0]
            for knob, choices in self.knobs.items()
        }

    def is_legal(self, config: Config, names: Mapping[str, object]) -> bool:
        """Whether every constraint holds."""
        return all(bool(evaluate(c, {**names, **config})) for c in self.constraints)

    def configs(self, names: Mapping[str, object]) -> Iterator[dict[str, int]]:
        """All legal settings at these sizes, the default first."""
        first = self.default(names)
        yield first
        for values in product(*self.knobs.values()):
            config = dict(zip(self.knobs, values, strict=True))
            if config != first and self.is_legal(config, names):
                yield config


@dataclass(frozen=True, slots=True)
class Tuned:
    """One row of a tuned table: the setting that was best at these sizes, dtypes and options."""

    dims: Mapping[str, int | tuple[int, ...]]
    dtypes: Mapping[str, str]
    config: Config
    options: Mapping[str, Value] = field(default_factory=dict)


def nearest(
    table: Sequence[Tuned], dims: Mapping[str, object], dtypes: Mapping[str, str]
) -> Tuned | None:
    """The row whose sizes are nearest in log space among those of the same dtypes."""

    def distance(row: Tuned) -> float:
        if row.dtypes != dtypes or row.dims.keys() != dims.keys():
            return inf
        return sum(abs(_log(row.dims[axis]) - _log(dims[axis])) for axis in row.dims)

    best = min(table, key=distance, default=None)
    return best if best is not None and distance(best) < inf else None


def _log(size: object) -> float:
    total = sum(size) if isinstance(size, tuple) else size
    return log2(max(1, total)) if isinstance(total, int) else 0.0
