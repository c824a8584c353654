"""Finds the best setting of a unit at each of its real sizes, by the judge's own clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from evaluator.errors import LabError, ProblemError
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
Found = Measurement | str
Look = Callable[[Workload, Config, Pace], Found]


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

    All legal settings are looked at shortly, `jobs` at a time, and the best few at length. The next
    size's looks are under way before the last of one is done, so that no core waits.
    """
    with ThreadPoolExecutor(jobs) as pool:

        def looks(at: Workload, configs: Sequence[Config], pace: Pace) -> Iterator[Found]:
            return pool.map(lambda config: look(at, config, pace), configs)

        sizes = [at for at in unit.op.workloads if at.role == "measure"]
        legal = [list(unit.space.configs(space_names(unit.op, at))) for at in sizes]
        short = [looks(at, configs, QUICK) for at, configs in zip(sizes, legal, strict=True)]
        rows = []
        for at, configs, found in zip(sizes, legal, short, strict=True):
            first = list(found)
            chosen = _finalists(first)
            again = looks(at, [configs[i] for i in chosen], AT_LENGTH)
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
        except (LabError, ProblemError) as error:
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
