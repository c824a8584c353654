"""Registers each op of this package with torch: schema, fake and, where there is one, gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ._bind import described
from ._contract import Op, load, names
from ._dispatch import PACKAGE, filled, reference, run
from ._settle import expected, packed, parts

NAMESPACE = PACKAGE.rpartition(".")[2]


def register_all() -> None:
    """Make `torch.ops.<package>.<op>` for every op. Called once, at import."""
    for name in names():
        register(load(name))


def register(op: Op) -> None:
    """An opaque custom op: the compiler sees its schema and its fake, never the kernel inside."""
    custom = torch.library.custom_op(
        f"{NAMESPACE}::{op.name}",
        lambda *args, **options: run(op, args, options),
        mutates_args=op.spec.mutates,
        schema=op.schema,
    )
    custom.register_fake(lambda *args, **options: fake(op, args, options))
    if op.backward is not None:
        gradient = Gradient(op, load(op.backward))
        custom.register_autograd(gradient.backward, setup_context=gradient.setup)


def fake(op: Op, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Outputs with the right shapes and dtypes and no values, contiguous as `run` leaves them."""
    options = filled(op, options)
    wanted = expected(op, described(op, args), options)
    if wanted is None:
        found = parts(op, reference(op)(*args, **options))
        return packed([[_like(t) for t in p] if isinstance(p, list) else _like(p) for p in found])
    if not wanted:
        return None
    first = next(t for a in args for t in ([a] if isinstance(a, torch.Tensor) else a))
    made: list[Any] = []
    for tensor, (each, dtype) in zip(op.spec.outputs.values(), wanted, strict=True):
        new = [first.new_empty(shape, dtype=dtype) for shape in each]
        made.append(new if tensor.count is not None else new[0])
    return packed(made)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_empty(tensor.shape)


class Gradient:
    """An op's gradient by its backward op, whose arguments find each other by name."""

    def __init__(self, op: Op, back: Op) -> None:
        self.op, self.back = op, back

    def setup(
        self,
        ctx: Any,
        inputs: Sequence[torch.Tensor],
        output: Any,
        keyword_only_inputs: dict[str, Any] | None = None,
    ) -> None:
        """Keep what the backward asks for; an output whose gradient it does not take has none."""
        outputs = [output] if isinstance(output, torch.Tensor) else list(output)
        known = dict(zip(self.op.spec.inputs, inputs, strict=True))
        known |= dict(zip(self.op.spec.outputs, outputs, strict=True))
        ctx.save_for_backward(*(known[name] for name in self._saved()))
        ctx.options = {k: v for k, v in filled(self.op, keyword_only_inputs or {}).items()
                       if k in self.back.spec.options}  # fmt: skip
        ignored = [t for name, t in zip(self.op.spec.outputs, outputs, strict=True)
                   if f"d_{name}" not in self.back.spec.inputs]  # fmt: skip
        ctx.mark_non_differentiable(*ignored)

    def backward(self, ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradient for each input. Raises RuntimeError for one that the backward lacks."""
        known = dict(zip(self._saved(), ctx.saved_tensors, strict=True))
        # what comes from a sum is expanded, with strides of zero: no kernel was judged on that
        known |= {f"d_{name}": grad.contiguous()
                  for name, grad in zip(self.op.spec.outputs, grads, strict=True)}  # fmt: skip
        call = getattr(getattr(torch.ops, NAMESPACE), self.back.name)
        made = call(*(known[name] for name in self.back.spec.inputs), **ctx.options)
        made = [made] if isinstance(made, torch.Tensor) else made
        found = dict(zip(self.back.spec.outputs, made, strict=True))
        for name, needed in zip(self.op.spec.inputs, ctx.needs_input_grad, strict=True):
            if needed and f"d_{name}" not in found:
                raise RuntimeError(f"{self.back.name} gives no gradient for {name}")
        return tuple(found.get(f"d_{name}") for name in self.op.spec.inputs)

    def _saved(self) -> list[str]:
        here = self.op.spec.inputs.keys() | self.op.spec.outputs.keys()
        return [name for name in self.back.spec.inputs if name in here]
