"""The headers that every response carries, and who may ask for what."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers

CSP = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:",
        "connect-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
    )
)  # fmt: skip
SECURITY = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def host_name(host: str) -> str:
    """A Host header without its port: `[::1]:80` is `[::1]`."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isdigit() else host).lower()


def is_same_origin(headers: Headers) -> bool:
    """Whether a browser's own headers say that the request comes from one of our pages.

    A client that is no browser sends neither header, and holds no cookie that could be abused.
    """
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    at_home = origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    return at_home and site in ("same-origin", "none")
