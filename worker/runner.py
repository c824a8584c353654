"""The polling runner: claims a job, has it performed, and says whose fault it was if it broke.

It knows nothing of kernels: `perform` is given from outside. The job is this worker's only as long
as the lease is renewed, which a thread does; a performer that lost it hears so from its next call
to the store.
"""

from __future__ import annotations

import logging
import secrets
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal

from evaluator.errors import LabError, ProblemError
from kernel_library.store import Store
from kernel_library.store.errors import LostLease, Unavailable
from kernel_library.store.views import JobKind, JobView, Json, Lease

logger = logging.getLogger(__name__)

#: Does a job and ends it, by `finish`, `complete` or `fail`. Asks `cancelled` between its steps.
Perform = Callable[[Lease, JobView, Store], None]
#: What came of looking for work once.
Turn = Literal["idle", "done", "fault"]

#: How soon a job is given back after the worker was asked to stop.
TICK_SECONDS = 0.2
#: A worker that fails job after job waits longer and longer, so that it does not fail them all.
LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Duty:
    """Who a worker is and what it takes on; `facts` (GPU, versions) are shown to people."""

    owner: str
    kinds: tuple[JobKind, ...] = ("optimize", "export")
    queue: str = "local"
    poll_seconds: float = 1.0
    lease_seconds: float = 60.0
    facts: Json = field(default_factory=dict)


def run_worker(store: Store, perform: Perform, duty: Duty, stop: threading.Event) -> None:
    """Perform jobs until `stop` is set; then the job in hand goes back to the queue."""
    logger.info("worker_started owner=%s kinds=%s", duty.owner, ",".join(duty.kinds))
    faults = 0
    while not stop.is_set():
        turn = _turn(store, perform, duty, stop)
        faults = faults + 1 if turn == "fault" else 0
        stop.wait(pause(turn, faults, duty.poll_seconds))
    logger.info("worker_stopped owner=%s", duty.owner)


def run_one(store: Store, perform: Perform, duty: Duty, stop: threading.Event) -> Turn:
    """Perform the oldest job, if there is one. Raises Unavailable if the database is away."""
    store.beat(duty.owner, duty.queue, None, duty.facts)
    claimed = store.claim(duty.kinds, duty.owner, duty.lease_seconds)
    if claimed is None:
        store.reap()
        return "idle"
    lease, job = claimed
    logger.info("job_claimed job=%s owner=%s token=%d", job.id, duty.owner, lease.token)
    with kept(store, lease, duty, stop):
        turn = attend(store, perform, lease, job)
    logger.info("job_left job=%s token=%d turn=%s", job.id, lease.token, turn)
    return turn


def pause(turn: Turn, faults: int, poll_seconds: float) -> float:
    """How long to wait before looking again, in seconds."""
    waits = {"done": 0.0, "idle": poll_seconds, "fault": poll_seconds * 2.0 ** min(faults, 10)}
    return min(waits[turn], LONGEST_PAUSE)


def _turn(store: Store, perform: Perform, duty: Duty, stop: threading.Event) -> Turn:
    try:
        return run_one(store, perform, duty, stop)
    except Unavailable:
        logger.warning("database_away owner=%s", duty.owner)
        return "fault"


def attend(store: Store, perform: Perform, lease: Lease, job: JobView) -> Turn:
    """Perform a job that is this worker's, and see that it ends or goes back."""
    try:
        return _attend(store, perform, lease, job)
    except LostLease:
        logger.warning("lease_lost job=%s token=%d", lease.job_id, lease.token)
        return "done"


def _attend(store: Store, perform: Perform, lease: Lease, job: JobView) -> Turn:
    try:
        perform(lease, job, store)
        if is_open(store, lease):
            raise LabError("the performer left the job open")
    except LostLease:
        raise
    except ProblemError as error:
        problem = {"title": "The problem cannot be read", "detail": error.message}
        store.fail(lease, {**problem, "where": error.where})
        logger.info("job_failed job=%s token=%d", lease.job_id, lease.token)
    except Exception as error:
        # the process's edge: whatever a performer raises, the worker lives on
        incident = secrets.token_hex(4)
        log_fault(incident, lease, error)
        store.release(lease, fault=f"met a fault of ours (incident {incident})")
        return "fault"
    return "done"


def is_open(store: Store, lease: Lease) -> bool:
    """Whether the job still waits for its end from this lease."""
    try:
        store.cancelled(lease)
    except LostLease:
        return False
    return True


def log_fault(incident: str, lease: Lease, error: Exception) -> None:
    """What operators need to find a fault. Only our own words: others may quote a key or source."""
    said = str(error)[:300] if isinstance(error, LabError) else ""
    calls = [f"{f.filename}:{f.lineno}:{f.name}" for f in traceback.extract_tb(error.__traceback__)]
    ids = (incident, lease.job_id, lease.token)
    where = " < ".join(reversed(calls))
    kind = type(error).__name__
    logger.error("job_fault incident=%s job=%s token=%d error=%s %r at=%s", *ids, kind, said, where)


@contextmanager
def kept(store: Store, lease: Lease, duty: Duty, stop: threading.Event) -> Iterator[None]:
    """Renew the lease while the block runs; give the job back as soon as `stop` is set."""
    done = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(store, lease, duty, stop, done), name=f"keeper-{lease.job_id}"
    )
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def _keep(
    store: Store, lease: Lease, duty: Duty, stop: threading.Event, done: threading.Event
) -> None:
    due = 0.0
    while not done.wait(TICK_SECONDS):
        try:
            if stop.is_set():
                store.release(lease)
                logger.info("job_given_back job=%s token=%d", lease.job_id, lease.token)
                return
            if time.monotonic() >= due:
                due = time.monotonic() + duty.lease_seconds / 3
                store.renew(lease, duty.lease_seconds)
                store.beat(duty.owner, duty.queue, lease.job_id, duty.facts)
        except LostLease:
            return
        except Unavailable:
            logger.warning("database_away owner=%s job=%s", duty.owner, lease.job_id)


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set; the second signal ends the process as it used to."""
    stop = threading.Event()

    def heard(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        # the handler runs in the main thread, which may be inside `stop.wait` and hold its lock
        threading.Thread(target=stop.set).start()

    signal.signal(signal.SIGTERM, heard)
    signal.signal(signal.SIGINT, heard)
    return stop
