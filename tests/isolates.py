"""Doubles of the sandbox for tests: a real process, without the walls."""

import subprocess
import sys
from pathlib import Path

from evaluator.isolate import Died, Done

ROOT = Path(__file__).parent.parent
CHILD = """
import sys, os
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
from evaluator.isolate import resolve
try:
    reply = resolve(sys.argv[1])(sys.stdin.buffer.read())
except Exception as error:
    import traceback
    traceback.print_exc()
    out.write(type(error).__name__.encode())
    sys.exit(3)
out.write(reply)
"""


def run_in_subprocess(job: str, request: bytes, seconds: float) -> Done | Died:
    """An `Isolate` with a process for each job and nothing in its way."""
    try:
        ran = subprocess.run(
            [sys.executable, "-c", CHILD, job],
            input=request,
            capture_output=True,
            timeout=seconds,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired:
        return Died("timeout", "")
    log = ran.stderr.decode(errors="replace")[-4000:]
    if ran.returncode == 0:
        return Done(ran.stdout, log)
    if ran.returncode == 3:
        return Died("raised", log, ran.stdout.decode())
    return Died("killed", log)
