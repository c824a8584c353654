"""Tensors over a pipe: a JSON header and raw little-endian bytes, checked on arrival.

message  8 bytes: length of the header; the header; the blobs, one after another
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter

from evaluator.poison import bits
from kernel_library.formula import Value
from kernel_library.spec import DTYPES, ITEMSIZE

T = TypeVar("T")
#: No axis of an answer is longer; torch refuses sizes beyond 2^63 in a way of its own.
LONGEST = 1 << 40


@dataclass(frozen=True, slots=True)
class Sent:
    """An input: a view (shape, stride and offset in elements) of a blob that is its buffer."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call: for each argument its tensors, options, configuration, and how to poison."""

    inputs: tuple[tuple[Sent, ...], ...]
    options: Mapping[str, Value]
    config: Mapping[str, int]
    poison: int
    repeat: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """A candidate to call; `names` are its arguments, some of them lists, some of them written.

    `allows` are the aten calls that it may make beside its launches; `pick` chooses among its own
    autotuner's settings.
    """

    source: str
    entry: str
    names: tuple[str, ...]
    lists: tuple[str, ...]
    mutates: tuple[str, ...]
    calls: tuple[Call, ...]
    allows: tuple[str, ...] = ()
    pick: int = 0


@dataclass(frozen=True, slots=True)
class Returned:
    """A contiguous tensor that came back."""

    shape: tuple[int, ...]
    dtype: str


#: How a job says that a rule of the call was broken; names may follow.
RULES = (
    "gives other bits when it is called again with the same inputs",
    "writes outside of input",
    "writes to input",
    "writes between the elements of input",
    "returns",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What the candidate did wrong and on which of its lines (0: on none).

    `details`, such as an exception's message, may speak of sizes: not for hidden workloads.
    """

    what: str
    details: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What one call gave: the returned tensors, then the declared mutated inputs; or its fault."""

    tensors: tuple[Returned, ...] = ()
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A result for each call, up to the first fault."""

    results: tuple[Result, ...]


asked_json = TypeAdapter(Asked)
answer_json = TypeAdapter(Answer)


def pack(header: bytes, blobs: Sequence[bytes]) -> bytes:
    """The bytes of a message."""
    return b"".join([len(header).to_bytes(8, "little"), header, *blobs])


def unpack(message: bytes, kind: TypeAdapter[T]) -> tuple[T, memoryview]:
    """The header, checked, and the blobs in a row. Raises ValueError for anything else."""
    size = int.from_bytes(message[:8], "little")
    if len(message) < 8 + size:
        raise ValueError("the message is cut short")
    return kind.validate_json(message[8 : 8 + size]), memoryview(message)[8 + size :]


def buffer_of(tensor: torch.Tensor) -> bytes:
    """All bytes of the memory that a tensor is a view of."""
    storage = tensor.untyped_storage()
    return raw(torch.empty(0, dtype=torch.uint8).set_(storage))


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's elements in order, as bytes."""
    if not tensor.numel():
        return b""
    return bits(tensor.detach()).cpu().numpy().tobytes()


def tensors(returned: Sequence[Returned], blobs: memoryview) -> tuple[list[torch.Tensor], int]:
    """The tensors that a header promises, and how many bytes they took. Raises ValueError."""
    made: list[torch.Tensor] = []
    at = 0
    for one in returned:
        if one.dtype not in DTYPES or not all(0 <= n <= LONGEST for n in one.shape):
            raise ValueError(f"no tensor is {one.dtype!r} of shape {one.shape}")
        size = prod(one.shape) * ITEMSIZE[one.dtype]
        if at + size > len(blobs):
            raise ValueError("the message is cut short")
        made.append(from_bytes(blobs[at : at + size], one.dtype).reshape(one.shape))
        at += size
    return made, at


def from_bytes(blob: memoryview, dtype: str) -> torch.Tensor:
    """A flat tensor with memory of its own."""
    kind: Any = getattr(torch, dtype)
    if not len(blob):
        return torch.empty(0, dtype=kind)
    return torch.frombuffer(bytearray(blob), dtype=torch.uint8).view(kind)
