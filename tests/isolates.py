"""Doubles of the sandbox for tests: a real, fresh process for each job, without the walls."""

import multiprocessing
import traceback
from multiprocessing.connection import Connection

from evaluator.isolate import Died, Done, resolve

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "triton", "triton.language", "evaluator.interpret.job"])


def run_in_fork(job: str, request: bytes, seconds: float) -> Done | Died:
    """An `Isolate` that forks from a process which has only imported torch and Triton."""
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=_child, args=(theirs, job, request))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            return Died("timeout", "")
        kind, *rest = ours.recv()
        return Done(*rest) if kind == "done" else Died("raised", *rest)
    except EOFError:
        return Died("killed", "")
    finally:
        process.kill()
        process.join()
        ours.close()


def _child(reply: Connection, job: str, request: bytes) -> None:
    try:
        reply.send(("done", resolve(job)(request)))
    except Exception as error:
        reply.send(("raised", traceback.format_exc(limit=-3), type(error).__name__))
