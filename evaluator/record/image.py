"""What a binary keeps on the device between launches: its variables in global memory, by ELF.

Triton's own kernels have none but a few constants. Inline assembly may declare an array, though
(ptxas takes `.global` inside of a function), and a kernel that keeps its answer there could hand it
out again when it is timed: the player poisons what the tape made, and knows of no other memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

#: Bytes of initialised variables: libdevice's tables for sines, and names of options; 28 at most in
#: the 1760 binaries that our tests had left in Triton's cache.
MOST_CONSTANTS = 512
_HEADER, _SECTION = struct.Struct("<40xQ10x3H"), struct.Struct("<I28xQ24x")


def fault(image: bytes) -> str | None:
    """Why a binary is not one that a tape may hold, in words; None if it is."""
    if not image.startswith(b"\x7fELF"):
        return "is no cubin"
    kept = constants = 0
    try:
        for name, size in _sections(image):
            kept += size if name == b".nv.global" else 0
            constants += size if name.startswith(b".nv.global.") else 0
    except (struct.error, ValueError):
        return "is no whole cubin"
    if kept or constants > MOST_CONSTANTS:
        return "keeps global memory of its own between launches: use what the launcher allocates"
    return None


def _sections(image: bytes) -> Iterator[tuple[bytes, int]]:
    """Name and size in memory of each section of a 64-bit ELF."""
    table, size, count, names = _HEADER.unpack_from(image)
    if not count:
        raise ValueError("no section is numbered")
    at, _ = struct.unpack_from("<24xQQ", image, table + size * names)
    for row in range(count):
        name, kept = _SECTION.unpack_from(image, table + size * row)
        yield image[at + name : image.index(b"\0", at + name)], kept
