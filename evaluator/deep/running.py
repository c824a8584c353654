"""Runs a tape under compute-sanitizer, in a process that does nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from evaluator.deep.sanitizer import FOUND, Tool, command, is_complete
from evaluator.sandbox.bubblewrap import inherited

#: Without caching, torch asks CUDA for each tensor's own bytes, and no more.
EXACT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


@dataclass(frozen=True, slots=True)
class Log:
    """What a tool wrote; `why` says what kept it from looking, where something did."""

    text: str = ""
    why: str = ""


#: Plays a request under a tool, for at most so many seconds.
Sanitize = Callable[[Tool, bytes, float], Log]


def find() -> str | None:
    """The sanitizer on this machine: on the path, or in CUDA's folder."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    places = [f"{home}/bin" for home in homes if home]
    places += [f"{home}/compute-sanitizer" for home in homes if home]
    return which("compute-sanitizer") or which("compute-sanitizer", path=os.pathsep.join(places))


def sanitize(tool: Tool, request: bytes, seconds: float) -> Log:
    """Play a `Request` under a tool."""
    program = find()
    if program is None:
        return Log(why="compute-sanitizer is not installed here")
    with TemporaryDirectory(prefix="kernelwright-") as name:
        folder = Path(name)
        (folder / "request").write_bytes(request)
        log, said = folder / "log", folder / "said"
        target = [sys.executable, "-P", "-m", "evaluator.deep.alone", str(folder / "request")]
        try:
            code = _run([*command(program, tool, str(log)), *target], said, seconds)
        except OSError as error:
            return Log(why=f"{tool} cannot be started: {error.strerror}")
        text = log.read_text(errors="replace") if log.exists() else ""
        return Log(text, _hindered(tool, code, text, said.read_text(errors="replace")))


def _run(asked: list[str], said: Path, seconds: float) -> int | None:
    """How it ended; None if it had to be ended, with all that it started."""
    with said.open("wb") as out:
        process = subprocess.Popen(
            asked, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=inherited(EXACT),
            cwd=said.parent, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _hindered(tool: Tool, code: int | None, log: str, said: str) -> str:
    """What kept a tool from looking at all of the tape; nothing if it came to its end."""
    if code is None:
        return f"{tool} took too long"
    if code in (0, FOUND) and is_complete(log):
        return ""
    last = next((line for line in reversed([*log.splitlines(), *said.splitlines()]) if line), "")
    return f"{tool} could not run: {last.strip('= ')[:200] or f'it ended with {code}'}"
