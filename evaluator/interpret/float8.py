"""Makes Triton's interpreter cast to and from 8-bit floats as the hardware does.

Its own cast rounds ties away from zero, lets a mantissa that overflows fall to zero under the old
exponent (0.121 becomes 0.0625 in e4m3), and wraps beyond the largest value (500 becomes 256; seen
with Triton 3.6.0 and 3.8.0). `cvt.rn.satfinite` rounds to nearest, ties to even, and saturates.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch


def correct_float8(interpreter: ModuleType) -> None:
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    tl, builder = interpreter.tl, interpreter.InterpreterBuilder
    eights = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
    known = eights | {
        tl.float16: torch.float16, tl.bfloat16: torch.bfloat16,
        tl.float32: torch.float32, tl.float64: torch.float64,
    }  # fmt: skip
    original = builder.create_fp_to_fp

    def cast(self: object, source: Any, kind: Any, rounding: Any) -> Any:  # noqa: ANN401 - Triton's
        have, want = known.get(source.dtype.scalar), known.get(kind.scalar)
        if have is None or want is None or rounding == interpreter._ir.ROUNDING_MODE.RTZ:
            return original(self, source, kind, rounding)
        values = torch.from_numpy(interpreter.np.ascontiguousarray(source.data)).view(have)
        if kind.scalar in eights:
            most = torch.finfo(want).max
            values = values.float().clamp(-most, most)
        data = values.to(want).view(getattr(torch, f"uint{8 * want.itemsize}")).numpy()
        return interpreter.TensorHandle(
            data.view(interpreter._get_np_dtype(kind)).reshape(source.data.shape), kind.scalar
        )

    builder.create_fp_to_fp = cast
