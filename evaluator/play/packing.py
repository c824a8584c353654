"""Runtime arguments as the bytes that a kernel is given: pure, so that a CPU can test it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from kernel_library.tape import Argument, Descriptor, Pointer, Scalar

#: Triton's names for numbers, as `struct` knows them. i1 travels as a byte.
FORMATS = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip

Address = Callable[[Pointer], int]
Encode = Callable[[Descriptor, int], bytes]


def pack(argument: Argument, address: Address, encode: Encode) -> bytes:
    """One argument's bytes. Raises `ValueError` for a number that its type cannot hold."""
    match argument:
        case Pointer():
            return struct.pack("<Q", address(argument))
        case Descriptor():
            return encode(argument, address(argument.base))
        case Scalar():
            return number(argument)


def number(scalar: Scalar) -> bytes:
    """A number as Triton's launcher passes it: bfloat16 is the upper half of float32."""
    try:
        if scalar.type == "bf16":
            return struct.pack("<f", scalar.value)[2:]
        form = FORMATS[scalar.type]
        value = scalar.value if form in "efd" else int(scalar.value)
        return struct.pack(f"<{form}", value)
    except KeyError as error:
        raise ValueError(f"no runtime argument has type {scalar.type!r}") from error
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{scalar.value!r} is no {scalar.type}") from error


def room(argument: bytes) -> int:
    """The bytes that an argument is given: CUtensorMap has to lie on 64, which suits all others."""
    return -(-len(argument) // 64) * 64


def enough(parameters: Sequence[int], arguments: Sequence[bytes]) -> bool:
    """Whether a kernel that takes parameters of these sizes reads nothing but its arguments.

    The driver copies by the kernel's own list: a tape with fewer would have it read past them.
    """
    given = [room(argument) for argument in arguments]
    return len(parameters) <= len(given) and all(
        size <= most for size, most in zip(parameters, given, strict=False)
    )
