"""The zygote: imports what is slow to import, then forks a fresh child for each request.

It holds no seed, no answer and no key, and runs one thread. A request is a JSON line on the
control socket with four descriptors: the request's bytes, and pipes for the reply, the log and the
child's exit status. A line `{"kill": id}` ends a child at once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.isolate import resolve
from evaluator.sandbox.confine import (
    confine_namespaces,
    fork_confined,
    limit_resources,
    mapped_bytes,
)

#: A reply is this header, one byte for how it ended and eight for its length, and its bytes.
HEADER = struct.Struct("<cQ")
RETURNED, RAISED = b"r", b"x"
FDS = 4


@dataclass(slots=True)
class _Child:
    pid: int
    pidfd: int
    status_fd: int


def main(control_fd: int, preload: list[str], confined: bool) -> None:
    """Serve requests on the control socket until it is closed."""
    for module in preload:
        importlib.import_module(module)
    control = socket.socket(fileno=control_fd)
    waiting = selectors.DefaultSelector()
    waiting.register(control, selectors.EVENT_READ)
    children: dict[int, _Child] = {}
    control.sendall(b"ready\n")
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not control:
                _reap(children.pop(key.data), waiting)
                continue
            line, fds, _, _ = socket.recv_fds(control, 1 << 16, FDS)
            if not line:
                for child in children.values():
                    _kill(child.pid, confined)
                return
            request = json.loads(line)
            if "kill" in request:
                if request["kill"] in children:
                    _kill(children[request["kill"]].pid, confined)
                continue
            child = _start(request, fds, control, confined)
            children[request["id"]] = child
            waiting.register(child.pidfd, selectors.EVENT_READ, request["id"])


def _start(
    request: dict[str, Any], fds: list[int], control: socket.socket, confined: bool
) -> _Child:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"a zygote must have one thread to fork safely, and has {threads}")
    body, reply, log, status = fds
    pid = fork_confined() if confined else os.fork()
    if pid == 0:
        control.close()
        os.close(status)
        _child(request, body, reply, log, confined)
    for fd in (body, reply, log):
        os.close(fd)
    return _Child(pid, os.pidfd_open(pid), status)


def _child(request: dict[str, Any], body: int, reply: int, log: int, confined: bool) -> None:
    """Run the job and answer; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        os.dup2(log, 1)
        os.dup2(log, 2)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        mapped = mapped_bytes()
        if confined:
            confine_namespaces(request["id"])
        else:
            os.setsid()
            if request["limit"]:
                os.chdir(tempfile.mkdtemp())
        if request["limit"]:
            limit_resources(request["limit"], mapped)
        with os.fdopen(body, "rb") as file:
            answer = resolve(request["job"])(file.read())
        _answer(reply, RETURNED, answer)
    except BaseException as error:
        lines = traceback.format_exception(error)
        told = {"error": type(error).__name__, "text": "".join(lines[-6:])[-4000:]}
        _answer(reply, RAISED, json.dumps(told).encode())
    finally:
        sys.stdout.flush()
        os._exit(0)


def _answer(fd: int, how: bytes, body: bytes) -> None:
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(HEADER.pack(how, len(body)))
        pipe.write(body)


def _reap(child: _Child, waiting: selectors.BaseSelector) -> None:
    waiting.unregister(child.pidfd)
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pidfd)
    os.write(child.status_fd, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(child.status_fd)


def _kill(pid: int, confined: bool) -> None:
    """The end of a namespace's first process is the end of all in it; elsewhere, of its group."""
    with contextlib.suppress(ProcessLookupError):
        if confined:
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), [m for m in sys.argv[2].split(",") if m], sys.argv[3] == "confined")
