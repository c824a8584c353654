"""What a binary may not have: memory of its own between launches, or a clock. Read off its ELF.

Triton's own kernels have none but libdevice's constants. Inline assembly may declare an array,
though (ptxas takes `.global` inside of a function), and a kernel that keeps its answer there could
hand it out again when it is timed: the player poisons what the tape made, and knows of no other
memory. One that reads a clock could work at some times only: of its timed calls, what the last and
a few others left is looked at, not what each did.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

#: The bits of 2 / pi by which libdevice reduces arguments, in double and, the last 24 bytes of
#: them, in single precision; and the coefficients of its sine and cosine.
_BITS = bytes.fromhex(
    "085d8d1fb15ffb6bea92528af739073d7bf1e5ebc7ba27752dea5f9e663f464fb709cb27cf7e366d1f6d0a5a8b112fef"
    "0f9805deff97f81f3b28f9bd8b5f849cf439538339d69139417e5fb426709ce98444bb2ef53582e83ea729b11ceb1dfe"
    "1c92d109ea2e4906e0d24d423a6e24b761c5bbdeab6351fe4190433c999562dbc0dd34f5d15727fc2915444e6e83f9a2"
)
_COEFFICIENTS = bytes.fromhex(
    "ba5e78f965dbe53d46d2b02cf1e55abe92e3ac69e31dc73ea162db19a0012abf180811111111813f545555555555c5bf"
    "000000000000000000000000000000006481fd2083ffa8bd2885efc1a7ee213ed9e6068e4f7e92bee9bcdd19a001fa3e"
    "475dc1166cc156bf515555555555a53f000000000000e0bf000000000000f03f"
)
#: All that binaries may hold of initialised variables, each once: libdevice's tables, and names of
#: options that it leaves there. Seen in all of its functions for sm_80 to sm_120, with Triton 3.6
#: and 3.8; an inline assembly that declares one of them anew may write to it.
CONSTANTS = (
    *(_BITS, _COEFFICIENTS, _BITS[-24:]),
    *(b"__CUDA_FTZ\0", b"__CUDA_ARCH\0", b"__CUDA_PREC_SQRT\0"),
)
#: Uninitialised variables, and those in constant memory, which have an address to write to as well.
OWN = frozenset({b".nv.global", b".nv.constant3"})
_HEADER, _SECTION = struct.Struct("<40xQ10x3H"), struct.Struct("<I4xQ8xQQ24x")
_INSTRUCTION, CODE = struct.Struct("<QQ"), 4
#: CS2R, S2R, S2UR and CS2UR: the low 12 bits of the instructions that read a special register. The
#: register's number are bits 72 to 79 (seen with ptxas and nvdisasm for sm_80 to sm_120).
READS = frozenset({0x805, 0x919, 0x9C3, 0x8CB})
#: ACQBULK, which griddepcontrol.wait becomes (seen for sm_90 to sm_120).
WAIT = 0x82E
#: SR_CLOCKLO, SR_CLOCKHI, SR_GLOBALTIMERLO and -HI; the counters SR_PM0 to SR_PM_HI7.
CLOCKS = frozenset({*range(0x50, 0x54), *range(0x64, 0x74)})


def fault(image: bytes) -> str | None:
    """Why a binary is not one that a tape may hold, in words; None if it is."""
    if not image.startswith(b"\x7fELF"):
        return "is no cubin"
    kept = timed = False
    try:
        for name, flags, at, size in _sections(image):
            body = image[at : at + size]
            kept |= bool(size) and name in OWN
            kept |= name.startswith(b".nv.global.") and not _is_libdevices(body)
            timed |= bool(flags & CODE) and _reads_a_clock(body)
    except (struct.error, ValueError):
        return "is no whole cubin"
    if kept:
        told = "keeps global memory of its own between launches, or text to print"
        return f"{told}: use what the launcher allocates, and no device_print or device_assert"
    if timed:
        return "reads the GPU's clock: what it does must not depend on when, so leave it out"
    return None


def waits(image: bytes) -> bool:
    """Whether a binary's kernel ever waits for the launches ahead of its own."""
    code = (image[at : at + size] for _, flags, at, size in _sections(image) if flags & CODE)
    return any(low & 0xFFF == WAIT for body in code for low, _ in _instructions(body))


def _is_libdevices(variables: bytes) -> bool:
    for known in CONSTANTS:
        variables = variables.replace(known, b"", 1)
    return not variables


def _reads_a_clock(code: bytes) -> bool:
    return any(
        low & 0xFFF in READS and high >> 8 & 0xFF in CLOCKS for low, high in _instructions(code)
    )


def _instructions(code: bytes) -> Iterator[tuple[int, int]]:
    """Both halves of each instruction."""
    whole = code[: len(code) // _INSTRUCTION.size * _INSTRUCTION.size]
    return _INSTRUCTION.iter_unpack(whole)


def _sections(image: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Name, flags, place and size in memory of each section of a 64-bit ELF."""
    table, size, count, names = _HEADER.unpack_from(image)
    if not count:
        raise ValueError("no section is numbered")
    _, _, at, _ = _SECTION.unpack_from(image, table + size * names)
    for row in range(count):
        name, flags, start, kept = _SECTION.unpack_from(image, table + size * row)
        yield image[at + name : image.index(b"\0", at + name)], flags, start, kept
