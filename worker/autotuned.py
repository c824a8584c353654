"""A kernel that tunes itself: each of its settings is a candidate of its own.

Whoever installs it gets the one that was judged; whoever runs its source as it is gets any of them,
by its own timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evaluator.errors import CandidateError
from evaluator.isolate import Isolate
from evaluator.record import variants
from evaluator.screen import parse
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec
from kernel_library.verdict import Passed, Rejected, Verdict


def each_setting(op: OpSpec, candidate: Candidate, recorder: Isolate) -> tuple[Candidate, ...]:
    """The candidate at each setting of its autotuner; itself where it has none."""
    if "autotune" not in candidate.source:
        return (candidate,)
    try:
        parse(candidate)
        return variants(op, candidate, recorder)
    except CandidateError:
        # the judge says what is wrong with it, as it does of any other
        return (candidate,)


def judged_at_each(
    op: OpSpec, candidates: tuple[Candidate, ...], judge: Callable[[OpSpec, Candidate], Verdict]
) -> Verdict:
    """The verdict on all settings of one kernel: the first rejection, or the best of the passes."""
    passed: list[Passed] = []
    for candidate in candidates:
        verdict = judge(op, candidate)
        if isinstance(verdict, Rejected):
            whose = f" ({candidate.why})" if len(candidates) > 1 else ""
            return replace(verdict, reason=f"{verdict.reason}{whose}")
        passed.append(verdict)
    best = max(passed, key=lambda verdict: verdict.of_roofline)
    if len(passed) == 1:
        return best
    told = f"{len(passed)} settings of its own autotuner, one by one"
    return replace(best, record=replace(best.record, checks=(*best.record.checks, told)))
