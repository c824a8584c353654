"""Names that reach a file name or a line of generated code: short, plain, and nobody else's."""

from __future__ import annotations

import keyword
import re
import sys

SLUG = re.compile(r"[a-z][a-z0-9_]{0,62}")
#: Import names and torch op namespaces that a package must not shadow.
TAKEN = frozenset(
    {"torch", "triton", "numpy", "aten", "prim", "prims", "profiler", "quantized", "inductor"}
    | {"c10d", "mkldnn", "kernelwright", "kernel_library", "evaluator", "agent", "worker", "api"}
    | {"seeds"}
)
#: What each package defines beside its ops.
RESERVED = frozenset(
    {
        "explain",
        "reference_only",
        "register_all",
        "verify",
        "kernels",
        "reference",
        "tables",
        "torch",
    }
)


class ExportError(ValueError):
    """These kernels cannot be exported under these names; the message says which and why."""


def check_package(name: str) -> None:
    """Raise `ExportError` unless a package and a torch namespace may bear this name."""
    _check_slug(name, "package")
    if name in sys.stdlib_module_names or name in TAKEN:
        raise ExportError(f"package name {name!r} is taken: choose another")


def check_op(name: str) -> None:
    """Raise `ExportError` unless an op of a package may bear this name."""
    _check_slug(name, "op")
    if name in RESERVED:
        raise ExportError(f"op name {name!r} is what every exported package calls its own part")


def check_identifier(name: str, where: str = "") -> None:
    """Raise `ExportError` unless this is a plain ASCII name that code may use for an argument."""
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise ExportError(f"{where}{name!r} is not a name that code can use")


def _check_slug(name: str, what: str) -> None:
    if not SLUG.fullmatch(name):
        raise ExportError(
            f"{what} name {name!r} must be a lower-case letter, then at most 62 of a-z, 0-9 and _"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise ExportError(f"{what} name {name!r} is a Python keyword")
