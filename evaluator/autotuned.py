"""Takes one setting of a candidate's own `@triton.autotune`: each is judged as a kernel of its own.

Nothing is timed where a candidate is recorded or interpreted, so that the choice is not its own.
"""

from __future__ import annotations

from typing import Any


def choose(autotuner: Any, pick: int) -> list[int]:  # noqa: ANN401 - a module of Triton's
    """Patch `triton.runtime.autotuner`, in this process only: every autotuner takes its pick-th
    setting, counted round and round. Gives how many each had, at each call that it prunes for.
    """
    counts: list[int] = []
    original = autotuner.Autotuner.prune_configs

    def only_one(self: Any, kwargs: Any) -> list[Any]:  # noqa: ANN401 - Triton's
        configs = original(self, kwargs)
        counts.append(len(configs))
        return [configs[pick % len(configs)]]

    autotuner.Autotuner.prune_configs = only_one
    return counts
