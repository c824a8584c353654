"""System calls that no compiler and no launcher needs, and that a confined child never gets.

A deny-list: an allow-list breaks with each release of torch, of the C library and of ptxas. What is
on it reaches into other processes, changes what is mounted or which namespaces hold, opens kernel
code that attackers favour, or makes what outlives its maker. The filter is built here, since
libseccomp is not on every machine; a test holds the numbers to libseccomp's own.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct

from evaluator.sandbox.libc import PR_SET_SECCOMP, check, libc

#: A name's number on x86_64 and on aarch64. Above 424 the two agree.
DENIED = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    # mounts, roots and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # large and seldom used parts of the kernel
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18), "personality": (135, 92), "modify_ldt": (154, None),
    # the machine itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "syslog": (103, 116), "vhangup": (153, 58), "iopl": (172, None),
    "ioperm": (173, None),
    # what a process leaves behind, and what reaches beyond its machine: pipes and pairs will do
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "socket": (41, 198),
}  # fmt: skip
#: Calls that are refused by what they are asked.
CLONE, CLONE3, SOCKETPAIR = (56, 220), (435, 435), (53, 199)
NEW_NAMESPACES = 0x7E020000

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
#: From here on x86_64 numbers another ABI, which would go round the list.
_X32 = 0x40000000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_ALLOW, _ERROR, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets into what the filter is shown
_SECCOMP_MODE_FILTER = 2


def supported(machine: str) -> bool:
    """Whether the numbers of this machine's calls are known here."""
    return machine in _MACHINES


def program(machine: str) -> list[tuple[int, int, int, int]]:
    """The filter as classic BPF: code, steps to skip if true, and if false, operand."""
    which, arch = _MACHINES[machine]
    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)
    # its flags lie in memory that a filter cannot read; without it the C library takes `clone`
    unknown = (_RETURN, 0, 0, _ERROR | errno.ENOSYS)
    clone = [(_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, NEW_NAMESPACES), refuse, allow]
    # only pairs that are connected for good: a datagram can be sent to any name
    pair = [(_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, socket.AF_UNIX), refuse]
    pair += [(_LOAD, 0, 0, _SECOND), (_AND, 0, 0, 0xF)]
    pair += [(_EQUAL, 2, 0, socket.SOCK_STREAM), (_EQUAL, 1, 0, socket.SOCK_SEQPACKET)]
    pair += [refuse, allow]
    steps = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL_PROCESS)]
    steps += [(_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        steps += [(_AT_LEAST, 0, 1, _X32), refuse]
    denied = [(numbers[which], [refuse]) for numbers in DENIED.values()]
    asked = [(CLONE3[which], [unknown]), (CLONE[which], clone), (SOCKETPAIR[which], pair)]
    for number, then in [*denied, *asked]:
        if number is not None:
            steps += [(_EQUAL, 0, len(then), number), *then]
    return [*steps, allow]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def install() -> None:
    """Put this process and all that it starts under the filter, for good. Raises OSError.

    It must have given up new privileges before.
    """
    steps = program(os.uname().machine)
    packed = b"".join(struct.pack("HBBI", *step) for step in steps)
    filter_ = _Program(len(steps), packed)
    check(libc.prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_)), "seccomp")
