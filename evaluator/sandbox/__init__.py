"""Processes for strangers' code: forked in milliseconds, confined, killed in bounded time."""

from evaluator.sandbox.bubblewrap import sandbox_level
from evaluator.sandbox.host import Zygote

__all__ = ["Zygote", "sandbox_level"]
