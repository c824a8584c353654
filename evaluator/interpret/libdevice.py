"""Gives interpreted kernels CUDA's libdevice, computed by torch on the host.

In Triton's interpreter its functions return None, or ask for a missing `@triton.jit` (seen in
3.6.0 and 3.8.0). Accuracy is torch's, which is within an ulp or two of CUDA's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch


def _away(x: torch.Tensor) -> torch.Tensor:
    """Rounded, and halves away from zero."""
    whole = torch.trunc(x)
    return torch.where((x - whole).abs() >= 0.5, whole + torch.sign(x), whole)


#: By a symbol's name without `__nv_`, `fast_` and the letter of its type. The rest is GPU's alone.
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(torch, name)
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos",
        "cosh", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "lgamma",
        "log", "log10", "log1p", "log2", "nextafter", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan",
        "tanh", "trunc",
    )
} | {
    "abs": torch.abs, "fabs": torch.abs, "llabs": torch.abs, "powi": torch.pow,
    "round": _away, "llround": _away, "rint": torch.round, "nearbyint": torch.round,
    "llrint": torch.round,
    "exp10": lambda x: torch.pow(10.0, x),
    "fdiv_rn": torch.div, "ddiv_rn": torch.div, "fdivide": torch.div,
    "frcp_rn": torch.reciprocal, "drcp_rn": torch.reciprocal,
    "fsqrt_rn": torch.sqrt, "dsqrt_rn": torch.sqrt, "frsqrt_rn": torch.rsqrt,
    "isnan": torch.isnan, "isinf": torch.isinf, "finite": torch.isfinite,
    "isfinite": torch.isfinite, "signbit": torch.signbit, "normcdf": torch.special.ndtr,
    "float2int_rn": torch.round, "float2ll_rn": torch.round, "float2int_rz": torch.trunc,
    "saturate": lambda x: torch.nan_to_num(x, 0.0).clamp(0.0, 1.0),
}  # fmt: skip


def provide(interpreter: Any) -> None:  # noqa: ANN401 - a module of Triton's
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    builder = interpreter.InterpreterBuilder

    def extern(self: object, *call: Any) -> Any:  # noqa: ANN401 - Triton's
        _library, _path, symbol, args, kind, _pure = call
        function = _function(symbol)
        data = [torch.from_numpy(interpreter.np.ascontiguousarray(a.data)) for a in args]
        found = function(*data).numpy().astype(interpreter._get_np_dtype(kind))
        return interpreter.TensorHandle(found, kind.scalar)

    builder.create_extern_elementwise = extern
    cuda = importlib.import_module("triton.language.extra.cuda.libdevice")
    neutral = importlib.import_module("triton.language.extra.libdevice")
    for name, member in vars(cuda).copy().items():
        if interpreter.tl.core.is_builtin(member):
            made = _bound(member, interpreter.interpreter_semantic)
            setattr(cuda, name, made)
            setattr(neutral, name, made)


def _function(symbol: str) -> Callable[..., torch.Tensor]:
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for known in (name, name.removesuffix("f"), name.removesuffix("d")):
        if known in FUNCTIONS:
            return FUNCTIONS[known]
    raise NotImplementedError(
        f"no {symbol} without a GPU: have this kernel judged on one, or write it without"
    )


def _bound(member: Callable[..., Any], semantic: object) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Triton's
        return member(*args, **{**kwargs, "_semantic": semantic})

    return run
