"""An exported graph of aten ops, as plain data: what a reference computes, without its Python.

A value in `args` or `kwargs` is JSON; four one-key objects stand for what JSON has not:
`{"ref": name}` another node's result, `{"dtype": "float32"}`, `{"float": "inf"}` and
`{"torch": "contiguous_format"}` (a device, layout or memory format by name).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Node:
    """One call: `op` is a qualified aten overload (`"aten.mul.Tensor"`), or `"getitem"`."""

    name: str
    op: str
    args: tuple[JsonValue, ...] = ()
    kwargs: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Constant:
    """A small tensor that the reference closed over: raw little-endian bytes in base64."""

    dtype: str
    shape: tuple[int, ...]
    data: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Placeholders in call order (a list argument is one placeholder an item), nodes in order.

    `outputs` are node names: the returned tensors, then one for each tensor mutated in place.
    """

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The graph's identity: what it computes at these sizes, whatever its names were."""
        return sha256(repr((self.inputs, self.nodes, self.outputs)).encode()).hexdigest()
