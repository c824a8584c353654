"""Who may use the GPU: any number of checks together, or one measurement alone.

A time that was taken while something else ran is no time; a check is right whoever runs beside it.
The turns are file locks, so that they hold among all processes of a host, and end with a process
however it ends. A process whose device code hangs keeps its turn until then.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

from evaluator.errors import HangError

#: Turns that only the end of this process gives back.
_FOR_GOOD: list[ExitStack] = []


class Turns:
    """Shared turns for checks, turns alone for measurements; nobody waits for ever.

    `folder` holds the locks; all who share a GPU must name the same one. A measurement that waits
    lets no new check in before it: whoever wants a turn holds the gate until it has one.
    """

    def __init__(self, folder: Path) -> None:
        # it is told to processes that work in other folders
        self.folder = folder.absolute()
        #: Seconds that this process has waited for its turns so far.
        self.waited = 0.0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """A turn beside others that share. Raises OSError where the folder cannot be written."""
        with self._turn(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A turn that nobody has at the same time. Raises OSError as `shared` does."""
        with self._turn(fcntl.LOCK_EX):
            yield

    @contextmanager
    def starting(self) -> Iterator[None]:
        """For whoever makes a context, one at a time, as a driver makes them; no turn at the GPU.

        Sixteen that begin together would else each take as long as all of them (2.8 s on an H200,
        where one takes 0.2). That is work of the driver's on the host, and disturbs no measurement:
        `benchmarks/ties.py --beside`.
        """
        with self._locked("start.lock", fcntl.LOCK_EX):
            yield

    @contextmanager
    def _turn(self, kind: int) -> Iterator[None]:
        with ExitStack() as held:
            with self._locked("gate.lock", fcntl.LOCK_EX):
                held.enter_context(self._locked("gpu.lock", kind))
            try:
                yield
            except HangError:
                _FOR_GOOD.append(held.pop_all())
                raise

    @contextmanager
    def _locked(self, name: str, kind: int) -> Iterator[None]:
        """A lock of one opening of a file: threads wait for each other as processes do."""
        self.folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            asked = perf_counter()
            fcntl.flock(opened, kind)
            self.waited += perf_counter() - asked
            yield
        finally:
            # closing alone would not do where a process that was forked meanwhile has it open, too
            fcntl.flock(opened, fcntl.LOCK_UN)
            os.close(opened)
