"""The descriptors of one request to a zygote: what goes in, and what comes out of the child."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import time
from collections.abc import Callable, Mapping

from evaluator.errors import LabError
from evaluator.isolate import Died, Done
from evaluator.sandbox.zygote import HEADER, RETURNED

MAX_REPLY = 256 << 20
MAX_LOG = 16 << 10
#: Between the kill and the report of death; a process stuck in the kernel takes longer than this.
GRACE_SECONDS = 10.0


class Pipes:
    """The descriptors of one request."""

    def __init__(self, request: bytes) -> None:
        body = os.memfd_create("request")
        _write_all(body, request)
        os.lseek(body, 0, os.SEEK_SET)
        pairs = [os.pipe() for _ in range(3)]
        self.theirs = [body, *(write for _, write in pairs)]
        self.reply, self.log, self.status = (read for read, _ in pairs)

    def close_theirs(self) -> None:
        """Close the ends that were handed over."""
        for fd in self.theirs:
            os.close(fd)

    def close(self) -> None:
        """Close the ends that are ours."""
        for fd in (self.reply, self.log, self.status):
            os.close(fd)

    def read(self, deadline: float, kill: Callable[[], None]) -> Done | Died:
        """Collect until the child is dead: its death ends the wait, not what it leaves open.

        Raises EOFError if the zygote died before it could tell how the child did.
        """
        got: dict[int, bytearray] = {fd: bytearray() for fd in (self.reply, self.log, self.status)}
        ended = ""
        with selectors.DefaultSelector() as waiting:
            for fd in got:
                waiting.register(fd, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select(max(0.0, deadline - time.monotonic())):
                    chunk = os.read(key.fd, 1 << 20)
                    if not chunk:
                        waiting.unregister(key.fd)
                        self._check_alive(key.fd, got)
                    if len(got[key.fd]) < (MAX_REPLY if key.fd == self.reply else MAX_LOG):
                        got[key.fd] += chunk
                    elif key.fd == self.reply and not ended:
                        ended = "overflow"
                        kill()
                if got[self.status] and not self._pending(waiting, got):
                    return _outcome(ended, bytes(got[self.reply]), got[self.log], got[self.status])
                if time.monotonic() >= deadline:
                    if ended:
                        raise LabError("a sandboxed process did not die when killed")
                    ended, deadline = "timeout", time.monotonic() + GRACE_SECONDS
                    kill()

    def _check_alive(self, ended: int, got: Mapping[int, bytearray]) -> None:
        if ended == self.status and not got[self.status]:
            raise EOFError("the zygote is gone")

    def _pending(self, waiting: selectors.BaseSelector, got: Mapping[int, bytearray]) -> bool:
        """Whether the dead child's reply still holds bytes that were not read."""
        ready = [key.fd for key, _ in waiting.select(0)]
        return self.reply in ready and len(got[self.reply]) < MAX_REPLY


def _outcome(ended: str, reply: bytes, log: bytearray, status: bytearray) -> Done | Died:
    text = log[-4000:].decode(errors="replace")
    if ended == "timeout":
        return Died("timeout", text)
    if ended == "overflow":
        return Died("overflow", text)
    if len(reply) < HEADER.size:
        return Died("killed", f"exit status {status.decode()}: {text}")
    how, length = HEADER.unpack_from(reply)
    body = reply[HEADER.size :]
    if len(body) != length:
        return Died("killed", f"exit status {status.decode()}: {text}")
    if how == RETURNED:
        return Done(body, text)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        told = json.loads(body)
        return Died("raised", str(told["text"])[:4000], str(told["error"])[:100])
    return Died("killed", "the reply was malformed")


def _write_all(fd: int, body: bytes) -> None:
    view = memoryview(body)
    while view:
        view = view[os.write(fd, view) :]
