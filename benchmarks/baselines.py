"""What a user would run today in place of each seed: PyTorch, torch.compile, and Liger if there.

Each baseline takes a unit's inputs in order and does the same work as its kernel, at the default
options. Eager is PyTorch's own fused op where it has one, whatever the unit's reference spells.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional

Call = Callable[..., Any]
EPS = 1e-6


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """PyTorch's fused op."""
    return functional.rms_norm(x, x.shape[-1:], w, eps=EPS)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's fused op."""
    return torch.softmax(x, dim=-1)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Two ops: PyTorch has no fused one."""
    return functional.silu(gate) * up


def gemm(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The vendor library, bias fused."""
    return torch.addmm(bias, a, b)


def linear_cross_entropy(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """All logits at once, in float32 for the loss, as a model's own code has it."""
    return functional.cross_entropy(functional.linear(x, w).float(), target)


def with_loss(forward: Call) -> Call:
    """A training step's loss and gradients: called as `fused_linear_cross_entropy` is."""

    def both(
        x: torch.Tensor, w: torch.Tensor, d_loss: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        leaves = [t.detach().requires_grad_() for t in (x, w)]
        loss = forward(*leaves, target)
        return (loss, *torch.autograd.grad(loss, leaves, d_loss.reshape(())))

    return both


def with_gradient(forward: Call) -> Call:
    """Forward and backward: called with the gradient of the output, then the forward's inputs."""

    def both(d_y: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = [t.detach().requires_grad_() for t in inputs]
        out = forward(*leaves)
        return (out, *torch.autograd.grad(out, leaves, d_y))

    return both


FORWARD: dict[str, Call] = {
    "rms_norm": rms_norm,
    "softmax": softmax,
    "swiglu": swiglu,
    "gemm": gemm,
    "fused_linear_cross_entropy": linear_cross_entropy,
}


def liger(op: str) -> Call | None:
    """Liger's autograd function for a forward op; None where it is not installed or has none."""
    if find_spec("liger_kernel") is None:
        return None
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.softmax import LigerSoftmaxFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    calls: dict[str, Call] = {
        "rms_norm": lambda x, w: LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False),
        "softmax": LigerSoftmaxFunction.apply,
        "swiglu": LigerSiLUMulFunction.apply,
        "fused_linear_cross_entropy": lambda x, w, target: (
            LigerFusedLinearCrossEntropyFunction.apply(x, w, target)[0]
        ),
    }
    return calls.get(op)


def baselines(op: str) -> dict[str, Call]:
    """Baselines by name for an op: `rms_norm`, or `rms_norm+backward` for both passes."""
    forward, _, backward = op.partition("+")
    wrap: Call = with_gradient if backward else lambda call: call
    if forward == "fused_linear_cross_entropy":
        wrap = with_loss
    eager = FORWARD.get(forward)
    if eager is None:
        return {}
    found = {"eager": wrap(eager), "compile": wrap(torch.compile(eager, dynamic=False))}
    third = liger(forward)
    if third is not None:
        found["liger"] = wrap(third)
    return found
