"""The C library, for what Python does not wrap. It keeps the GIL, which a fork needs."""

from __future__ import annotations

import ctypes

libc = ctypes.PyDLL(None, use_errno=True)

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 22, 24, 38


def check(result: int, what: str) -> int:
    """The result, where the call succeeded. Raises OSError, which names what was tried."""
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def no_new_privileges() -> None:
    """From here on no program that is run, setuid or not, gains any. Raises OSError."""
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
