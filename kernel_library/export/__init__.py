"""Accepted kernels as something to install: a wheel that explains and re-checks itself."""

from kernel_library.export.exported import Exported, Review
from kernel_library.export.names import ExportError
from kernel_library.export.wheel import build_wheel

__all__ = ["ExportError", "Exported", "Review", "build_wheel"]
