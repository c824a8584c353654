"""What the red team's small ops are written with.

Row counts stay below 25 or above 1023, so that Triton's interpreter, which runs one program after
another, never meets a size that a GPU is needed for.
"""

from __future__ import annotations

from kernel_library.spec import DType, Reference, Workload, grid

ROWS = ("M <= 24 or M >= 1024",)


def written(arguments: str, *lines: str) -> Reference:
    """A reference of these arguments, whose body is these lines."""
    body = "".join(f"    {line}\n" for line in lines)
    return Reference(f"import torch\n\ndef reference({arguments}):\n{body}")


def small(dtype: DType) -> tuple[Workload, ...]:
    """Two sizes of rows to check, and none to measure."""
    return grid("M N", {"check": [(3, 40), (5, 127)]}, (dtype,))
