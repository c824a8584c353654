"""The judge's end of the player: asks a fresh process, and says whose fault a failure is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from evaluator.errors import CandidateError, LabError, ProblemError
from evaluator.isolate import Died, Isolate
from evaluator.matrix import describe, shown
from evaluator.play.baselines import chosen, graph_at
from evaluator.play.wire import Race, Reply, Request, Take, dump_request, load_reply, pack
from evaluator.record.flow import copied
from evaluator.turns import Turns
from kernel_library.spec import OpSpec

JOB = "evaluator.play.job:main"
#: Seconds that a process may take: a context and torch's own kernels; then each check, each race.
START_S, CHECK_S, RACE_S = 60.0, 5.0, 30.0
#: What an arm adds to a race: compiling, and for max-autotune trying dozens of kernels.
ARM_S = {"compile": 90.0, "max-autotune": 300.0}
#: How long others may keep the GPU from it meanwhile.
WAIT_S = 900.0


def replay(
    op: OpSpec, takes: Sequence[Take], isolate: Isolate, turns: Turns, race: Race | None = None
) -> Reply:
    """What was checked, and what was timed if there is a race; with a note on each missing rival.

    All in one process: making a context is what a GPU's driver does least often. Raises
    `CandidateError` for a wrong answer, a write out of place, a fault or a hang of its device code,
    and at stage `light` for a time that the device's datasheet rules out; `LabError` for a lost
    player, or a machine without a GPU.
    """
    for take in takes:
        if (told := copied(graph_at(op, take.at), take.recording.tape)) is not None:
            raise CandidateError("record", told)
    if race:
        race = replace(race, pace=replace(race.pace, arms=chosen(race.pace.arms, op)))
    sent, binaries = pack(takes)
    request = Request(op, sent, binaries, str(turns.folder), race)
    timed, arms = (race.timed, race.pace.arms) if race else (0, ())
    each = RACE_S + sum(ARM_S.get(arm, 10.0) for arm in arms)
    seconds = START_S + CHECK_S * (len(takes) - timed) + each * timed
    return ask(request, takes, isolate, seconds)


def ask(
    request: Request, takes: Sequence[Take], isolate: Isolate, seconds: float, job: str = JOB
) -> Reply:
    """What a player process answers, its waiting for turns aside. Raises as `replay` does."""
    seconds += WAIT_S
    outcome = isolate(job, dump_request(request), seconds)
    if isinstance(outcome, Died):
        raise _died(outcome, seconds)
    try:
        reply = load_reply(outcome.body)
    except ValidationError as error:
        raise LabError(f"the player's reply cannot be read: {error}") from error
    match reply.whose:
        case "candidate":
            raise _theirs(request, reply, takes)
        case "problem":
            raise ProblemError(reply.reason, "reference")
        case "lab":
            raise LabError(reply.reason)
    return reply


def _theirs(request: Request, reply: Reply, takes: Sequence[Take]) -> CandidateError:
    """The candidate's fault, with the class of its case; a hidden workload stays hidden.

    What is wrong at the first take that is checked, is said to be wrong at the smoke test.
    """
    if not 0 <= reply.take < len(takes):
        return CandidateError(reply.stage, reply.reason)
    take, timed = takes[reply.take], request.race.timed if request.race else 0
    smoke = reply.stage == "correct" and reply.take == 0 and timed < len(takes)
    reason = f"{reply.reason} {describe(request.op, take.at, take.case)}".strip()
    return CandidateError("smoke" if smoke else reply.stage, reason, shown(request.op, take.at))


def _died(died: Died, seconds: float) -> Exception:
    """A player reports its candidate's faults and hangs itself, so a silent death is the lab's."""
    if died.how == "timeout":
        return LabError(f"the player did not answer within {seconds:.0f} s: {died.text}")
    return LabError(f"the player was lost ({died.how} {died.error}): {died.text}")
