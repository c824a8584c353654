"""What holds a kernel back, in plain words and by rule: no profiler and no model needed."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_library.device import Bound
from kernel_library.verdict import KernelFacts, Passed, Verdict

MEANING: Mapping[Bound, str] = {
    "memory": "moving its bytes to and from DRAM",
    "matmul": "its matrix products",
    "vector": "its arithmetic outside matrix products",
    "launch": "launching at all",
}
TECHNIQUES: Mapping[Bound, tuple[str, ...]] = {
    "memory": (
        "read each input from DRAM once, and keep it in registers until the last use",
        "widen each thread's loads to 16 contiguous bytes and give the compiler the divisibility",
        "let one program do several rows, so that loads of one overlap the arithmetic of another",
        "start as many programs as there are SMs, and let each walk over its share of the work",
    ),
    "matmul": (
        "raise the tile until registers just hold the accumulator, and feed it in 3 or 4 stages",
        "order the programs in groups, so that neighbours share tiles in L2",
        "load tiles through tensor descriptors, with persistent programs",
        "fuse what follows the product into the epilogue, before the store",
    ),
    "vector": (
        "replace divisions and exponentials by reciprocals and exp2 where the error allows",
        "hoist what does not depend on the inner loop out of it",
    ),
    "launch": ("do the whole op in one launch", "do more work in each program"),
}


def diagnose(verdict: Verdict) -> list[str]:
    """Sentences on the facts of a verdict, the gravest first; empty where nothing stands out."""
    said = [line for kernel in verdict.kernels for line in _kernel(kernel)]
    worst = verdict.worst if isinstance(verdict, Passed) else None
    if worst is not None:
        share = f"{worst.of_roofline:.0%} of the device's limit, which is {MEANING[worst.bound]}"
        said.append(f"The slowest workload, {worst.at}, runs at {share}.")
    return said


def techniques(verdict: Verdict | None) -> tuple[str, ...]:
    """What may help where the slowest workload is bound; memory, as most are, without times."""
    worst = verdict.worst if isinstance(verdict, Passed) else None
    return TECHNIQUES[worst.bound if worst else "memory"]


def _kernel(kernel: KernelFacts) -> list[str]:
    said = []
    if kernel.spills:
        spilled = f"{kernel.name} spills {kernel.spills} registers to memory"
        said.append(f"{spilled}: smaller tiles, more warps or fewer stages would keep them.")
    if kernel.registers >= 255 and not kernel.spills:
        said.append(f"{kernel.name} uses all 255 registers a thread can have.")
    return said
