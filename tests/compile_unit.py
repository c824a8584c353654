"""Compiles seed units for an architecture that need not be present, and prints the facts.

    python tests/compile_unit.py 90 rms_norm softmax
    python tests/compile_unit.py gfx942 rms_norm

One JSON object a kernel: unit, name, registers, spills, shared memory, and matrix instructions but
for AMD; nothing for a unit of 8-bit floats where the architecture has none. In a process of its
own, since the recorder takes the place of Triton's driver for good.
"""

import argparse
import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

sys.path.insert(0, str(Path(__file__).parent.parent))

from evaluator.inputs import Case
from evaluator.isolate import run_here
from evaluator.record import record
from kernel_library.unit import Unit

#: The first architecture whose compiler knows float8_e4m3fn.
FLOAT8 = 89


def has_float8(unit: Unit) -> bool:
    """Whether an input or output is an 8-bit float."""
    tensors = (*unit.op.inputs.values(), *unit.op.outputs.values())
    return any(tensor.dtype.startswith("float8") for tensor in tensors)


def facts(name: str, arch: int) -> Iterator[dict[str, object]]:
    """What the compiler made of each kernel of a unit at its measured sizes, untuned."""
    unit: Unit = importlib.import_module(f"seeds.{name}").UNIT
    if arch < FLOAT8 and has_float8(unit):
        return
    for at in (at for at in unit.op.workloads if at.role == "measure"):
        (recording,) = record(unit.op, unit.candidate(), [(at, Case(0))], run_here, arch)
        for kernel in recording.tape.kernels:
            yield {"unit": name, "at": str(at)} | {n: getattr(kernel, n) for n in kernel.__slots__}


def amd_facts(name: str, arch: str) -> Iterator[dict[str, object]]:
    """What the compiler makes for AMD of what it was given for sm_90, linked to the end.

    With one buffer for a pipelined loop, since a compute unit has 64 KiB of shared memory, and at
    most 1024 threads, in warps of 64.
    """
    given: list[tuple[Any, Any]] = []
    compile_ = triton.compile

    def kept(source: Any, target: Any, options: Any) -> Any:
        given.append((source, options))
        return compile_(source, target=target, options=options)

    triton.compiler.compile = kept
    for _ in facts(name, 90):
        pass
    triton.compiler.compile = compile_
    for source, options in given:
        made = {"num_warps": min(options["num_warps"], 16), "num_stages": 2}
        kernel = compile_(source, target=GPUTarget("hip", arch, 64), options=made)
        told = dict(re.findall(r"\.(vgpr_count|vgpr_spill_count): +(\d+)", kernel.asm["amdgcn"]))
        yield {
            "unit": name, "name": kernel.metadata.name, "num_warps": made["num_warps"],
            "registers": int(told["vgpr_count"]), "spills": int(told["vgpr_spill_count"]),
            "shared_bytes": kernel.metadata.shared, "linked_bytes": len(kernel.asm["hsaco"]),
        }  # fmt: skip


def main() -> None:
    """Print every unit's facts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arch")
    parser.add_argument("units", nargs="+")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        os.chdir(room)
        for name in asked.units:
            amd = asked.arch.startswith("gfx")
            for kernel in amd_facts(name, asked.arch) if amd else facts(name, int(asked.arch)):
                sys.stdout.write(json.dumps(kernel) + "\n")
        os.chdir(Path(__file__).parent)


if __name__ == "__main__":
    main()
