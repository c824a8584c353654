from concurrent.futures import ThreadPoolExecutor

import pytest
from sample import OP

from kernel_library.store.errors import KeyConflict, NotFound


def test_a_submitted_job_waits_and_its_log_says_so(store, clock):
    job, replayed = store.submit("optimize", "rms_norm", {"source": "x = 1"})
    assert not replayed
    assert store.job(job.id) == job
    assert (job.status, job.why, job.attempts, job.created) == ("queued", "", 0, clock.time)
    assert [(e.seq, e.kind, e.at) for e in store.events(job.id)] == [(1, "queued", clock.time)]
    assert len(job.id) == 30


def test_an_unknown_job_is_not_found(store):
    for ask in (store.job, store.cancel):
        with pytest.raises(NotFound, match="job_nowhere"):
            ask("job_nowhere")


def test_the_same_key_gives_the_same_job(store):
    job, _ = store.submit("optimize", "a", {"x": 1, "y": 2}, key="k")
    assert store.submit("optimize", "a", {"y": 2, "x": 1}, key="k") == (job, True)
    assert len(store.jobs()) == 1


@pytest.mark.parametrize(
    ("kind", "name", "request_"),
    [("export", "a", {"x": 1}), ("optimize", "b", {"x": 1}), ("optimize", "a", {"x": 2})],
)
def test_a_key_cannot_stand_for_two_requests(store, kind, name, request_):
    store.submit("optimize", "a", {"x": 1}, key="k")
    with pytest.raises(KeyConflict):
        store.submit(kind, name, request_, key="k")


def test_without_a_key_each_request_is_a_job(store):
    assert store.submit("optimize", "a", {})[0].id != store.submit("optimize", "a", {})[0].id


def test_one_key_sent_eight_times_at_once_makes_one_job(store):
    with ThreadPoolExecutor(8) as pool:
        sent = [*pool.map(lambda _: store.submit("optimize", "a", {}, key="k"), range(8))]
    assert len({job.id for job, _ in sent}) == 1
    assert sorted(replayed for _, replayed in sent) == [False] + 7 * [True]


def test_jobs_are_listed_newest_first_page_by_page(store):
    ids = [store.submit("optimize", "a", {})[0].id for _ in range(5)]
    store.submit("export", "wheel", {})
    first = store.jobs(limit=2)
    second = store.jobs(limit=9, before=first[-1].id)
    assert [job.id for job in first + second] == ids[::-1]
    assert [job.name for job in store.jobs(kind="export")] == ["wheel"]
    assert len(store.jobs(kind=None)) == 6


def test_a_waiting_job_is_cancelled_at_once(store):
    job, _ = store.submit("optimize", "a", {})
    cancelled = store.cancel(job.id)
    assert (cancelled.status, cancelled.cancel_requested) == ("cancelled", True)
    assert cancelled.finished is not None
    assert store.claim(["optimize"], "w", 60) is None
    assert store.cancel(job.id) == cancelled


def test_a_running_job_is_asked_to_stop_once(store):
    job, _ = store.submit("optimize", "a", {})
    lease, _ = store.claim(["optimize"], "w", 60)
    assert not store.cancelled(lease)
    assert store.cancel(job.id).status == "running"
    assert store.cancelled(lease)
    assert store.cancel(job.id) == store.job(job.id)
    assert [e.kind for e in store.events(job.id)] == ["queued", "started", "note"]


def test_events_go_on_after_a_sequence_number(store):
    job, _ = store.submit("optimize", "a", {})
    lease, _ = store.claim(["optimize"], "w", 60)
    for i in range(5):
        store.add_event(lease, "note", {"text": str(i)})
    assert [e.seq for e in store.events(job.id)] == [1, 2, 3, 4, 5, 6, 7]
    assert [e.data["text"] for e in store.events(job.id, after=4)] == ["2", "3", "4"]
    assert [e.seq for e in store.events(job.id, after=2, limit=2)] == [3, 4]
    assert store.events(job.id, after=7) == []
    assert store.job(job.id).version == 7


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "\u202e", "🙂", "' OR 1=1 --"], ids=ascii)
def test_any_text_can_be_kept_and_asked_for(store, text):
    job, _ = store.submit("optimize", text, {"source": text}, key=text)
    assert store.job(job.id).request == {"source": text}
    assert store.submit("optimize", text, {"source": text}, key=text)[1]
    with pytest.raises(NotFound):
        store.job(text)


def test_a_list_of_jobs_leaves_their_ops_out(store):
    job, _ = store.submit("optimize", "a", {})
    lease, _ = store.claim(["optimize"], "w", 60)
    store.set_op(lease, OP)
    assert store.jobs()[0].op is None
    assert store.job(job.id).op == store.cancel(job.id).op == OP
    store.release(store.renew(lease, 60))
    assert store.job(job.id).op == OP
