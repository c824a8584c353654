"""Who may use the GPU: any number of checks together, or one measurement alone.

A time that was taken while something else ran is no time; a check is right whoever runs beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Shared turns for checks, turns alone for measurements; nobody waits for ever.

    A measurement that waits lets no new check in before it.
    """

    def __init__(self, together: int = 4) -> None:
        self._together = together
        self._sharing, self._waiting, self._alone = 0, 0, False
        self._changed = threading.Condition()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """A turn beside at most `together - 1` others that share."""
        with self._changed:
            self._changed.wait_for(
                lambda: not (self._alone or self._waiting) and self._sharing < self._together
            )
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A turn that nobody has at the same time."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._alone and self._sharing == 0)
            self._waiting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
