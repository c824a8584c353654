"""Memory that shows what a kernel did to it: poison inside, and around."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evaluator.errors import CandidateError, LabError
from evaluator.poison import fill
from kernel_library.tape import View

#: Bytes on each side of a buffer that no kernel may touch: a row of 16k floats beyond its end.
GUARD = 64 * 1024
#: Where buffers begin: what CUDA's own allocator gives, and more than TMA asks for.
ALIGN = 512
#: From 10 MiB on torch's allocator gives blocks of 2 MiB (CUDACachingAllocator.cpp, kMinLargeAlloc
#: and kRoundLarge): what it rounds up would be memory that nobody poisons and nobody looks at.
LARGE, ROUND = 10 << 20, 2 << 20
#: What unwritten memory and guards show, byte by byte: NaN in every floating dtype, then large but
#: finite (1.3e36 in float32 and bfloat16), for a maximum or a comparison that swallows NaN.
POISONS = (0xFF, 0x7B)


class Arena:
    """One allocation that holds several buffers, each between guards.

    A write that jumps over a guard lands in another buffer of the same call, or in another guard;
    one that goes beyond the last, in what else the process holds.
    """

    def __init__(self, sizes: Sequence[int], device: torch.device, poison: int = 0) -> None:
        self.sizes, self.starts, top = tuple(sizes), [], GUARD
        self._around = POISONS[poison % len(POISONS)]
        for size in sizes:
            self.starts.append(top)
            top += _up(size, ALIGN) + GUARD
        top = _up(top, ROUND) if top >= LARGE else top
        self.memory = torch.full((top,), self._around, dtype=torch.uint8, device=device)

    @property
    def base(self) -> int:
        """The address of the first byte."""
        return self.memory.data_ptr()

    def bytes(self, index: int) -> torch.Tensor:
        """A buffer's bytes."""
        start = self.starts[index]
        return self.memory[start : start + self.sizes[index]]

    def view(self, index: int, view: View) -> torch.Tensor:
        """A tensor that lies in a buffer."""
        whole = self.whole(index, view.dtype)
        # an empty buffer has no element to begin a view at
        if 0 in view.shape:
            return whole.new_empty(view.shape)
        start = whole.storage_offset() + view.offset // whole.itemsize
        return whole.as_strided(view.shape, view.stride, start)

    def whole(self, index: int, dtype: str) -> torch.Tensor:
        """A buffer as a flat tensor; a last part of an element is left out."""
        kind: torch.dtype = getattr(torch, dtype)
        return self.bytes(index)[: self.sizes[index] // kind.itemsize * kind.itemsize].view(kind)

    def poison(self, which: int) -> None:
        """Fill every buffer with one of the poisons."""
        for index in range(len(self.sizes)):
            self.bytes(index).fill_(POISONS[which % len(POISONS)])

    def mark(self, index: int, dtype: str, which: int) -> None:
        """Fill a buffer that holds an output with the pattern that `compare` knows."""
        fill(self.whole(index, dtype), which)

    def is_intact(self) -> bool:
        """Whether every byte outside the buffers is as it was."""
        ends = [0, *(s + n for s, n in zip(self.starts, self.sizes, strict=True))]
        gaps = [
            self.memory[a:b] for a, b in zip(ends, [*self.starts, len(self.memory)], strict=True)
        ]
        return bool((torch.cat(gaps) == self._around).all())


def _up(size: int, to: int) -> int:
    return -(-size // to) * to


def storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the memory that a tensor lies in."""
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(tensor.untyped_storage())


def view_of(tensor: torch.Tensor, buffer: int) -> View:
    """Where a tensor lies in a buffer that holds the whole of its storage."""
    offset = tensor.storage_offset() * tensor.element_size()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return View(buffer, int(offset), tuple(tensor.shape), tensor.stride(), dtype)


def is_full(error: BaseException) -> bool:
    """Whether this, or what it came of, is that the device's memory did not suffice."""
    return any(isinstance(e, torch.OutOfMemoryError) for e in (error, error.__cause__))


def make(
    sizes: Sequence[int], device: torch.device, arena: type[Arena] = Arena, poison: int = 0
) -> Arena:
    """An arena for what a candidate allocates.

    Raises `CandidateError` where it asks for most of the device, and `LabError` where less does not
    fit now: other players have the rest.
    """
    try:
        return arena(sizes, device, poison)
    except torch.OutOfMemoryError as error:
        _, total = torch.cuda.mem_get_info(device)
        if 2 * sum(sizes) < total:
            raise LabError("other players left no room for a candidate's buffers") from error
        raise CandidateError("smoke", "its buffers do not fit in the device's memory") from error
