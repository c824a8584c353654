"""What is checked before a request is even parsed: its host, its origin and its size."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.headers import SAFE_METHODS, SECURITY, host_name, is_same_origin
from api.problems import Problem
from api.settings import ApiSettings

#: Makes a response of an exception.
Answer = Callable[[Request, Exception], Response]


class Guard:
    """ASGI middleware: passes a request on with its body read whole, or answers with a problem.

    It is the edge of the application: what no handler caught is answered here too.
    """

    def __init__(self, app: ASGIApp, settings: ApiSettings, answer: Answer) -> None:
        self.app, self.settings, self.answer = app, settings, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guards HTTP; the lifespan passes through."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        out = Out(send)
        try:
            receive = await self._admit(scope, receive)
            await self.app(scope, receive, out)
        except Exception as error:  # the process's edge; left to uvicorn, it would drop the line
            if out.started:
                raise
            await self.answer(Request(scope), error)(scope, receive, out)

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        headers = Headers(scope=scope)
        if host_name(headers.get("host", "")) not in self.settings.hosts:
            raise Problem("unknown-host", f"Ask for one of: {', '.join(self.settings.hosts)}.")
        if scope["method"] in SAFE_METHODS:
            return receive
        if not is_same_origin(headers):
            raise Problem("cross-origin", "Send it from this service's own pages, or no browser.")
        return _replay(await self._body(headers, receive), receive)

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The whole body; refused by its declared length, else as soon as it grows too large."""
        limit = self.settings.max_body
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > limit:
            raise Problem("too-large", f"A body may have at most {limit} bytes.")
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem("bad-request", "The body was cut short.")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > limit:
                raise Problem("too-large", f"A body may have at most {limit} bytes.")
        return body


def _replay(body: bytes, receive: Receive) -> Receive:
    first = True

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


class Out:
    """A response on its way out: given the security headers, and known to have begun or not."""

    def __init__(self, send: Send) -> None:
        self.send, self.started = send, False

    async def __call__(self, message: Message) -> None:
        """Sends one message of the response."""
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY.items():
                headers.setdefault(name, value)
        await self.send(message)
