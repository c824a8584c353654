"""What a confined child finds around it: `kernelwright doctor` asks, and so do the tests."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import socket
import time
from pathlib import Path

_PR_SET_NAME = 15


def look(_: bytes) -> bytes:
    """Tell what can be seen and done from inside, as JSON."""
    return json.dumps(
        {
            "pid": os.getpid(),
            "environment": sorted(os.environ),
            "root": sorted(p.name for p in Path("/").iterdir()),
            "private": [p.name for p in Path.cwd().iterdir()],
            "processes": [p.name for p in Path("/proc").iterdir() if p.name.isdigit()],
            "writable": [
                p for p in ("/", "/tmp", "/usr", str(Path(__file__).parent)) if _can_write(p)
            ],
            "can_connect": _can_connect(),
            "capabilities": _capabilities(),
        }
    ).encode()


def _can_write(folder: str) -> bool:
    planted = Path(folder) / "planted"
    try:
        planted.write_text("planted")
    except OSError:
        return False
    planted.unlink()
    return True


def _capabilities() -> int:
    """How many privileges this process holds (capget, version 3)."""
    header, held = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capget(header, held)
    return sum(word.bit_count() for word in held)


def _confined() -> None:
    """Bombs go off in a namespace of their own, or not at all."""
    if os.getpid() != 1:
        raise PermissionError("this self-test harms a host that does not confine it")


def _can_connect() -> bool:
    try:
        socket.create_connection(("127.0.0.1", 6379), timeout=1).close()
    except OSError:
        return False
    return True


def hang(_: bytes) -> bytes:
    """Never return."""
    while True:
        pass


def leave(_: bytes) -> bytes:
    """End the process without an answer."""
    os._exit(0)


def raise_error(_: bytes) -> bytes:
    """Raise."""
    raise ValueError("as asked")


def fork_and_hang(_: bytes) -> bytes:
    """Leave a grandchild behind that hangs too, in a session of its own."""
    _confined()
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_NAME, b"kw-orphan", 0, 0, 0)
    return hang(b"")


def eat_memory(_: bytes) -> bytes:
    """Ask for memory without end."""
    _confined()
    eaten = []
    while True:
        eaten.append(bytearray(256 << 20))


def fork_bomb(_: bytes) -> bytes:
    """Fork without end."""
    _confined()
    while True:
        os.fork()


def fill_disk(_: bytes) -> bytes:
    """Write files without end."""
    _confined()
    for number in itertools.count():
        Path(str(number)).write_bytes(bytes(64 << 20))
    return b""


def eat_in_sum(_: bytes) -> bytes:
    """Take 1 GiB in each of eight processes, none of which is over its own limit."""
    _confined()
    for _child in range(8):
        if os.fork() == 0:
            eaten = bytearray(b"x") * (1 << 30)
            time.sleep(30)
            os._exit(len(eaten) == 0)
    for _child in range(8):
        os.wait()
    return b"ate it all"


def chatter(_: bytes) -> bytes:
    """Print without end."""
    while True:
        os.write(1, b"chatter " * 16)
