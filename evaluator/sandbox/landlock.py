"""Which files a confined child may read, and where it may write, held by the kernel (Landlock).

Within namespaces the mounts say so already, and this is a second wall. Without them it is the only
one between a stranger's code and the files, the environment and the signals of everybody else who
runs as this user.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from evaluator.sandbox.libc import check, libc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1

# what may be done to a file, from <linux/landlock.h>
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
#: How many of these bits each version of the interface knows, from the first; then no more came.
_BITS = (13, 14, 15, 15, 16)
_TCP, _TCP_SINCE = 0b11, 4
#: Abstract sockets and signals, of processes that are not confined alike.
_SCOPES, _SCOPES_SINCE = 0b11, 6

#: Devices without a memory of their own.
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def version() -> int:
    """The kernel's version of Landlock. Raises OSError where it has none, or does not use it."""
    flag = ctypes.c_uint32(_VERSION_FLAG)
    return check(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), flag), "landlock")


def install(read: Iterable[str], write: Iterable[str], listed: Iterable[str] = ()) -> None:
    """Only these paths and what is below them, for good; `write` can be read too. Raises OSError.

    Of `listed` folders the names can be seen. Where the kernel can, also: no signal and no abstract
    socket leads out of here, and no TCP. New privileges must have been given up before.
    """
    has = version()
    known = (1 << _BITS[min(has, len(_BITS)) - 1]) - 1
    scopes = _SCOPES if has >= _SCOPES_SINCE else 0
    rules = struct.pack("QQQ", known, _TCP if has >= _TCP_SINCE else 0, scopes)
    ruleset = check(
        libc.syscall(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0), "landlock"
    )
    try:
        for path in read:
            _allow(ruleset, path, known & _READ)
        for path in listed:
            _allow(ruleset, path, _READ_DIR)
        for path in write:
            _allow(ruleset, path, known)
        for path in DEVICES:
            _allow(ruleset, path, known & ~_EXECUTE)
        check(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    """What is not there needs no rule."""
    if not Path(path).exists():
        return
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _OF_FILES
        rule = struct.pack("=Qi", access, fd)
        check(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"landlock {path}")
    finally:
        os.close(fd)
