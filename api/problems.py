"""Every error as one shape: `application/problem+json` (RFC 9457) with a `type` that stays."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from kernel_library.store.errors import (
    KeyConflict,
    NotAcceptable,
    NotFound,
    Stale,
    StoreError,
    Unavailable,
)

logger = logging.getLogger(__name__)

#: HTTP status and title of each problem type. The keys are part of the API: never rename one.
TYPES: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be read"),
    "unknown-host": (400, "This service does not answer to that host name"),
    "cross-origin": (403, "The request comes from another site"),
    "stale-form": (403, "The form has expired"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "That cannot be done to this resource"),
    "not-acceptable": (409, "The candidate cannot be decided that way"),
    "in-quarantine": (409, "The kernel was judged again, and rejected"),
    "not-ready": (409, "The artifact is not built"),
    "stale": (412, "It has changed since it was read"),
    "too-large": (413, "The body is too large"),
    "invalid": (422, "The request is not valid"),
    "syntax-error": (422, "The source is not Python"),
    "bad-definition": (422, "The definition cannot be read"),
    "key-conflict": (422, "The idempotency key was used for another request"),
    "unknown-kernel": (422, "The library has no such kernel"),
    "if-match-required": (428, "The request must say which version it decides on"),
    "internal": (500, "We failed, not you"),
    "too-many-streams": (503, "Too many event streams are open"),
    "unavailable": (503, "The service cannot work yet"),
}
_OF_STORE: Mapping[type[StoreError], str] = {
    NotFound: "not-found",
    KeyConflict: "key-conflict",
    Stale: "stale",
    NotAcceptable: "not-acceptable",
    Unavailable: "unavailable",
}
_OF_STATUS = {400: "bad-request", 403: "cross-origin", 404: "not-found", 405: "method-not-allowed"}


class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """A request we refuse: a key of `TYPES`, what to do about it, and where the fault lies."""

    def __init__(self, kind: str, detail: str, errors: Sequence[Mapping[str, object]] = ()) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.errors = kind, detail, errors
        self.status, self.title = TYPES[kind]

    def body(self, instance: str) -> dict[str, object]:
        """The problem document for a request to this path."""
        document: dict[str, object] = {
            "type": f"/problems/{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
        }
        return document | ({"errors": list(self.errors)} if self.errors else {})


def problem_of(error: Exception) -> Problem:
    """The problem that an exception means to the one who asked. Ours is logged under an id."""
    match error:
        case Problem():
            return error
        case NotFound() | KeyConflict() | Stale() | NotAcceptable() | Unavailable():
            return Problem(_OF_STORE[type(error)], str(error))
        case RequestValidationError():
            return Problem("invalid", "Mend the fields in `errors`.", _field_errors(error))
        case HTTPException():
            return _http_problem(error)
    incident = secrets.token_hex(8)
    logger.error("request failed: incident=%s", incident, exc_info=error)
    return Problem("internal", f"Nothing you sent is to blame. The log has it as {incident}.")


def _http_problem(error: HTTPException) -> Problem:
    kind = _OF_STATUS.get(error.status_code, "bad-request")
    standard = HTTPStatus(error.status_code).phrase
    detail = TYPES[kind][1] if error.detail == standard else str(error.detail)
    return Problem(kind, detail)


def _field_errors(error: RequestValidationError) -> list[dict[str, object]]:
    """Where, as a JSON pointer, and what; never the value, which may be a stranger's source."""
    return [
        {"pointer": "/" + "/".join(str(part) for part in e["loc"][1:]), "in": str(e["loc"][0]),
         "detail": e["msg"]}
        for e in error.errors()
    ]  # fmt: skip


def answer_problem(request: Request, error: Exception) -> Response:
    """The exception as a problem document."""
    problem = problem_of(error)
    body = problem.body(request.url.path)
    return JSONResponse(body, problem.status, media_type="application/problem+json")
