"""The recorder's child: runs the candidate's launcher on tape tensors and gives its tapes.

Everything here shares a process with the candidate, so nothing that it says is believed: the judge
checks that a tape is closed, and then runs it on data that this process has never seen.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from base64 import b64encode
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from triton.runtime import autotuner, driver
from triton.runtime.cache import triton_key

from evaluator.autotuned import choose
from evaluator.record.driver import (
    RecordingDriver,
    Tape,
    answer_torch_cuda,
    keep_compiled,
)
from evaluator.record.facts import kernel_facts
from evaluator.record.request import Answer, Asked, Failed, dump_answer, load_asked
from evaluator.record.tensors import MEMORY, AtImport, Calls, Devices, TapeError, wrap
from evaluator.unsaid import name_of
from kernel_library import tape as written

SOURCE = "candidate.py"
# hashes all of Triton, 0.4 s: once where this is imported, and not in each child
triton_key()


def main(request: bytes) -> bytes:
    """`Asked` in, `Answer` out, both as JSON."""
    asked = load_asked(request)
    tape = Tape([], {}, {})
    driver.set_active(RecordingDriver(tape, asked.arch))
    keep_compiled(tape)
    configs = choose(autotuner, asked.pick)
    answer_torch_cuda(asked.arch)
    try:
        with AtImport():
            entry = getattr(load(asked.source), asked.entry)
        tapes = [_record(entry, point, tape, asked) for point in asked.points]
    except BaseException as error:
        return dump_answer(Answer((), {}, max(configs, default=0), _failed(error)))
    binaries = {digest: b64encode(binary).decode() for digest, binary in tape.binaries.items()}
    return dump_answer(Answer(tuple(tapes), binaries, max(configs, default=0)))


def load(source: str) -> ModuleType:
    """The candidate as a module; from a file, because Triton reads sources from files."""
    path = Path.cwd() / SOURCE
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {SOURCE}")
    module = importlib.util.module_from_spec(spec)
    # where dataclasses look for what their annotations name
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _record(entry: Any, point: Any, tape: Tape, asked: Asked) -> written.Tape:  # noqa: ANN401
    tape.steps.clear()
    MEMORY.begin()
    inputs = {name: [_place(p) for p in places] for name, places in point.inputs.items()}
    for name, tensors in inputs.items():
        for i, tensor in enumerate(tensors):
            MEMORY.buffer(tensor, f"{name}.{i}" if name in asked.lists else name)
    args = [tensors if name in asked.lists else tensors[0] for name, tensors in inputs.items()]
    with Devices(), Calls(tape.steps):
        out = entry(*args, **point.options, **point.config)
    outputs = out if isinstance(out, tuple | list) else (() if out is None else (out,))
    if not all(isinstance(t, torch.Tensor) for t in outputs):
        raise TapeError("the entry returned something that is no tensor")
    used = {s.binary for s in tape.steps if isinstance(s, written.Launch)}
    target = f"sm_{asked.arch}"
    # an output that nothing has touched is first seen here
    views = tuple(MEMORY.view(t) for t in outputs)
    return written.Tape(
        buffers=tuple(MEMORY.buffers),
        steps=tuple(tape.steps),
        outputs=views,
        kernels=tuple(kernel_facts(tape.compiled[digest], target) for digest in sorted(used)),
        target=target,
        triton=triton.__version__,
    )


def _place(place: Any) -> torch.Tensor:  # noqa: ANN401 - a `Placed`
    """A tensor without data, laid out as the judge's own will be."""
    room = torch.empty(place.room, dtype=getattr(torch, place.dtype), device="meta")
    tensor: torch.Tensor = wrap(room.as_strided(place.shape, place.stride, place.offset))
    return tensor


def _failed(error: BaseException) -> Failed:
    """What went wrong, with the last line of the candidate's own that was running."""
    lines = [
        f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(SOURCE)
    ]
    line = (lines[-1] or 0) if lines else 0
    told = str(error).strip().splitlines()
    # a compiler quotes the whole kernel up to the fault: where it begins and how it ends will do
    said = told if len(told) <= 6 else [told[0], "...", *told[-4:]]
    return Failed(name_of(error), "\n".join(said)[:1500], line)
