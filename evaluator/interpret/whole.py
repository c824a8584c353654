"""Lets a loop of an interpreted kernel run to a bound that the kernel was given.

Triton 3.6.0 asks numpy for the whole number in an array of one element, which numpy 2.4 refuses:
`range(0, N, BLOCK)` raises TypeError there. Later versions of Triton ask as is done here.
"""

from __future__ import annotations

from typing import Any


def count(interpreter: Any) -> None:  # noqa: ANN401 - a module of Triton's
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    original = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:  # noqa: ANN401 - Triton's
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch
