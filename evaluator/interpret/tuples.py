"""Makes tensors of the numbers that an interpreted kernel assigns by twos, as the compiler does.

Triton's interpreter does so for `total = 0.0` and not for `total, count = 0.0, 0.0`: where no loop
adds to these, `total / count` divides numbers of Python's, which raises, and in a kernel is NaN.
Seen in 3.6.0 and 3.8.0.
"""

from __future__ import annotations

from typing import Any


def unpack(interpreter: Any) -> None:  # noqa: ANN401 - a module of Triton's
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    semantic = interpreter.interpreter_semantic
    original = semantic.to_tensor

    def to_tensor(x: Any, check_type: bool = True) -> Any:  # noqa: ANN401 - Triton's
        # what is assigned comes unchecked
        if type(x) is tuple and not check_type:
            return tuple(to_tensor(each, check_type) for each in x)
        return original(x, check_type)

    semantic.to_tensor = to_tensor
