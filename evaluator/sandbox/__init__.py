"""Processes for strangers' code: forked in milliseconds, confined, killed in bounded time."""

from evaluator.sandbox.host import Zygote, sandbox_level

__all__ = ["Zygote", "sandbox_level"]
