"""Compiles seed units for an architecture that need not be present, and prints the facts.

    python tests/compile_unit.py 90 rms_norm softmax

One JSON object a kernel: unit, name, registers, spills, shared memory, matrix instructions. In a
process of its own, since the recorder takes the place of Triton's driver for good.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from evaluator.inputs import Case
from evaluator.isolate import run_here
from evaluator.record import record
from kernel_library.unit import Unit


def facts(name: str, arch: int) -> Iterator[dict[str, object]]:
    """What the compiler made of each kernel of a unit at its measured sizes, untuned."""
    unit: Unit = importlib.import_module(f"seeds.{name}").UNIT
    for at in (at for at in unit.op.workloads if at.role == "measure"):
        (recording,) = record(unit.op, unit.candidate(), [(at, Case(0))], run_here, arch)
        for kernel in recording.tape.kernels:
            yield {"unit": name, "at": str(at)} | {n: getattr(kernel, n) for n in kernel.__slots__}


def main() -> None:
    """Print every unit's facts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arch", type=int)
    parser.add_argument("units", nargs="+")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        os.chdir(room)
        for name in asked.units:
            for kernel in facts(name, asked.arch):
                sys.stdout.write(json.dumps(kernel) + "\n")
        os.chdir(Path(__file__).parent)


if __name__ == "__main__":
    main()
