"""`kernelwright serve`, `worker` and `submit`: the service, and how to use it from a shell."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from socket import create_server
from typing import Annotated

import httpx
import typer

from cli.exits import OURS, REJECTED, USAGE, err, exits, fail, out
from cli.following import line, stream
from cli.render import show_verdict
from kernel_library.codec import verdict_json

GRACE_SECONDS = 30


def serve(
    local: Annotated[bool, typer.Option(help="Also run a worker and set up the database.")] = False,
    host: Annotated[str | None, typer.Option(help="A loopback address.")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free one.")] = None,
) -> None:
    """Serve the API and the dashboard, and with --local everything that they need."""
    from api.app import create_app
    from api.serve import make_server
    from api.settings import ApiSettings
    from worker.settings import Settings

    settings = Settings()
    _log()
    with exits():
        store = settings.store()
        if local:
            store.migrate()
        elif not store.is_current():
            raise fail("the database is not up to date: start once with --local", USAGE)
        app = create_app(store, settings=ApiSettings(max_source=settings.source_bytes))
        bound = create_server((host or settings.host, settings.port if port is None else port))
        server = make_server(app, host or settings.host, bound.getsockname()[1])
        helper = _start_worker() if local else None
        err.print(
            f"serving on http://{host or settings.host}:{bound.getsockname()[1]}/", highlight=False
        )
        try:
            server.run(sockets=[bound])
        finally:
            if helper:
                helper.terminate()
                helper.wait(GRACE_SECONDS)
            store.close()


def _start_worker() -> subprocess.Popen[bytes]:
    """A worker in a process of its own: user code never runs in the server, nor does torch."""
    return subprocess.Popen([sys.executable, "-m", "cli.main", "worker"])


def worker(
    queue: Annotated[str, typer.Option(help="The queue to work for.")] = "local",
) -> None:
    """Perform jobs from the database until told to stop."""
    from worker.runner import stop_on_signals
    from worker.settings import Settings
    from worker.working import work

    _log()
    if queue != "local":
        raise fail(f"there is no queue {queue!r}: only `local` so far", USAGE)
    with exits():
        work(Settings(), stop_on_signals())


def submit(
    problem: Annotated[Path, typer.Argument(help="A problem file.")],
    url: Annotated[str, typer.Option(help="The service's address.")] = "http://127.0.0.1:8765",
    workloads: Annotated[Path | None, typer.Option(help="Workloads of a definition.")] = None,
    candidate: Annotated[Path | None, typer.Option(help="A kernel to start from.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Submit a problem by REST, follow it, and print the winner's verdict."""
    with exits():
        body = {"filename": problem.name, "source": problem.read_text(errors="replace")}
        for name, path in (("extra", workloads), ("candidate", candidate)):
            if path:
                body[name] = path.read_text()
        try:
            with httpx.Client(base_url=url, timeout=30) as client:
                _submit(client, body, json)
        except httpx.ConnectError as error:
            remedy = "start one with `kernelwright serve --local`"
            raise fail(f"no service answers at {url}: {remedy}", USAGE) from error


def _submit(client: httpx.Client, body: dict[str, str], as_json: bool) -> None:
    answer = client.post("/v1/jobs", json=body)
    if answer.status_code != 202:
        problem = answer.json()
        code = USAGE if answer.status_code < 500 else OURS
        raise fail(problem.get("detail") or problem["title"], code)
    job = answer.json()
    err.print(f"{client.base_url}jobs/{job['id']}", highlight=False)
    with client.stream("GET", f"/v1/jobs/{job['id']}/events", timeout=None) as events:
        for kind, data in stream(events.iter_lines()):
            if text := line(kind, data):
                err.print(text, highlight=False, soft_wrap=True)
    job = client.get(f"/v1/jobs/{job['id']}").json()
    if job["status"] == "failed":
        raise fail("{where}: {detail}".format_map(job["problem"]), USAGE)
    if job["outcome"] != "winner":
        raise fail(f"no correct kernel was found. {job['why']}", REJECTED)
    found = client.get(f"/v1/candidates/{job['best']}").json()
    show_verdict(verdict_json.validate_python(found["verdict"]), job["name"], as_json)
    out.print(f"{client.base_url}candidates/{job['best']}", highlight=False, soft_wrap=True)


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
