"""A process that dies when we do, but not before: started by a thread that lives as long as it.

The kernel takes "die with your parent" to mean the thread that started a process (prctl(2),
PR_SET_PDEATHSIG), and a zygote is started by whichever thread first asks for it.
"""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Thread

#: Between a process's death and its last words.
WORDS_SECONDS = 2.0


class Kept:
    """A running process and what it wrote last to its standard error. Raises OSError."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], fd: int) -> None:
        self._said: deque[str] = deque(maxlen=8)
        started: Future[subprocess.Popen[bytes]] = Future()

        def keep() -> None:
            try:
                process = subprocess.Popen(
                    command, pass_fds=[fd], env=environment, stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )  # fmt: skip
            except OSError as error:
                started.set_exception(error)
                return
            started.set_result(process)
            self._listen(process)

        self._thread = Thread(target=keep, daemon=True)
        self._thread.start()
        self.process = started.result()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def words(self) -> str:
        """The last that it wrote; of a dead one, all that it still had to say."""
        if not self.alive:
            self._thread.join(WORDS_SECONDS)
        return "".join(self._said)[-1500:].strip()

    def end(self, seconds: float) -> None:
        """Wait for it to end by itself, for at most so long, and see that it has ended."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join(WORDS_SECONDS)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Keep its error pipe from filling, until all that hold it are gone."""
        if process.stderr:
            with process.stderr:
                while chunk := os.read(process.stderr.fileno(), 4096):
                    self._said.append(chunk.decode(errors="replace"))
        # a thread that ended here would end a process that has closed its standard error
        process.wait()
