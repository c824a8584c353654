"""Makes Triton's interpreter compute with bfloat16 instead of with the integers that hold it.

The interpreter keeps bfloat16 as uint16 and applies numpy to that: sums, products, `tl.dot` and
reductions come out as garbage (seen with Triton 3.6.0, 3.7.1, 3.8.0 and 3.9.0). Here each
arithmetic operation widens to float32 and rounds once at its end, as the hardware's do.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

_ARITHMETIC = (
    "fadd", "fmul", "fdiv", "frem", "fsub", "fneg", "precise_divf", "minimumf", "minnumf",
    "maximumf", "maxnumf", "clampf", "fma", "cos", "exp", "exp2", "floor", "ceil", "log", "log2",
    "precise_sqrt", "sqrt", "sin", "erf", "rsqrt", "dot", "fp_to_si", "fp_to_ui",
)  # fmt: skip
_COMPARISONS = tuple(f"fcmp{o}{op}" for o in "OU" for op in ("LT", "GT", "LE", "GE", "EQ", "NE"))
Method = Callable[..., Any]


def correct(interpreter: ModuleType) -> None:
    """Patch a freshly imported `triton.runtime.interpreter`, in this process only."""
    builder = interpreter.InterpreterBuilder
    for name in (*_ARITHMETIC, *_COMPARISONS):
        method = getattr(builder, f"create_{name}", None)
        if method is not None:
            setattr(builder, f"create_{name}", _widened(method, interpreter))
    for name in _COMPARISONS:
        method = getattr(builder, f"create_{name}")
        setattr(builder, f"create_{name}", _truth(method, interpreter))
    for name in ("create_si_to_fp", "create_ui_to_fp", "create_fp_trunc"):
        setattr(builder, name, _rounded(getattr(builder, name), interpreter))
    if not hasattr(builder, "get_bf16"):
        builder.get_bf16 = _constant(interpreter)
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = _widened_reduction(kind.apply_impl, interpreter)


def _widened(method: Method, interpreter: ModuleType) -> Method:
    """The method on float32 copies of its bfloat16 operands; a result of theirs is rounded back."""
    handle = interpreter.TensorHandle

    def run(self: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        operands = [a for a in args if isinstance(a, handle)]
        narrow = [_is_bfloat16(a, interpreter) for a in operands]
        if not any(narrow):
            return method(self, *args, **kwargs)
        wide = [_widen(a, interpreter) if isinstance(a, handle) else a for a in args]
        result = method(self, *wide, **kwargs)
        return _narrow(result, interpreter) if all(narrow) else result

    return run


def _truth(method: Method, interpreter: ModuleType) -> Method:
    """A comparison whose result says that it is a truth value.

    It says that it is a float (seen with Triton 3.8.0), and fails when a scalar meets a mask.
    """

    def run(self: object, *args: Any) -> Any:  # noqa: ANN401
        result = method(self, *args)
        return interpreter.TensorHandle(result.data, interpreter.tl.int1)

    return run


def _rounded(method: Method, interpreter: ModuleType) -> Method:
    """A cast to bfloat16, by way of float32."""

    def run(self: object, source: Any, kind: Any) -> Any:  # noqa: ANN401
        if kind.scalar != interpreter.tl.bfloat16 or source.dtype.scalar == kind.scalar:
            return method(self, source, kind)
        wide = interpreter.TensorHandle(source.data.astype("float32"), interpreter.tl.float32)
        return _narrow(wide, interpreter)

    return run


def _constant(interpreter: ModuleType) -> Method:
    def get_bf16(self: object, value: float) -> Any:  # noqa: ANN401
        np, tl = interpreter.np, interpreter.tl
        return _narrow(
            interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32), interpreter
        )

    return get_bf16


def _widened_reduction(method: Method, interpreter: ModuleType) -> Method:
    """A reduction or scan over float32 copies, rounded back at its end."""
    tl = interpreter.tl

    def run(self: Any, inputs: Any) -> Any:  # noqa: ANN401
        if not any(_is_bfloat16(each.handle, interpreter) for each in inputs):
            return method(self, inputs)
        wide = tuple(_wide_tensor(self, each, interpreter) for each in inputs)
        result = method(self, wide)
        if isinstance(result, tl.core.tensor):
            return _narrow_tensor(self, result, inputs[0], interpreter)
        pairs = zip(result, inputs, strict=False)
        narrow = [_narrow_tensor(self, r, each, interpreter) for r, each in pairs]
        return type(result)([*narrow, *result[len(narrow) :]])

    return run


def _wide_tensor(ops: Any, tensor: Any, interpreter: ModuleType) -> Any:  # noqa: ANN401
    if not _is_bfloat16(tensor.handle, interpreter):
        return tensor
    return ops.to_tensor(_widen(tensor.handle, interpreter).data, interpreter.tl.float32)


def _narrow_tensor(
    ops: Any,  # noqa: ANN401
    result: Any,  # noqa: ANN401
    source: Any,  # noqa: ANN401
    interpreter: ModuleType,
) -> Any:  # noqa: ANN401
    if not _is_bfloat16(source.handle, interpreter) or result.handle.data.dtype != "float32":
        return result
    data = _narrow(result.handle, interpreter).data
    # a scalar lies in an array of one, and would be given back as a block
    return ops.to_tensor(data if result.type.is_block() else data.item(), interpreter.tl.bfloat16)


def _is_bfloat16(handle: Any, interpreter: ModuleType) -> bool:  # noqa: ANN401
    return bool(handle.dtype.scalar == interpreter.tl.bfloat16) and handle.data.dtype == "uint16"


def _widen(handle: Any, interpreter: ModuleType) -> Any:  # noqa: ANN401
    if not _is_bfloat16(handle, interpreter):
        return handle
    data = (handle.data.astype("uint32") << 16).view("float32")
    return interpreter.TensorHandle(data, interpreter.tl.float32)


def _narrow(handle: Any, interpreter: ModuleType) -> Any:  # noqa: ANN401
    """Round to nearest, ties to even; comparisons and integers are left as they are."""
    if handle.data.dtype != "float32":
        return handle
    np = interpreter.np
    wide = np.ascontiguousarray(handle.data).view("uint32")
    rounded = (wide + (((wide >> 16) & 1) + 0x7FFF).astype("uint32")) >> 16
    narrow = np.where(np.isnan(handle.data), 0x7FC0, rounded).astype("uint16")
    return interpreter.TensorHandle(narrow, interpreter.tl.bfloat16)
