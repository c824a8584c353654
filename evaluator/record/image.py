"""What a binary may not have: memory of its own between launches, or a clock. Read off its ELF.

Triton's own kernels have none but a few constants. Inline assembly may declare an array, though
(ptxas takes `.global` inside of a function), and a kernel that keeps its answer there could hand it
out again when it is timed: the player poisons what the tape made, and knows of no other memory.
One that reads a clock could work at some times only: of its timed calls, what the last and a few
others left is looked at, not what each did.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

#: Bytes of initialised variables: libdevice's tables for sines, and names of options; 28 at most in
#: the 1760 binaries that our tests had left in Triton's cache.
MOST_CONSTANTS = 512
_HEADER, _SECTION = struct.Struct("<40xQ10x3H"), struct.Struct("<I4xQ8xQQ24x")
_INSTRUCTION, CODE = struct.Struct("<QQ"), 4
#: CS2R, S2R, S2UR and CS2UR: the low 12 bits of the instructions that read a special register. The
#: register's number are bits 72 to 79 (seen with ptxas and nvdisasm for sm_80 to sm_120).
READS = frozenset({0x805, 0x919, 0x9C3, 0x8CB})
#: SR_CLOCKLO, SR_CLOCKHI, SR_GLOBALTIMERLO and -HI; the counters SR_PM0 to SR_PM_HI7.
CLOCKS = frozenset({*range(0x50, 0x54), *range(0x64, 0x74)})


def fault(image: bytes) -> str | None:
    """Why a binary is not one that a tape may hold, in words; None if it is."""
    if not image.startswith(b"\x7fELF"):
        return "is no cubin"
    kept = constants = 0
    timed = False
    try:
        for name, flags, at, size in _sections(image):
            kept += size if name == b".nv.global" else 0
            constants += size if name.startswith(b".nv.global.") else 0
            timed |= bool(flags & CODE) and _reads_a_clock(image[at : at + size])
    except (struct.error, ValueError):
        return "is no whole cubin"
    if kept or constants > MOST_CONSTANTS:
        return "keeps global memory of its own between launches: use what the launcher allocates"
    if timed:
        return "reads the GPU's clock: what it does must not depend on when, so leave it out"
    return None


def _reads_a_clock(code: bytes) -> bool:
    whole = code[: len(code) // _INSTRUCTION.size * _INSTRUCTION.size]
    return any(
        low & 0xFFF in READS and high >> 8 & 0xFF in CLOCKS
        for low, high in _INSTRUCTION.iter_unpack(whole)
    )


def _sections(image: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Name, flags, place and size in memory of each section of a 64-bit ELF."""
    table, size, count, names = _HEADER.unpack_from(image)
    if not count:
        raise ValueError("no section is numbered")
    _, _, at, _ = _SECTION.unpack_from(image, table + size * names)
    for row in range(count):
        name, flags, start, kept = _SECTION.unpack_from(image, table + size * row)
        yield image[at + name : image.index(b"\0", at + name)], flags, start, kept
