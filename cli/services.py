"""`kernelwright serve`, `worker` and `submit`: the service, and how to use it from a shell."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server, socket
from threading import Event, Thread
from time import monotonic
from types import FrameType
from typing import Annotated

import httpx
import typer

from cli.exits import OURS, REJECTED, USAGE, err, exits, fail, failed, out, text_of
from cli.exits import settings as read_settings
from cli.following import line, stream
from cli.render import show_verdict
from kernel_library.codec import verdict_json

GRACE_SECONDS = 30
#: Workers that one service starts, one after another; one that ends so soon never worked.
WORKERS, STARTED_SECONDS = 100, 20.0


def serve(
    local: Annotated[bool, typer.Option(help="Also run a worker and set up the database.")] = False,
    host: Annotated[str | None, typer.Option(help="A loopback address.")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free one.")] = None,
) -> None:
    """Serve the API and the dashboard, and with --local everything that they need."""
    from api.app import create_app
    from api.serve import make_server
    from api.settings import ApiSettings

    settings = read_settings()
    host, port = host or settings.host, settings.port if port is None else port
    _log()
    # uvicorn stops at a signal and then raises it again, which would skip what is to be ended here
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    with exits():
        store = settings.store()
        try:
            app = create_app(store, settings=ApiSettings(max_source=settings.source_bytes))
            server = make_server(app, host, port)
            with _bound(host, port) as listening:
                if local:
                    store.migrate()
                elif not store.is_current():
                    raise fail("the database is not up to date: start once with --local", USAGE)

                lost = list[int]()

                def stop() -> None:
                    server.should_exit = True

                with _worker(lost, stop) if local else nullcontext():
                    shown = f"[{host}]" if ":" in host else host
                    address = f"http://{shown}:{listening.getsockname()[1]}/"
                    err.print(f"serving on {address}", highlight=False, markup=False)
                    server.run(sockets=[listening])
                if lost:
                    raise fail("no worker stays: what it said is above", OURS)
        finally:
            store.close()


def _leave(number: int, _frame: FrameType | None) -> None:
    raise typer.Exit


def _bound(host: str, port: int) -> socket:
    """A socket that listens there. Raises Exit where another does."""
    try:
        return create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except OSError as error:
        why = (error.strerror or str(error)).split(" (")[0].lower()
        remedy = "choose another with --port"
        raise fail(f"port {port} of {host} cannot be served on: {why}; {remedy}", USAGE) from error


@contextmanager
def _worker(lost: list[int], stop: Callable[[], None]) -> Iterator[None]:
    """A worker in a process of its own: user code never runs in the server, nor does torch.

    One that ends is replaced. Where that is no use, its exit code is added to `lost`, and `stop` is
    called: a service that performs no job must not look like one that does.
    """
    leave = Event()

    def keep() -> None:
        for _ in range(WORKERS):
            started, process = monotonic(), subprocess.Popen(command, env=environment)
            while process.poll() is None and not leave.wait(0.2):
                pass
            # a signal to all of a terminal's processes ends the worker first
            if leave.wait(0.0 if process.poll() is None else 1.0):
                _end(process)
                return
            err.print(f"the worker ended with exit code {process.returncode}")
            if monotonic() - started < STARTED_SECONDS:
                break
        lost.append(process.returncode)
        stop()

    # whatever folder this was started in, its `cli` is not ours
    ours, theirs = str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [ours, theirs]))}
    command = [sys.executable, "-P", "-m", "cli.main", "worker"]
    keeper = Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        leave.set()
        keeper.join()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def worker(
    queue: Annotated[str, typer.Option(help="The queue to work for.")] = "local",
) -> None:
    """Perform jobs from the database until told to stop."""
    from worker.runner import stop_on_signals
    from worker.working import work

    settings = read_settings()
    _log()
    if queue != "local":
        raise fail(f"there is no queue {queue!r}: only `local` so far", USAGE)
    with exits():
        work(settings, stop_on_signals())


def submit(
    problem: Annotated[Path, typer.Argument(help="A problem file.")],
    url: Annotated[str, typer.Option(help="The service's address.")] = "http://127.0.0.1:8765",
    workloads: Annotated[Path | None, typer.Option(help="Workloads of a definition.")] = None,
    candidate: Annotated[Path | None, typer.Option(help="A kernel to start from.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Submit a problem by REST, follow it, and print the winner's verdict."""
    with exits():
        body = {"filename": problem.name, "source": text_of(problem)}
        for name, path in (("extra", workloads), ("candidate", candidate)):
            if path:
                body[name] = text_of(path)
        try:
            with httpx.Client(base_url=url, timeout=30) as client:
                _submit(client, body, json)
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            remedy = "start one with `kernelwright serve --local`"
            raise fail(f"no service answers at {url}: {remedy}", USAGE) from error
        except httpx.TransportError as error:
            raise fail(f"the service at {url} hung up: {error}", OURS) from error


def _submit(client: httpx.Client, body: dict[str, str], as_json: bool) -> None:
    answer = client.post("/v1/jobs", json=body)
    if answer.status_code != 202:
        raise _refused(answer)
    job = answer.json()
    err.print(str(client.base_url.join(f"jobs/{job['id']}")), highlight=False)
    with client.stream("GET", f"/v1/jobs/{job['id']}/events", timeout=None) as events:
        for kind, data in stream(events.iter_lines()):
            if text := line(kind, data):
                err.print(text, highlight=False, soft_wrap=True)
    job = client.get(f"/v1/jobs/{job['id']}").json()
    if job["status"] == "failed":
        raise failed(job["problem"])
    if job["outcome"] != "winner":
        raise fail("no correct kernel was found", REJECTED)
    found = client.get(f"/v1/candidates/{job['best']}").json()
    show_verdict(verdict_json.validate_python(found["verdict"]), job["name"], as_json)
    page = client.base_url.join(f"candidates/{job['best']}")
    out.print(str(page), highlight=False, soft_wrap=True)


def _refused(answer: httpx.Response) -> typer.Exit:
    """Tell why the service did not take the problem, field by field where it says so."""
    if "problem+json" not in answer.headers.get("content-type", ""):
        return fail(f"what answers at {answer.url.host} is no kernelwright service", USAGE)
    problem = answer.json()
    fields = [f"{e['pointer'].lstrip('/')}: {e['detail']}" for e in problem.get("errors", [])]
    said = "; ".join(fields) if problem["type"].endswith("/invalid") else problem["detail"]
    return fail(said or problem["detail"], USAGE if answer.status_code < 500 else OURS)


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    # it tells of every look at the schema
    logging.getLogger("alembic").setLevel(logging.WARNING)
