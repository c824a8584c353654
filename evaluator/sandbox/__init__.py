"""Processes for strangers' code: forked in milliseconds, confined, killed in bounded time."""

from evaluator.sandbox.found import Finding
from evaluator.sandbox.host import Zygote, findings, sandbox_level

__all__ = ["Finding", "Zygote", "findings", "sandbox_level"]
