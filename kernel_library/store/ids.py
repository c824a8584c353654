"""Names for things: in the order in which they were made, and not to be guessed."""

from __future__ import annotations

import secrets
import time

#: Crockford's base 32: no i, l, o or u, so that it can be read aloud.
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str) -> str:
    """`<prefix>_` and 26 characters: 64 bits of nanoseconds since 1970, then 65 random bits."""
    number = (time.time_ns() << 65) | secrets.randbits(65)
    return f"{prefix}_" + "".join(ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
