"""Finds the best setting of a unit at each of its real sizes, by the judge's own clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from evaluator.errors import LabError
from evaluator.evaluate import Lab, evaluate
from evaluator.labs import replayed_lab
from evaluator.play.wire import Pace
from kernel_library.device import Device
from kernel_library.space import Config
from kernel_library.spec import Workload
from kernel_library.unit import Unit, space_names
from kernel_library.verdict import Measurement, Passed
from worker.judging import QUICK, Judge

#: How many of the best by a short look are timed again at length, beside the default.
FINALISTS = 4
AT_LENGTH = Pace(seconds=1.0)

#: Times a kernel at one workload and setting, at a pace: a measurement, or the reason for none.
Look = Callable[[Workload, Config, Pace], Measurement | str]


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


def tuned(unit: Unit, look: Look, jobs: int) -> Iterator[Row]:
    """The best setting at each workload that is measured.

    All legal settings are looked at shortly, `jobs` at a time, and the best few at length.
    """
    for at in unit.op.workloads:
        if at.role == "measure":
            yield _row(unit, at, look, jobs)


def _row(unit: Unit, at: Workload, look: Look, jobs: int) -> Row:
    configs = list(unit.space.configs(space_names(unit.op, at)))
    with ThreadPoolExecutor(jobs) as pool:
        first = list(pool.map(lambda config: look(at, config, QUICK), configs))
    times = {i: m.time_us for i, m in enumerate(first) if isinstance(m, Measurement)}
    refused = Counter(found for found in first if isinstance(found, str))
    # the default is the first, and is always shown
    finalists = dict.fromkeys([*sorted(times, key=lambda i: times[i])[:FINALISTS], 0])
    again = {i: look(at, configs[i], AT_LENGTH) for i in finalists if i in times}
    right = {i: found for i, found in again.items() if isinstance(found, Measurement)}
    best = min(right, key=lambda i: right[i].time_us, default=0)
    return Row(at, configs[best], right.get(best), right.get(0), len(configs), refused)


def by_judge(unit: Unit, judge: Judge, device: Device) -> Look:
    """Looks by recording and racing at the workload alone; timed outputs are checked as ever."""
    op, kernel = unit.spec, unit.candidate()
    labs = {
        pace: _at_one_size(replayed_lab(judge.rooms, device, pace)) for pace in (QUICK, AT_LENGTH)
    }

    def look(at: Workload, config: Config, pace: Pace) -> Measurement | str:
        candidate = replace(kernel, config=config, tuned=())
        try:
            verdict = evaluate(replace(op, workloads=(at,)), candidate, labs[pace])
        except LabError as error:
            # one setting less, and said: hundreds of others are worth having
            return f"our fault: {error}"
        if isinstance(verdict, Passed):
            return verdict.measured[0]
        return f"{verdict.stage}: {verdict.reason}"

    return look


def _at_one_size(lab: Lab) -> Lab:
    """The lab without its hidden sizes: of many settings of one kernel, the winner meets those."""
    return replace(lab, smoke=lambda op: [], matrix=lambda op, candidate: [], run=lambda *_: ())


def table(device: Device, rows: Sequence[Row], provenance: Mapping[str, str]) -> dict[str, object]:
    """A tuned table, as `kernel_library.unit.tuned_table` reads it."""
    told = [
        {
            "dims": dict(row.at.dims), "dtypes": dict(row.at.dtypes),
            "config": dict(row.config), "options": dict(row.at.options),
        }
        for row in rows
        if row.best
    ]  # fmt: skip
    return {device.name: {"provenance": dict(provenance), "rows": told}}
