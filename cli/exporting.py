"""`kernelwright export`: accepted kernels as something to install."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.exits import exits, out


def export(
    ops: Annotated[list[str], typer.Argument(help="Kernels of the library, by name.")],
    package: Annotated[str, typer.Option(help="What the package is called.")] = "my_kernels",
    out_dir: Annotated[Path, typer.Option("--out", help="Where to write it.")] = Path("dist"),
    form: Annotated[Literal["wheel"], typer.Option("--format", help="Its form.")] = "wheel",
) -> None:
    """Write kernels of the library as a wheel that can verify itself."""
    from kernel_library.export import build_wheel
    from worker.exporting import VERSION, exported
    from worker.settings import Settings

    with exits():
        store = Settings().store()
        try:
            wheel = build_wheel([exported(store, op) for op in ops], package, VERSION, out_dir)
        finally:
            store.close()
    out.print(f"wrote {wheel}", highlight=False, soft_wrap=True)
    out.print(f"install it, then `python -m {package} verify`", highlight=False)
