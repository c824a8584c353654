"""What is remembered: jobs and their events, candidates and reviews, kernels, artifacts."""

from __future__ import annotations

from kernel_library.store.store import Store, open_store

__all__ = ["Store", "open_store"]
