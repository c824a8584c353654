"""An op's signature, as torch's schema language and as Python has it."""

from __future__ import annotations

import json

from kernel_library.spec import OpSpec, Tensor

#: Option types by the Python types of the values that an option takes, widest first.
_TYPES = ((str, "str"), (float, "float"), (bool, "bool"), (int, "int"))


def schema(op: OpSpec) -> str:
    """Without the op's name: `(Tensor x, Tensor(a1!) w, *, float eps=1e-06) -> Tensor`."""
    arguments = [
        f"{_schema_type(t, f'(a{i}!)' if name in op.mutates else '')} {name}"
        for i, (name, t) in enumerate(op.inputs.items())
    ]
    options = [_schema_option(op, name) for name in op.options]
    returned = [_schema_type(t, "") for t in op.outputs.values()]
    result = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
    return f"({', '.join([*arguments, *(['*', *options] if options else [])])}) -> {result}"


def parameters(op: OpSpec) -> str:
    """What stands between the brackets of the Python function's definition."""
    arguments = [f"{name}: {_python_type(t)}" for name, t in op.inputs.items()]
    options = [f"{n}: {_option_type(op, n)} = {o.default!r}" for n, o in op.options.items()]
    return ", ".join([*arguments, *(["*", *options] if options else [])])


def result(op: OpSpec) -> str:
    """What the Python function returns."""
    types = [_python_type(t) for t in op.outputs.values()]
    return types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]" if types else "None"


def _schema_type(tensor: Tensor, mutated: str) -> str:
    return f"Tensor{mutated}" + ("[]" if tensor.count is not None else "")


def _python_type(tensor: Tensor) -> str:
    return "torch.Tensor" if tensor.count is None else "list[torch.Tensor]"


def _option_type(op: OpSpec, name: str) -> str:
    """The narrowest type that holds the default, the choices and what workloads ask for."""
    option = op.options[name]
    values = [option.default, *option.choices]
    values += [w.options[name] for w in op.workloads if name in w.options]
    some = [v for v in values if v is not None]
    kind = next((text for kind, text in _TYPES if any(type(v) is kind for v in some)), "float")
    return kind if len(some) == len(values) else f"{kind} | None"


def _schema_option(op: OpSpec, name: str) -> str:
    kind, default = _option_type(op, name), op.options[name].default
    if isinstance(default, str):
        text = json.dumps(default)
    elif isinstance(default, int) and kind.startswith("float"):
        text = repr(float(default))
    else:
        text = repr(default)
    return f"{kind.replace(' | None', '?')} {name}={text}"
