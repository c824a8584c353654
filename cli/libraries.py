"""`kernelwright library`: what is in it, and whether it still holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.syntax import Syntax
from rich.table import Table

from cli.exits import REJECTED, USAGE, err, escaped, exits, fail, out, settings
from cli.render import show_verdict
from kernel_library.codec import candidate_json, op_json, verdict_json

if TYPE_CHECKING:
    from kernel_library.store import Store
    from kernel_library.store.views import KernelView, Quarantine
    from worker.settings import Settings
    from worker.verifying import Verified

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
        table.add_row(k.name, str(k.version), k.origin, _standing(k), escaped(told))
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
    out.print(f"{escaped(found.doc)}\n", highlight=False, soft_wrap=True)
    if found.quarantine:
        from kernel_library.store.views import in_quarantine

        out.print(f"[bold red]{escaped(in_quarantine(found))}[/]", highlight=False, soft_wrap=True)
    source = found.candidate.source
    if out.is_terminal:
        out.print(Syntax(source, "python", theme="ansi_light", line_numbers=True, word_wrap=True))
    else:
        out.print(escaped(source), highlight=False, soft_wrap=True)
    if found.verdict:
        show_verdict(found.verdict, name)


@app.command("verify")
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Kernels by name; else all that were accepted.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Judge all again, seeds too, whatever changed.")
    ] = False,
    json: Json = False,
) -> None:
    """Judge kernels again whose verdict is of other versions or another device.

    What no longer passes goes into quarantine: it is neither proposed nor exported until it passes.
    """
    with exits(), stocked(settings()) as store:
        from worker.verifying import chosen

        known = store.kernels()
        missing = sorted(set(names or ()) - {k.name for k in known})
        if missing:
            told = f"there is no kernel {', '.join(missing)}: see `kernelwright library list`"
            raise fail(told, USAGE)
        found = _verified(store, chosen(known, names or (), all_=every), every)
    if json:
        out.print_json(data=[asdict(each) for each in found])
    else:
        table = Table("kernel", "version", "outcome", "why")
        for each in found:
            table.add_row(each.name, str(each.version), each.outcome, escaped(each.why))
        out.print(table if found else "nothing to verify: no kernel was accepted here yet")
    if any(each.outcome == "quarantined" for each in found):
        raise typer.Exit(REJECTED)


def _verified(store: Store, kernels: Sequence[KernelView], every: bool) -> list[Verified]:
    """What came of each kernel, told as it comes; the judge is opened only if there is one."""
    if not kernels:
        return []
    with err.status("starting the judge") as said:
        from worker.judging import open_judge
        from worker.verifying import verify

        with open_judge(settings().device_path) as judge:
            here, found = judge.full.record_of, []
            said.update(f"verifying {kernels[0].name}")
            for each in verify(kernels, store, judge.confirm, here, all_=every):
                found.append(each)
                told = f"{len(found)} of {len(kernels)}: {each.name} {each.outcome}"
                err.print(told, highlight=False)
                if len(found) < len(kernels):
                    said.update(f"verifying {kernels[len(found)].name}")
    return found


def _standing(kernel: KernelView) -> str:
    if kernel.quarantine:
        return "in quarantine"
    return kernel.verdict.kind if kernel.verdict else "not judged here"


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
        "quarantine": _told(kernel.quarantine),
    }  # fmt: skip


def _told(quarantine: Quarantine | None) -> dict[str, str] | None:
    if quarantine is None:
        return None
    return {"reason": quarantine.reason, "at": quarantine.at.isoformat()}
