"""What the judge asks of the intake job and what it is told, as plain data.

The job runs a stranger's Python, so each reply is checked against these types and believed in no
other way: it can describe a wrong problem, but only to the harm of whoever submitted it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernel_library.candidate import Candidate
from kernel_library.formula import Value
from kernel_library.graph import Graph
from kernel_library.recipe import Recipe
from kernel_library.spec import DType, OpSpec


@dataclass(frozen=True, slots=True)
class Meta:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument: a tensor, or a list of them."""

    tensors: tuple[Meta, ...]
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One way to call the reference."""

    args: tuple[Slot, ...]
    options: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """What the job is to do with a source; `path` is the name that it has for its author."""

    task: Literal["model", "plain", "unit", "export", "shapes"]
    path: str
    source: str
    entry: str = "reference"
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """The stranger's code raised, or is no problem: the message, and the line or field."""

    message: str
    where: str = ""
    kind: Literal["failure"] = "failure"


@dataclass(frozen=True, slots=True)
class Example:
    """An argument as the author's example has it, and how such values are drawn.

    `follows` has the author's name for each side where it is known, else an empty one.
    """

    name: str
    slot: Slot
    recipe: Recipe
    follows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A reference that stands alone, its arguments, and the sizes that its author gave names."""

    source: str
    examples: tuple[Example, ...]
    options: Mapping[str, Value]
    sizes: Mapping[str, int]
    kind: Literal["described"] = "described"


@dataclass(frozen=True, slots=True)
class Exported:
    """The graph of one call, its returned tensors, and the positions of the inputs it writes."""

    graph: Graph
    outputs: tuple[Meta, ...]
    mutated: tuple[int, ...]
    kind: Literal["exported"] = "exported"


@dataclass(frozen=True, slots=True)
class Shown:
    """What one call returns: ten times faster than its graph."""

    outputs: tuple[Meta, ...]
    kind: Literal["shown"] = "shown"


@dataclass(frozen=True, slots=True)
class Exports:
    """One answer a call."""

    each: tuple[Annotated[Exported | Shown | Failure, Field(discriminator="kind")], ...]
    kind: Literal["exports"] = "exports"


@dataclass(frozen=True, slots=True)
class ReadUnit:
    """A unit file's two halves."""

    op: OpSpec
    candidate: Candidate
    kind: Literal["unit"] = "unit"


Reply = Failure | Described | Exports | ReadUnit
ask_json = TypeAdapter(Ask)
reply_json: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])
