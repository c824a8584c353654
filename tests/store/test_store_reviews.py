from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sample import OP, attempt, candidate, passed, rejected

from kernel_library.job import Finished
from kernel_library.spec import Option
from kernel_library.store.errors import NotAcceptable, NotFound, Stale


def searched(store, *attempts, op=OP):
    """A job that tried these and ended; its id."""
    store.submit("optimize", "a", {})
    lease, job = store.claim(["optimize"], "w", 60)
    if op is not None:
        store.set_op(lease, op)
    for each in attempts:
        store.add_attempt(lease, each)
    store.finish(lease, Finished("winner", "done"))
    return job.id


def accept(store, digest, **more):
    return store.review(digest, "accept", "fast and plain", "ann", **{"version": 1, **more})


def test_accepting_adds_a_version_to_the_library(store, clock):
    tried = attempt("1", passed(4.0))
    job_id = searched(store, tried)
    seen = accept(store, tried.candidate.digest)
    assert (seen.version, seen.review.decision, seen.review.reviewer) == (2, "accept", "ann")
    assert store.candidate(seen.digest) == seen
    assert store.candidates(job_id) == [seen]

    kernel = store.kernel(OP.name)
    assert (kernel.version, kernel.origin, kernel.job_id) == (1, "job", job_id)
    assert (kernel.op, kernel.candidate, kernel.verdict) == (OP, tried.candidate, tried.verdict)
    assert (kernel.note, kernel.at) == ("fast and plain", clock.time)
    assert store.kernels() == [kernel]

    told = store.events(job_id)[-1]
    assert (told.kind, told.data["kernel"], told.data["kernel_version"]) == ("reviewed", OP.name, 1)


def test_an_accepted_kernel_follows_the_seed_and_keeps_its_words(store):
    store.add_kernel(OP, candidate("seed"), doc="the maths", backward="gather_scale_backward")
    searched(store, attempt("1"))
    accept(store, candidate("1").digest)
    kernel = store.kernel(OP.name)
    assert (kernel.version, kernel.doc, kernel.backward) == (
        2,
        "the maths",
        "gather_scale_backward",
    )
    assert store.kernel(OP.name, 1).candidate == candidate("seed")


def test_another_contract_of_the_same_name_gets_a_name_of_its_own(store):
    other = replace(OP, options={"eps": Option(1.0)})
    store.add_kernel(OP, candidate("seed"), doc="the maths", backward="gather_scale_backward")
    searched(store, attempt("1"), op=other)
    accept(store, candidate("1").digest)
    assert store.kernel(OP.name).candidate == candidate("seed")
    mine = store.kernel(f"{OP.name}_2")
    assert (mine.op, mine.version, mine.doc, mine.backward) == (other, 1, "", None)


def test_rejecting_adds_nothing_and_may_be_thought_over(store):
    searched(store, attempt("1"))
    digest = candidate("1").digest
    seen = store.review(digest, "reject", "unreadable", "ann", version=1)
    assert (seen.version, seen.review.note) == (2, "unreadable")
    assert store.kernels() == []
    accept(store, digest, version=2)
    assert store.candidate(digest).review.decision == "accept"
    assert len(store.kernels()) == 1


def test_an_acceptance_stands(store):
    searched(store, attempt("1"))
    digest = candidate("1").digest
    accept(store, digest)
    for decision in ("accept", "reject"):
        with pytest.raises(NotAcceptable, match="in the library"):
            store.review(digest, decision, "again", "bob", version=2)
    assert store.kernel(OP.name).version == 1


@pytest.mark.parametrize("version", [0, 2])
def test_a_review_of_what_has_changed_is_refused(store, version):
    searched(store, attempt("1"))
    with pytest.raises(Stale, match="read it again"):
        accept(store, candidate("1").digest, version=version)
    assert store.kernels() == []
    assert store.candidate(candidate("1").digest).review is None


@pytest.mark.parametrize("note", ["", "  \n"])
@pytest.mark.parametrize("decision", ["accept", "reject"])
def test_a_review_says_why(store, decision, note):
    searched(store, attempt("1"))
    with pytest.raises(NotAcceptable, match="say why"):
        store.review(candidate("1").digest, decision, note, "ann", version=1)


@pytest.mark.parametrize(
    ("verdict", "op", "why"),
    [
        (rejected(), OP, "rejected it at correct"),
        (passed(4.0, "rlimits"), OP, "'rlimits'"),
        (passed(4.0, "none"), OP, "'none'"),
        (passed(4.0, stages=("speed",)), OP, "judged quickly"),
        (passed(4.0), None, "no contract"),
    ],
    ids=["rejected", "rlimits", "none", "quick", "no-contract"],
)
def test_what_was_not_proven_cannot_be_accepted(store, verdict, op, why):
    job_id = searched(store, attempt("1", verdict), op=op)
    before = store.events(job_id)
    with pytest.raises(NotAcceptable, match=why):
        accept(store, candidate("1").digest)
    assert store.kernels() == []
    assert store.candidate(candidate("1").digest).version == 1
    assert store.events(job_id) == before
    assert store.review(candidate("1").digest, "reject", "as the judge", "a", version=1).review


def test_of_two_reviews_at_once_one_is_stale(store):
    searched(store, attempt("1"))

    def decide(reviewer):
        try:
            return store.review(candidate("1").digest, "accept", "ok", reviewer, version=1)
        except Stale as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        came = [*pool.map(decide, "abcdef")]
    assert sum(isinstance(c, Stale) for c in came) == 5
    assert [k.version for k in store.kernels()] == [1]


def test_versions_have_no_gap_when_many_are_accepted_at_once(store):
    texts = "12345678"
    jobs = [searched(store, attempt(text)) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda text: accept(store, candidate(text).digest), texts)]
    assert store.kernel(OP.name).version == 8
    assert {store.kernel(OP.name, v).job_id for v in range(1, 9)} == set(jobs)


def test_the_same_candidate_in_two_jobs_is_reviewed_in_one(store):
    first, second = searched(store, attempt("1")), searched(store, attempt("1"))
    digest = candidate("1").digest
    assert store.candidate(digest).job_id == second
    accept(store, digest, job_id=first)
    assert store.candidate(digest, first).review is not None
    assert store.candidate(digest, second).review is None
    assert store.candidates(second)[0].review is None


def test_what_is_not_there_is_not_found(store):
    searched(store, attempt("1"))
    with pytest.raises(NotFound):
        store.candidate("0" * 64)
    with pytest.raises(NotFound):
        store.candidate(candidate("1").digest, "job_other")
    with pytest.raises(NotFound):
        accept(store, "0" * 64)
    with pytest.raises(NotFound, match="rms_norm"):
        store.kernel("rms_norm")
    assert store.candidates("job_other") == []


def test_adding_the_same_seed_again_changes_nothing(store, clock):
    first = store.add_kernel(OP, candidate("seed"), doc="the maths")
    clock.turn(5)
    assert store.add_kernel(OP, candidate("seed"), doc="other words") == first
    assert first.verdict is None
    second = store.add_kernel(OP, candidate("better seed"), verdict=passed(2.0))
    assert (second.version, second.verdict) == (2, passed(2.0))
    assert store.kernels() == [second]


def test_seeds_added_at_once_are_added_once(store):
    with ThreadPoolExecutor(6) as pool:
        came = [*pool.map(lambda _: store.add_kernel(OP, candidate("seed")), range(6))]
    assert {kernel.version for kernel in came} == {1}


def test_kernels_are_listed_by_name(store):
    for name in ("softmax", "gemm"):
        store.add_kernel(replace(OP, name=name), candidate(name))
    assert [kernel.name for kernel in store.kernels()] == ["gemm", "softmax"]
