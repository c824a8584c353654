"""The isolated half of the interpreter path: imports a candidate and calls it on real inputs.

It is sent inputs and returns raw outputs; no answer, seed or verdict is ever in this process. The
process is used once: it switches Triton to its interpreter for good.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch

from evaluator.autotuned import choose
from evaluator.interpret.bar import NoComputing, NoReading
from evaluator.interpret.corrected import correct_all
from evaluator.interpret.pretend import Driver, PretendCuda, pretend_cuda
from evaluator.interpret.wire import (
    Answer,
    Asked,
    Call,
    Fault,
    Result,
    Returned,
    Sent,
    answer_json,
    asked_json,
    pack,
    raw,
    unpack,
)
from evaluator.unsaid import name_of
from kernel_library.spec import DTYPES

#: Bytes before and after each input, all ones: NaN in every floating dtype, -1 in every integer.
GUARD = 1024
MESSAGE = 400
Entry = Callable[..., Any]


class Faulty(Exception):  # noqa: N818 (the candidate's outcome, not an error of ours)
    """The candidate broke a rule of the call."""


@dataclass(slots=True)
class Memory:
    """Guarded memory for inputs. A size is given the same address again, so that a candidate
    which remembers addresses meets new contents there.
    """

    kept: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)

    def place(self, position: int, sent: Sent, blob: memoryview) -> torch.Tensor:
        """The input as a view between its guards."""
        memory = self.kept.setdefault(
            (position, sent.bytes), torch.empty(sent.bytes + 2 * GUARD, dtype=torch.uint8)
        )
        memory.fill_(0xFF)
        dtype: Any = getattr(torch, sent.dtype)
        if not sent.bytes:
            return torch.empty(sent.shape, dtype=dtype)
        inner = memory[GUARD : GUARD + sent.bytes]
        inner.copy_(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
        typed = inner.view(dtype)
        return typed.as_strided(sent.shape, sent.stride, typed.storage_offset() + sent.offset)

    def inside(self, position: int, sent: Sent) -> bytes:
        """What the memory of an input holds."""
        return raw(self.kept[position, sent.bytes][GUARD : GUARD + sent.bytes])

    def guarded(self, position: int, sent: Sent) -> bool:
        """Whether the guards on both sides are as they were."""
        memory = self.kept[position, sent.bytes]
        return bool((memory[:GUARD] == 0xFF).all() and (memory[-GUARD:] == 0xFF).all())


def main(request: bytes) -> bytes:
    """Call the candidate as `wire.Asked` says; the reply is a `wire.Answer` and its blobs."""
    asked, blobs = unpack(request, asked_json)
    use_interpreter(asked.pick)
    with TemporaryDirectory(prefix="candidate-") as folder, torch.no_grad():
        path = Path(folder) / "candidate.py"
        path.write_text(asked.source)
        results: list[Result] = []
        sent: list[bytes] = []
        for result, found in _answers(asked, blobs, path):
            results.append(result)
            sent += found
    return pack(answer_json.dump_json(Answer(tuple(results))), sent)


def use_interpreter(pick: int = 0) -> None:
    """From here on `import triton` gives the interpreter, corrected, on a pretended GPU.

    Autotuners take the setting that was picked.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    # whoever forked this process may have imported Triton; it decides at import what `jit` means
    for name in [n for n in sys.modules if n.split(".")[0] == "triton"]:
        if not name.startswith("triton._C"):
            del sys.modules[name]
    interpreter = importlib.import_module("triton.runtime.interpreter")
    correct_all(interpreter)
    choose(importlib.import_module("triton.runtime.autotuner"), pick)
    compiler = importlib.import_module("triton.backends.compiler")
    driver = importlib.import_module("triton.runtime.driver")
    driver.driver.set_active(Driver(compiler.GPUTarget("cuda", 90, 32)))
    pretend_cuda()


def _answers(asked: Asked, blobs: memoryview, path: Path) -> Iterator[tuple[Result, list[bytes]]]:
    """Each call's result and tensors, up to the first fault."""
    memory, at = Memory(), 0
    entry: Entry | None = None
    for call in asked.calls:
        size = sum(one.bytes for each in call.inputs for one in each)
        try:
            entry = entry or _load(path, asked.entry, call.poison)
            found = _call(entry, asked, call, memory, blobs[at : at + size])
        except Faulty as fault:
            yield Result(fault=Fault(str(fault))), []
            return
        # the edge of the candidate's code: whatever it raises is its own
        except (Exception, SystemExit) as error:
            yield Result(fault=_fault(error, str(path))), []
            return
        at += size
        returned = tuple(Returned(tuple(t.shape), _name(t.dtype)) for t in found)
        yield Result(returned), [raw(t) for t in found]


def _load(path: Path, entry: str, poison: int) -> Entry:
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    with PretendCuda(poison):
        spec.loader.exec_module(module)
    found: Entry = getattr(module, entry)
    return found


def _call(
    entry: Entry, asked: Asked, call: Call, memory: Memory, blobs: memoryview
) -> list[torch.Tensor]:
    found = _once(entry, asked, call, memory, blobs)
    if call.repeat:
        first = [t.clone() for t in found]
        found = _once(entry, asked, call, memory, blobs)
        if [raw(t) for t in first] != [raw(t) for t in found]:
            raise Faulty("gives other bits when it is called again with the same inputs")
    return found


def _once(
    entry: Entry, asked: Asked, call: Call, memory: Memory, blobs: memoryview
) -> list[torch.Tensor]:
    """The returned tensors and the declared mutated inputs of one call. Raises Faulty."""
    inputs, before = _place(call, memory, blobs)
    args = [
        list(each) if name in asked.lists else each[0]
        for name, each in zip(asked.names, inputs, strict=True)
    ]
    with NoComputing(asked.allows), PretendCuda(call.poison), NoReading():
        got = entry(*args, **call.options, **call.config)
    outputs = [_plain(one) for one in _flat(got)]
    position = 0
    for name, sents in zip(asked.names, call.inputs, strict=True):
        for sent in sents:
            _check(name, (position, sent), before[position], asked, memory)
            position += 1
    written = [each for n, each in zip(asked.names, inputs, strict=True) if n in asked.mutates]
    return [*outputs, *(one for each in written for one in each)]


def _place(
    call: Call, memory: Memory, blobs: memoryview
) -> tuple[list[list[torch.Tensor]], list[bytes]]:
    """The inputs in guarded memory, and the bytes of each."""
    inputs: list[list[torch.Tensor]] = []
    before: list[bytes] = []
    at = 0
    for sents in call.inputs:
        placed = []
        for sent in sents:
            blob = blobs[at : at + sent.bytes]
            placed.append(memory.place(len(before), sent, blob))
            before.append(bytes(blob))
            at += sent.bytes
        inputs.append(placed)
    return inputs, before


def _check(name: str, where: tuple[int, Sent], before: bytes, asked: Asked, memory: Memory) -> None:
    if not memory.guarded(*where):
        raise Faulty(f"writes outside of input {name!r}")
    after, (_, sent) = memory.inside(*where), where
    if name not in asked.mutates and after != before:
        raise Faulty(f"writes to input {name!r}, which the contract does not declare")
    if after != before and _between(sent, after) != _between(sent, before):
        raise Faulty(f"writes between the elements of input {name!r}")


def _between(sent: Sent, held: bytes) -> bytes:
    """What lies between the elements of an input: its memory with those at zero."""
    flat = torch.frombuffer(bytearray(held), dtype=getattr(torch, sent.dtype))
    flat.as_strided(sent.shape, sent.stride, sent.offset).zero_()
    return raw(flat)


def _flat(got: object) -> list[object]:
    if got is None:
        return []
    if not isinstance(got, tuple | list):
        return [got]
    return [one for each in got for one in (each if isinstance(each, tuple | list) else [each])]


def _plain(one: object) -> torch.Tensor:
    """The output itself, if it is a tensor that holds its values and nothing else."""
    if type(one) is not torch.Tensor or one.layout != torch.strided or one.is_meta:
        raise Faulty(f"returns a {type(one).__name__} that is no plain tensor")
    if _name(one.dtype) not in DTYPES:
        raise Faulty(f"returns {_name(one.dtype)}")
    return one


def _fault(error: BaseException, path: str) -> Fault:
    """The exception in the candidate's words: its class, its message, its own innermost line."""
    # one within another where a kernel's own function raised
    while name_of(error) == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    lines = [f.lineno for f in _frames(error) if f.filename == path]
    return Fault(
        f"raises {name_of(error)}", str(error)[:MESSAGE], int(lines[-1] or 0) if lines else 0
    )


def _frames(error: BaseException) -> Sequence[traceback.FrameSummary]:
    return traceback.extract_tb(error.__traceback__)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
