"""What limits a seed: the hardware's counters of each of its kernels, from a cold cache.

    python benchmarks/counters.py OP [--at M8192]

Runs the seed at its setting for this device, once at each measured workload whose name has `--at`
in it, under NVIDIA's `ncu`, which must be on PATH; the clocks are left as they are. Prints a table.
A time under a profiler is no time to quote: see `kernelwright bench` for those.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

import seeds
from evaluator.inputs import Case, draw
from kernel_library.spec import Workload
from kernel_library.unit import Unit, discover

#: Column by column: what ncu calls it, and what it is here.
METRICS = {
    "gpu__time_duration.sum": "µs",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM %",
    "dram__bytes_read.sum": "read MB",
    "dram__bytes_write.sum": "written MB",
    "lts__t_sector_hit_rate.pct": "L2 hits %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps %",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issuing %",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "on memory",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "at barriers",
    "launch__registers_per_thread": "registers",
    "launch__grid_size": "programs",
}
#: What ncu counts in nanoseconds or bytes, and a reader does not.
SCALE = {"µs": 1e-3, "read MB": 1e-6, "written MB": 1e-6}


def measured(unit: Unit, part: str) -> list[Workload]:
    """The workloads that are asked for."""
    return [at for at in unit.op.workloads if at.role == "measure" and part in str(at)]


def once(unit: Unit, at: Workload) -> None:
    """Call the kernel as a user would, compiled ahead, inside of the profiler's range."""
    device = torch.device("cuda", 0)
    config = unit.candidate(device=torch.cuda.get_device_name(device)).config_at(at)
    inputs = draw(unit.op, at, Case(0), device).values()
    for profiled in (False, True):
        if profiled:
            torch.cuda.cudart().cudaProfilerStart()
        unit.kernel(*inputs, **unit.op.option_values(at), **config)
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def profiled(op: str, at: Workload) -> str:
    """What ncu prints of one call."""
    tool = ["ncu", "--csv", "--print-units", "base", "--clock-control", "none"]
    tool += ["--profile-from-start", "off"]
    here = [sys.executable, __file__, op, "--at", str(at), "--once"]
    done = subprocess.run(
        [*tool, "--metrics", ",".join(METRICS), *here], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"ncu failed: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def rows(printed: str) -> dict[tuple[str, str], dict[str, float]]:
    """The figures of each launch, by its number and name, from ncu's CSV."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    lines = [line for line in printed.splitlines() if line.startswith('"')]
    for row in csv.DictReader(lines):
        name = METRICS[row["Metric Name"]]
        value = float(row["Metric Value"].replace(",", "")) * SCALE.get(name, 1.0)
        found[row["ID"], row["Kernel Name"]][name] = value
    return found


def main() -> None:
    """Profile, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("op")
    parser.add_argument("--at", default="")
    parser.add_argument("--once", action="store_true", help="what ncu runs")
    asked = parser.parse_args()
    unit = next((unit for unit in discover(seeds) if unit.op.name == asked.op), None)
    if unit is None:
        sys.exit(f"there is no seed {asked.op!r}")
    chosen = measured(unit, asked.at)
    if asked.once:
        once(unit, chosen[0])
        return
    table = Table("workload", "kernel", *METRICS.values())
    for at in chosen:
        for (_, kernel), figures in rows(profiled(asked.op, at)).items():
            told = [f"{figures[name]:.4g}" for name in METRICS.values()]
            table.add_row(str(at), kernel[:40], *told)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
