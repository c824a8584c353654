"""What the store refuses, each in words that say what to do about it."""

# the names say what is the matter; "Error" would add nothing
# ruff: noqa: N818

from __future__ import annotations


class StoreError(Exception):
    """The store refused. `str(error)` may be shown to whoever asked."""


class NotFound(StoreError):
    """There is no such record."""


class KeyConflict(StoreError):
    """An idempotency key was used before, for another request."""


class Stale(StoreError):
    """The record changed since it was read."""


class LostLease(StoreError):
    """The job is no longer this worker's: whatever it found is to be thrown away."""


class NotAcceptable(StoreError):
    """A review that may not stand: no note, or a verdict that cannot enter the library."""


class Unavailable(StoreError):
    """The database does not answer, or is locked for too long. Try again."""
