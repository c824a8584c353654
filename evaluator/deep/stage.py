"""The last stage, only for what would enter the library: each look in a process of its own.

What was looked into is told in a note, and what could not be is told there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from evaluator.deep.job import EFFECT, NO_ROOM, ROUNDED, UNTOLD
from evaluator.deep.looks import REPEATS, launched, pairs
from evaluator.deep.points import Points
from evaluator.deep.running import Sanitize
from evaluator.deep.sanitizer import TOOLS, Tool, believed, findings
from evaluator.errors import CandidateError, LabError
from evaluator.isolate import Died, Isolate, works
from evaluator.matrix import Point
from evaluator.play.judge import CHECK_S, START_S, ask
from evaluator.play.wire import Reply, Request, Take, dump_request, pack
from evaluator.record.facts import binaries_json, shown_json
from evaluator.turns import Turns
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec

JOB = "evaluator.deep.job"
FACTS, SHOWN = "evaluator.record.facts:main", "registers, spills and matrix instructions"
#: Seconds that a tool may take: torch starts some times slower under it, then each take.
TOOL_S, TAKE_S = 180.0, 60.0
#: Seconds for writing, drawing and comparing some ten gigabytes.
WIDE_S = 120.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What the stage works with: recordings as takes, with the op whose graphs they need."""

    takes: Callable[[OpSpec, Candidate, Sequence[Point]], tuple[OpSpec, list[Take]]]
    recorder: Isolate
    player: Isolate
    sanitize: Sanitize
    turns: Turns


def look(op: OpSpec, candidate: Candidate, points: Points, bench: Bench) -> tuple[str, ...]:
    """What was looked into, as notes. Raises `CandidateError` at stage `deep`, and `LabError`."""
    with _at_deep():
        return (
            _shown(op, candidate, [*points.matrix, points.real], bench),
            _repeated(op, candidate, points.real, bench),
            _effects(op, candidate, [*points.matrix, points.real], bench),
            _beyond(op, candidate, points.beyond, bench),
            _vast(op, candidate, points.vast, bench),
            _bent(op, candidate, points.bent, bench),
            _long(op, candidate, points.long, bench),
            *_sanitized(op, candidate, points.small, bench),
        )


@contextmanager
def _at_deep() -> Iterator[None]:
    try:
        yield
    except CandidateError as error:
        raise CandidateError("deep", error.reason, error.at, error.kernels) from error


def _ask(op: OpSpec, takes: list[Take], bench: Bench, name: str, seconds: float) -> Reply:
    sent, binaries = pack(takes)
    request = Request(op, sent, binaries, str(bench.turns.folder))
    return ask(request, takes, bench.player, START_S + seconds, f"{JOB}:{name}")


def _shown(op: OpSpec, candidate: Candidate, points: Sequence[Point], bench: Bench) -> str:
    """Facts of kernels come from a process that holds the candidate, so they are read once more."""
    _, takes = bench.takes(op, candidate, points)
    _, binaries = pack(takes)
    outcome = bench.recorder(FACTS, binaries_json.dump_json(binaries), START_S)
    if isinstance(outcome, Died):
        if works(bench.recorder, FACTS, binaries_json.dump_json({})):
            raise CandidateError("deep", "its binaries cannot be disassembled")
        raise LabError(f"binaries could not be read: {outcome.text}")
    shown = shown_json.validate_json(outcome.body)
    for take in takes:
        kernels = take.recording.tape.kernels
        told = sorted((k.registers, k.spills, k.matmul_instructions > 0) for k in kernels)
        if told != sorted(shown[digest] for digest in take.recording.binaries):
            raise CandidateError("deep", f"its binaries show other {SHOWN} than it told of")
    return f"{SHOWN} of {len(binaries)} binaries read off them again"


def _repeated(op: OpSpec, candidate: Candidate, point: Point, bench: Bench) -> str:
    whole, takes = bench.takes(op, candidate, [point])
    _ask(whole, takes, bench, "repeats", REPEATS * CHECK_S)
    return f"{REPEATS} runs in a fresh process at {point[0]} equal to the bit"


def _effects(op: OpSpec, candidate: Candidate, points: Sequence[Point], bench: Bench) -> str:
    """A kernel is idle only if it shows at no point: a tail, say, has nothing to do at some."""
    whole, takes = bench.takes(op, candidate, points)
    kernels = launched(takes)
    for kernel in kernels:
        twos = [take for pair in pairs(takes, kernel) for take in pair]
        reply = _ask(whole, twos, bench, "effects", CHECK_S * len(twos))
        if EFFECT not in reply.notes:
            raise CandidateError("deep", f"{kernel} does nothing that the outputs show")
    return f"each of {len(kernels)} kernels left out in turn: the outputs show it"


def _beyond(op: OpSpec, candidate: Candidate, points: Sequence[Point], bench: Bench) -> str:
    """One input after another: each may have offsets of its own."""
    told, tried, why = "an input that spans more than 2^31 elements by its strides", 0, ""
    if not points:
        return f"{told}: not tried, for no input has an axis to spread"
    for point in points:
        try:
            whole, takes = bench.takes(op, candidate, [point])
        except CandidateError as error:
            why = f"the launcher refuses it ({error.reason})"
            continue
        reply = _ask(whole, takes, bench, "wide", WIDE_S)
        if NO_ROOM in reply.notes:
            why = _UNTRIED[NO_ROOM]
        else:
            tried += 1
    if not tried:
        return f"{told}: not tried, for {why}"
    others = f", {len(points) - tried} not, for {why}" if why else ""
    return f"{told}: {tried} in turn{others}"


def _vast(op: OpSpec, candidate: Candidate, points: Sequence[Point], bench: Bench) -> str:
    """What is written has offsets of its own, too."""
    told = "outputs of more than 2^31 elements"
    return _unless_refused(op, candidate, points, bench, told, _checked_vast)


def _checked_vast(op: OpSpec, takes: list[Take], bench: Bench, told: str) -> str:
    """Hold takes against what there is room for."""
    reply = _ask(op, takes, bench, "vast", WIDE_S * len(takes))
    tried = sum(checked.cases for checked in reply.checked)
    why = " and ".join(words for note, words in _UNTRIED.items() if note in reply.notes)
    if not tried:
        return f"{told}: not tried, for {why}"
    others = f", {len(takes) - tried} not, for {why}" if why else ""
    return f"{told}: {tried}{others}" + f", {ROUNDED}" * (ROUNDED in reply.notes)


def _bent(op: OpSpec, candidate: Candidate, points: Sequence[Point], bench: Bench) -> str:
    told = "bent values and other layouts at measured sizes, and hidden sizes near them"
    if not points:
        return f"{told}: not tried, for no size is measured"
    whole, takes = bench.takes(op, candidate, points)
    return _checked(whole, takes, bench, told)


def _long(op: OpSpec, candidate: Candidate, points: Sequence[Point], bench: Bench) -> str:
    told = "hidden sizes with an axis longer than 2^14"
    return _unless_refused(op, candidate, points, bench, told, _checked)


def _unless_refused(
    op: OpSpec, candidate: Candidate, points: Sequence[Point], bench: Bench, told: str,
    checked: Callable[[OpSpec, list[Take], Bench, str], str],
) -> str:  # fmt: skip
    """Check sizes so large that a launcher may say it cannot take them."""
    if not points:
        return f"{told}: not tried, for no such size is legal, or small enough"
    try:
        whole, takes = bench.takes(op, candidate, points)
    except CandidateError as error:
        return f"{told}: not tried, for the launcher refuses one ({error.reason})"
    return checked(whole, takes, bench, told)


def _checked(op: OpSpec, takes: list[Take], bench: Bench, told: str) -> str:
    """Hold takes against the float64 truth, as far as that has room."""
    reply = _ask(op, takes, bench, "bent", WIDE_S + CHECK_S * len(takes))
    if NO_ROOM in reply.notes:
        return f"{told}: not all tried, for not all have room in memory"
    return f"{len(takes)} cases of {told}"


def _sanitized(
    op: OpSpec, candidate: Candidate, points: Sequence[Point], bench: Bench
) -> Iterator[str]:
    """Run each tool, and tell which saw nothing, and what was not looked into for what reason."""
    whole, takes = bench.takes(op, candidate, points)
    facts = [kernel for take in takes for kernel in take.recording.tape.kernels]
    sent, binaries = pack(takes)
    request = dump_request(Request(whole, sent, binaries, str(bench.turns.folder)))
    looked, unseen = list[str](), dict[str, list[str]]()
    seconds = TOOL_S + TAKE_S * len(takes)
    # side by side: most of it is torch's start, which a tool makes some times slower
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        logs = list(pool.map(lambda tool: bench.sanitize(tool, request, seconds), TOOLS))
    for tool, log in zip(TOOLS, logs, strict=True):
        for found in findings(tool, log.text, launched(takes)):
            if believed(found, facts, log.version):
                raise CandidateError("deep", f"{found.kernel} {found.what} ({tool})")
            yield f"{tool} says that {found.kernel} {found.what}: {DOUBTFUL}"
        if log.why:
            unseen.setdefault(log.why, []).append(UNSEEN[tool])
        else:
            looked.append(tool)
    if looked:
        yield f"compute-sanitizer {', '.join(looked)} on {len(takes)} small sizes"
    for why, what in unseen.items():
        yield f"{why}: not looked into: {', '.join(what)}"


_UNTRIED = {NO_ROOM: "the device has no room for it now", UNTOLD: UNTOLD}
UNSEEN: Mapping[Tool, str] = {
    "memcheck": "accesses outside buffers",
    "racecheck": "races on shared memory",
    "initcheck": "reads of unwritten memory",
    "synccheck": "misused barriers",
}
DOUBTFUL = "not held against it, for this tool is known to err where a kernel is asynchronous"
