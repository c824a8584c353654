"""Kernel libraries that a candidate races against, where they are installed and have the op.

Torch's own kernels that no reference calls, since it spells out what they do, stand among them.

To add one, add a table: our ops' names, and how its functions are called. Whether a function
computes what the op does, `baselines.agrees` tells: its name proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

from kernel_library.formula import Value

Tensors = Sequence[torch.Tensor]
Options = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Function:
    """How a library's function is called: with its module, the op's inputs and its options.

    `only` are the options that it was made for.
    """

    module: str
    call: Callable[[Any, Tensors, Options], object]
    only: Options = field(default_factory=dict)


_LIGER = "liger_kernel.transformers.functional"
_FLA_NORM, _FLA_ROPE = "fla.modules.norm.layernorm", "fla.modules.rotary.ops"
LIBRARIES: Mapping[str, Mapping[str, Function]] = {
    "liger": {
        "rms_norm": Function(
            _LIGER, lambda m, a, o: m.liger_rms_norm(*a, o["eps"], o["offset"], o["cast"])
        ),
        "layer_norm": Function(_LIGER, lambda m, a, o: m.liger_layer_norm(*a, o["eps"])),
        "add_rms_norm": Function(
            _LIGER,
            lambda m, a, o: m.liger_fused_add_rms_norm(*a, o["eps"], o["offset"], o["cast"]),
        ),
        "softmax": Function(_LIGER, lambda m, a, o: m.liger_softmax(*a), {"scale": 1.0}),
        "swiglu": Function(_LIGER, lambda m, a, o: m.liger_swiglu(*a)),
        "geglu": Function(_LIGER, lambda m, a, o: m.liger_geglu(*a), {"approximate": "tanh"}),
    },
    "fla": {
        "rms_norm": Function(
            _FLA_NORM, lambda m, a, o: m.rms_norm(*a, None, eps=o["eps"]), {"offset": 0.0}
        ),
        "layer_norm": Function(_FLA_NORM, lambda m, a, o: m.layer_norm(*a, eps=o["eps"])),
        "swiglu": Function("fla.modules.activations", lambda m, a, o: m.swiglu(*a)),
        "rope": Function(
            _FLA_ROPE,
            lambda m, a, o: tuple(
                m.rotary_embedding(x, *a[2:], interleaved=o["interleaved"]) for x in a[:2]
            ),
        ),
    },
    # a (M, K), b (N, K), then the scales of each, of all or of each row
    "scaled_mm": {
        "fp8_gemm": Function(
            "torch", lambda m, a, o: m._scaled_mm(a[0], a[1].t(), *a[2:], out_dtype=m.bfloat16)
        )
    },
    # x (T, K), w (E, N, K), and where in T the rows of each of E end
    "grouped_mm": {
        "grouped_gemm": Function(
            "torch.nn.functional", lambda m, a, o: m.grouped_mm(a[0], a[1].mT, offs=a[2])
        )
    },
}


class Missing(Exception):  # noqa: N818 (it is an outcome, not an error of ours)
    """A library has no such function here, in words."""


def find(library: str, op: str, options: Options) -> Callable[[Tensors], object]:
    """The library's function for an op of that name. Raises `Missing`."""
    function = LIBRARIES[library].get(op)
    if function is None or any(options.get(o, v) != v for o, v in function.only.items()):
        raise Missing(f"has no {op} with these options")
    try:
        module = import_module(function.module)
    except ImportError as error:
        raise Missing(f"has no {function.module} here: it is not installed, or another") from error
    return lambda inputs: function.call(module, inputs, options)


def import_ahead(library: str, op: str) -> None:
    """Import what the library's function for an op needs, if it has one. Raises ImportError."""
    if function := LIBRARIES[library].get(op):
        import_module(function.module)
