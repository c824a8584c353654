"""Column types that SQLite and PostgreSQL hold alike: UTC times, any text, typed JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator

T = TypeVar("T")


class Utc(TypeDecorator[datetime]):
    """An aware moment, kept in UTC. A naive one is refused with a ValueError."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC."""
        if value is not None and value.tzinfo is None:
            raise ValueError("a time without a zone")
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """SQLite forgets the zone; PostgreSQL gives the session's."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Words(TypeDecorator[str]):
    """Text. What PostgreSQL cannot hold (NUL) or UTF-8 cannot spell is replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """To text that any database takes, in a comparison as well as in an insert."""
        if value is None:
            return None
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class AsJson(TypeDecorator[T], Generic[T]):
    """A value as JSON text, through its pydantic adapter.

    Text, because JSONB sorts keys and an op's arguments are called in the order of theirs, and
    because PostgreSQL's JSON has no NaN.
    """

    impl = Text
    cache_ok = True

    def __init__(self, adapter: TypeAdapter[T]) -> None:
        super().__init__()
        self.adapter = adapter

    def process_bind_param(self, value: T | None, dialect: Dialect) -> str | None:
        """To text."""
        if value is None:
            return None
        return json.dumps(self.adapter.dump_python(value, mode="json"), separators=(",", ":"))

    def process_result_value(self, value: Any | None, dialect: Dialect) -> T | None:  # noqa: ANN401
        """Back, validated."""
        return None if value is None else self.adapter.validate_python(json.loads(value))
