"""The loop, its stops and the order of its proposers, with scripted parts."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from agent.library import NOTHING, NOTHING_ELSE, from_library
from agent.loop import Exhausted, Proposal, drive, optimize, verdicts_of
from agent.stop import (
    cancelled,
    first_of,
    flat,
    near_roofline,
    out_of,
    out_of_attempts,
    out_of_pocket,
    spending,
)
from agent.team import in_order
from kernel_library.candidate import Candidate
from kernel_library.codec import attempt_json
from kernel_library.job import Attempt, Budget, Usage, best
from kernel_library.spec import OpSpec, Tensor, Workload
from kernel_library.verdict import Measurement, Passed, Record, Rejected, Verdict

AT = Workload({"M": 4096, "N": 8192}, {"T": "float16"}, "measure")
OP = OpSpec("scale", {"x": Tensor("M N")}, {"y": Tensor("M N")}, (AT,))
HERE = Record("replayed", "namespaces")


def candidate(name: str, proposer: str = "human") -> Candidate:
    return Candidate("scale", f"# {name}", "scale", proposer=proposer)


def timed(of_roofline: float) -> Passed:
    time_us = 100 / of_roofline
    return Passed((), HERE, (Measurement(AT, time_us, time_us, time_us, 100.0, "memory"),))


WRONG = Rejected("correct", "the last row is not written", HERE)


def attempts(*verdicts: Verdict, seconds: float = 0.0, usage: Usage = Usage()) -> list[Attempt]:
    return [Attempt(candidate(str(i)), v, seconds, usage) for i, v in enumerate(verdicts)]


def these(*names: str):
    """Proposes each once, in order, by what the history lacks."""

    def propose(op: OpSpec, history: Sequence[Attempt]) -> Proposal | Exhausted:
        seen = {a.candidate.source for a in history}
        left = [n for n in names if candidate(n).source not in seen]
        return Proposal(candidate(left[0])) if left else Exhausted("the script is over")

    return propose


def judge(**speeds: float) -> Callable[[OpSpec, Candidate], Verdict]:
    return lambda op, c: timed(speeds[c.source[2:]]) if c.source[2:] in speeds else WRONG


def never(history: Sequence[Attempt]) -> None:
    return None


def clock_of(*readings: float) -> Callable[[], float]:
    left = iter(readings)
    return lambda: next(left)


def test_the_best_is_known_after_every_attempt():
    run = optimize(OP, these("a", "b", "c"), judge(a=0.5, c=0.9), never)
    history: list[Attempt] = []
    bests = []
    for attempt in run:
        history.append(attempt)
        bests.append(best(history).candidate.source)
    assert bests == ["# a", "# a", "# c"]


def test_the_run_returns_its_winner_and_why_it_ended():
    ended = drive(optimize(OP, these("a", "b"), judge(a=0.5), never), lambda a: None)
    assert (ended.outcome, ended.best) == ("winner", candidate("a").digest)
    assert ended.why == "The script is over."


def test_a_run_with_nothing_right_has_no_winner():
    ended = drive(optimize(OP, these("a"), judge(), never), lambda a: None)
    assert (ended.outcome, ended.best) == ("no_correct_candidate", None)


def test_a_job_goes_on_where_it_stopped():
    whole = list(optimize(OP, these("a", "b", "c"), judge(b=0.5), never, clock=lambda: 0.0))
    first = list(
        optimize(OP, these("a", "b", "c"), judge(b=0.5), out_of_attempts(2), clock=lambda: 0.0)
    )
    kept = [attempt_json.validate_json(attempt_json.dump_json(a)) for a in first]
    rest = list(optimize(OP, these("a", "b", "c"), judge(b=0.5), never, kept, lambda: 0.0))
    assert len(first) == 2
    assert kept + rest == whole


def test_a_candidate_is_never_judged_twice():
    script = iter(["a", "a", "b", "b", "b", "b", "b", "b"])
    judged = []

    def propose(op: OpSpec, history: Sequence[Attempt]) -> Proposal:
        return Proposal(candidate(next(script)), Usage(tokens_in=10))

    def evaluate(op: OpSpec, c: Candidate) -> Verdict:
        judged.append(c.source)
        return WRONG

    history: list[Attempt] = []
    ended = drive(optimize(OP, propose, evaluate, never), history.append)
    assert judged == ["# a", "# b"]
    assert ended.why == "Only candidates that were judged before are proposed."
    assert [a.usage.tokens_in for a in history] == [10, 20]  # the repeat was paid for too


def all_at_once(*names: str):
    """Proposes the first that the history lacks, and the rest beside it."""

    def propose(op: OpSpec, history: Sequence[Attempt]) -> Proposal | Exhausted:
        seen = {a.candidate.source for a in history}
        left = [candidate(n) for n in names if candidate(n).source not in seen]
        if not left:
            return Exhausted("the script is over")
        return Proposal(left[0], Usage(tokens_in=7), beside=tuple(left[1:]))

    return propose


def test_candidates_beside_each_other_are_judged_at_once_and_told_in_order():
    everyone = threading.Barrier(3)

    def evaluate(op: OpSpec, c: Candidate) -> Verdict:
        everyone.wait(10)
        return timed(0.5)

    history = list(optimize(OP, all_at_once("a", "b", "c"), evaluate, never))
    assert [a.candidate.source for a in history] == ["# a", "# b", "# c"]
    assert [a.usage.tokens_in for a in history] == [7, 0, 0]  # thought of once


def test_no_more_are_judged_at_once_than_the_budget_has_left():
    names = ("a", "b", "c", "d", "e")
    ended = optimize(OP, all_at_once(*names), judge(c=0.5), out_of_attempts(3))
    history: list[Attempt] = []
    assert drive(ended, history.append).why == "All 3 attempts are used."
    assert [a.candidate.source for a in history] == ["# a", "# b", "# c"]


def test_what_was_judged_before_is_not_judged_beside():
    def propose(op: OpSpec, history: Sequence[Attempt]) -> Proposal | Exhausted:
        fresh = candidate(f"new {len(history)}")
        return Proposal(fresh, beside=(candidate("old"), fresh, candidate("old")))

    history = list(optimize(OP, propose, judge(), out_of_attempts(4)))
    assert [a.candidate.source for a in history] == ["# new 0", "# old", "# new 2", "# new 3"]


def test_a_failure_of_ours_beside_others_ends_the_run_after_what_came_before():
    def evaluate(op: OpSpec, c: Candidate) -> Verdict:
        if c.source == "# b":
            raise ConnectionError("the judge is gone")
        return WRONG

    history: list[Attempt] = []
    with pytest.raises(ConnectionError):
        drive(optimize(OP, all_at_once("a", "b", "c"), evaluate, never), history.append)
    assert [a.candidate.source for a in history] == ["# a"]


def test_a_failure_of_ours_ends_the_run_and_is_no_verdict():
    def evaluate(op: OpSpec, c: Candidate) -> Verdict:
        raise ConnectionError("the judge is gone")

    with pytest.raises(ConnectionError):
        list(optimize(OP, these("a"), evaluate, never))


def test_judging_is_timed_by_the_given_clock():
    [attempt] = optimize(OP, these("a"), judge(), never, clock=clock_of(10.0, 12.5))
    assert attempt.seconds == 2.5


def test_a_finished_job_is_judged_again_from_memory():
    history = list(optimize(OP, these("a", "b"), judge(a=0.5), never, clock=lambda: 0.0))
    again = optimize(OP, these("a", "b"), verdicts_of(history), never, clock=lambda: 0.0)
    assert list(again) == history


def test_the_tail_of_the_time_is_kept_for_verifying():
    now = [0.0]
    stop = out_of(Budget(seconds=100, reserve=0.25), lambda: now[0])
    now[0] = 74.0
    assert stop([]) is None
    now[0] = 75.0
    assert stop([]) == "the time is up: of 100 seconds the last 25 are kept to verify the winner"


def test_an_attempt_that_would_reach_into_the_tail_is_not_begun():
    now = [0.0]
    stop = out_of(Budget(seconds=100, reserve=0.25), lambda: now[0])
    now[0] = 70.0
    assert stop(attempts(WRONG, seconds=4.0)) is None
    assert "no time is left for another attempt" in (stop(attempts(WRONG, seconds=6.0)) or "")


def test_a_resumed_job_has_only_what_is_left_of_its_time():
    stop = out_of(Budget(seconds=100, reserve=0.25), lambda: 1000.0, spent=80.0)
    assert (stop([]) or "").startswith("the time is up")


def test_attempts_tokens_and_money_run_out():
    spent = attempts(WRONG, WRONG, usage=Usage(600, 400, 1.5))
    assert out_of(Budget(attempts=2), lambda: 0.0)(spent) == "all 2 attempts are used"
    assert out_of_pocket(Budget(tokens=2000))(spent) == "the token budget of 2000 is spent"
    assert out_of_pocket(Budget(dollars=3.0))(spent) == "the money budget of $3.00 is spent"
    assert out_of_pocket(Budget(tokens=2001, dollars=3.01))(spent) is None


def test_a_free_model_needs_no_money():
    free = attempts(WRONG, usage=Usage(10, 10, 0.0))
    assert out_of_pocket(Budget(dollars=0.0))(free) is None


def test_what_attempts_cost_adds_up():
    assert spending(attempts(WRONG, WRONG, usage=Usage(1, 2, 0.5))) == Usage(2, 4, 1.0)


def test_a_kernel_at_the_limit_is_good_enough():
    assert near_roofline(0.05)(attempts(WRONG, timed(0.94))) is None
    why = near_roofline(0.05)(attempts(WRONG, timed(0.96)))
    assert why == "every workload runs within 5% of what this device can do"


def test_an_untimed_kernel_is_not_said_to_be_at_the_limit():
    assert near_roofline(0.05)(attempts(Passed((), HERE))) is None


def test_attempts_without_improvement_end_the_run():
    assert flat(2)(attempts(timed(0.5), timed(0.4))) is None
    assert flat(2)(attempts(timed(0.5), timed(0.4), timed(0.6))) is None
    why = flat(2)(attempts(timed(0.5), timed(0.4), timed(0.5)))
    assert why == "the last 2 attempts brought no improvement"


def test_flat_counts_one_proposers_attempts_when_asked():
    other = [replace(a, candidate=candidate("s", "sweep")) for a in attempts(WRONG, WRONG, WRONG)]
    assert flat(2, "llm")([*attempts(timed(0.5)), *other]) is None


def test_the_first_stop_with_something_to_say_is_heard():
    stop = first_of(never, cancelled(lambda: True), out_of_attempts(0))
    assert stop([]) == "it was cancelled"


def test_proposers_are_asked_in_order_and_the_first_again_each_turn():
    notes: list[str] = []
    turns = []

    def tune(op: OpSpec, history: Sequence[Attempt]) -> Proposal | Exhausted:
        turns.append(len(history))
        tuned = {a.candidate.source for a in history}
        if "# b" in tuned and "# b tuned" not in tuned:
            return Proposal(candidate("b tuned"))
        return Exhausted("nothing to tune")

    team = in_order(these("a"), tune, these("a", "b"), note=notes.append)
    history = list(optimize(OP, team, judge(), never))
    assert [a.candidate.source for a in history] == ["# a", "# b", "# b tuned"]
    assert turns == [1, 2, 3]


def test_why_a_proposer_has_nothing_is_noted_once():
    notes: list[str] = []
    team = in_order(
        lambda op, h: Exhausted("no model endpoint is set: going on without one"),
        these("a", "b"),
        note=notes.append,
    )
    ended = drive(optimize(OP, team, judge(), never), lambda a: None)
    assert notes == ["no model endpoint is set: going on without one", "the script is over"]
    assert ended.why.startswith("There is nothing left to try: no model endpoint is set")


NORM = OpSpec("rms_norm", {"x": Tensor("M N")}, {"y": Tensor("M N")}, (AT,))
OTHER = OpSpec("softmax", {"x": Tensor("M N")}, {"y": Tensor("M N")}, (AT,))


def shelf(matches: set[str], asked: list[str]):
    def match(op: OpSpec, library_op: OpSpec) -> str | None:
        asked.append(library_op.name)
        return "x->x" if library_op.name in matches else None

    def adapt(found: str, op: OpSpec, c: Candidate) -> Candidate:
        return replace(c, op=op.name, source=f"{c.source}  # {found}")

    kernels = [(OTHER, candidate("softmax")), (NORM, candidate("norm"))]
    return from_library(kernels, match, adapt)


def test_the_library_proposes_an_exact_match_once_and_says_why():
    asked: list[str] = []
    history = list(optimize(OP, shelf({"rms_norm"}, asked), judge(), never))
    assert [a.candidate.source for a in history] == ["# norm  # x->x"]
    assert history[0].candidate.why == "computes the same function as the library's rms_norm"
    assert history[0].candidate.proposer == "library"
    assert asked == ["softmax", "rms_norm"]  # each is matched once, however often it is asked


def test_a_resumed_job_does_not_propose_the_library_again():
    history = list(optimize(OP, shelf({"rms_norm"}, []), judge(), never))
    assert shelf({"rms_norm"}, [])(OP, history) == Exhausted(NOTHING_ELSE)


def test_a_library_without_the_function_says_so():
    assert shelf(set(), [])(OP, []) == Exhausted(NOTHING)
