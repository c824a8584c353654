"""The guards: each says why a call may not take the kernel, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ._bind import Args, Seen, disagreement, free_dtypes, misfit, sizes
from ._contract import Op

#: Offsets past this overflow the 32-bit arithmetic that kernels may use, and were not judged.
LARGEST_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the guards see it."""

    args: Args
    options: Mapping[str, Any]

    def tensors(self) -> Iterator[Seen]:
        """Every tensor of the call."""
        for seen in self.args.values():
            yield from seen


def arch(device: torch.device | str) -> str:
    """What a CUDA device runs: `"sm_90"`."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def _unproven(op: Op, call: Call) -> str | None:
    return None if op.archs else "this kernel carries no verdict"


def _elsewhere(op: Op, call: Call) -> str | None:
    devices = {seen.device for seen in call.tensors()}
    if len(devices) != 1:
        return f"tensors on {', '.join(sorted(map(str, devices))) or 'no device'}"
    (device,) = devices
    if device.type != "cuda" or torch.version.hip:
        return f"tensors on {device}, the kernel is for {', '.join(op.archs)}"
    mine = arch(device)
    return None if mine in op.archs else f"{device} is {mine}, not {', '.join(op.archs)}"


def _misfit(op: Op, call: Call) -> str | None:
    return misfit(op.spec, call.args)


def _other_dtypes(op: Op, call: Call) -> str | None:
    free = free_dtypes(op.spec, call.args)
    return None if free in op.dtypes else f"never judged at {', '.join(free.values())}"


def _disagreement(op: Op, call: Call) -> str | None:
    return disagreement(op.spec, call.args, sizes(op.spec, call.args) | dict(call.options))


def _empty_or_huge(op: Op, call: Call) -> str | None:
    for name, tensors in call.args.items():
        for seen in tensors:
            if 0 in seen.shape:
                return f"{name} is empty"
            if sum((n - 1) * s for n, s in zip(seen.shape, seen.stride, strict=True)) > (
                LARGEST_OFFSET
            ):
                return f"{name} spans 2**31 elements or more"
    return None


def _other_options(op: Op, call: Call) -> str | None:
    for name, option in op.spec.options.items():
        judged = {option.default, *option.choices}
        judged |= {w.options[name] for w in op.spec.workloads if name in w.options}
        value = call.options[name]
        # the judge moves floats from floats alone: from None to 30.0 it never went
        moves = not option.choices and any(isinstance(known, float) for known in judged)
        if value not in judged and not (moves and isinstance(value, float)):
            return f"never judged at {name}={value!r}"
    return None


def _gaps(op: Op, call: Call) -> str | None:
    if op.strided:
        return None
    for name, tensors in call.args.items():
        if not all(contiguous(seen) for seen in tensors):
            return f"{name} is not contiguous, and the kernel was judged on contiguous inputs"
    return None


GUARDS: tuple[Callable[[Op, Call], str | None], ...] = (
    _unproven, _elsewhere, _misfit, _other_dtypes, _disagreement, _empty_or_huge, _other_options,
    _gaps,
)  # fmt: skip


def contiguous(seen: Seen) -> bool:
    """Whether the elements lie in row-major order without gaps."""
    step = 1
    for size, stride in zip(reversed(seen.shape), reversed(seen.stride), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
