"""Writes a package's tree and packs it. Sources are copied as text; none of them is run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from hatchling.builders.wheel import WheelBuilder
from packaging.version import InvalidVersion, Version

from kernel_library.export.exported import Exported, gathered
from kernel_library.export.facts import certificate, summary, table
from kernel_library.export.names import ExportError, check_package
from kernel_library.export.signature import parameters, result

#: Parts of this library that the package carries as copies, so that it needs none of it.
COPIED = ("formula", "recipe", "space", "spec")
REQUIRES = ("torch>=2.11", "triton>=3.6")


def build_wheel(
    kernels: Sequence[Exported],
    package: str,
    version: str,
    out: Path,
    license_expression: str = "Apache-2.0",
) -> Path:
    """A pure wheel in `out` with each kernel as a torch op; the same input gives the same bytes.

    Raises `ExportError` for names, versions or kernels that no package could hold.
    """
    try:
        release = str(Version(version))
    except InvalidVersion as error:
        raise ExportError(f"version {version!r} is not one: {error}") from error
    content = tree(kernels, package, release)
    with TemporaryDirectory(prefix="kernelwright-export-") as scratch:
        for path, body in content.items():
            target = Path(scratch, package, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(body)
        readme = _readme(gathered(kernels), package)
        Path(scratch, "README.md").write_text(readme, "utf-8")
        project = _project(package, release, license_expression)
        Path(scratch, "pyproject.toml").write_text(project, "utf-8")
        out.mkdir(parents=True, exist_ok=True)
        (wheel,) = WheelBuilder(scratch).build(directory=str(out.resolve()), versions=["standard"])
    return Path(wheel)


def tree(kernels: Sequence[Exported], package: str, version: str) -> dict[str, bytes]:
    """Every file of the package by its path, the certificate last. Raises `ExportError`."""
    check_package(package)
    found = gathered(kernels)
    text = {"__init__.py": _init(found, package, version), "py.typed": ""}
    text |= runtime()
    for name, kernel in found.items():
        text[f"kernels/{name}.py"] = kernel.candidate.source
        text[f"reference/{name}.py"] = kernel.op.reference.source
        text[f"tables/{name}.json"] = table(kernel)
    content = {path: body.encode() for path, body in sorted(text.items())}
    sealed = certificate(found, package, version, content)
    return {**content, "certificate.json": sealed.encode()}


def runtime() -> dict[str, str]:
    """The modules that every package has: the templates, and copies of the shared vocabulary."""
    library = files("kernel_library")
    templates = sorted(library.joinpath("export", "templates").iterdir(), key=lambda p: p.name)
    text = {p.name: p.read_text("utf-8") for p in templates if p.name.endswith(".py")}
    text |= {f"_{n}.py": library.joinpath(f"{n}.py").read_text("utf-8") for n in COPIED}
    return {name: _relative(body) for name, body in text.items()}


def _relative(source: str) -> str:
    """The vocabulary under the names that it has inside the package."""
    return re.sub(r"^from kernel_library\.(\w+) import", r"from ._\1 import", source, flags=re.M)


def _init(kernels: Mapping[str, Exported], package: str, version: str) -> str:
    exported = [*kernels, "explain", "reference_only"]
    head = f'''"""{len(kernels)} ops with kernels that were judged: see certificate.json.

Each is `torch.ops.{package}.<op>` too. `explain("<op>", *args)` says which path a call takes.
"""

import torch

from ._dispatch import explain, reference_only
from ._ops import register_all

__version__ = {version!r}
__all__ = {exported!r}

register_all()
'''
    return head + "".join(_function(kernel, package) for kernel in kernels.values())


def _function(kernel: Exported, package: str) -> str:
    op = kernel.op
    given = ", ".join([*op.inputs, *(f"{option}={option}" for option in op.options)])
    call = f"torch.ops.{package}.{kernel.name}({given})"
    doc = f"{kernel.doc.strip() or kernel.name}\n\n{summary(kernel)}"
    return f"""

def {kernel.name}({parameters(op)}) -> {result(op)}:
    {doc!r}
    {"return " if op.outputs else ""}{call}
"""


def _readme(kernels: Mapping[str, Exported], package: str) -> str:
    lines = [f"- `{package}.{name}`: {summary(kernel)}" for name, kernel in kernels.items()]
    return "\n".join([f"# {package}", "", *lines, "", f"`python -m {package} verify` checks it.\n"])


def _project(package: str, version: str, license_expression: str) -> str:
    return f"""[build-system]
requires = ["hatchling>=1.28"]
build-backend = "hatchling.build"

[project]
name = {json.dumps(package)}
version = {json.dumps(version)}
description = "Triton kernels as torch ops, with their certificate"
readme = "README.md"
license = {json.dumps(license_expression)}
requires-python = ">=3.11"
dependencies = {json.dumps(REQUIRES)}
classifiers = ["Environment :: GPU :: NVIDIA CUDA", "Typing :: Typed"]

[tool.hatch.build]
ignore-vcs = true
reproducible = true

[tool.hatch.build.targets.wheel]
packages = [{json.dumps(package)}]
"""
