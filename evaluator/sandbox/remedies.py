"""What to do about a wall that does not stand here: a command for Debian, Ubuntu or a container."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernel_library.verdict import Mechanism

#: A setting that bars namespaces, the value with which it does, and what lifts it.
BARRED = (
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
     "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0",
     "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0",
     "sudo sysctl -w user.max_user_namespaces=15000"),
)  # fmt: skip
CONTAINERS = ("/.dockerenv", "/run/.containerenv")
IN_CONTAINER: dict[Mechanism, str] = {
    "namespaces": "docker run --security-opt seccomp=unconfined --security-opt "
    "apparmor=unconfined --security-opt systempaths=unconfined --cap-add SYS_ADMIN",
    "landlock": "docker run --security-opt seccomp=unconfined, on a kernel that has Landlock",
    "cgroup": "docker run --privileged --cgroupns=private, and in it, as root: "
    "mkdir /sys/fs/cgroup/init; for p in $(cat /sys/fs/cgroup/cgroup.procs); "
    "do echo $p > /sys/fs/cgroup/init/cgroup.procs; done; "
    "echo +memory +pids > /sys/fs/cgroup/cgroup.subtree_control",
}
ON_HOST: dict[Mechanism, str] = {
    "namespaces": "run as root, or on a kernel that lets users make namespaces",
    "seccomp": "a kernel with CONFIG_SECCOMP_FILTER (Debian's and Ubuntu's have it), "
    "on x86_64 or aarch64",
    "landlock": "Linux 5.13 or newer, and `landlock` in the kernel's `lsm=` list",
    "cgroup": "systemd-run --user --scope -p Delegate=yes kernelwright ...; "
    "in a unit: Delegate=yes",
    "rlimits": "Linux",
}
UNIFY = "boot with systemd.unified_cgroup_hierarchy=1, so that cgroup v2 holds memory and pids"


def remedy(name: Mechanism, read: Callable[[str], str]) -> str:
    """What to do. `read` gives a file's text, or nothing where there is no such file."""
    if name == "namespaces":
        for path, bars, command in BARRED:
            if read(path).strip() == bars:
                return command
    if name == "cgroup" and not {"memory", "pids"} <= set(
        read("/sys/fs/cgroup/cgroup.controllers").split()
    ):
        return UNIFY
    if name in IN_CONTAINER and any(read(path) for path in CONTAINERS):
        return IN_CONTAINER[name]
    return ON_HOST[name]


def read_host(path: str) -> str:
    """A file's text; its name where it is empty, nothing where it is not there."""
    try:
        return Path(path).read_text() or path
    except OSError:
        return ""
