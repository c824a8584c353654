"""`kernelwright library`: what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.syntax import Syntax
from rich.table import Table

from cli.exits import escaped, exits, out, settings
from cli.render import show_verdict
from kernel_library.codec import candidate_json, op_json, verdict_json

if TYPE_CHECKING:
    from kernel_library.store import Store
    from kernel_library.store.views import KernelView
    from worker.settings import Settings

app = typer.Typer(help="The kernels: seeds, and what people have accepted.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command("list")
def list_kernels(json: Json = False) -> None:
    """List the latest version of each kernel."""
    with exits():
        kernels = _kernels()
    if json:
        out.print_json(data=[_summary(k) for k in kernels])
        return
    table = Table("kernel", "version", "from", "verdict", "what it is")
    for k in kernels:
        told = (k.doc or k.op.name).splitlines()[0]
        verdict = k.verdict.kind if k.verdict else "not judged here"
        table.add_row(k.name, str(k.version), k.origin, verdict, escaped(told))
    out.print(table)


@app.command("show")
def show(name: str, json: Json = False) -> None:
    """Show one kernel: its words, its source and its verdict."""
    with exits():
        found = next((k for k in _kernels() if k.name == name), None)
        if found is None:
            raise FileNotFoundError(f"there is no kernel {name!r}: see `kernelwright library list`")
    if json:
        whole = _summary(found) | {
            "op": op_json.dump_python(found.op, mode="json"),
            "candidate": candidate_json.dump_python(found.candidate, mode="json"),
            "verdict": verdict_json.dump_python(found.verdict, mode="json")
            if found.verdict
            else None,
        }
        out.print_json(data=whole)
        return
    out.print(escaped(found.doc), highlight=False, soft_wrap=True)
    source = found.candidate.source
    if out.is_terminal:
        out.print(Syntax(source, "python", theme="ansi_light", line_numbers=True, word_wrap=True))
    else:
        out.print(escaped(source), highlight=False, soft_wrap=True)
    if found.verdict:
        show_verdict(found.verdict, name)


def _kernels() -> list[KernelView]:
    with stocked(settings()) as store:
        return store.kernels()


@contextmanager
def stocked(settings: Settings) -> Iterator[Store]:
    """The settings' store; one that was never used is set up and gets the seeds first."""
    store = settings.store()
    try:
        if not store.is_current():
            store.migrate()
        if not store.kernels():
            # the seeds import torch
            from worker.working import stock

            stock(store)
        yield store
    finally:
        store.close()


def _summary(kernel: KernelView) -> dict[str, object]:
    return {
        "name": kernel.name, "version": kernel.version, "origin": kernel.origin,
        "backward": kernel.backward, "digest": kernel.candidate_digest, "doc": kernel.doc,
    }  # fmt: skip
