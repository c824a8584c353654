"""The dashboard's pages: rendered here, readable without a script."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from api.chart import progress
from api.deps import Before, TheSettings, TheStore, cursor_of
from api.events import OVER
from api.forms import Fields, Form, only
from api.models import parent_diff, points, told, verdict_page, why_not_acceptable
from api.problems import Problem, problem_of
from api.render import page
from api.requests import check_export, check_job
from api.text import highlight_css
from api.written import JobForm, decision_of, export_of
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


@router.get("/submit")
def submit_form(request: Request) -> Response:
    """The form that takes a problem in."""
    return submit_page(request, JobForm())


@router.post("/submit")
def submit(request: Request, store: TheStore, settings: TheSettings, form: Form) -> Response:
    """Take a problem in, as `POST /v1/jobs` does. A refusal shows what was written again."""
    written = JobForm.of(form)
    try:
        asked = written.asked()
        check_job(asked, settings)
    except Problem as problem:
        return submit_page(request, written, problem)
    job, _ = store.submit("optimize", asked.name, asked.record())
    return RedirectResponse(f"/jobs/{job.id}", 303)


def submit_page(request: Request, form: JobForm, problem: Problem | None = None) -> Response:
    """The form with what was written, and with what was wrong with it."""
    status, error = (problem.status, problem.detail) if problem else (200, "")
    return page(request, "submit.html", status, form=form, error=error)


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
        asked, version = decision_of(form)
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
    readings = [each for each in store.candidates(view.job_id) if each.digest == digest]
    problem, form = refused or (None, {})
    return page(
        request, "candidate.html", problem.status if problem else 200,
        view=view, readings=readings, candidate=view.attempt.candidate,
        told=verdict_page(view.attempt.verdict), parent=parent_diff(store, view),
        against=why_not_acceptable(view.attempt.verdict), error=problem.detail if problem else "",
        note=only(form, "note"), reviewer=only(form, "reviewer"),
    )  # fmt: skip


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
    asked = export_of(form)
    check_export(asked, store.kernels())
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
