"""A worker process: opens the judge, stocks the library, and performs jobs until told to stop."""

from __future__ import annotations

import os
import platform
import threading

import seeds
from evaluator.labs import versions
from kernel_library.store import Store
from kernel_library.store.views import JobView, Lease
from kernel_library.unit import discover
from worker.exporting import perform_export
from worker.judging import Judge, open_judge
from worker.optimizing import perform_optimize
from worker.runner import Duty, Perform, run_worker
from worker.settings import Settings


def work(settings: Settings, stop: threading.Event) -> None:
    """Perform jobs from the settings' store until `stop` is set. Raises LabError, StoreError."""
    store = settings.store()
    try:
        stock(store)
        with open_judge(settings.device_path) as judge:
            duty = Duty(
                owner=f"{platform.node()}-{os.getpid()}",
                poll_seconds=settings.poll_seconds,
                lease_seconds=settings.lease_seconds,
                facts=facts(judge),
            )
            run_worker(store, performer(judge, settings), duty, stop)
    finally:
        store.close()


def performer(judge: Judge, settings: Settings) -> Perform:
    """Does a job of either kind."""

    def perform(lease: Lease, job: JobView, store: Store) -> None:
        if job.kind == "export":
            perform_export(lease, job, store)
        else:
            perform_optimize(judge, settings, lease, job, store)

    return perform


def stock(store: Store) -> None:
    """Put the seeds into the library; those that are there already stay as they are."""
    for unit in discover(seeds):
        store.add_kernel(unit.spec, unit.candidate(), doc=unit.doc, backward=unit.backward)


def facts(judge: Judge) -> dict[str, object]:
    """What people should know of this worker."""
    device = judge.device.name if judge.device else "no GPU: kernels are interpreted, not timed"
    return {"device": device, "sandbox": judge.rooms.level, **versions()}
