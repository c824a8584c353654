"""The zygote: imports what is slow to import, then forks a fresh child for each request.

It holds no seed, no answer and no key, and runs one thread. A request is a JSON line on the
control socket with four descriptors: the request's bytes, and pipes for the reply, the log and the
child's exit status; a fifth is the way into a cgroup. A line `{"kill": id}` ends a child at once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.isolate import resolve
from evaluator.sandbox import landlock, seccomp
from evaluator.sandbox.bubblewrap import ROOT, needed
from evaluator.sandbox.confine import (
    PRIVATE,
    confine_folder,
    confine_namespaces,
    fork_confined,
    limit_resources,
    mapped_bytes,
)

#: A reply is this header, one byte for how it ended and eight for its length, and its bytes.
HEADER = struct.Struct("<cQ")
RETURNED, RAISED = b"r", b"x"
FDS = 5


@dataclass(slots=True)
class _Child:
    pid: int
    pidfd: int
    status_fd: int
    folder: str


def main(control_fd: int, preload: list[str], walls: Sequence[str]) -> None:
    """Serve requests on the control socket until it is closed, each in a child within `walls`."""
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
                _reap(children.pop(key.data), waiting, walls)
                continue
            line, fds, _, _ = socket.recv_fds(control, 1 << 16, FDS)
            if not line:
                for number in list(children):
                    _kill(children[number].pid, walls)
                    _reap(children.pop(number), waiting, walls)
                return
            request = json.loads(line)
            if "kill" in request:
                if request["kill"] in children:
                    _kill(children[request["kill"]].pid, walls)
                continue
            child = _start(request, fds, walls)
            children[request["id"]] = child
            waiting.register(child.pidfd, selectors.EVENT_READ, request["id"])


def _start(request: dict[str, Any], fds: list[int], walls: Sequence[str]) -> _Child:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"a zygote must have one thread to fork safely, and has {threads}")
    body, reply, log, status, *group = fds
    folder = tempfile.mkdtemp() if walls and "namespaces" not in walls else ""
    pid = fork_confined() if "namespaces" in walls else os.fork()
    if pid == 0:
        _child(request, (body, reply, log, *group), walls, folder)
    for fd in (body, reply, log, *group):
        os.close(fd)
    return _Child(pid, os.pidfd_open(pid), status, folder)


def _child(request: dict[str, Any], fds: Sequence[int], walls: Sequence[str], folder: str) -> None:
    """Run the job and answer; never returns."""
    body, reply, log, *group = fds
    try:
        signal.set_wakeup_fd(-1)
        for entrance in group:
            os.write(entrance, b"0")
        _keep_only(body, reply, log)
        _confine(request, walls, folder)
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


def _keep_only(body: int, reply: int, log: int) -> None:
    """Close all else: the zygote's control socket, and what belongs to other children."""
    null = os.open("/dev/null", os.O_RDONLY)
    for fd, as_number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, as_number)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd not in (body, reply):
            # the listing's own is closed already
            with contextlib.suppress(OSError):
                os.close(fd)


def _confine(request: dict[str, Any], walls: Sequence[str], folder: str) -> None:
    """Put this process within the walls, each for good. Raises OSError if one does not stand."""
    mapped = mapped_bytes()
    read, listed = ["/"], list[str]()
    if "namespaces" in walls:
        confine_namespaces(request["id"])
        folder = PRIVATE
    elif walls:
        confine_folder(folder)
        # the folder of our packages is a user's checkout, with whatever else lies there
        read, listed = needed(), [str(ROOT)]
    else:
        os.setsid()
    if walls:
        limit_resources(request["limit"], mapped)
    if "landlock" in walls:
        landlock.install(read, [folder], listed)
    if "seccomp" in walls:
        seccomp.install()


def _answer(fd: int, how: bytes, body: bytes) -> None:
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(HEADER.pack(how, len(body)))
        pipe.write(body)


def _reap(child: _Child, waiting: selectors.BaseSelector, walls: Sequence[str]) -> None:
    waiting.unregister(child.pidfd)
    # not yet waited for, so its number is still its own, and its group's
    _kill(child.pid, walls)
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pidfd)
    if child.folder:
        shutil.rmtree(child.folder, ignore_errors=True)
    with contextlib.suppress(BrokenPipeError):
        os.write(child.status_fd, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(child.status_fd)


def _kill(pid: int, walls: Sequence[str]) -> None:
    """The end of a namespace's first process is the end of all in it; elsewhere, of its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if "namespaces" in walls:
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), *([word for word in arg.split(",") if word] for arg in sys.argv[2:4]))
