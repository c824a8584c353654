"""Small formulas over axis sizes and options, kept as text so that a contract stays plain data.

`"4 * B * H * D * (S * (S + 1) // 2 if causal else S * S)"` is one. Arithmetic, comparisons,
`and`/`or`/`not`, `x if c else y`, and the functions in `FUNCTIONS`; nothing else is evaluated.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Value = int | float | bool | str | None

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "sum": lambda sizes: sum(sizes) if isinstance(sizes, tuple) else sizes,
    "len": lambda sizes: len(sizes) if isinstance(sizes, tuple) else 1,
    "cdiv": lambda a, b: -(-a // b),
    "pow2": lambda n: 1 << max(0, int(n) - 1).bit_length(),
}
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.Not: operator.not_,
}  # fmt: skip


class FormulaError(ValueError):
    """The text is not a formula, or names something that has no value here."""


def evaluate(formula: str, names: Mapping[str, Any]) -> Any:
    """The formula's value with these names. Raises `FormulaError`."""
    try:
        return _value(_parse(formula), names)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise FormulaError(f"cannot evaluate {formula!r}: {error}") from error


def names_in(formula: str) -> frozenset[str]:
    """The axes and options that the formula asks for."""
    found = {node.id for node in ast.walk(_parse(formula)) if isinstance(node, ast.Name)}
    return frozenset(found - FUNCTIONS.keys())


@lru_cache(maxsize=4096)
def _parse(formula: str) -> ast.expr:
    try:
        return ast.parse(formula, mode="eval").body
    except SyntaxError as error:
        raise FormulaError(f"not a formula: {formula!r}") from error


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() | None as constant):
            return constant
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_number(left, names), _number(right, names))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand, names))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_value(left, names), _value(right, names))
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(v, names) for v in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_value(v, names) for v in values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(a, names) for a in args))
    raise FormulaError(f"not allowed in a formula: {ast.unparse(node)!r}")


def _number(node: ast.expr, names: Mapping[str, Any]) -> Any:
    # "a" * 10000000000 is a text of 10 GB; a size may be a symbol of torch's, which is no int
    value = _value(node, names)
    if value is None or isinstance(value, str | tuple | list):
        raise FormulaError(f"not a number: {ast.unparse(node)!r}")
    # torch 2.11 multiplies no symbol by a truth value
    return int(value) if isinstance(value, bool) else value
