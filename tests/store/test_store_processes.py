"""Real processes on one database: killed, frozen, asked to stop."""

import multiprocessing
import os
import signal
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from hands import ATTEMPTS, claim_all, work

from kernel_library.store import open_store

# children fork from a server that has these imported, and no open database
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "kernel_library.store", "worker.runner"])


@pytest.fixture
def store(store, url):
    """The same database by the real clock."""
    real = open_store(url, store.files)
    yield real
    real.close()


@pytest.fixture
def worker(url, tmp_path):
    """Starts a worker process; `log` is what it wrote."""

    @contextmanager
    def start(owner):
        ready, log = FORKS.Event(), tmp_path / owner
        with running(FORKS.Process(target=work, args=(url, owner, log, ready))) as process:
            assert ready.wait(30)
            yield process, log

    return start


@contextmanager
def running(process):
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            process.kill()
        process.join()


def stopped(process):
    process.terminate()
    process.join(30)
    return process.exitcode == 0


def wait_until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def kinds(store, job_id):
    return Counter(event.kind for event in store.events(job_id))


def tried(store, job_id):
    return [attempt.candidate.source for attempt in store.history(job_id)]


def test_four_processes_claim_each_of_200_jobs_once(store, url, tmp_path):
    ids = [store.submit("optimize", "a", {})[0].id for _ in range(200)]
    go, logs = FORKS.Event(), [tmp_path / f"w{i}" for i in range(4)]
    four = [FORKS.Process(target=claim_all, args=(url, log.name, log, go)) for log in logs]
    for process in four:
        process.start()
    go.set()
    for process in four:
        process.join(60)
    assert [process.exitcode for process in four] == [0, 0, 0, 0]
    claimed = [log.read_text().split() for log in logs]
    assert sorted(job for jobs in claimed for job in jobs) == ids
    assert sum(bool(jobs) for jobs in claimed) > 1, "only one process had a turn"
    assert all(kinds(store, job)["started"] == 1 for job in ids[::20])


def test_another_worker_goes_on_where_a_killed_one_stopped(store, worker):
    job, _ = store.submit("optimize", "a", {})
    with worker("killed") as (process, _):
        wait_until(lambda: store.job(job.id).attempts >= 2)
        process.kill()
        process.join()
    left = store.history(job.id)
    assert 2 <= len(left) < ATTEMPTS
    assert store.job(job.id).status == "running"
    with worker("second"):
        wait_until(lambda: store.job(job.id).status == "succeeded")
    assert store.history(job.id)[: len(left)] == left
    assert tried(store, job.id) == [f"# kernel {i}" for i in range(ATTEMPTS)]
    assert store.job(job.id).why == "second finished it"
    assert kinds(store, job.id)["started"] == 2


def test_a_frozen_worker_that_wakes_late_writes_nothing(store, worker):
    job, _ = store.submit("optimize", "a", {})
    with worker("frozen") as (frozen, log):
        # the lease is renewed well before and after, so no transaction is frozen with it
        wait_until(lambda: store.job(job.id).attempts >= 2)
        os.kill(frozen.pid, signal.SIGSTOP)
        with worker("second") as (second, _):
            wait_until(lambda: store.job(job.id).status == "succeeded")
            assert stopped(second)
        ended = store.job(job.id), store.events(job.id)
        os.kill(frozen.pid, signal.SIGCONT)
        wait_until(lambda: "lease_lost" in log.read_text())
        assert stopped(frozen)
    assert f"lease_lost job={job.id} token=1" in log.read_text()
    assert (store.job(job.id), store.events(job.id)) == ended
    assert ended[0].why == "second finished it"
    assert tried(store, job.id) == [f"# kernel {i}" for i in range(ATTEMPTS)]


def test_a_worker_that_is_asked_to_stop_leaves_its_job_in_the_queue(store, worker):
    job, _ = store.submit("optimize", "a", {})
    with worker("first") as (process, log):
        wait_until(lambda: store.job(job.id).attempts >= 1)
        assert stopped(process)
    assert "worker_stopped owner=first" in log.read_text()
    left = store.job(job.id)
    assert (left.status, kinds(store, job.id)["failed"]) == ("queued", 0)
    assert store.events(job.id)[-1].data == {"text": "queued again: given back by its worker"}
    with worker("second"):
        wait_until(lambda: store.job(job.id).status == "succeeded")
    assert tried(store, job.id) == [f"# kernel {i}" for i in range(ATTEMPTS)]


def test_a_running_job_stops_when_it_is_cancelled(store, worker):
    job, _ = store.submit("optimize", "a", {})
    with worker("first"):
        wait_until(lambda: store.job(job.id).attempts >= 1)
        store.cancel(job.id)
        wait_until(lambda: store.job(job.id).status == "cancelled")
    assert [w.name for w in store.workers()] == ["first"]
    assert 1 <= store.job(job.id).attempts < ATTEMPTS
