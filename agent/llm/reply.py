"""Reads a candidate out of a model's reply, strictly: what is not asked for is an error."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from dataclasses import dataclass

from agent.declared import parse

#: Larger replies, sources and settings are not read at all.
MAX_REPLY, MAX_SOURCE, MAX_KNOBS = 256_000, 64_000, 32
MAX_WHY = 200

_BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


class FormatError(Exception):
    """The reply holds no usable kernel. `str(error)` is what the model is told."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The source and settings that a reply holds, and the first line of its prose."""

    source: str
    config: dict[str, int]
    why: str


def read(text: str, entry: str) -> Answer:
    """The one kernel in a reply: a ```python block that defines `entry` and a Triton kernel.

    A ```json block of settings may stand beside it. The source is parsed, never run.
    """
    if len(text) > MAX_REPLY:
        raise FormatError(f"the reply is longer than {MAX_REPLY} characters")
    sources, settings = _blocks(text)
    if len(sources) != 1:
        raise FormatError(f"exactly one ```python block is wanted, not {len(sources)}")
    if len(settings) > 1:
        raise FormatError(f"at most one ```json block is wanted, not {len(settings)}")
    _check_source(sources[0], entry)
    return Answer(sources[0], _config(settings[0]) if settings else {}, _first_line(text))


def _blocks(text: str) -> tuple[list[str], list[str]]:
    by_language: dict[str, list[str]] = {"python": [], "json": []}
    for language, body in _BLOCK.findall(text):
        if language.strip() not in by_language:
            raise FormatError("only ```python and ```json blocks are allowed")
        by_language[language.strip()].append(body)
    if "```" in _BLOCK.sub("", text):
        raise FormatError("a ``` block is not closed, or its fences do not stand on own lines")
    return by_language["python"], by_language["json"]


def _check_source(source: str, entry: str) -> None:
    if len(source) > MAX_SOURCE:
        raise FormatError(f"the source is longer than {MAX_SOURCE} characters")
    _check_visible(source)
    try:
        body = parse(source).body
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise FormatError(f"the source is not Python: {line}{error.msg}") from error
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    if entry not in {f.name for f in functions}:
        raise FormatError(f"the source must define the function {entry!r} at its top level")
    if not any(_is_jit(d) for f in functions for d in f.decorator_list):
        raise FormatError("the source must define a kernel decorated with @triton.jit")


def _check_visible(source: str) -> None:
    """No control or format characters: they make code read unlike it runs (CVE-2021-42574)."""
    for number, line in enumerate(source.split("\n"), 1):
        for c in line:
            if unicodedata.category(c) in ("Cc", "Cf") and c not in "\t\r":
                raise FormatError(f"line {number} holds the invisible character U+{ord(c):04X}")


def _is_jit(decorator: ast.expr) -> bool:
    match decorator.func if isinstance(decorator, ast.Call) else decorator:
        case ast.Attribute(value=ast.Name(id="triton"), attr="jit") | ast.Name(id="jit"):
            return True
    return False


def _config(text: str) -> dict[str, int]:
    try:
        settings: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("the ```json block is not JSON") from error
    if not isinstance(settings, dict) or len(settings) > MAX_KNOBS:
        raise FormatError(f"the ```json block must be an object of at most {MAX_KNOBS} settings")
    for knob, value in settings.items():
        if not knob.isidentifier() or type(value) is not int or abs(value) >= 2**31:
            raise FormatError("the ```json block must map names of arguments to integers")
    return settings


def _first_line(text: str) -> str:
    """The first line of prose, made printable; it is shown to people."""
    prose = (line.strip(" #*_>\t\r") for line in _BLOCK.sub("", text).split("\n"))
    first = next((line for line in prose if line), "")
    return "".join(c for c in first if c.isprintable())[:MAX_WHY]
