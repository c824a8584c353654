"""`kernelwright optimize`: the whole loop here and now, with no service running."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import REJECTED, err, escaped, exits, fail, failed, out, settings, text_of
from cli.following import follow
from cli.render import show_verdict
from kernel_library.codec import attempt_json
from kernel_library.job import Attempt

if TYPE_CHECKING:
    from kernel_library.store.views import CandidateView, JobView
    from worker.settings import Settings


def optimize(
    problem: Annotated[Path, typer.Argument(help="A problem file.")],
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Where to write the winner.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Wall time to spend.")] = None,
    workloads: Annotated[Path | None, typer.Option(help="Workloads of a definition.")] = None,
    llm: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to ask there.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the winner as JSON.")] = False,
) -> None:
    """Propose and judge kernels until the budget ends, and say what came of it."""
    with exits():
        asked = {"filename": problem.name, "source": text_of(problem)}
        if workloads:
            asked["extra"] = text_of(workloads)
        budget = {"seconds": minutes * 60} if minutes else {}
        given = {"llm_url": llm, "llm_model": model}
        chosen = {name: value for name, value in given.items() if value}
        with TemporaryDirectory(prefix="kernelwright-") as home:
            here = {"home": Path(home), "device_file": settings(**chosen).device_path}
            job, tried = _run(settings(**here, **chosen), {**asked, "budget": budget})
    if job.problem is not None:
        raise failed(job.problem)
    winner = next((c for c in reversed(tried) if c.digest == job.best), None)
    if winner is None:
        raise fail("no correct kernel was found", REJECTED)
    if json:
        out.print_json(attempt_json.dump_json(winner.attempt).decode())
    else:
        show_verdict(winner.attempt.verdict, job.name)
    if out_dir:
        _write(out_dir, job.name, winner.attempt)


def _run(settings: Settings, request: dict[str, object]) -> tuple[JobView, list[CandidateView]]:
    """Submit to a store of our own, perform it here, and print each attempt as it comes."""
    from worker.judging import open_judge
    from worker.runner import Duty, run_one
    from worker.working import performer, stock

    store = settings.store()
    try:
        store.migrate()
        stock(store)
        job, _ = store.submit("optimize", Path(str(request["filename"])).stem, request)
        stop = Event()
        with open_judge(settings.device_path) as judge:
            watcher = follow(store, job.id, lambda said: err.print(said, highlight=False), stop)
            try:
                while run_one(store, performer(judge, settings), Duty("here"), Event()) != "idle":
                    pass
            finally:
                stop.set()
                watcher.join()
        return store.job(job.id), store.candidates(job.id)
    finally:
        store.close()


def _write(folder: Path, name: str, attempt: Attempt) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(attempt.candidate.source)
    (folder / f"{name}.json").write_bytes(attempt_json.dump_json(attempt, indent=2))
    err.print(f"wrote {escaped(str(folder / name))}.py and .json", highlight=False, soft_wrap=True)
