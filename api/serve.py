"""Serving the application, on this machine alone, until it is told to stop."""

from __future__ import annotations

from ipaddress import ip_address
from socket import socket

import uvicorn
from fastapi import FastAPI

from api.deps import Streams

#: How long open requests may still take once the server is told to stop.
_GRACE_SECONDS = 5


class NotLoopback(ValueError):  # noqa: N818 - the name says what is the matter
    """The address can be reached from other machines, and nothing asks who is calling."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host!r} is not a loopback address, and the service has no authentication: anyone "
            "who reaches it can submit code and accept kernels. Serve on 127.0.0.1, and put a "
            "proxy that authenticates, or an SSH tunnel, before it."
        )


class Server(uvicorn.Server):
    """A server that ends its event streams first: they would otherwise keep it from stopping."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self.streams = streams

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Ends the streams, then what uvicorn ends."""
        self.streams.closing.set()
        await super().shutdown(sockets)


def make_server(app: FastAPI, host: str, port: int) -> Server:
    """A server for the application; `run()` serves until `should_exit`. Raises NotLoopback.

    Port 0 takes a free one.
    """
    if not is_loopback(host):
        raise NotLoopback(host)
    # no proxy headers: nothing may claim to come from elsewhere than it does
    config = uvicorn.Config(
        app, host, port, log_level="warning", proxy_headers=False, server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )  # fmt: skip
    return Server(config, app.state.streams)


def serve(app: FastAPI, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve until interrupted; event streams end, then open requests. Raises NotLoopback."""
    make_server(app, host, port).run()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address: `localhost`, 127.0.0.0/8 or ::1."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
