"""Candidates that mean harm to the machine that judges them, each with what must come of it."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.redteam import trials

#: Of the red team's bank: those that take time, memory or the device.
BANK = (
    "c14_forged_reply", "c16_early_exit", "c50_far_write", "c60_device_loop",
    "c60_endless_output", "c60_host_loop", "c60_memory_hog",
)  # fmt: skip
#: Put before an honest kernel. None does anything outside a PID namespace of its own.
OWN = {
    "fork bomb": ("rejected", """
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(99)
"""),
    "memory bomb": ("rejected", """
eaten = []
while True:
    eaten.append(bytearray(b"x") * (256 << 20))
"""),
    "full disk": ("rejected", """
for number in range(1 << 20):
    with open(f"{number}", "wb") as file:
        file.write(bytes(64 << 20))
"""),
    "endless output": ("rejected", """
while True:
    os.write(1, b"passed " * 100)
"""),
    "children left behind": ("passed", """
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        time.sleep(999)
"""),
    "signals and sockets": ("passed", """
import ctypes, socket
try:
    os.kill(-1, 9)
except OSError:
    pass
for family in (socket.AF_UNIX, socket.AF_INET):
    try:
        socket.socket(family).connect("/run/docker.sock" if family == 1 else ("127.0.0.1", 80))
    except OSError:
        pass
    else:
        raise SystemExit("a way out")
if ctypes.CDLL(None).ptrace(16, 1, 0, 0) != -1:
    raise SystemExit("a way in")
"""),
}  # fmt: skip
#: Put behind it: 16 TiB, which is recorded, for there it holds nothing.
TOO_LARGE = """
right = softmax
def softmax(x):
    torch.zeros(1 << 42, device=x.device)
    return right(x)
"""
GUARD = """
import os, time
if os.getpid() != 1:
    raise SystemExit("this would harm a host that does not confine it")
"""


@dataclass(frozen=True, slots=True)
class Hostile:
    """A candidate that means harm, and what must come of it: `passed` where it does none."""

    name: str
    source: str
    due: str

    @property
    def harmless(self) -> bool:
        """Whether it may be judged where no namespace holds it."""
        return not self.source.startswith(GUARD)


def hostile(honest: str) -> list[Hostile]:
    """Harm of our own before the honest kernel's source, and the bank's."""
    ours = [Hostile(name, GUARD + harm + honest, due) for name, (due, harm) in OWN.items()]
    ours.append(Hostile("device memory", honest + TOO_LARGE, "rejected"))
    for name in BANK:
        (trial,) = trials(f"cheats/{name}")
        due = "passed" if "passes" in trial.due["replayed"] else "rejected"
        ours.append(Hostile(name, trial.source, due))
    return ours
