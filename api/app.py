"""The application: JSON under `/v1`, pages for people, one guard before both."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from api import pages
from api.deps import Streams
from api.guard import Guard
from api.problems import Problem, answer_problem
from api.routes import candidates, exports, health, jobs, kernels
from api.settings import ApiSettings
from kernel_library.store import Store
from kernel_library.store.errors import StoreError

HERE = Path(__file__).parent


def create_app(store: Store, *, settings: ApiSettings | None = None) -> FastAPI:
    """The service over a store whose tables are current.

    The generated documentation page is off: it would load scripts from a stranger's server.
    """
    app = FastAPI(
        title="Kernelwright", openapi_url="/v1/openapi.json", docs_url=None, redoc_url=None
    )
    app.state.store = store
    app.state.settings = settings = settings or ApiSettings()
    app.state.streams = Streams(settings.max_streams)
    for routes in (jobs, candidates, kernels, exports, health, pages):
        app.include_router(routes.router)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    for error in (Problem, StoreError, RequestValidationError, HTTPException):
        app.add_exception_handler(error, answer)
    app.add_middleware(Guard, settings=settings, answer=answer)
    return app


def answer(request: Request, error: Exception) -> Response:
    """A page for a person who looks at pages; a problem document for everyone else."""
    looks = "text/html" in request.headers.get("accept", "")
    if looks and not request.url.path.startswith("/v1/"):
        return pages.answer_page(request, error)
    return answer_problem(request, error)
