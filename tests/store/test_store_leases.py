from contextlib import suppress

import pytest
from sample import OP, attempt, candidate, passed, rejected

from kernel_library.job import Finished
from kernel_library.store.errors import LostLease
from kernel_library.store.leases import MAX_FAULTS

DONE = Finished("winner", "nothing better was found", "d1", ("no model was asked",))
WRITES = {
    "renew": lambda store, lease: store.renew(lease, 60),
    "cancelled": lambda store, lease: store.cancelled(lease),
    "set_op": lambda store, lease: store.set_op(lease, OP),
    "add_event": lambda store, lease: store.add_event(lease, "note", {"text": "late"}),
    "add_attempt": lambda store, lease: store.add_attempt(lease, attempt()),
    "set_artifact": lambda store, lease: store.set_artifact(lease, "0", "a.whl"),
    "finish": lambda store, lease: store.finish(lease, DONE),
    "complete": lambda store, lease: store.complete(lease, "done"),
    "fail": lambda store, lease: store.fail(lease, {"detail": "late"}),
    "release": lambda store, lease: store.release(lease),
}


def claim(store, owner="w", seconds=60):
    return store.claim(["optimize", "export"], owner, seconds)


def test_the_oldest_job_of_a_kind_is_claimed_first(store):
    first, second = (store.submit("optimize", name, {})[0] for name in "ab")
    wheel, _ = store.submit("export", "c", {})
    assert store.claim(["export"], "w", 60)[1].id == wheel.id
    assert [claim(store)[1].id, claim(store)[1].id] == [first.id, second.id]
    assert claim(store) is None


def test_a_claim_starts_the_job_and_counts_its_token(store, clock):
    store.submit("optimize", "a", {})
    lease, job = claim(store)
    assert (lease.job_id, lease.owner, lease.token) == (job.id, "w", 1)
    assert (lease.until - clock.time).total_seconds() == 60
    assert (job.status, job.started) == ("running", clock.time)
    assert store.events(job.id)[-1].data == {"owner": "w", "token": 1}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_worker_that_lost_its_job_can_write_nothing(store, clock, write):
    store.submit("optimize", "a", {})
    late, _ = claim(store, "frozen")
    clock.turn(61)
    lease, job = claim(store, "other")
    assert lease.token == 2
    before = store.job(job.id)
    with pytest.raises(LostLease, match="frozen"):
        write(store, late)
    assert store.job(job.id) == before
    assert store.history(job.id) == []
    write_ok = WRITES["add_event"]
    write_ok(store, lease)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_job_that_ended_takes_no_more_writes(store, write):
    store.submit("optimize", "a", {})
    lease, job = claim(store)
    store.finish(lease, DONE)
    ended = store.job(job.id)
    with pytest.raises(LostLease):
        write(store, lease)
    assert store.job(job.id) == ended


def test_the_same_owner_cannot_use_an_older_lease(store, clock):
    store.submit("optimize", "a", {})
    old, _ = claim(store)
    clock.turn(61)
    claim(store)
    with pytest.raises(LostLease):
        store.renew(old, 60)


def test_a_renewed_lease_keeps_the_job(store, clock):
    store.submit("optimize", "a", {})
    lease, _ = claim(store)
    clock.turn(50)
    assert (store.renew(lease, 60).until - clock.time).total_seconds() == 60
    clock.turn(50)
    assert claim(store, "other") is None


def test_an_expired_lease_still_holds_until_another_takes_the_job(store, clock):
    store.submit("optimize", "a", {})
    lease, job = claim(store)
    clock.turn(1000)
    store.add_attempt(lease, attempt())
    assert len(store.history(job.id)) == 1


def test_the_history_is_there_for_the_next_worker(store, clock):
    store.submit("optimize", "a", {})
    lease, _ = claim(store)
    store.set_op(lease, OP)
    tried = [attempt("1", rejected()), attempt("2", passed(4.0))]
    for each in tried:
        store.add_attempt(lease, each)
    clock.turn(61)
    second, job = claim(store, "other")
    assert store.history(job.id) == tried
    assert (job.attempts, job.op, job.best) == (2, OP, candidate("2").digest)
    assert store.add_attempt(second, attempt("3")).index == 2


def test_arguments_keep_their_order(store):
    store.submit("optimize", "a", {})
    lease, job = claim(store)
    store.set_op(lease, OP)
    op = store.job(job.id).op
    assert [*op.inputs] == ["x", "index", "a"]
    assert [*op.outputs] == ["y", "b"]
    assert op.digest == OP.digest


def test_a_job_that_lost_its_worker_too_often_fails_as_our_fault(store, clock):
    job, _ = store.submit("optimize", "a", {})
    for _ in range(MAX_FAULTS):
        assert claim(store) is not None
        clock.turn(61)
    assert claim(store) is None
    job = store.job(job.id)
    assert (job.status, job.problem["title"]) == ("failed", "Our own failure")
    assert "3 times" in job.why
    assert store.events(job.id)[-1].kind == "failed"


def test_a_job_that_is_given_up_does_not_stop_the_next(store, clock):
    store.submit("optimize", "poison", {})
    for _ in range(MAX_FAULTS):
        claim(store)
        clock.turn(61)
    store.submit("optimize", "sound", {})
    assert claim(store)[1].name == "sound"


def test_giving_a_job_back_does_not_count_against_it(store):
    job, _ = store.submit("optimize", "a", {})
    for turn in range(2 * MAX_FAULTS):
        lease, _ = claim(store)
        assert lease.token == turn + 1
        store.release(lease)
    assert store.job(job.id).status == "queued"


def test_faults_count_and_the_last_one_is_named(store):
    job, _ = store.submit("optimize", "a", {})
    for turn in range(MAX_FAULTS):
        lease, _ = claim(store)
        store.release(lease, fault=f"met fault {turn}")
    assert store.job(job.id).status == "failed"
    assert "met fault 2" in store.job(job.id).why


def test_reaping_puts_lost_jobs_back(store, clock):
    job, _ = store.submit("optimize", "a", {})
    claim(store)
    assert store.reap() == 0
    clock.turn(61)
    assert store.reap() == 1
    assert store.job(job.id).status == "queued"
    assert store.events(job.id)[-1].data == {"text": "queued again: lost its worker w"}


@pytest.mark.parametrize("end", ["release", "lost"])
def test_a_job_that_was_asked_to_stop_does_not_start_again(store, clock, end):
    job, _ = store.submit("optimize", "a", {})
    lease, _ = claim(store)
    store.cancel(job.id)
    if end == "release":
        store.release(lease)
    clock.turn(61)
    assert claim(store) is None
    assert store.job(job.id).status == "cancelled"


def test_finishing_says_how_and_why(store, clock):
    store.submit("optimize", "a", {})
    lease, job = claim(store)
    clock.turn(7)
    store.finish(lease, DONE)
    job = store.job(job.id)
    assert (job.status, job.outcome, job.best) == ("succeeded", "winner", "d1")
    assert (job.why, job.finished) == (DONE.why, clock.time)
    last = store.events(job.id)[-1]
    assert last.kind == "finished"
    assert last.data["notes"] == ["no model was asked"]


def test_a_cancelled_search_keeps_what_it_found(store):
    job, _ = store.submit("optimize", "a", {})
    lease, _ = claim(store)
    store.cancel(job.id)
    store.finish(lease, DONE)
    job = store.job(job.id)
    assert (job.status, job.outcome, job.best) == ("cancelled", "winner", "d1")
    assert store.events(job.id)[-1].kind == "cancelled"


def test_failing_keeps_the_problem(store):
    store.submit("optimize", "a", {})
    lease, job = claim(store)
    problem = {"title": "Cannot be read", "detail": "not Python", "where": "line 3"}
    store.fail(lease, problem)
    job = store.job(job.id)
    assert (job.status, job.problem, job.why) == ("failed", problem, "not Python")


def test_the_best_is_the_first_of_the_fastest(store):
    store.submit("optimize", "a", {})
    lease, job = claim(store)
    for text, verdict in [
        ("1", rejected()), ("2", passed()), ("3", passed(4.0)), ("4", passed(2.0)),
        ("5", passed(2.0)), ("6", passed(3.0)),
    ]:  # fmt: skip
        store.add_attempt(lease, attempt(text, verdict))
    assert store.job(job.id).best == candidate("4").digest


def test_an_attempt_is_told_in_the_log_without_its_source(store):
    store.submit("optimize", "a", {})
    lease, job = claim(store)
    store.add_attempt(lease, attempt("1", rejected()))
    store.add_attempt(lease, attempt("2", passed()))
    store.add_attempt(lease, attempt("3", passed(2.0)))
    wrong, right, timed = (e.data for e in store.events(job.id, after=2))
    assert (wrong["kind"], wrong["stage"], wrong["index"]) == ("rejected", "correct", 0)
    assert (right["kind"], right["of_roofline"]) == ("passed", None)
    assert (timed["of_roofline"], timed["proposer"]) == (0.5, "sweep")
    assert not any("# kernel" in str(data) for data in (wrong, right, timed))


def test_log_numbers_have_no_gap_even_after_a_refused_write(store, clock):
    store.submit("optimize", "a", {})
    late, job = claim(store, "frozen")
    clock.turn(61)
    lease, _ = claim(store, "other")
    for owner in (late, lease, late, lease):
        with suppress(LostLease):
            store.add_event(owner, "note", {"text": owner.owner})
    seqs = [e.seq for e in store.events(job.id)]
    assert seqs == [*range(1, len(seqs) + 1)]


def test_a_heartbeat_is_one_row_a_worker(store, clock):
    store.beat("gpu-1", "gpu", None, {"gpu": "H200"})
    clock.turn(5)
    store.beat("gpu-2", "gpu", None, {})
    clock.turn(5)
    store.beat("gpu-1", "gpu", "job_1", {"gpu": "H200"})
    newest, other = store.workers()
    assert (newest.name, newest.doing, newest.seen) == ("gpu-1", "job_1", clock.time)
    assert (other.name, other.queue) == ("gpu-2", "gpu")
