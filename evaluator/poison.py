"""Marks memory before a candidate runs, so that what it did not write can be told afterwards."""

from __future__ import annotations

from collections.abc import Mapping

import torch

_BITS: Mapping[int, torch.dtype] = {
    1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64
}  # fmt: skip
#: Pattern 0 is a NaN with an odd payload, pattern 1 a large finite number: a reduction that
#: ignores NaN would hide the first, one that saturates the second.
_FLOATS: Mapping[torch.dtype, tuple[int, int]] = {
    torch.float64: (0x7FF5A5A5_DEADBEA7, 0x7E37E43C_8800759C),
    torch.float32: (0x7FA5A5A7, 0x7149F2CA),
    torch.bfloat16: (0x7FA7, 0x714A),
    torch.float16: (0x7DA7, 0x7B53),
    torch.float8_e4m3fn: (0x7F, 0x7D),
    torch.float8_e5m2: (0x7D, 0x7A),
}
_INTEGERS = (0x5A5A5A5A_5A5A5A5A, 0x25A5A5A5_A5A5A5A5)
PATTERNS = 2


def fill(tensor: torch.Tensor, pattern: int) -> torch.Tensor:
    """Write the pattern to every element, in place; a bool's byte is set to a value no bool has."""
    bits(tensor).fill_(_pattern(tensor.dtype, pattern))
    return tensor


def seen(tensor: torch.Tensor, pattern: int) -> torch.Tensor:
    """Which elements still hold the pattern, bit by bit."""
    return bits(tensor) == _pattern(tensor.dtype, pattern)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers of the same width."""
    return tensor.view(_BITS[tensor.dtype.itemsize])


def _pattern(dtype: torch.dtype, pattern: int) -> int:
    if dtype == torch.bool:
        return (0x5A, 0x25)[pattern % PATTERNS]
    if dtype in _FLOATS:
        return _FLOATS[dtype][pattern % PATTERNS]
    return _INTEGERS[pattern % PATTERNS] >> (64 - 8 * dtype.itemsize)
