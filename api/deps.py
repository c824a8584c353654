"""What routes are handed: the store, the settings, and the parsed parts of a request."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from typing import Annotated

from fastapi import Depends, Header, Query, Request

from api.problems import Problem
from api.settings import ApiSettings
from kernel_library.store import Store


class Streams:
    """The open event streams: how many, and whether the server is going down."""

    def __init__(self, most: int) -> None:
        self.most, self.open = most, 0
        self.closing = asyncio.Event()


def store_of(request: Request) -> Store:
    """The store that the application was made with."""
    store: Store = request.app.state.store
    return store


def settings_of(request: Request) -> ApiSettings:
    """The settings that the application was made with."""
    settings: ApiSettings = request.app.state.settings
    return settings


def streams_of(request: Request) -> Streams:
    """The application's open streams."""
    streams: Streams = request.app.state.streams
    return streams


def cursor_of(last: str) -> str:
    """An opaque cursor that asks for what follows this id."""
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def before_of(cursor: Annotated[str | None, Query(max_length=128)] = None) -> str | None:
    """The id that a cursor stands for."""
    if cursor is None:
        return None
    try:
        last = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, UnicodeError, ValueError):
        last = ""
    if cursor_of(last) != cursor or not last:
        raise Problem("invalid", "Use `next_cursor` of a page as it was given.")
    return last


def version_of(if_match: Annotated[str | None, Header()] = None) -> int:
    """The version in If-Match: an ETag as the resource gave it, `"3"`."""
    if if_match is None:
        raise Problem("if-match-required", "Send If-Match with the ETag of what you decided on.")
    found = re.fullmatch(r'"(\d{1,9})"', if_match.strip())
    if found is None:
        raise Problem("stale", "If-Match must be the candidate's own ETag, as it was given.")
    return int(found[1])


TheStore = Annotated[Store, Depends(store_of)]
TheSettings = Annotated[ApiSettings, Depends(settings_of)]
TheStreams = Annotated[Streams, Depends(streams_of)]
Before = Annotated[str | None, Depends(before_of)]
Version = Annotated[int, Depends(version_of)]
Limit = Annotated[int, Query(ge=1, le=200)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
