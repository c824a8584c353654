"""What does the fused linear cross-entropy take, in time and in memory, and what would others?

    python benchmarks/linear_loss.py [--rows 4096] [--vocabulary 128256] [--hidden 4096]

The seed at its setting for this device, as a user calls it; the three matrix products that the
forward and the backward pass cannot do without, by the library that torch calls; torch's own linear
layer and cross-entropy under autograd. Runs each alone, for the most memory that it has at a time
beyond its inputs, then races them in the judge's clock. Prints a table last, with the machine and
the versions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from evaluator.calibrate import calibrate
from evaluator.inputs import Case, draw, flat
from evaluator.play.job import gpu
from evaluator.play.statistics import Plan, summary
from evaluator.play.timing import Clock, capture
from kernel_library.spec import Workload
from seeds.fused_linear_cross_entropy import OP, UNIT
from worker.judging import known_device
from worker.settings import Settings


def seed(at: Workload, device: str) -> Callable[..., object]:
    """The library's kernel, at its setting for this device."""
    config = UNIT.candidate(device=device).config_at(at)
    return partial(UNIT.kernel, **OP.option_values(at), **config)


def products(
    x: torch.Tensor, w: torch.Tensor, d_loss: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The logits, and two products of their size by either input."""
    logits = x @ w.T
    return logits @ w, logits.T @ x


def autograd(
    x: torch.Tensor, w: torch.Tensor, d_loss: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """As a training step spells it."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    logits = torch.nn.functional.linear(x, w).float()
    loss = torch.nn.functional.cross_entropy(logits, target, ignore_index=-100)
    return torch.autograd.grad(loss, (x, w))


def peak_bytes(call: Callable[[], object]) -> int:
    """The most memory that a call had at a time, its results included."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def main() -> None:
    """Race them, weigh them, and print both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--hidden", type=int, default=4096)
    asked = parser.parse_args()
    dims = {"M": asked.rows, "V": asked.vocabulary, "H": asked.hidden}
    at = next((at for at in OP.workloads if at.dims == dims), None)
    if at is None:
        sys.exit(f"the seed has no workload of these sizes: {dims}")
    device = known_device(Settings().device_path) or calibrate()
    clock = Clock(gpu(), device.l2_bytes)
    inputs = flat(draw(OP, at, Case(0), clock.device))
    calls: dict[str, Callable[[], object]] = {
        "fused_linear_cross_entropy": partial(seed(at, device.name), *inputs),
        "three products": partial(products, *inputs),
        "torch, autograd": partial(autograd, *inputs),
    }
    peaks = {name: peak_bytes(call) for name, call in calls.items()}
    arms = [capture(name, [call], Plan(1, 1)) for name, call in calls.items()]
    heat = clock.race(arms, 10.0)
    given = sum(tensor.nbytes for tensor in inputs)
    versions = " ".join(f"{name} {v}" for name, v in device.versions.items())
    print(f"{device.name}; {versions}; {at}; inputs {given / 2**30:.2f} GiB")
    times = [summary(samples).middle / 1e3 for samples in heat.samples]
    for name, ms in zip(calls, times, strict=True):
        told = f"{ms:8.3f} ms, {ms / times[0]:.2f} of the first"
        print(f"  {name:28s} {told}   {peaks[name] / 2**30:6.2f} GiB at most beyond the inputs")
    print("\n".join(heat.notes))


if __name__ == "__main__":
    main()
