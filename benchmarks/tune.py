"""Times every setting of every seed unit on this GPU, beside what a user would run today.

    python benchmarks/tune.py --out DIR [--ops rms_norm,softmax] [--processes 16]

Writes DIR/<op>.json, a tuned table for `seeds/tuned/`, and DIR/report.md; prints the report.

A time is the median over replays of a CUDA graph that runs the call on one set of fresh random
inputs after another; inputs and outputs of all sets together are at least three times the L2, so
each call finds it cold. Settings are compiled, and compared with the reference in float64, in
processes of their own first; the best few are then timed again with the baselines, in turns.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

import seeds
from benchmarks.baselines import baselines
from benchmarks.timing import Ceilings, Timer, ceilings, in_turns, versions
from kernel_library.recipe import Simplex
from kernel_library.spec import Workload
from kernel_library.unit import Unit, discover, space_names

Config = Mapping[str, int]
Call = Callable[..., Any]
#: Largest difference over largest true value that a bfloat16 answer may show.
BOUND = 3e-2
#: Settings timed again beside the baselines.
FINALISTS = 4
UNITS: dict[str, Unit] = {unit.op.name: unit for unit in discover(seeds)}


@dataclass(frozen=True, slots=True)
class Point:
    """An op at a workload."""

    op: str
    index: int

    @property
    def unit(self) -> Unit:
        """The unit whose op it is."""
        return UNITS[self.op]

    @property
    def at(self) -> Workload:
        """The workload."""
        return self.unit.op.workloads[self.index]

    @property
    def configs(self) -> list[dict[str, int]]:
        """All settings that the unit's space holds legal here."""
        return list(self.unit.space.configs(space_names(self.unit.op, self.at)))


def draw(point: Point, seed: int) -> list[torch.Tensor]:
    """Fresh random inputs on the GPU."""
    rng = torch.Generator("cuda").manual_seed(seed)
    op, made = point.unit.op, []
    for tensor in op.inputs.values():
        t = torch.randn(tensor.shape(op.names(point.at)), generator=rng, device="cuda")
        t = t.softmax(-1) if isinstance(tensor.recipe, Simplex) else t
        made.append(t.to(getattr(torch, op.dtype(tensor, point.at))))
    return made


def listed(out: torch.Tensor | tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """What a call returned, as a list."""
    if isinstance(out, torch.Tensor):
        return [out]
    return list(out)


def usable(point: Point, configs: Sequence[Config]) -> list[tuple[Config, str]]:
    """Run each setting once, in a process of its own kind: what is wrong with it, or nothing."""
    args, options = draw(point, 0), point.unit.op.option_values(point.at)
    if point.unit.op.matmul_flops == "0":
        want = listed(point.unit.reference(*(a.double() for a in args), **options))
    else:
        # a float64 product of this size takes a second, a float32 one is as good a judge here
        want = listed(point.unit.reference(*(a.float() for a in args), **options))
    return [(config, _fault(point, config, args, options, want)) for config in configs]


def _fault(
    point: Point,
    config: Config,
    args: Sequence[torch.Tensor],
    options: Mapping[str, Any],
    want: Sequence[torch.Tensor],
) -> str:
    try:
        got = listed(point.unit.kernel(*args, **options, **config))
        torch.cuda.synchronize()
    except Exception as error:  # the edge of a process: a setting that will not run is a finding
        return f"{type(error).__name__}: {str(error)[:80]}"
    worst = max(float((g - w).abs().max() / w.abs().max()) for g, w in zip(got, want, strict=True))
    return "" if worst <= BOUND else f"error {worst:.1e}"


def input_sets(point: Point, moved: int) -> list[list[torch.Tensor]]:
    """Enough sets of inputs that a call finds nothing of its own in the L2."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    return [draw(point, seed) for seed in range(max(3, -(-3 * l2 // moved)))]


@dataclass(frozen=True, slots=True)
class Result:
    """The best setting of a unit at a workload, the runners-up, and the baselines' times in us."""

    point: Point
    config: Config
    time_us: float
    floor_us: float
    default_us: float
    tried: int
    others: Mapping[str, float]
    runners_up: Sequence[tuple[float, Config]]


def measure(point: Point, configs: Sequence[Config], limits: Ceilings) -> Result:
    """Time every setting shortly, then the best few and the baselines at length, in turns."""
    unit, at = point.unit, point.at
    options = unit.op.option_values(at)
    sets = input_sets(point, unit.op.cost(at).bytes)

    def timer(config: Config) -> Timer:
        return Timer(lambda *args: unit.kernel(*args, **options, **config), sets)

    quick = sorted(((median(timer(c).read(5)), i) for i, c in enumerate(configs)))
    best = [configs[i] for _, i in quick[:FINALISTS]]
    default = unit.space.default(space_names(unit.op, at))
    contest: dict[str, Timer] = {str(i): timer(c) for i, c in enumerate(best)}
    contest["default"] = timer(default)
    contest |= {name: Timer(call, sets) for name, call in baselines(point.op).items()}
    times = in_turns(contest)
    order = sorted(range(len(best)), key=lambda i: times[str(i)])
    others = {n: t for n, t in times.items() if not n.isdigit() and n != "default"}
    return Result(
        point, best[order[0]], times[str(order[0])], limits.floor_us(unit, at), times["default"],
        len(configs), others, [(t, configs[i]) for t, i in quick[:12]],
    )  # fmt: skip


def both_passes(forward: Result, backward: Result, limits: Ceilings) -> str:
    """A line of the report for forward and backward together, beside the same baselines."""
    ahead, back = forward.point.unit, backward.point.unit
    f_options = ahead.op.option_values(forward.point.at)
    b_options = back.op.option_values(backward.point.at)
    names = list(back.op.inputs)

    def ours(d_y: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = ahead.kernel(*inputs, **f_options, **forward.config)
        held = {"d_y": d_y, "y": y} | dict(zip(ahead.op.inputs, inputs, strict=True))
        gradients = back.kernel(*(held[n] for n in names), **b_options, **backward.config)
        return y, *listed(gradients)

    sets = input_sets(forward.point, ahead.op.cost(forward.point.at).bytes)
    sets = [[torch.randn_like(each[0]), *each] for each in sets]
    op = f"{forward.point.op}+backward"
    contest = {"ours": Timer(ours, sets)}
    contest |= {name: Timer(call, sets) for name, call in baselines(op).items()}
    times = in_turns(contest)
    floor = forward.floor_us + backward.floor_us
    return line(op, forward.point.at, times.pop("ours"), floor, times)


def line(
    op: str, at: Workload, time_us: float, floor_us: float, others: Mapping[str, float]
) -> str:
    """One row of the report."""
    beside = ", ".join(f"{n} {t:.1f}" for n, t in others.items())
    return f"| {op} | {at} | {time_us:.2f} | {floor_us:.2f} | {floor_us / time_us:.0%} | {beside} |"


def table(results: Sequence[Result], read_with: Mapping[str, str]) -> dict[str, object]:
    """The tuned table of one op, as `kernel_library.unit.tuned_table` reads it."""
    rows = [
        {
            "dims": dict(r.point.at.dims),
            "dtypes": dict(r.point.at.dtypes),
            "config": dict(r.config),
            "options": dict(r.point.at.options),
        }
        for r in results
    ]
    return {torch.cuda.get_device_name(): {"provenance": dict(read_with), "rows": rows}}


def survivors(
    points: Sequence[Point], processes: int
) -> tuple[dict[Point, list[Config]], list[str]]:
    """The settings of each point that ran and were right, and a note for each other one."""
    jobs = [(p, p.configs[i : i + 12]) for p in points for i in range(0, len(p.configs), 12)]
    # the costliest compiles first, so that none is left to run alone at the end
    jobs.sort(key=lambda job: job[0].unit.op.matmul_flops == "0")
    good: dict[Point, list[Config]] = {point: [] for point in points}
    notes = []
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, mp_context=fork) as pool:
        for (point, _), found in zip(jobs, pool.map(usable, *zip(*jobs, strict=True)), strict=True):
            good[point] += [config for config, fault in found if not fault]
            notes += [f"{point.op} {point.at} {c}: {f}" for c, f in found if f]
    return good, notes


def pairs(results: Sequence[Result], limits: Ceilings) -> list[str]:
    """Forward and backward together, wherever both were measured at the same sizes."""
    at = {(r.point.op, str(r.point.at)): r for r in results}
    return [
        both_passes(r, at[back, str(r.point.at)], limits)
        for r in results
        if (back := r.point.unit.backward) and (back, str(r.point.at)) in at
    ]


def main() -> None:
    """Measure, write the tables, print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ops", default=",".join(UNITS))
    parser.add_argument("--processes", type=int, default=16)
    asked = parser.parse_args()
    points = [
        Point(op, i)
        for op in asked.ops.split(",")
        for i, at in enumerate(UNITS[op].op.workloads)
        if at.role == "measure"
    ]
    started = time.monotonic()
    good, notes = survivors(points, asked.processes)
    print(f"compiled in {time.monotonic() - started:.0f} s, {len(notes)} settings fell out")
    read_with, limits = versions(), ceilings()
    results: list[Result] = []
    for point in points:
        results.append(measure(point, good[point], limits))
        told = report(results, limits, read_with)
        write(asked.out, results, told, notes, read_with)
        print(f"{time.monotonic() - started:.0f} s {point.op} {point.at} {results[-1].time_us:.2f}")
    told += pairs(results, limits)
    write(asked.out, results, told, notes, read_with)
    print("\n".join(told))


def report(results: Sequence[Result], limits: Ceilings, read_with: Mapping[str, str]) -> list[str]:
    """What was read, on what, with what; a row a workload."""
    return [
        f"{torch.cuda.get_device_name()}, {dict(read_with)}, copy {limits.copy_gbs:.0f} GB/s,"
        f" bf16 4096^3 {limits.matmul_tflops:.0f} TFLOP/s",
        "| op | at | us | floor us | of floor | beside, us |",
        "|---|---|---|---|---|---|",
        *(
            line(r.point.op, r.point.at, r.time_us, r.floor_us,
                 {**r.others, "untuned": r.default_us})
            for r in results
        ),
    ]  # fmt: skip


def write(
    out: Path,
    results: Sequence[Result],
    told: Sequence[str],
    notes: Sequence[str],
    read_with: Mapping[str, str],
) -> None:
    """What is known so far: tuned tables, and a report with the best settings and the failures."""
    out.mkdir(parents=True, exist_ok=True)
    for op in {r.point.op for r in results}:
        text = json.dumps(table([r for r in results if r.point.op == op], read_with), indent=1)
        (out / f"{op}.json").write_text(text + "\n")
    quick = [f"{r.point.op} {r.point.at}: {t:.2f} {c}" for r in results for t, c in r.runners_up]
    (out / "report.md").write_text("\n".join([*told, "", *quick, "", *notes]) + "\n")


if __name__ == "__main__":
    main()
