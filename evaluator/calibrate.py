"""Measures what a device can do, so that a kernel is held against this machine and no other.

Took 9 s on an H200 before the A/A races, which last some 4 s. Random data throughout: zeros run
faster.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import torch
import triton
from triton import knobs

from evaluator.datasheet import datasheet
from evaluator.play import cuda
from evaluator.play.job import gpu
from evaluator.play.probes import FMA_STEPS, multiply_add, nothing
from evaluator.play.statistics import Plan, noise, plan
from evaluator.play.timing import Clock, Heat, capture
from kernel_library.codec import device_json
from kernel_library.device import Ceilings, Device, Target

GIB = 1 << 30
#: A product this large fills every device in the table, in a few milliseconds at most.
SIDE = 8192
SAMPLES = 20
#: How long to run what is measured before it is, in seconds.
WARM_S = 0.15
#: Bytes read and written by the A/A kernels: some 4, 40 and 300 us on a datacenter GPU.
SIZES = (8 << 20, 160 << 20, 5 << 28)
#: Enough to tell how many of them make a sample.
ROUGHLY_BYTES_A_US = 4e6
#: A/A races of each, and how long one lasts, in seconds.
RACES, RACE_S = 10, 0.1


def calibrate() -> Device:
    """The device in slot 0 as it is now. Raises `LabError` where there is no GPU or no driver.

    Run it on an idle device, and again when driver, torch or Triton change.
    """
    device = gpu()
    facts = torch.cuda.get_device_properties(device)
    clock = Clock(device, facts.L2_cache_size)
    moved = bandwidths(clock)
    measured = Ceilings(
        bandwidth_gbs=moved["copy"],
        matmul_tflops=matmul_rates(clock),
        vector_tflops=vector_rate(clock),
        launch_us=launch_cost(clock),
    )
    limits, source = datasheet(facts.name, measured)
    return Device(
        name=facts.name,
        target=Target("cuda", facts.major * 10 + facts.minor),
        sms=facts.multi_processor_count,
        l2_bytes=facts.L2_cache_size,
        measured=measured,
        datasheet=limits,
        versions=versions() | {"datasheet": source, "bandwidth": _told(moved)},
        noise=dict(spread(clock, size) for size in SIZES),
    )


def bandwidths(clock: Clock, size: int = 4 * GIB) -> dict[str, float]:
    """GB/s of a copy (bytes read and written), a read and a write of this many bytes."""
    source = torch.randint(0, 255, (size // 4,), dtype=torch.int32, device=clock.device)
    target = torch.empty_like(source)
    total = torch.empty((), dtype=torch.float32, device=clock.device)
    floats = source.view(torch.float32)
    return {
        # a kernel, not `copy_`: in a graph that is a memcpy node, at 2.7 of 4.2 TB/s (H200)
        "copy": 2 * size / time_us(clock, lambda: torch.neg(source, out=target)) / 1e3,
        "read": size / time_us(clock, lambda: torch.amax(floats, dim=0, out=total)) / 1e3,
        "write": size / time_us(clock, lambda: target.fill_(7)) / 1e3,
    }


def matmul_rates(clock: Clock) -> Mapping[str, float]:
    """TFLOP/s of torch's own products of random square matrices, by dtype; what fails is left out.

    `float32` is the rate that float32 operands get at torch's default precision, on vector units;
    `tf32` what they get on matrix units.
    """
    rates: dict[str, float] = {}
    for name, act in _products(clock.device).items():
        try:
            rates[name] = 2 * SIDE**3 / time_us(clock, act) / 1e6
        except (RuntimeError, NotImplementedError):
            # older architectures have no fp8 units, and torch says so
            continue
    return rates


def _products(device: torch.device) -> dict[str, Callable[[], object]]:
    def random(dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(SIDE, SIDE, device=device).to(dtype)

    one = torch.ones((), device=device)
    fp32 = random(torch.float32)
    int8 = torch.randint(-128, 127, (SIDE, SIDE), dtype=torch.int8, device=device)
    fp8 = random(torch.float8_e4m3fn)

    def at(precision: str) -> object:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            return fp32 @ fp32
        finally:
            torch.set_float32_matmul_precision(before)

    def product(dtype: torch.dtype) -> Callable[[], object]:
        return partial(torch.matmul, random(dtype), random(dtype))

    return {
        "bfloat16": product(torch.bfloat16),
        "float16": product(torch.float16),
        "tf32": lambda: at("high"),
        "float32": lambda: at("highest"),
        "float8_e4m3fn": lambda: torch._scaled_mm(fp8, fp8.t(), one, one, out_dtype=torch.bfloat16),
        "int8": lambda: torch._int_mm(int8, int8.t()),
    }


def vector_rate(clock: Clock) -> float:
    """TFLOP/s of fused multiply-adds on vector units, from a chain that stays in registers."""
    elements = 1 << 24
    x = torch.randn(elements, device=clock.device)
    y = torch.empty_like(x)
    return 2 * FMA_STEPS * elements / time_us(clock, lambda: multiply_add(x, y)) / 1e6


def launch_cost(clock: Clock) -> float:
    """Microseconds that a kernel without work takes within a graph of many."""
    many = 100
    flag = torch.zeros(1, dtype=torch.int32, device=clock.device)
    arm = capture("nothing", [lambda: nothing(flag)] * many, Plan(many, many))
    return median(clock.samples(arm, SAMPLES))


def spread(clock: Clock, size: int) -> tuple[float, float]:
    """How long a kernel that moves this many bytes takes, in microseconds, and its A/A spread."""
    heats = [same_twice(clock, size, RACE_S) for _ in range(RACES)]
    middle = median(us for heat in heats for us in heat.samples[0])
    return round(middle, 1), noise([heat.samples for heat in heats])


def same_twice(clock: Clock, size: int, seconds: float) -> Heat:
    """A race in which one kernel, which reads and writes `size` bytes in all, is both arms."""
    free, _ = torch.cuda.mem_get_info(clock.device)
    chosen = plan(size, clock.l2_bytes, free, size / ROUGHLY_BYTES_A_US)
    shape = (chosen.sets, size // 8)
    source = torch.randint(0, 255, shape, dtype=torch.int32, device=clock.device)
    target = torch.empty_like(source)
    acts = [partial(torch.neg, s, out=t) for s, t in zip(source, target, strict=True)]
    arm = capture("negate", acts, chosen)
    return clock.race([arm, arm], seconds)


def time_us(clock: Clock, act: Callable[[], object]) -> float:
    """The median of a call in microseconds, warm clocks and a cold L2."""
    arm = capture("calibration", [act], Plan(1, 1))
    clock.warm([arm], WARM_S)
    return median(clock.samples(arm, SAMPLES))


def versions() -> dict[str, str]:
    """What stands between a source text and a time: driver, torch, Triton, ptxas."""
    ptxas = str(knobs.nvidia.ptxas.path)
    told = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    number = cuda.call("cuDriverGetVersion")
    return {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": f"{number // 1000}.{number % 1000 // 10}",
        "driver": driver_version(),
        "ptxas": told.strip().splitlines()[-1],
    }


def driver_version() -> str:
    """The driver's version, as `nvidia-smi` tells it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown: no nvidia-smi"


def _told(moved: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {rate:.0f} GB/s" for name, rate in moved.items())


def main(_: bytes) -> bytes:
    """As a job: a `Device` as JSON."""
    return device_json.dump_json(calibrate())
