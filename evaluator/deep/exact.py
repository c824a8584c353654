"""Memory for a sanitizer: each buffer an allocation of its own, to the byte, and unwritten.

An arena is one allocation with room around each buffer, where a sanitizer sees nothing amiss in a
read beyond a buffer, and no poisoned byte counts as unwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evaluator.play.memory import Arena


class Exact(Arena):
    """Buffers that touch nothing else: as long as asked, if torch's caching is off."""

    def __init__(self, sizes: Sequence[int], device: torch.device, poison: int = 0) -> None:
        self.sizes = tuple(sizes)
        self._parts = [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
        self.starts = [part.data_ptr() for part in self._parts]

    @property
    def base(self) -> int:
        """Where addresses begin: `starts` are addresses already."""
        return 0

    def bytes(self, index: int) -> torch.Tensor:
        """A buffer's bytes."""
        return self._parts[index]

    def poison(self, which: int) -> None:
        """Leave what was made unwritten, which is for the sanitizer to see."""

    def mark(self, index: int, dtype: str, which: int) -> None:
        """Leave outputs unwritten, too."""

    def is_intact(self) -> bool:
        """Nothing lies around the buffers: what is written there, the sanitizer tells."""
        return True
