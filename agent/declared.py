"""The settings that a kernel's own text says may be searched; read, never run."""

from __future__ import annotations

import ast
import warnings

from kernel_library.candidate import Candidate
from kernel_library.space import Space

#: More choices than these are not read from a stranger's text.
MAX_KNOBS, MAX_CHOICES = 16, 64


class NotASpaceError(ValueError):
    """`SPACE` is not a literal dict of lists of ints; `str(error)` says what it should be."""

    def __init__(self) -> None:
        super().__init__('SPACE must be a literal such as {"BLOCK": [256, 512], "num_warps": [4]}')


def declared_space(candidate: Candidate) -> Space | None:
    """The module-level `SPACE = {"BLOCK": [256, 512]}` of the source, if there is one.

    Raises `NotASpaceError` for a `SPACE` of another form.
    """
    value = _assigned(candidate.source, "SPACE")
    if value is None:
        return None
    try:
        literal: object = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise NotASpaceError from error
    return Space(_knobs(literal))


def parse(source: str) -> ast.Module:
    """The syntax tree. Raises `SyntaxError` for any text that has none, and warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        # a NUL byte, and brackets nested deeper than the parser's stack, in that order
        except (ValueError, MemoryError, RecursionError) as error:
            raise SyntaxError(str(error) or "nested too deeply") from error


def _assigned(source: str, name: str) -> ast.expr | None:
    try:
        body = parse(source).body
    except SyntaxError:
        return None  # the judge's first stage says so, with the line
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return value
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value):
                if found == name:
                    return value
    return None


def _knobs(literal: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(literal, dict) or not 0 < len(literal) <= MAX_KNOBS:
        raise NotASpaceError
    for knob, choices in literal.items():
        if not isinstance(knob, str) or not knob.isidentifier() or not _are_choices(choices):
            raise NotASpaceError
    return {knob: tuple(dict.fromkeys(choices)) for knob, choices in literal.items()}


def _are_choices(choices: object) -> bool:
    return (
        isinstance(choices, list | tuple)
        and 0 < len(choices) <= MAX_CHOICES
        and all(type(choice) is int for choice in choices)
    )
