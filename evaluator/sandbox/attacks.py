"""What hostile code tries on its neighbours and its host: each harmless, and refused if confined.

The self-tests that harm a host are in `selftest`; these only ask, and tell what they were told.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from evaluator.sandbox.libc import libc
from evaluator.sandbox.seccomp import DENIED

_PR_GET_NO_NEW_PRIVS, _PTRACE_ATTACH = 39, 16
#: No process has this number: an attack on it that is let through finds nobody.
_NOBODY = 0x3FFFFFFF


def attack(request: bytes) -> bytes:
    """Try everything, and tell what came of each: an errno's name, or `done`.

    The request names a process of the host, a file of its user, a folder that is none of ours and
    the name of an abstract socket that the host listens on.
    """
    asked = json.loads(request)
    victim, secret = int(asked["pid"]), asked["file"]
    tries: dict[str, Callable[[], object]] = {
        "signal": lambda: os.kill(victim, 0),
        "ptrace": lambda: _call("ptrace", _PTRACE_ATTACH, _NOBODY, 0, 0),
        "read memory": lambda: _call("process_vm_readv", victim, None, 0, None, 0, 0),
        "steal descriptor": lambda: _call("pidfd_getfd", -1, 0, 0),
        "read environment": Path(f"/proc/{victim}/environ").read_bytes,
        "read file": Path(secret).read_bytes,
        "write outside": lambda: _write(asked["folder"]),
        "write shared memory": lambda: _write("/dev/shm"),
        "abstract socket": lambda: _connect("\0" + asked["socket"]),
        "internet socket": lambda: socket.socket(socket.AF_INET).close(),
        "datagrams": lambda: _close(*socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)),
        "lasting memory": lambda: _call("shmget", 0, 0, 0),
        "new namespace": lambda: _call("unshare", 0x10000000),
        "io_uring": lambda: _call("io_uring_setup", 0, None),
        "keyring": lambda: _call("keyctl", 0, 0, 0, 0, 0),
        "traced clock": lambda: _call("perf_event_open", None, 0, -1, -1, 0),
    }
    told = {name: _outcome(attempt) for name, attempt in tries.items()}
    return json.dumps({"told": told, **_around()}).encode()


def _around() -> dict[str, object]:
    """What a process finds that should have been left nothing."""
    return {
        "descriptors": [fd for fd in range(3, 1024) if _is_open(fd)],
        "processes": [name for name in _listed("/proc") if name.isdigit()],
        "no new privileges": libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        "cgroup": _listed("/sys/fs/cgroup"),
    }


def harmless(_: bytes) -> bytes:
    """What compilers and launchers do all day: threads, children, pairs, pipes, files. `ok`."""
    thread = threading.Thread(target=os.getpid)
    thread.start()
    thread.join()
    _close(*socket.socketpair())
    Path("made").write_text("made")
    Path("made").rename("moved")
    shell = ["/bin/sh", "-c", "cat moved | cat"]
    if subprocess.run(shell, capture_output=True, check=True).stdout != b"made":
        raise OSError("a pipe between two programs lost what was sent")
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return b"ok"


def scribble(_: bytes) -> bytes:
    """Write to every descriptor that there is, as one that ends a neighbour's wait would be."""
    for fd in filter(_is_open, range(3, 1024)):
        with contextlib.suppress(OSError):
            os.write(fd, b"0")
    return b""


def wait(request: bytes) -> bytes:
    """Keep a neighbour's descriptors open in the zygote for so many seconds."""
    time.sleep(float(request))
    return b""


def too_much(_: bytes) -> bytes:
    """Answer with more than anybody would read."""
    return bytes(300 << 20)


def _call(name: str, *args: int | None) -> None:
    number = DENIED[name][0 if os.uname().machine == "x86_64" else 1]
    if libc.syscall(number, *(arg if arg is None else ctypes.c_long(arg) for arg in args)) < 0:
        raise OSError(ctypes.get_errno(), name)


def _write(folder: str) -> None:
    planted = Path(folder) / f"planted-{os.getpid()}"
    planted.write_text("planted")
    planted.unlink()


def _connect(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(name)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        one.close()


def _is_open(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def _listed(folder: str) -> list[str]:
    try:
        return [path.name for path in Path(folder).iterdir()]
    except OSError:
        return []


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"
