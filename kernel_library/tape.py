"""A tape: the launches that one call of a candidate makes, recorded without data.

Content-addressed, JSON and binaries, never pickle. Addresses are (buffer, offset) pairs, so that a
player can bind its own memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from pydantic import JsonValue

from kernel_library.verdict import KernelFacts

#: The aten calls that any launcher may make beside its launches: they move or fill, no more.
FREE_CALLS = frozenset({
    "fill_", "zero_", "copy_", "clone", "_to_copy", "zeros", "zeros_like", "new_zeros", "ones",
    "ones_like", "new_ones", "full", "full_like", "new_full", "_foreach_zero_", "_foreach_copy_",
    # what `x[1:] = 0` fills from
    "scalar_tensor",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that the tape touches. An `input` is named as `name` or, for lists, `name.3`."""

    role: Literal["input", "made"]
    bytes: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor within a buffer: offset in bytes, strides in elements."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Pointer:
    """A device address: a buffer and an offset in bytes into it. Buffer -1 is the null pointer."""

    buffer: int
    offset: int = 0
    kind: Literal["pointer"] = "pointer"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number by Triton's type name: i1, i8 ... i64, u8 ... u64, fp16, bf16, fp32, fp64."""

    type: str
    value: int | float
    kind: Literal["scalar"] = "scalar"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A host-made TMA descriptor (CUtensorMap), to be encoded for the player's own address.

    `element_type`, `swizzle` are the driver's enum values; shape, stride (elements) and block are
    outermost first; `fill_nan` chooses what out-of-bounds reads give.
    """

    base: Pointer
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    block: tuple[int, ...]
    element_bytes: int
    element_type: int
    swizzle: int
    fill_nan: bool = False
    kind: Literal["descriptor"] = "descriptor"


Argument = Pointer | Scalar | Descriptor


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: a function of a binary, over a grid, with runtime arguments in order.

    Arguments end before the scratch pointers that Triton appends; `scratch_bytes` (global) and
    `profile_bytes` are per program, aligned to `scratch_align`.
    """

    binary: str
    function: str
    grid: tuple[int, int, int]
    num_warps: int
    num_ctas: int
    shared_bytes: int
    arguments: tuple[Argument, ...]
    scratch_bytes: int = 0
    scratch_align: int = 1
    profile_bytes: int = 0
    cooperative: bool = False
    dependent: bool = False
    kind: Literal["launch"] = "launch"


@dataclass(frozen=True, slots=True)
class Call:
    """An allowed aten call between launches: a fill, a copy, a sum, by overload name.

    Arguments are JSON with two stand-ins: `{"view": n}` is the n-th of `views`, and
    `{"dtype": "float32"}` a dtype. Results are written to `results`.
    """

    op: str
    args: tuple[JsonValue, ...]
    kwargs: Mapping[str, JsonValue]
    views: tuple[View, ...]
    results: tuple[View, ...]
    kind: Literal["call"] = "call"


Step = Launch | Call


@dataclass(frozen=True, slots=True)
class Tape:
    """What one call does at one workload: buffers, steps in order, and where the outputs lie.

    `outputs` are the returned tensors; mutated inputs are read back from their input buffers.
    `kernels` are the compiler's facts, one for each distinct binary.
    """

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: tuple[View, ...]
    kernels: tuple[KernelFacts, ...] = ()
    target: str = "sm_90"
    triton: str = ""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernel launches alone."""
        return tuple(step for step in self.steps if isinstance(step, Launch))


@dataclass(frozen=True, slots=True)
class Recording:
    """A tape, and the binaries that its launches name by SHA-256."""

    tape: Tape
    binaries: Mapping[str, bytes] = field(repr=False)

    @property
    def digest(self) -> str:
        """The identity of the whole: the tape names its binaries by content."""
        return sha256(repr(self.tape).encode()).hexdigest()
