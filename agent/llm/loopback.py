"""A scripted OpenAI-compatible server on loopback, well-behaved or not, for tests and demos."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread


@dataclass(frozen=True, slots=True)
class Canned:
    """One answer: sent after `late_s` seconds, then a byte of the body each `drip_s` seconds."""

    body: bytes
    status: int = 200
    late_s: float = 0.0
    drip_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in, the names of its headers in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes


def says(text: str | None, tokens: tuple[int, int] = (100, 50), late_s: float = 0.0) -> Canned:
    """A chat completion with this text."""
    return completion({"role": "assistant", "content": text}, tokens, late_s)


def completion(
    message: Mapping[str, object], tokens: tuple[int, int] = (100, 50), late_s: float = 0.0
) -> Canned:
    """A chat completion with this message, whatever it holds."""
    usage = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }
    answer = {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "loopback",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": usage,
    }
    return Canned(json.dumps(answer).encode(), late_s=late_s)


def fails(status: int, body: bytes = b'{"error": {"message": "no"}}') -> Canned:
    """An error with this HTTP status."""
    return Canned(body, status)


@contextmanager
def serve(script: Sequence[Canned], seen: list[Request] | None = None) -> Iterator[str]:
    """Answer each request with the next of the script, and with HTTP 500 after its end.

    Yields the base URL, on a free port of loopback; what is asked is appended to `seen`.
    """
    closing = Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(script, seen, closing))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(
    script: Sequence[Canned], seen: list[Request] | None, closing: Event
) -> type[BaseHTTPRequestHandler]:
    left, lock, asked = iter(script), Lock(), [] if seen is None else seen

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                asked.append(Request(self.path, _lower(self.headers), body))
                canned = next(left, fails(500, b"the script is over"))
            if closing.wait(canned.late_s):
                return
            try:
                self._send(canned)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client did not wait; that is what it is for

        def _send(self, canned: Canned) -> None:
            self.send_response(canned.status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(canned.body))}
            for name, value in {**headers, **canned.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for part in _parts(canned):
                if closing.wait(canned.drip_s):
                    return
                self.wfile.write(part)

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet: the caller sees the requests."""

    return Handler


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _parts(canned: Canned) -> list[bytes]:
    """The body as it is sent: whole, or byte by byte."""
    return [bytes([byte]) for byte in canned.body] if canned.drip_s else [canned.body]
