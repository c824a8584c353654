"""The whole library against every baseline, losses included, as a page and as data."""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from evaluator.errors import LabError
from kernel_library.candidate import Candidate
from kernel_library.device import LEAST_MARGIN, Device
from kernel_library.spec import OpSpec
from kernel_library.verdict import Measurement, Passed, Rejected, Verdict, geomean
from worker.dots import Dot, picture
from worker.retrieval import Known

#: How a unit's gradient is called.
BACKWARD = "_backward"
#: A workload at which no baseline ran.
ALONE = "alone"
#: From this heading on the page is a person's, and is kept: no clock tells why a row is a loss.
TRIED = "\n## What was tried, and what limits"


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel of the library, and the verdict of a day on it beside every baseline that ran."""

    name: str
    verdict: Verdict
    date: str


@dataclass(frozen=True, slots=True)
class Board:
    """Entries of one device and one set of versions: others are no company for each other."""

    device: str
    versions: Mapping[str, str]
    entries: tuple[Entry, ...] = ()

    def having(self, entry: Entry) -> Board:
        """The board with this entry, in place of an older one of its name."""
        others = [e for e in self.entries if e.name != entry.name]
        return replace(self, entries=tuple(sorted([*others, entry], key=lambda e: e.name)))


def judged(
    kernels: Sequence[Known], judge: Callable[[OpSpec, Candidate], Verdict], together: int
) -> Iterator[tuple[str, Verdict | LabError]]:
    """Each kernel's name and verdict as it is reached, or what failed for a fault of ours.

    So many are judged at a time: one is checked while another is timed.
    """

    def one(each: Known) -> Verdict | LabError:
        try:
            return judge(each.op, each.candidate)
        except LabError as error:
            return error

    with ThreadPoolExecutor(together) as pool:
        waiting = {pool.submit(one, each): each.op.name for each in kernels}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


_board = TypeAdapter(Board)


def _kept(data: str, device: Device) -> Board:
    """What was kept of this device as it is now; an empty board where it is another's or none."""
    empty = Board(device.name, device.software)
    try:
        board = _board.validate_json(data)
    except ValidationError:
        return empty
    same = (board.device, board.versions) == (empty.device, empty.versions)
    return board if same else empty


def add(entry: Entry, device: Device, page: Path) -> Board:
    """The board with this entry, on the page and as JSON beside it.

    Others may add to it at the same time, each from a GPU of its own.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    with page.with_suffix(".json").open("a+") as data:
        fcntl.flock(data, fcntl.LOCK_EX)
        data.seek(0)
        board = _kept(data.read(), device).having(entry)
        data.truncate(0)
        data.write(_board.dump_json(board, indent=1).decode() + "\n")
        beside = page.with_suffix(".svg")
        if drawn := picture(list(_dots(_timed(board)))):
            beside.write_text(drawn)
        page.write_text(markdown(board, device, beside.name if drawn else "") + _by_hand(page))
    return board


def _by_hand(page: Path) -> str:
    """What a person wrote on the page, with its heading."""
    _, heading, text = (page.read_text() if page.exists() else "").partition(TRIED)
    return heading + text


def result(measured: Measurement) -> str:
    """How a time stands to the best baseline of its run: an `Outcome`, or alone."""
    best = measured.best_baseline
    return measured.versus[best].outcome if best else ALONE


def markdown(board: Board, device: Device, drawn: str = "") -> str:
    """The scoreboard as a page: its totals, a picture that lies beside it, a row a workload."""
    timed = _timed(board)
    versions = ", ".join(f"{name} {version}" for name, version in board.versions.items())
    arms = list(dict.fromkeys(arm for _, m in timed for arm in m.baselines))
    lines = [
        "# Scoreboard",
        "",
        f"{board.device}, {_dates(board)}, {versions}. Written by"
        " `kernelwright scoreboard`: medians in µs from a cold L2; the baselines of a row ran in"
        " turns with it under the same clock.",
        f"A win or a loss is one whose 95 % interval lies beyond {_margins(device)}; else a tie.",
        *_older(timed),
        "",
        *_totals(timed),
        "",
        *(
            [f"![Each workload by its best baseline's time over ours]({drawn})", ""]
            if drawn
            else []
        ),
        f"| kernel | workload | ours | of roofline | {' | '.join(arms)} | against the best |",
        "|---|---|" + "---|" * (3 + len(arms)),
        *(_row(name, m, arms) for name, m in timed),
        "",
        *_both_passes(timed),
        *_rejected(board.entries),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _older(timed: Sequence[tuple[str, Measurement]]) -> Iterator[str]:
    """What should be known of rows whose contests kept no speed-up of their own."""
    older = sum(1 for _, m in timed if any(v.times is None for v in m.versus.values()))
    if older:
        yield (
            f"In {older} rows, of before 2026-12, a speed-up is the ratio of the two medians, and"
            " may lie outside of the interval of the contest's own, the median ratio of neighbours."
        )


def _timed(board: Board) -> list[tuple[str, Measurement]]:
    passed = [(e.name, e.verdict) for e in board.entries if isinstance(e.verdict, Passed)]
    return [(name, m) for name, verdict in passed for m in verdict.measured]


def _dots(timed: Sequence[tuple[str, Measurement]]) -> Iterator[Dot]:
    for name, m in timed:
        if best := m.best_baseline:
            yield Dot(name, str(m.at), m.speedup(best), result(m))


def _totals(timed: Sequence[tuple[str, Measurement]]) -> Iterator[str]:
    counts = Counter(result(m) for _, m in timed)
    told = ", ".join(f"{counts[r]} {r}" for r in ("win", "tie", "loss", ALONE) if counts[r])
    yield f"{len(timed)} timed workloads: {told or 'none'}."
    if not timed:
        return
    name, worst = min(timed, key=lambda pair: pair[1].of_roofline)
    mean = _mean([m.of_roofline for _, m in timed])
    yield (
        f"Geometric mean {mean:.0%} of the roofline; worst {worst.of_roofline:.0%},"
        f" {name} at {worst.at}."
    )
    raced = [(pair, pair[1].speedup(best)) for pair in timed if (best := pair[1].best_baseline)]
    if raced:
        (name, worst), ratio = min(raced, key=lambda one: one[1])
        mean = _mean([ratio for _, ratio in raced])
        yield (
            f"Geometric mean {mean:.2f}x the best baseline of each row; worst {ratio:.2f}x,"
            f" {name} at {worst.at}."
        )


def _mean(values: Sequence[float]) -> float:
    return geomean(values, [1.0] * len(values))


def _row(name: str, m: Measurement, arms: Sequence[str]) -> str:
    best = m.best_baseline
    times = [f"{m.baselines[arm]:.1f}" if arm in m.baselines else "" for arm in arms]
    told = result(m)
    if best:
        interval = f"{m.versus[best].low:.3f} to {m.versus[best].high:.3f}"
        word = f"**{told}**" if told == "loss" else told
        told = f"{m.speedup(best):.2f}x {best} ({interval}), {word}"
    share = f"{m.of_roofline:.0%} ({m.bound})"
    return f"| {' | '.join([name, str(m.at), f'{m.time_us:.1f}', share, *times, told])} |"


def _both_passes(timed: Sequence[tuple[str, Measurement]]) -> Iterator[str]:
    """Forward and backward of a kernel at one size, as the sums of their rows."""
    backward = {
        (name.removesuffix(BACKWARD), str(m.at)): m for name, m in timed if BACKWARD in name
    }
    pairs = [(n, m, backward[n, str(m.at)]) for n, m in timed if (n, str(m.at)) in backward]
    if not pairs:
        return
    yield "Forward and backward together, as sums of the rows above:"
    yield ""
    yield "| kernel | workload | ours | of roofline | against the best |"
    yield "|---|---|---|---|---|"
    for name, ahead, back in pairs:
        ours, floor = ahead.time_us + back.time_us, ahead.floor_us + back.floor_us
        sums = {
            arm: us + back.baselines[arm]
            for arm, us in ahead.baselines.items()
            if arm in back.baselines
        }
        best = min(sums, key=lambda arm: sums[arm], default=None)
        told = f"{sums[best] / ours:.2f}x {best}" if best else ALONE
        yield f"| {name} | {ahead.at} | {ours:.1f} | {floor / ours:.0%} | {told} |"
    yield ""


def _rejected(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry.verdict, Rejected):
            yield f"**{entry.name} was rejected** at {entry.verdict.stage}: {entry.verdict.reason}"


def _dates(board: Board) -> str:
    days = sorted({entry.date for entry in board.entries})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "no entries yet"


def _margins(device: Device) -> str:
    """The share that counts as no difference, by the length of a kernel."""
    told = [f"{device.margin(us):.1%} at {us:.0f} µs" for us in device.noise]
    return ", ".join(told) or f"{LEAST_MARGIN:.0%}"
