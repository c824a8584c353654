"""Was the clock held down? What the driver says of a GPU while it works."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

#: What lowers a clock below what was asked for, by the bits of `nvmlClocksEventReasons` (nvml.h).
#: An idle GPU, or clocks that an operator has set, hold all arms of a race alike, all the time.
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
#: Says what holds the clock down now; nothing, if nothing does.
Watch = Callable[[], str]


def watch(device: torch.device) -> Watch | None:
    """A reading of the device's clock, to be called while it works; None where there is none.

    A slice of a GPU (MIG) has no clock of its own, and some hosts give no access to NVML.
    """
    if device.type != "cuda":
        return None
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (ImportError, AttributeError):
        return None
    except nvml.NVMLError:
        return None
    return lambda: named(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))


def named(bits: int) -> str:
    """The reasons among some bits, in words."""
    return ", ".join(word for bit, word in REASONS.items() if bits & bit)
