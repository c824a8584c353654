"""What the API may be told: limits, names it answers to, and the secret its forms are signed by."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Sizes in bytes, times in seconds.

    `hosts` are the names that a request's Host header may carry (without a port), so that a
    stranger's domain that resolves to this machine reaches nothing. `secret` signs form tokens:
    with the default, forms opened before a restart must be opened again.
    """

    hosts: tuple[str, ...] = LOOPBACK
    max_source: int = 256 * 1024
    max_body: int = 1024 * 1024
    poll_seconds: float = 0.5
    stream_seconds: float = 1200.0
    max_streams: int = 64
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
