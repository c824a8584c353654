import logging
import threading
import time

import pytest
from sample import attempt

from evaluator.errors import LabError, ProblemError
from kernel_library.job import Finished
from kernel_library.store import open_store
from kernel_library.store.leases import MAX_FAULTS
from worker.runner import LONGEST_PAUSE, Duty, pause, run_one, run_worker

DUTY = Duty("w", ("optimize",), poll_seconds=0.01, lease_seconds=60)
CANARY = "sk-canary-tl.load(x_ptr)"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The runner is the same over either database; SQLite will do."""
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"


def turn(store, perform):
    return run_one(store, perform, DUTY, threading.Event())


def finish(lease, job, store):
    store.finish(lease, Finished("winner", "found"))


def raises(error):
    def perform(lease, job, store):
        raise error

    return perform


def test_an_idle_worker_says_that_it_lives(store, clock):
    assert turn(store, finish) == "idle"
    [worker] = store.workers()
    assert (worker.name, worker.queue, worker.doing, worker.seen) == (
        "w",
        "local",
        None,
        clock.time,
    )


def test_an_idle_worker_puts_lost_jobs_back(store, clock):
    job, _ = store.submit("export", "a", {})
    store.claim(["export"], "gone", 60)
    clock.turn(61)
    assert turn(store, finish) == "idle"
    assert store.job(job.id).status == "queued"


def test_a_performed_job_has_ended(store):
    job, _ = store.submit("optimize", "a", {})
    assert turn(store, finish) == "done"
    assert store.job(job.id).status == "succeeded"


def test_a_problem_that_cannot_be_read_fails_with_its_place(store):
    job, _ = store.submit("optimize", "a", {})
    assert turn(store, raises(ProblemError("not Python: fix the indent", "line 3"))) == "done"
    job = store.job(job.id)
    assert job.status == "failed"
    assert (job.problem["detail"], job.problem["where"]) == ("not Python: fix the indent", "line 3")


@pytest.mark.parametrize("error", [LabError("GPU is gone"), KeyError("x"), RecursionError()])
def test_our_own_failure_is_tried_again_and_then_given_up(store, caplog, error):
    job, _ = store.submit("optimize", "a", {})
    for _ in range(MAX_FAULTS):
        assert store.job(job.id).status == "queued"
        assert turn(store, raises(error)) == "fault"
    job = store.job(job.id)
    assert (job.status, job.problem["title"]) == ("failed", "Our own failure")
    incidents = [r.args[0] for r in caplog.records if r.msg.startswith("job_fault")]
    assert len(set(incidents)) == MAX_FAULTS
    assert incidents[-1] in job.why


def test_a_fault_that_passes_does_not_fail_the_job(store):
    job, _ = store.submit("optimize", "a", {})
    turn(store, raises(LabError("GPU is gone")))
    assert turn(store, finish) == "done"
    assert store.job(job.id).status == "succeeded"


def test_a_performer_that_ends_nothing_is_at_fault(store, caplog):
    job, _ = store.submit("optimize", "a", {})
    assert turn(store, lambda lease, job, store: None) == "fault"
    assert "left the job open" in caplog.text
    assert store.job(job.id).status == "queued"


def test_the_log_names_the_place_and_quotes_no_one(store, caplog):
    caplog.set_level(logging.DEBUG)
    store.submit("optimize", CANARY, {"source": CANARY}, key=CANARY)
    turn(store, raises(ValueError(CANARY)))
    turn(store, finish)
    assert "error=ValueError" in caplog.text
    assert "test_runner.py" in caplog.text
    assert CANARY not in caplog.text


def test_a_lost_job_is_left_alone(store, clock):
    job, _ = store.submit("optimize", "a", {})

    def slow(lease, job, store):
        while store.claim(["optimize"], "other", 60) is None:
            clock.turn(1000)
        finish(lease, job, store)

    assert turn(store, slow) == "done"
    assert store.job(job.id).status == "running"
    assert store.events(job.id)[-1].data["owner"] == "other"


def test_the_lease_is_renewed_while_the_job_runs(store):
    store.submit("optimize", "a", {})
    doing = []

    def slow(lease, job, store):
        until = time.monotonic() + 20
        while not doing and time.monotonic() < until:
            doing.extend(w.doing for w in store.workers() if w.doing)
            time.sleep(0.02)
        finish(lease, job, store)

    turn(store, slow)
    assert doing == [store.jobs()[0].id]


def test_a_stopped_worker_gives_its_job_back_before_the_performer_ends(store):
    job, _ = store.submit("optimize", "a", {})
    stop, given_back = threading.Event(), []

    def slow(lease, job, store):
        store.add_attempt(lease, attempt())
        stop.set()
        until = time.monotonic() + 20
        while store.job(job.id).status == "running" and time.monotonic() < until:
            time.sleep(0.02)
        given_back.append(store.job(job.id).status)
        finish(lease, job, store)

    run_worker(store, slow, DUTY, stop)
    assert given_back == ["queued"]
    assert store.job(job.id).status == "queued"
    assert len(store.history(job.id)) == 1


def test_a_worker_performs_job_after_job_until_it_is_stopped(store):
    ids = [store.submit("optimize", "a", {})[0].id for _ in range(3)]
    stop, done = threading.Event(), []

    def perform(lease, job, store):
        finish(lease, job, store)
        done.append(job.id)
        if len(done) == 3:
            stop.set()

    run_worker(store, perform, DUTY, stop)
    assert done == ids


def test_a_worker_outlives_a_database_that_is_away(tmp_path, caplog):
    pytest.importorskip("psycopg")
    store = open_store("postgresql://nobody@127.0.0.1:1/none", tmp_path)
    stop = threading.Event()
    worker = threading.Thread(target=run_worker, args=(store, finish, DUTY, stop))
    worker.start()
    until = time.monotonic() + 20
    while "database_away" not in caplog.text and time.monotonic() < until:
        time.sleep(0.02)
    assert worker.is_alive()
    stop.set()
    worker.join(20)
    assert not worker.is_alive()
    assert "database_away" in caplog.text
    store.close()


def test_a_worker_that_fails_again_and_again_waits_longer():
    waits = [pause("fault", faults, 1.0) for faults in (1, 2, 3, 50)]
    assert waits == [2.0, 4.0, 8.0, LONGEST_PAUSE]
    assert pause("idle", 0, 1.0) == 1.0
    assert pause("done", 0, 1.0) == 0.0
