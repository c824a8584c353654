"""`kernelwright export`: accepted kernels as something to install."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.exits import err, escaped, exits, out, settings


def export(
    ops: Annotated[list[str], typer.Argument(help="Kernels of the library, by name.")],
    package: Annotated[str, typer.Option(help="What the package is called.")] = "my_kernels",
    out_dir: Annotated[Path, typer.Option("--out", help="Where to write it.")] = Path("dist"),
    form: Annotated[Literal["wheel"], typer.Option("--format", help="Its form.")] = "wheel",
) -> None:
    """Write kernels of the library as a wheel that can verify itself."""
    from cli.libraries import stocked
    from kernel_library.export import build_wheel
    from kernel_library.export.exported import gathered
    from worker.exporting import VERSION, exported

    with exits():
        with stocked(settings()) as store:
            kernels = [exported(store, op) for op in ops]
        wheel = build_wheel(kernels, package, VERSION, out_dir)
    unjudged = [name for name, kernel in gathered(kernels).items() if kernel.verdict is None]
    if unjudged:
        told = f"{', '.join(unjudged)}: never judged here, so the package runs the reference for it"
        err.print(f"[yellow]note:[/] {escaped(told)}", highlight=False, soft_wrap=True)
    out.print(f"wrote {wheel}", highlight=False, soft_wrap=True)
    out.print(f"install it, then `python -m {package} verify`", highlight=False)
