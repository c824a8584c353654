"""The dashboard's pages: rendered here, readable without a script."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError

from api.chart import progress
from api.deps import Before, TheStore, cursor_of
from api.events import OVER
from api.forms import Fields, Form, only
from api.models import parent_diff, points, told, verdict_page, why_not_acceptable
from api.problems import Problem, problem_of
from api.render import page
from api.requests import ExportAsked, ReviewAsked
from api.routes.exports import check_kernels
from api.text import highlight_css
from kernel_library.store import Store
from kernel_library.store.errors import NotAcceptable, Stale

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_JOBS = 50
_EVENTS = 200


@router.get("/")
def jobs(request: Request, store: TheStore, before: Before) -> Response:
    """The jobs, newest first, and who works on them."""
    found = store.jobs(kind=None, limit=_JOBS + 1, before=before)
    more = cursor_of(found[_JOBS - 1].id) if len(found) > _JOBS else None
    return page(request, "jobs.html", jobs=found[:_JOBS], more=more, workers=store.workers())


@router.get("/jobs/{job_id}")
def job(request: Request, job_id: str, store: TheStore) -> Response:
    """One job, as far as it is."""
    # the job before its events: the page never says that a job is over and lacks its last event
    found = store.job(job_id)
    views = store.candidates(job_id)
    events = store.events(job_id, max(0, found.version - _EVENTS))
    return page(
        request, "job.html", job=found, candidates=views, chart=progress(points(views)),
        events=[(event, told(event)) for event in events],
        last=events[-1].seq if events else 0, over=found.status in OVER,
    )  # fmt: skip


@router.post("/jobs/{job_id}/cancel")
def cancel(job_id: str, store: TheStore, form: Form) -> Response:
    """Ask a job to stop."""
    store.cancel(job_id)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.get("/candidates/{digest}")
def candidate(
    request: Request, digest: str, store: TheStore, job: Annotated[str | None, Query()] = None
) -> Response:
    """One candidate: its verdict, its source and the form that decides on it."""
    return candidate_page(request, store, digest, job)


@router.post("/candidates/{digest}")
def review(request: Request, digest: str, store: TheStore, form: Form) -> Response:
    """Decide. A refusal shows the page as it is by now, with what was written kept."""
    job = only(form, "job")
    try:
        asked, version = _decision(form)
        store.review(
            digest, asked.decision, asked.note, asked.reviewer, version=version, job_id=job
        )
    except (Problem, Stale, NotAcceptable) as error:
        return candidate_page(request, store, digest, job, (problem_of(error), form))
    return RedirectResponse(f"/candidates/{digest}?job={job}#review", 303)


def candidate_page(
    request: Request,
    store: Store,
    digest: str,
    job: str | None,
    refused: tuple[Problem, Fields] | None = None,
) -> Response:
    """The candidate's page; with what was refused of a form, and what the form held."""
    view = store.candidate(digest, job)
    problem, form = refused or (None, {})
    return page(
        request, "candidate.html", problem.status if problem else 200,
        view=view, candidate=view.attempt.candidate, told=verdict_page(view.attempt.verdict),
        parent=parent_diff(store, view), against=why_not_acceptable(view.attempt.verdict),
        error=problem.detail if problem else "", note=only(form, "note"),
        reviewer=only(form, "reviewer"),
    )  # fmt: skip


def _decision(form: Fields) -> tuple[ReviewAsked, int]:
    fields = {name: only(form, name) for name in ("decision", "note", "reviewer")}
    try:
        return ReviewAsked.model_validate(fields), int(only(form, "version"))
    except (ValidationError, ValueError):
        detail = "Give your name, a note of at most 4000 characters, and accept or reject."
        raise Problem("invalid", detail) from None


@router.get("/kernels")
def kernels(request: Request, store: TheStore) -> Response:
    """The library, and the form that exports from it."""
    return page(request, "kernels.html", kernels=store.kernels())


@router.get("/kernels/{name}")
def kernel(
    request: Request, name: str, store: TheStore, version: Annotated[int | None, Query()] = None
) -> Response:
    """One kernel: its contract, its source and its verdict."""
    found = store.kernel(name, version)
    newest = store.kernel(name).version
    told = verdict_page(found.verdict) if found.verdict else None
    return page(request, "kernel.html", kernel=found, newest=newest, told=told)


@router.post("/exports")
def export(store: TheStore, form: Form) -> Response:
    """Have the chosen kernels built into a package."""
    fields = {"kernels": form.get("kernels", []), "package": only(form, "package")}
    try:
        asked = ExportAsked.model_validate(fields)
    except ValidationError:
        detail = "Choose at least one kernel, and a package name of letters, digits, - and _."
        raise Problem("invalid", detail) from None
    check_kernels(store, asked.kernels)
    job, _ = store.submit("export", asked.package, asked.model_dump())
    return RedirectResponse(f"/jobs/{job.id}", 303)


@router.get("/code.css")
def code_css() -> Response:
    """The colours of source. The address carries a fingerprint, so it may be kept for good."""
    forever = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(highlight_css(), headers=forever, media_type="text/css")


def answer_page(request: Request, error: Exception) -> Response:
    """An error as a page."""
    problem = problem_of(error)
    return page(request, "problem.html", problem.status, problem=problem)
