"""What the worker processes of the tests do: claim all jobs, or work as the real runner does."""

import logging
import time
from pathlib import Path

from sample import attempt

from kernel_library.job import Finished
from kernel_library.store import open_store
from worker.runner import Duty, run_worker, stop_on_signals

ATTEMPTS = 6
LEASE_SECONDS = 1.5
STEP_SECONDS = 0.15


def claim_all(url, owner, log, ready):
    """Take jobs until there are none; the log holds their ids."""
    store = open_store(url, Path("unused"))
    ready.wait()
    ids = []
    while claimed := store.claim(["optimize"], owner, 600):
        ids.append(claimed[1].id)
    log.write_text("\n".join(ids))


def work(url, owner, log, ready):
    """Run until a signal says stop."""
    logging.basicConfig(level=logging.INFO, filename=log, format="%(message)s", force=True)
    stop = stop_on_signals()
    duty = Duty(owner, ("optimize",), poll_seconds=0.05, lease_seconds=LEASE_SECONDS)

    def perform(lease, job, store):
        """Go on from the history to six attempts."""
        for i in range(len(store.history(job.id)), ATTEMPTS):
            time.sleep(STEP_SECONDS)
            if store.cancelled(lease):
                break
            store.add_attempt(lease, attempt(str(i)))
        store.finish(lease, Finished("winner", f"{lease.owner} finished it"))

    ready.set()
    run_worker(open_store(url, Path("unused")), perform, duty, stop)
