"""What vendors say their devices can do at most: the limit that no honest time beats.

Dense rates of the SXM parts (of the card, for the L40S), from NVIDIA's datasheets. Rates for
sparse operands are twice these and never apply here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernel_library.device import Ceilings

#: No launch in a graph has been seen to take less, in microseconds.
LEAST_LAUNCH_US = 0.5
#: How far above its measured rates a device without a datasheet may go.
MARGIN = 1.2


def _sheet(bandwidth_gbs: float, half: float, tf32: float, vector: float, byte: float) -> Ceilings:
    """TFLOP/s by dtype; `byte` holds for fp8 and int8 alike. 0 means that there is no such unit."""
    matmul = {
        "float16": half, "bfloat16": half, "tf32": tf32, "float32": tf32, "float64": vector,
        "float8_e4m3fn": byte, "float8_e5m2": byte, "int8": byte, "uint8": byte,
    }  # fmt: skip
    return Ceilings(bandwidth_gbs, matmul, vector, LEAST_LAUNCH_US)


#: By a part of the name that the driver gives; the first that matches holds.
SHEETS: Mapping[str, Ceilings] = {
    "GH200": _sheet(4900, 989, 495, 67, 1979),
    "H200": _sheet(4800, 989, 495, 67, 1979),
    "H100 PCIe": _sheet(2000, 756, 378, 51, 1513),
    "H100 NVL": _sheet(3938, 835, 418, 60, 1671),
    "H100": _sheet(3350, 989, 495, 67, 1979),
    "A100-SXM4-80GB": _sheet(2039, 312, 156, 19.5, 624),
    "A100 80GB PCIe": _sheet(1935, 312, 156, 19.5, 624),
    "A100": _sheet(1555, 312, 156, 19.5, 624),
    "B200": _sheet(8000, 2250, 1125, 80, 4500),
    "L40S": _sheet(864, 362, 183, 91.6, 733),
}


def datasheet(name: str, measured: Ceilings) -> tuple[Ceilings, str]:
    """The limits of a device by name, and where they come from.

    A device that is not in the table gets its measured rates and a margin, which says less.
    """
    for part, ceilings in SHEETS.items():
        if part in name:
            return ceilings, f"NVIDIA's datasheet for {part}"
    return (
        replace(
            measured,
            bandwidth_gbs=measured.bandwidth_gbs * MARGIN,
            matmul_tflops={k: v * MARGIN for k, v in measured.matmul_tflops.items()},
            vector_tflops=measured.vector_tflops * MARGIN,
            launch_us=min(LEAST_LAUNCH_US, measured.launch_us),
        ),
        f"{MARGIN} times what was measured: {name!r} is in no table of ours",
    )
