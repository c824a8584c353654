"""The judge's end of a zygote: asks, waits no longer than allowed, and tells how it ended."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from tempfile import TemporaryDirectory

from evaluator.errors import LabError
from evaluator.isolate import Died, Done
from evaluator.sandbox.bubblewrap import bare, bubblewrap, inherited, sandbox_level
from evaluator.sandbox.pipes import GRACE_SECONDS, Pipes
from kernel_library.verdict import SandboxLevel

START_SECONDS = 120.0


#: torch imports its compiler at the first call through a subclass, which takes two seconds.
PRELOAD = ("torch", "torch._dynamo", "triton", "evaluator.record.job", "evaluator.intake.job")


class Zygote:
    """Runs jobs, each in a fresh process; the `Isolate` of the product.

    A confined zygote lives in bubblewrap with nothing of the host's but the interpreter, the
    libraries and this package, read-only; no network; no environment; and each of its children
    has namespaces of its own beside. An open one (`confined=False`) is for the player, whose
    Python is ours and who needs the GPU. `Zygote` is safe to share between threads.
    """

    def __init__(
        self,
        preload: tuple[str, ...] = PRELOAD,
        env: Mapping[str, str] | None = None,
        *,
        confined: bool = True,
        level: SandboxLevel | None = None,
    ) -> None:
        self.level: SandboxLevel = (level or sandbox_level()) if confined else "none"
        self._preload, self._env, self._confined = preload, dict(env or {}), confined
        self._lock, self._ids = threading.Lock(), itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._said: deque[str] = deque(maxlen=8)
        # where there are no namespaces, a folder that is removed afterwards must do
        self._folder = (
            TemporaryDirectory(prefix="kernelwright-") if self.level == "rlimits" else None
        )

    def __call__(self, job: str, request: bytes, seconds: float) -> Done | Died:
        """Run the job for at most so many seconds. Raises LabError if the zygote is lost."""
        number = next(self._ids)
        limit = int(4 * seconds) + 60 if self._confined else 0
        pipes = Pipes(request)
        try:
            line = {"id": number, "job": job, "limit": limit}
            self._send(json.dumps(line).encode() + b"\n", pipes.theirs)
        finally:
            pipes.close_theirs()
        try:
            return pipes.read(time.monotonic() + seconds, lambda: self._kill(number))
        except EOFError as error:
            raise LabError(f"the zygote died while it ran a job: {self._words()}") from error
        finally:
            pipes.close()

    def close(self) -> None:
        """End the zygote and all its children."""
        with self._lock:
            self._end()
            if self._folder:
                self._folder.cleanup()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> None:
        if self._process and self._control:
            self._control.close()
            try:
                self._process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = self._control = None

    def _words(self) -> str:
        """The last that the zygote itself wrote."""
        return "".join(self._said)[-1500:].strip()

    def _kill(self, number: int) -> None:
        self._send(json.dumps({"kill": number}).encode() + b"\n", [])

    def _send(self, line: bytes, fds: list[int]) -> None:
        with self._lock:
            control = self._started()
            try:
                socket.send_fds(control, [line], fds)
            except OSError as error:
                self._end()
                raise LabError(f"the zygote is gone: {self._words()}") from error

    def _started(self) -> socket.socket:
        if self._control and self._process and self._process.poll() is None:
            return self._control
        self._end()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        how = "confined" if self.level == "namespaces" else "open"
        command = [sys.executable, "-P", "-m", "evaluator.sandbox.zygote", str(theirs.fileno())]
        command += [",".join(self._preload), how]
        if self.level == "namespaces":
            command = [*bubblewrap(self._env), *command]
            environment = dict[str, str]()
        else:
            folder = (
                {"HOME": self._folder.name, "TMPDIR": self._folder.name} if self._folder else {}
            )
            environment = bare(self._env | folder) if self._confined else inherited(self._env)
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        theirs.close()
        ours.settimeout(START_SECONDS)
        try:
            ready = ours.recv(64)
        except TimeoutError:
            ready = b""
        if ready != b"ready\n":
            ours.close()
            self._process.kill()
            _, told = self._process.communicate()
            said = told.decode(errors="replace").strip()[-1500:]
            raise LabError(f"the zygote did not start: {said}")
        ours.settimeout(None)
        self._said.clear()
        threading.Thread(target=_drain, args=(self._process, self._said), daemon=True).start()
        self._control = ours
        return ours


def _drain(process: subprocess.Popen[bytes], said: deque[str]) -> None:
    """Keep the zygote's own error pipe from filling, and its last words for a report."""
    if process.stderr:
        with process.stderr:
            while chunk := os.read(process.stderr.fileno(), 4096):
                said.append(chunk.decode(errors="replace"))
