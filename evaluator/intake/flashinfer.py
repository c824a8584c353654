"""Reads a FlashInfer Definition (JSON), and its workloads (JSON lines), as a contract.

Fields of the FlashInfer Trace schema: axes are `const` or `var`; inputs and outputs have a shape
of axis names, or none for a scalar, which is an option here; `reference` is Python with a function
`run`. A constraint `name[-1] == axis` says that an integer input holds offsets, and `name < axis`
that it holds indices; other constraints must be formulas over the axes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from evaluator.errors import ProblemError
from evaluator.intake.costing import with_cost
from evaluator.intake.exporting import export
from evaluator.intake.sizes import Axis, points
from evaluator.intake.switches import with_both
from evaluator.isolate import Isolate
from kernel_library.formula import FormulaError, Value, evaluate, names_in
from kernel_library.recipe import Index, Normal, Offsets, Recipe, Uniform
from kernel_library.spec import DTYPES, OpSpec, Option, Reference, Role, Tensor, Workload

_OFFSETS = re.compile(r"(\w+) == (\w+)\[-1\](?:\.item\(\))?|(\w+)\[-1\](?:\.item\(\))? == (\w+)")
_BELOW = re.compile(r"(\w+) < (\w+)")
#: The size of a variable axis where no workload gives one.
_USUAL = 1024
_CHECKS = 3


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Const(_Strict):
    type: Literal["const"]
    value: Annotated[int, Field(gt=0)]
    description: str | None = None


class _Var(_Strict):
    type: Literal["var"]
    description: str | None = None
    parent: str | None = None


class _Argument(_Strict):
    shape: tuple[str, ...] | None
    dtype: str
    description: str | None = None


class Definition(_Strict):
    """The schema's Definition, as far as it says what is computed."""

    name: str
    op_type: str = ""
    axes: Mapping[str, Annotated[_Const | _Var, Field(discriminator="type")]]
    inputs: Mapping[str, _Argument]
    outputs: Mapping[str, _Argument]
    reference: str
    tags: tuple[str, ...] = ()
    description: str | None = None
    constraints: tuple[str, ...] = ()


class _Random(_Strict):
    type: Literal["random"]


class _Scalar(_Strict):
    type: Literal["scalar"]
    value: int | float | bool


class _File(_Strict):
    type: Literal["safetensors"]
    path: str
    tensor_key: str


class _Workload(_Strict):
    uuid: str = ""
    axes: Mapping[str, Annotated[int, Field(gt=0)]]
    inputs: Mapping[str, Annotated[_Random | _Scalar | _File, Field(discriminator="type")]] = {}


_definition_json = TypeAdapter(Definition)
_line_json: TypeAdapter[Any] = TypeAdapter(Any)
_workload_json = TypeAdapter(_Workload)


def read_definition(text: str, workloads: str | None, isolate: Isolate) -> OpSpec:
    """The contract of a Definition, with its graphs and cost. Raises `ProblemError`."""
    try:
        definition = _definition_json.validate_json(text)
    except ValidationError as error:
        raise _at_field(error, "Definition") from error
    _check_python(definition.reference)
    given = [_workload(n, line) for n, line in enumerate((workloads or "").splitlines(), 1) if line]
    op = _contract(definition, given)
    every = (*_checks(op, definition), *_measured(op, definition, given))
    op = replace(op, workloads=every)
    return with_both(with_cost(export(op, every, isolate)), isolate)


def _at_field(error: ValidationError, where: str) -> ProblemError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return ProblemError(first["msg"], f"{where} field {field!r}" if field else where)


def _check_python(reference: str) -> None:
    try:
        tree = ast.parse(reference)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ProblemError(f"not Python: {error}", f"field 'reference', line {line}") from error
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        raise ProblemError("has no function `run`", "field 'reference'")


def _workload(number: int, line: str) -> _Workload:
    where = f"workloads line {number}"
    try:
        value = _line_json.validate_json(line)
        # a trace holds its workload as one of its fields
        inner = value.get("workload", value) if isinstance(value, dict) else value
        workload = _workload_json.validate_python(inner)
    except ValidationError as error:
        raise _at_field(error, where) from error
    for name, given in workload.inputs.items():
        if isinstance(given, _File):
            raise ProblemError(
                f"input {name!r} is read from a file; use `random` or `scalar`", where
            )
    return workload


def _contract(definition: Definition, given: list[_Workload]) -> OpSpec:
    recipes, constraints = _constraints(definition)
    inputs = {}
    for name, argument in definition.inputs.items():
        if argument.shape is not None:
            inputs[name] = _tensor(definition, f"inputs.{name}", argument, recipes.get(name))
    if not inputs:
        raise ProblemError("no input is a tensor", "field 'inputs'")
    outputs = {
        name: replace(_tensor(definition, f"outputs.{name}", a, Normal()), recipe=Normal())
        for name, a in definition.outputs.items()
    }
    options = {
        name: Option(_scalar(name, given))
        for name, argument in definition.inputs.items()
        if argument.shape is None
    }
    fixed = [f"{a} == {x.value}" for a, x in definition.axes.items() if isinstance(x, _Const)]
    return OpSpec(
        name=definition.name, inputs=inputs, outputs=outputs, workloads=(), options=options,
        constraints=(*fixed, *constraints), reference=Reference(definition.reference, "run"),
    )  # fmt: skip


def _tensor(
    definition: Definition, field: str, argument: _Argument, recipe: Recipe | None
) -> Tensor:
    if argument.dtype not in DTYPES:
        known = ", ".join(sorted(DTYPES))
        raise ProblemError(
            f"unknown dtype {argument.dtype!r}; known are {known}", f"field {field!r}"
        )
    unknown = [axis for axis in argument.shape or () if axis not in definition.axes]
    if unknown:
        raise ProblemError(f"unknown axis {unknown[0]!r}", f"field {field!r}")
    if recipe is None and argument.dtype == "bool":
        recipe = Uniform(0.0, 0.5)
    if recipe is None and "int" in argument.dtype:
        name = field.removeprefix("inputs.")
        raise ProblemError(
            f"holds integers: add a constraint '{name} < AXIS' (or 'AXIS == {name}[-1]': offsets)",
            f"field {field!r}",
        )
    return Tensor(" ".join(argument.shape or ()), argument.dtype, recipe or Normal())


def _constraints(definition: Definition) -> tuple[dict[str, Recipe], list[str]]:
    """Constraints that say what an integer input holds, and those over axes."""
    recipes: dict[str, Recipe] = {}
    formulas = []
    for i, text in enumerate(definition.constraints):
        offsets, below = _OFFSETS.fullmatch(text.strip()), _BELOW.fullmatch(text.strip())
        if offsets:
            total, name = offsets[1] or offsets[4], offsets[2] or offsets[3]
            recipes[name] = Offsets(total)
        elif below and below[1] in definition.inputs:
            recipes[below[1]] = Index(below[2])
        else:
            formulas.append(_formula(definition, i, text))
    return recipes, formulas


def _formula(definition: Definition, number: int, text: str) -> str:
    where = f"field 'constraints.{number}'"
    try:
        unknown = names_in(text) - definition.axes.keys()
        if not unknown:
            evaluate(text, dict.fromkeys(definition.axes, 1))
    except FormulaError as error:
        raise ProblemError(str(error), where) from error
    if unknown:
        raise ProblemError(f"{text!r} asks for {sorted(unknown)}, which are no axes", where)
    return text


def _scalar(name: str, given: list[_Workload]) -> Value:
    for workload in given:
        if isinstance(scalar := workload.inputs.get(name), _Scalar):
            return scalar.value
    raise ProblemError("is a scalar: give its value in the workloads", f"field 'inputs.{name}'")


def _fixed(definition: Definition) -> dict[str, int]:
    return {a: x.value for a, x in definition.axes.items() if isinstance(x, _Const)}


def _variable(definition: Definition) -> list[str]:
    return [a for a, x in definition.axes.items() if isinstance(x, _Var)]


def _checks(op: OpSpec, definition: Definition) -> list[Workload]:
    """Small sizes of the variable axes that the constraints allow."""
    user = {**_fixed(definition), **dict.fromkeys(_variable(definition), _USUAL)}
    free = dict.fromkeys(_variable(definition), Axis())
    small = [Workload(dims, {}) for dims in points(op, free, user)] if free else []
    legal = [at for at in small if op.is_legal(at)]
    return legal[:_CHECKS]


def _measured(op: OpSpec, definition: Definition, given: list[_Workload]) -> list[Workload]:
    """The workloads as given, or one of a usual size."""
    role: Role = "measure"
    found = []
    for workload in given or [_Workload(axes=dict.fromkeys(_variable(definition), _USUAL))]:
        missing = set(_variable(definition)) - workload.axes.keys()
        unknown = workload.axes.keys() - definition.axes.keys()
        if missing or unknown:
            raise ProblemError(
                f"axes {sorted(missing or unknown)} are {'missing' if missing else 'unknown'}",
                f"workload {workload.uuid!r}",
            )
        scalars = {n: s.value for n, s in workload.inputs.items() if isinstance(s, _Scalar)}
        at = Workload({**_fixed(definition), **workload.axes}, {}, role, scalars)
        if not op.is_legal(at):
            raise ProblemError("breaks a constraint", f"workload {workload.uuid!r}")
        found.append(at)
    return found
