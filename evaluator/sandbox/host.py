"""The judge's end of a zygote: asks, waits no longer than allowed, and tells how it ended."""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from tempfile import TemporaryDirectory

from evaluator.errors import LabError
from evaluator.isolate import Died, Done
from evaluator.sandbox.bubblewrap import bare, bubblewrap, inherited
from evaluator.sandbox.cgroup import open_groups
from evaluator.sandbox.confine import PRIVATE
from evaluator.sandbox.found import PROBE, Finding, look
from evaluator.sandbox.keeper import Kept
from evaluator.sandbox.pipes import GRACE_SECONDS, Pipes
from kernel_library.verdict import Mechanism, SandboxLevel

START_SECONDS = 120.0
PROBE_SECONDS = 30.0


#: torch imports its compiler at the first call through a subclass, which takes two seconds.
PRELOAD = (
    "torch", "torch._dynamo", "triton", "evaluator.primed", "evaluator.record.job",
    "evaluator.intake.job",
)  # fmt: skip


class Zygote:
    """Runs jobs, each in a fresh process; the `Isolate` of the product.

    A confined zygote lives in bubblewrap with nothing of the host's but the interpreter, the
    libraries and this package, read-only; no network; no environment; and each of its children
    has namespaces of its own beside, within all other walls that this host allows (`findings`). An
    open one (`confined=False`) is for the player, whose
    Python is ours and who needs the GPU. `Zygote` is safe to share between threads.
    """

    def __init__(
        self,
        preload: tuple[str, ...] = PRELOAD,
        env: Mapping[str, str] | None = None,
        *,
        confined: bool = True,
        walls: Sequence[Mechanism] | None = None,
    ) -> None:
        within = confinement() if walls is None else tuple(walls)
        self.walls: tuple[Mechanism, ...] = within if confined else ()
        self.level = level_of(self.walls)
        self._preload, self._env = preload, dict(env or {})
        self._lock, self._ids = threading.Lock(), itertools.count(1)
        self._kept: Kept | None = None
        self._control: socket.socket | None = None
        # where there are no namespaces, a folder that is removed afterwards must do
        self._folder = (
            TemporaryDirectory(prefix="kernelwright-") if self.level == "rlimits" else None
        )
        self._groups = open_groups() if "cgroup" in self.walls else None

    def __call__(self, job: str, request: bytes, seconds: float) -> Done | Died:
        """Run the job for at most so many seconds. Raises LabError if the zygote is lost."""
        number = next(self._ids)
        limit = int(4 * seconds) + 60
        with self._group() as group, closing(Pipes(request)) as pipes:
            try:
                line = {"id": number, "job": job, "limit": limit}
                self._send(json.dumps(line).encode() + b"\n", [*pipes.theirs, *group])
            finally:
                pipes.close_theirs()
            try:
                return pipes.read(time.monotonic() + seconds, lambda: self._kill(number))
            except EOFError as error:
                told = f"the zygote died while it ran a job: {self._words()}"
                raise LabError(told) from error

    @contextmanager
    def _group(self) -> Iterator[list[int]]:
        """The way into a cgroup for one child, where there are any."""
        if self._groups is None:
            yield []
        else:
            with self._groups.one() as entrance:
                yield [entrance]

    def close(self) -> None:
        """End the zygote and all its children."""
        with self._lock:
            self._end()
            if self._folder:
                self._folder.cleanup()
            if self._groups:
                self._groups.close()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> None:
        if self._kept and self._control:
            self._control.close()
            self._kept.end(GRACE_SECONDS)
        self._kept = self._control = None

    def _words(self) -> str:
        """The last that the zygote itself wrote."""
        return self._kept.words() if self._kept else ""

    def _kill(self, number: int) -> None:
        self._send(json.dumps({"kill": number}).encode() + b"\n", [])

    def _send(self, line: bytes, fds: list[int]) -> None:
        with self._lock:
            control = self._started()
            try:
                socket.send_fds(control, [line], fds)
            except OSError as error:
                words = self._words()
                self._end()
                raise LabError(f"the zygote is gone: {words}") from error

    def _started(self) -> socket.socket:
        if self._control and self._kept and self._kept.alive:
            return self._control
        self._end()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "evaluator.sandbox.zygote", str(theirs.fileno())]
        command += [",".join(self._preload), ",".join(self.walls)]
        match self.level:
            case "namespaces":
                command, environment = [*bubblewrap(self._env), *command], {}
            case "rlimits":
                environment = bare(self._env, self._folder.name if self._folder else PRIVATE)
            case "none":
                environment = inherited(self._env)
        kept = Kept(command, environment, theirs.fileno())
        theirs.close()
        ours.settimeout(START_SECONDS)
        try:
            ready = ours.recv(64)
        except TimeoutError:
            ready = b""
        if ready != b"ready\n":
            ours.close()
            kept.end(0)
            raise LabError(f"the zygote did not start: {kept.words()}")
        ours.settimeout(None)
        self._kept, self._control = kept, ours
        return ours


@lru_cache(maxsize=1)
def findings() -> tuple[Finding, ...]:
    """What this host lets us confine a child by, tried once. Raises LabError for nothing at all."""
    return look(_probe)


def confinement() -> tuple[Mechanism, ...]:
    """The walls that stand on this host, and so around each child of a confined zygote."""
    return tuple(finding.name for finding in findings() if finding.there)


def sandbox_level() -> SandboxLevel:
    """The level that a confined zygote has on this host."""
    return level_of(confinement())


def level_of(walls: Sequence[Mechanism]) -> SandboxLevel:
    """The word for what these walls are worth."""
    return "namespaces" if "namespaces" in walls else "rlimits" if walls else "none"


def _probe(walls: Sequence[Mechanism]) -> Done | Died:
    with Zygote((), walls=walls) as zygote:
        return zygote(PROBE, b"", PROBE_SECONDS)
