"""How the values of an input are drawn: plain data, so that only the judge ever draws them."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Normal:
    """Independent normal values."""

    mean: float = 0.0
    std: float = 1.0
    kind: Literal["normal"] = "normal"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Independent values, even between low and high; for a bool tensor, True with chance `high`."""

    low: float = 0.0
    high: float = 1.0
    kind: Literal["uniform"] = "uniform"


@dataclass(frozen=True, slots=True)
class Index:
    """Integers in [low, below), a share of them `ignored`: a label that counts for none.

    `distinct` makes the entries along the last axis differ from each other, as top-k ids do.
    """

    below: str
    ignored: int | None = None
    share: float = 0.0
    distinct: bool = False
    low: int = 0
    kind: Literal["index"] = "index"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Rising offsets from 0 to `total`, as `cu_seqlens` are: n + 1 of them bound n sequences.

    Without the `first` of these they say where each sequence ends, without the `last` where each
    one starts.
    """

    total: str
    first: bool = True
    last: bool = True
    kind: Literal["offsets"] = "offsets"


@dataclass(frozen=True, slots=True)
class Scales:
    """Positive factors, log-uniform between low and high."""

    low: float = 0.01
    high: float = 1.0
    kind: Literal["scales"] = "scales"


@dataclass(frozen=True, slots=True)
class Simplex:
    """Positive weights that sum to one along the last axis."""

    kind: Literal["simplex"] = "simplex"


@dataclass(frozen=True, slots=True)
class Permutation:
    """Each row of the last axis is a permutation of 0 .. n - 1."""

    kind: Literal["permutation"] = "permutation"


@dataclass(frozen=True, slots=True)
class Sorted:
    """Values of another recipe that rise along the last axis, as boundaries and segment ids do."""

    of: Normal | Uniform | Index
    kind: Literal["sorted"] = "sorted"


Form = Literal["upper", "lower", "symmetric"]


@dataclass(frozen=True, slots=True)
class Structured:
    """Square matrices of another recipe's values, in the last two axes.

    One triangle of each, `upper` or `lower`, holds such values and the other is zero; or, where
    they are `symmetric`, its mirror.
    """

    of: Normal | Uniform
    form: Form
    kind: Literal["structured"] = "structured"


Recipe = Normal | Uniform | Index | Offsets | Scales | Simplex | Permutation | Sorted | Structured


def plain(recipe: Recipe) -> Recipe:
    """The recipe that the values are of, wherever they stand."""
    return recipe.of if isinstance(recipe, Sorted | Structured) else recipe


def written(recipe: object) -> str:
    """A recipe as a unit has it, `Index(below='S+1', low=1)` say."""
    if not is_dataclass(recipe):
        return repr(recipe)
    given = [f.name for f in fields(recipe) if getattr(recipe, f.name) != f.default]
    said = ", ".join(f"{name}={written(getattr(recipe, name))}" for name in given)
    return f"{type(recipe).__name__}({said})"
