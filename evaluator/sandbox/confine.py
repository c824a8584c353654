"""What a forked child gives up before it touches a stranger's bytes.

`fork_confined` makes it the first process of PID, mount, IPC and network namespaces of its own, so
that killing it kills all that it started; `confine_namespaces` then gives it a folder and no
way to gain privileges. Where the host's user is root, the child becomes a user of its own, because
the kernel counts no process limit for root; elsewhere it gets a user namespace instead.
Where the host allows no namespaces, `confine_folder` leaves it what one user may do to itself.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import tempfile
from pathlib import Path

from evaluator.sandbox.libc import PR_CAPBSET_DROP, check, libc, no_new_privileges

_NEWNS, _NEWUTS, _NEWIPC = 0x00020000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
_MS_NOSUID, _MS_NODEV = 2, 4
_LAST_CAPABILITY = 40

#: Address space beyond what the zygote has already mapped: a compiler needs one or two GiB.
EXTRA_MEMORY = 4 << 30
#: Each child's own memory to write to, seen by no other.
PRIVATE = "/private"
PRIVATE_SIZE = "size=1g,mode=0700"
PROCESSES = 256
#: Users for children of a root zygote: far from any that a host gives out.
FIRST_USER, USERS = 2_000_000_000, 60_000

#: Where programs keep what they make, by the environment's word for it.
FOLDERS = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def fork_confined() -> int:
    """Fork into new namespaces: 0 in the child, its process id in the parent. Raises OSError."""
    flags = _NEWPID | _NEWNS | _NEWIPC | _NEWNET | _NEWUTS | signal.SIGCHLD
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        flags |= _NEWUSER
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = libc.syscall(_SYS_CLONE, flags, 0, 0, 0, 0)
    if pid != 0:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(ctypes.get_errno(), "clone with new namespaces was refused")
        return pid
    ctypes.pythonapi.PyOS_AfterFork_Child()
    if uid == 0:
        return 0
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    return 0


def confine_namespaces(number: int) -> None:
    """In the number-th child of `fork_confined`: a folder of its own, no /proc, no privileges."""
    user = FIRST_USER + number % USERS if _is_host_root() else os.getuid()
    _mount(b"tmpfs", PRIVATE.encode(), f"{PRIVATE_SIZE},uid={user},gid={user}".encode())
    # bubblewrap covers parts of /proc, so the kernel refuses a second mount of it: show none at all
    _mount(b"tmpfs", b"/proc", b"size=0,mode=0555")
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if user != os.getuid():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _drop_capabilities()
    no_new_privileges()
    os.chdir(PRIVATE)


def confine_folder(folder: str) -> None:
    """In a child without namespaces: a session and a folder of its own, no way to privileges."""
    os.setsid()
    no_new_privileges()
    os.chdir(folder)
    os.environ.update(dict.fromkeys(FOLDERS, folder))
    tempfile.tempdir = None


def mapped_bytes() -> int:
    """The address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _is_host_root() -> bool:
    """Whether user 0 here is user 0 everywhere: no user namespace lies in between."""
    return os.getuid() == 0 and Path("/proc/self/uid_map").read_text().split()[1] == "0"


def limit_resources(cpu_seconds: int, mapped: int) -> None:
    """Bound memory (beyond what is `mapped`), processes, files and CPU time; no core dumps."""
    for what, limit in (
        (resource.RLIMIT_AS, mapped + EXTRA_MEMORY),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_FSIZE, 1 << 30),
        (resource.RLIMIT_NOFILE, 1024),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


def _drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets (capset, version 3)."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    empty = (ctypes.c_uint32 * 6)()
    check(libc.capset(header, empty), "capset")


def _mount(kind: bytes, target: bytes, options: bytes) -> None:
    flags = _MS_NOSUID | _MS_NODEV
    check(libc.mount(kind, target, kind, flags, options), f"mount {target.decode()}")
