"""What a KernelBench-style or a plain file says of itself. Runs in the intake job."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from evaluator.errors import ProblemError
from evaluator.intake.examples import MOST_BYTES, ask_for_inputs, meta, sort_out
from evaluator.intake.loading import OnCpu, loaded
from evaluator.intake.naming import Shapes, followed
from evaluator.intake.recipes import parameter_recipe
from evaluator.intake.wire import Described, Example, Slot
from kernel_library.formula import Value

#: Appended to a KernelBench-style file: the model without the weight of its parameters. Tables and
#: other tensors that are no parameters keep their values, for which the model is made in full.
BUILD = '''

def _is_table(buffer):
    """Integers, or a matrix of whole numbers such as a mask: its values are part of the op."""
    if buffer.nbytes > 1 << 20 or buffer.dim() == 0:
        return False
    if not buffer.is_floating_point():
        return True
    return buffer.dim() > 1 and not buffer.is_meta and bool((buffer == buffer.round()).all())


def _make_model():
    arguments = get_init_inputs() if "get_init_inputs" in globals() else []
    return Model(**arguments) if hasattr(arguments, "keys") else Model(*arguments)


def _build_model():
    try:
        with torch.device("meta"):
            model = _make_model()
    except (RuntimeError, NotImplementedError):
        return _make_model()
    plain = [value for module in model.modules() for value in vars(module).values()]
    plain += [b for b in model.buffers() if b.dim() > 1 or not b.is_floating_point() and b.dim()]
    if any(isinstance(value, torch.Tensor) for value in plain):
        return _make_model()
    return model


_MODEL = _build_model()
'''


def describe_model(source: str) -> Described:
    """A file with `Model`, `get_inputs` and perhaps `get_init_inputs`.

    The forward's tensors come first, then parameters and floating buffers by their own names;
    tables (see `_is_table`) stay in the model. What it writes to a buffer is not an output.
    """
    with_model = _imports_torch(source) + BUILD
    with loaded(with_model) as module:
        value, small, hints = ask_for_inputs(module.get_inputs)
        names = list(_bind(module.Model.forward, value, skip=1))
        examples, options = sort_out(_paired(names, value, small), hints)
        held = dict(_parameters(module, {name for name, _ in names}))
        sizes = _named_sizes(module)
        follows = followed(module, sizes, lambda: _model_shapes(module, held))
        weights = tuple(example for example, _ in held.values())
        state = {name: f"{e.name}.clone()" if own else e.name for name, (e, own) in held.items()}
        state |= _counters(module)
    text = _reference([name for name, _ in names], options, [e.name for e in weights], state)
    return Described(with_model + text, _following((*examples, *weights), follows), options, sizes)


def describe_plain(source: str) -> Described:
    """A file with a function `reference`, and its example inputs in `get_inputs()` or `INPUTS`."""
    with loaded(source) as module:
        if not callable(module.reference):
            raise ProblemError("`reference` is not a function")
        give = module.get_inputs if hasattr(module, "get_inputs") else lambda: module.INPUTS
        value, small, hints = ask_for_inputs(give)
        names = list(_bind(module.reference, value))
        examples, options = sort_out(_paired(names, value, small), hints)
        options |= _keyword_only(module.reference, set(options))
        _check_order(names, options)
        sizes = _named_sizes(module)
        follows = followed(module, sizes, lambda: _input_shapes(give, module.reference))
        return Described(source, _following(examples, follows), options, sizes)


def _following(
    examples: Sequence[Example], follows: Mapping[str, tuple[str, ...]]
) -> tuple[Example, ...]:
    return tuple(replace(example, follows=follows.get(example.name, ())) for example in examples)


def _input_shapes(give: Callable[[], object], function: object, skip: int = 0) -> Shapes:
    """The shapes of the example tensors as the author's numbers are now, without their bytes."""
    with FakeTensorMode(), OnCpu():
        named = dict(_bind(function, give(), skip))
    return {name: tuple(v.shape) for name, v in named.items() if isinstance(v, torch.Tensor)}


def _model_shapes(module: ModuleType, held: Mapping[str, tuple[Example, bool]]) -> Shapes:
    """Those of a model's inputs, parameters and buffers."""
    with torch.device("meta"):
        model = module._make_model()
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    known = {e.name: tuple(tensors[name].shape) for name, (e, _) in held.items()}
    return {**_input_shapes(module.get_inputs, module.Model.forward, skip=1), **known}


def _imports_torch(source: str) -> str:
    """The model is built with torch under that name, whatever the file calls it."""
    return source if re.search(r"^import torch$", source, re.M) else f"{source}\n\nimport torch"


def _bind(function: Any, values: object, skip: int = 0) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    """The example values by the names of the arguments that they are for."""
    if isinstance(values, torch.Tensor) or not isinstance(values, list | tuple | Mapping):
        kind = type(values).__name__
        raise ProblemError(f"gives a {kind}: return a list of the arguments", "get_inputs")
    signature = inspect.signature(function)
    named = values if isinstance(values, Mapping) else {}
    given = () if named else tuple(values)
    try:
        bound = signature.bind(*(None,) * skip, *given, **named)
    except TypeError as error:
        raise ProblemError(
            f"does not fit the function's arguments: {error}", "get_inputs"
        ) from error
    for name, value in list(bound.arguments.items())[skip:]:
        if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}{i}", each) for i, each in enumerate(value))
        elif signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


def _paired(
    names: list[tuple[str, object]], value: object, small: object
) -> list[tuple[str, object, object]]:
    """Each argument with and without its size, where the two examples have the same form."""
    if value is small:
        return [(name, each, each) for name, each in names]
    shrunk = list(small.values() if isinstance(small, Mapping) else small)  # type: ignore[call-overload]
    return [(name, each, s) for (name, each), s in zip(names, shrunk, strict=True)]


def _parameters(module: ModuleType, taken: set[str]) -> Iterator[tuple[str, tuple[Example, bool]]]:
    """Parameters and buffers as inputs, by their name in the model; True for a buffer."""
    model = module._MODEL
    held = [*model.parameters(), *model.buffers()]
    if any(t.is_meta for t in held) and sum(t.nbytes for t in held) <= MOST_BYTES:
        torch.manual_seed(0)
        with OnCpu():
            model = module._make_model()
    buffers = {name for name, _ in model.named_buffers()}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in buffers and (module._is_table(tensor) or _is_counter(tensor)):
            continue
        mine = name.replace(".", "_")
        mine = mine if mine not in taken else f"{mine}_parameter"
        taken.add(mine)
        recipe = parameter_recipe(mine, tensor.detach())
        yield name, (Example(mine, Slot((meta(mine, tensor),)), recipe), name in buffers)


def _is_counter(buffer: torch.Tensor) -> bool:
    return buffer.dim() == 0 and not buffer.is_floating_point()


def _counters(module: ModuleType) -> dict[str, str]:
    """Counters that a forward may write to, as code: each call starts them anew."""
    return {
        name: f"torch.zeros((), dtype={buffer.dtype})"
        for name, buffer in module._MODEL.named_buffers()
        if _is_counter(buffer)
    }


def _reference(
    names: list[str],
    options: Mapping[str, Value],
    weights: list[str],
    state: Mapping[str, str],
) -> str:
    """The function that is the model's forward, with everything it depends on passed in."""
    tensors = [name for name in names if name not in options] + weights
    keywords = [f"{name}={value!r}" for name, value in options.items()]
    arguments = ", ".join([*tensors, *(["*", *keywords] if keywords else [])])
    held = ", ".join(f"{name!r}: {code}" for name, code in state.items())
    forward = "".join(f"{name}, " for name in names)
    return f'''

def reference({arguments}):
    """The model's forward, its parameters and buffers passed in."""
    state = {{{held}}}
    return torch.func.functional_call(_MODEL, state, ({forward}))
'''


def _keyword_only(function: Any, given: set[str]) -> dict[str, Value]:  # noqa: ANN401
    found: dict[str, Value] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or name in given:
            continue
        if not isinstance(parameter.default, int | float | str | None):
            raise ProblemError(
                "needs a plain default: a number, a text or None", f"option {name!r}"
            )
        found[name] = parameter.default
    return found


def _check_order(names: list[tuple[str, object]], options: Mapping[str, Value]) -> None:
    """The reference is called with tensors by position and options by keyword."""
    plain = [name in options for name, _ in names]
    if plain != sorted(plain):
        late = next(name for name, is_plain in zip(names, plain, strict=True) if is_plain)[0]
        raise ProblemError(
            "stands before a tensor: move it behind, or after `*`", f"input {late!r}"
        )


def _named_sizes(module: ModuleType) -> dict[str, int]:
    """The whole numbers that the file gives names to, `batch_size = 16` say."""
    return {
        name: value
        for name, value in vars(module).items()
        if type(value) is int and value > 1 and not name.startswith("_")
    }
