"""Which addresses a model's endpoint may have."""

from __future__ import annotations

from urllib.parse import urlsplit


def check_address(base_url: str) -> None:
    """Raises `ValueError` for an address that is not plain http(s): a key in it would be logged."""
    url = urlsplit(base_url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("the model's base URL must start with http:// or https://")
    if url.username or url.password or url.query or url.fragment:
        raise ValueError("the model's base URL must hold no key, user or query")
