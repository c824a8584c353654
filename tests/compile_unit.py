"""Compiles one seed unit for an architecture that need not be present, and prints the facts.

    python tests/compile_unit.py rms_norm 90

One JSON object a kernel: name, registers, spills, shared memory, matrix instructions. In a process
of its own, since the recorder takes the place of Triton's driver for good.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from evaluator.inputs import Case
from evaluator.isolate import run_here
from evaluator.record import record
from kernel_library.unit import Unit, space_names


def main() -> None:
    """Print what the compiler made of each kernel at the unit's measured sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("unit")
    parser.add_argument("arch", type=int)
    asked = parser.parse_args()
    unit: Unit = importlib.import_module(f"seeds.{asked.unit}").UNIT
    with tempfile.TemporaryDirectory() as room:
        os.chdir(room)
        for at in (at for at in unit.op.workloads if at.role == "measure"):
            config = unit.space.default(space_names(unit.op, at))
            candidate = unit.candidate()
            (recording,) = record(unit.op, candidate, [(at, Case(0))], run_here, asked.arch)
            for kernel in recording.tape.kernels:
                facts = {name: getattr(kernel, name) for name in kernel.__slots__}
                sys.stdout.write(json.dumps({"at": str(at), "config": config, **facts}) + "\n")
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
