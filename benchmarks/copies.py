"""How near to its roofline does a plain copy come, by how much it moves? On a GPU.

    python benchmarks/copies.py [--seconds 0.3]

Times torch's own element-wise kernel (a negation: a copy that is no memcpy) from a cold L2, by the
judge's clock, at sizes from 128 KiB to 512 MiB, read and written in all. What moves as little as
the smaller of these cannot be held to the whole bandwidth. Prints a table, with machine and
versions.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from evaluator.calibrate import calibrate, same_twice
from evaluator.errors import LabError
from evaluator.play.job import gpu
from evaluator.play.timing import Clock
from kernel_library.device import Device
from worker.judging import known_device
from worker.settings import Settings

#: Bytes in all: by fours from 128 KiB; 2047 rows of 5001 bfloat16 values, and 8192 of 4096.
SIZES = (*(1 << n for n in range(17, 30, 2)), 8 * (2047 * 5001 // 2), 4 * 8192 * 4096)


def line(device: Device, size: int, us: float) -> str:
    """A size, its time, and that over the roofline: bandwidth, or a launch where it is longer."""
    floor = max(size / device.measured.bandwidth_gbs / 1e3, device.measured.launch_us)
    return f"{size / 1e6:8.2f} MB {us:8.2f} us  {floor / us:4.0%} of the roofline's {floor:.2f} us"


def main() -> None:
    """Time a copy of each size and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.3)
    seconds = parser.parse_args().seconds
    try:
        device = known_device(Settings().device_path) or calibrate()
    except LabError as error:
        sys.exit(str(error))
    clock = Clock(gpu(), device.l2_bytes)
    heats = {size: same_twice(clock, size, seconds) for size in sorted(SIZES)}
    print(device.name, *(f"{name} {v}" for name, v in device.versions.items()))
    for size, heat in heats.items():
        print(line(device, size, median(heat.samples[0])))


if __name__ == "__main__":
    main()
