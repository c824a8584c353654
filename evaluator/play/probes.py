"""Two kernels that measure a device: one that only multiplies and adds, one that does nothing."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl

#: Multiply-adds for each element.
FMA_STEPS = 2048
_BLOCK = 1024


@triton.jit
def _multiply_add(x_ptr, y_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202, N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = x
    for _ in range(STEPS // 16):
        for _ in tl.static_range(16):
            y = y * 0.999 + x
    tl.store(y_ptr + at, y)


@triton.jit
def _nothing(flag_ptr):  # noqa: ANN001, ANN202
    if tl.load(flag_ptr) == 1:
        tl.store(flag_ptr, 2)


def multiply_add(x: torch.Tensor, y: torch.Tensor) -> None:
    """`2 * FMA_STEPS` float32 operations for each of x's elements; their number divides by 1024."""
    _multiply_add[(x.numel() // _BLOCK,)](x, y, FMA_STEPS, _BLOCK, num_warps=4)


def nothing(flag: torch.Tensor) -> None:
    """Launch one program that reads a flag and leaves it."""
    _nothing[(1,)](flag, num_warps=1)
