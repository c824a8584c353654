"""What the system-call filter lets through, run step by step as the kernel would."""

import ctypes
import errno
import socket
import struct

import pytest

from evaluator.sandbox.seccomp import CLONE, CLONE3, DENIED, SOCKETPAIR, program, supported

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = "allow", "kill"
THREAD, NEW_USER, NEW_PID = 0x003D0F00, 0x10000000, 0x20000000
machines = pytest.mark.parametrize("machine", ARCH)


def filtered(machine: str, number: int, *args: int, arch: int | None = None) -> str:
    """What the filter says to a call: classic BPF, as far as the filter uses it."""
    arch = ARCH[machine] if arch is None else arch
    shown = struct.pack("=IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    steps, at, held = program(machine), 0, 0
    while True:
        code, if_true, if_false, k = steps[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("=I", shown, k)
            case 0x54:
                held &= k
            case 0x15 | 0x35 | 0x45:
                holds = {0x15: held == k, 0x35: held >= k, 0x45: bool(held & k)}[code]
                at += if_true if holds else if_false
            case 0x06:
                says = {0x7FFF0000: ALLOW, 0x80000000: KILL}
                return says.get(k) or errno.errorcode[k & 0xFFFF]


@machines
def test_what_is_listed_is_refused_and_what_compilers_need_is_not(machine):
    which = list(ARCH).index(machine)
    listed = {numbers[which] for numbers in DENIED.values()} - {None}
    asked = {calls[which] for calls in (CLONE, CLONE3, SOCKETPAIR)}
    assert {filtered(machine, number) for number in listed} == {"EPERM"}
    assert {filtered(machine, n) for n in range(470) if n not in listed | asked} == {ALLOW}


@machines
def test_threads_and_forks_are_made_and_namespaces_are_not(machine):
    number = CLONE[list(ARCH).index(machine)]
    assert filtered(machine, number, THREAD) == filtered(machine, number, 17) == ALLOW
    assert filtered(machine, number, NEW_USER | 17) == "EPERM"
    assert filtered(machine, number, NEW_PID | THREAD) == "EPERM"
    # a filter cannot see what `clone3` is asked, and the C library takes this for an old kernel
    assert filtered(machine, CLONE3[0]) == "ENOSYS"


@machines
@pytest.mark.parametrize(
    ("family", "kind", "says"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM, ALLOW),
        (socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC, ALLOW),
        (socket.AF_UNIX, socket.SOCK_DGRAM, "EPERM"),
        (socket.AF_UNIX, socket.SOCK_RAW | socket.SOCK_NONBLOCK, "EPERM"),
        (socket.AF_INET, socket.SOCK_STREAM, "EPERM"),
    ],
)
def test_only_pairs_that_are_connected_for_good(machine, family, kind, says):
    number = SOCKETPAIR[list(ARCH).index(machine)]
    assert filtered(machine, number, int(family), int(kind)) == says


def test_another_numbering_does_not_go_round_the_list():
    assert filtered("x86_64", 26, arch=0x40000003) == KILL  # ptrace, as 32-bit programs number it
    assert filtered("x86_64", 0x40000000 | 521) == "EPERM"  # and as x32 does


def test_an_unknown_machine_is_not_guessed_at():
    assert not supported("riscv64")


def test_the_numbers_are_those_of_libseccomp():
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp is not installed: the numbers were not compared")
    known = DENIED | {"clone": CLONE, "clone3": CLONE3, "socketpair": SOCKETPAIR}
    for name, numbers in known.items():
        for arch, number in zip(ARCH.values(), numbers, strict=True):
            told = library.seccomp_syscall_resolve_name_arch(arch, name.encode())
            assert told == number if number is not None else told < 0, name
