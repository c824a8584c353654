"""Finds the best setting of a unit at each of its real sizes, by the judge's own clock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from evaluator.errors import CandidateError, LabError, ProblemError
from evaluator.evaluate import Lab, fit_to_run
from evaluator.labs import replayed_lab
from evaluator.play.wire import Pace
from kernel_library.candidate import Candidate
from kernel_library.device import Device
from kernel_library.space import Config
from kernel_library.spec import OpSpec, Workload
from kernel_library.tape import Recording
from kernel_library.unit import Unit, space_names
from kernel_library.verdict import Measurement
from worker.judging import QUICK, Judge

#: How many of the best by a short look are timed again at length, beside the default.
FINALISTS = 4
AT_LENGTH = Pace(seconds=0.4)

#: Settings that one player process times, one after another: half of a look is a process's start.
CHUNK = 8

Found = Measurement | str
#: A device's table as it is kept: "provenance", and "rows".
Known = dict[str, Any]
_WORKLOAD = ("dims", "dtypes", "options")
#: Times a kernel at one workload and each of some settings, at a pace: a measurement, or the reason
#: for none.
Looks = Callable[[Workload, Sequence[Config], Pace], Sequence[Found]]


@dataclass(frozen=True, slots=True)
class Row:
    """The best setting at a workload, what the default takes there, and what could not be used.

    `best` and `default` are absent where nothing, or not the default, could be used; `refused`
    counts settings by the reason.
    """

    at: Workload
    config: Config
    best: Measurement | None
    default: Measurement | None
    tried: int
    refused: Mapping[str, int]


def tuned(unit: Unit, looks: Looks, jobs: int) -> Iterator[Row]:
    """The best setting at each workload that is measured.

    All legal settings are looked at shortly, a chunk of them in each of `jobs` threads, and the
    best few at length. The next size's looks are under way before the last of one is done, so that
    no core waits.
    """
    with ThreadPoolExecutor(jobs) as pool:

        def begin(at: Workload, configs: Sequence[Config], pace: Pace) -> Iterator[Found]:
            chunks = [configs[i : i + CHUNK] for i in range(0, len(configs), CHUNK)]
            return chain.from_iterable(pool.map(lambda chunk: looks(at, chunk, pace), chunks))

        sizes = [at for at in unit.op.workloads if at.role == "measure"]
        legal = [list(unit.space.configs(space_names(unit.op, at))) for at in sizes]
        short = [begin(at, configs, QUICK) for at, configs in zip(sizes, legal, strict=True)]
        rows = []
        for at, configs, found in zip(sizes, legal, short, strict=True):
            first = list(found)
            chosen = _finalists(first)
            again = begin(at, [configs[i] for i in chosen], AT_LENGTH)
            rows.append((at, configs, first, chosen, again))
        for at, configs, first, chosen, again in rows:
            yield _row(at, configs, first, dict(zip(chosen, again, strict=True)))


def _finalists(first: Sequence[Found]) -> list[int]:
    """The best few that can be used, and the default, which is the first and always shown."""
    times = {i: m.time_us for i, m in enumerate(first) if isinstance(m, Measurement)}
    best = sorted(times, key=lambda i: times[i])[:FINALISTS]
    return [i for i in dict.fromkeys([*best, 0]) if i in times]


def _row(
    at: Workload, configs: Sequence[Config], first: Sequence[Found], again: Mapping[int, Found]
) -> Row:
    refused = Counter(found for found in first if isinstance(found, str))
    right = {i: found for i, found in again.items() if isinstance(found, Measurement)}
    best = min(right, key=lambda i: right[i].time_us, default=0)
    return Row(at, configs[best], right.get(best), right.get(0), len(configs), refused)


def by_judge(unit: Unit, judge: Judge, device: Device) -> Looks:
    """Looks by recording and racing at the workload alone; timed outputs are checked as ever.

    Hidden sizes are left out: of many settings of one kernel, the winner meets those.
    """
    op, kernel = unit.spec, unit.candidate()
    labs = {pace: replayed_lab(judge.rooms, device, pace) for pace in (QUICK, AT_LENGTH)}

    def looks(at: Workload, configs: Sequence[Config], pace: Pace) -> Sequence[Found]:
        lab, here = labs[pace], replace(op, workloads=(at,))
        made = [_recorded(here, replace(kernel, config=c, tuned=()), lab) for c in configs]
        timed = iter(_timed(here, [each for each in made if isinstance(each, Recording)], lab))
        return [next(timed) if isinstance(each, Recording) else each for each in made]

    return looks


def _recorded(op: OpSpec, candidate: Candidate, lab: Lab) -> Recording | str:
    """The recording of the op's one workload, or why there is none."""
    try:
        lab.screen(op, candidate)
        points = lab.timed(op)
        tapes = lab.record(op, candidate, points)
        fit_to_run(op, points, tapes)
    except (CandidateError, LabError, ProblemError) as error:
        return _why(error)
    return tapes[0]


def _timed(op: OpSpec, recordings: Sequence[Recording], lab: Lab) -> list[Found]:
    """A measurement of each, in one process; where one cannot be used, each in its own."""
    if not recordings:
        return []
    try:
        measured, _ = lab.measure(op, [*lab.timed(op)] * len(recordings), tuple(recordings))
        return list(measured)
    except (CandidateError, LabError, ProblemError) as error:
        if len(recordings) == 1:
            # one setting less, and said: hundreds of others are worth having
            return [_why(error)]
    return [found for each in recordings for found in _timed(op, [each], lab)]


def _why(error: CandidateError | LabError | ProblemError) -> str:
    if isinstance(error, CandidateError):
        return f"{error.stage}: {error.reason}"
    return f"our fault: {error}"


def at_some(unit: Unit, part: str) -> Unit:
    """The unit with those of its measured workloads alone whose name has this in it."""
    chosen = [at for at in unit.op.workloads if at.role != "measure" or part in str(at)]
    return replace(unit, op=replace(unit.op, workloads=tuple(chosen)))


def table(
    device: Device, rows: Sequence[Row], provenance: Mapping[str, str], known: Known | None = None
) -> dict[str, Known]:
    """A tuned table, as `kernel_library.unit.tuned_table` reads it.

    The rows of a `known` table stay where there is no new one, if it is of the same versions.
    """
    told: list[dict[str, object]] = [
        {
            "dims": dict(row.at.dims), "dtypes": dict(row.at.dtypes),
            "config": dict(row.config), "options": dict(row.at.options),
        }
        for row in rows
        if row.best
    ]  # fmt: skip
    if known and _undated(known["provenance"]) == _undated(provenance):
        told = [*(old for old in known["rows"] if not any(_same(old, new) for new in told)), *told]
    return {device.name: {"provenance": dict(provenance), "rows": told}}


def _undated(provenance: Mapping[str, str]) -> dict[str, str]:
    return {name: told for name, told in provenance.items() if name != "date"}


def _same(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Whether two rows are of one workload; the old one was read, so its tuples are lists."""
    return all(old[name] == json.loads(json.dumps(new[name])) for name in _WORKLOAD)
