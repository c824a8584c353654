"""Runs a tape under compute-sanitizer, in a process that does nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore

from evaluator.deep.sanitizer import FOUND, Tool, command, is_complete, version_of
from evaluator.sandbox.bubblewrap import inherited

#: Without caching, torch asks CUDA for each tensor's own bytes, and no more.
EXACT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


@dataclass(frozen=True, slots=True)
class Log:
    """What a tool of a version wrote; `why` says what kept it from looking, where something did."""

    text: str = ""
    why: str = ""
    version: tuple[int, int] = (0, 0)


#: What the target says once all is played.
PLAYED = "played to the end"
VERSION_S = 30.0
#: Tools at a time: each takes one of the ten ports that its option --max-connections allows.
_FEW = BoundedSemaphore(8)
#: Plays a request under a tool, for at most so many seconds.
Sanitize = Callable[[Tool, bytes, float], Log]


def find() -> str | None:
    """The sanitizer on this machine: on the path, in CUDA's folder, or from NVIDIA's own wheel."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    homes += map(str, Path(sysconfig.get_path("purelib")).glob("nvidia/cu*"))
    places = [f"{home}/bin" for home in homes if home]
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
            _run([program, "--version"], said, VERSION_S)
            version = version_of(said.read_text(errors="replace"))
            with _FEW:
                code = _run([*command(program, tool, str(log)), *target], said, seconds)
        except OSError as error:
            return Log(why=f"{tool} cannot be started: {error.strerror}")
        text = log.read_text(errors="replace") if log.exists() else ""
        return Log(text, _hindered(tool, code, text, said.read_text(errors="replace")), version)


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
            # a tool that is gone may leave its target behind, on the GPU
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _hindered(tool: Tool, code: int | None, log: str, said: str) -> str:
    """What kept a tool from looking at all of the tape; nothing if it came to its end.

    Its own word is not enough: a tool that a machine does not bear sums up, too.
    """
    if code is None:
        return f"{tool} took too long"
    if code in (0, FOUND) and is_complete(log) and PLAYED in said:
        return ""
    first = next((line for line in log.splitlines() if "error" in line.lower()), "")
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    told = "; ".join(line.strip("= ")[:150] for line in (first, last) if line)
    return f"{tool} could not run: {told or f'it ended with {code}'}"
