"""Plays a tape on inputs of the judge's own: binds memory, launches, and looks at what was touched.

The order is always bind, play, outputs, `check`: the candidate's device code has run before there
is an answer anywhere on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic, sleep
from typing import TypeVar

import torch

from evaluator.errors import CandidateError, HangError, LabError
from evaluator.play import cuda
from evaluator.play.calls import prepare
from evaluator.play.closing import close
from evaluator.play.memory import Arena, make, storage, view_of
from evaluator.play.packing import enough, pack
from evaluator.poison import bits
from kernel_library.spec import OpSpec
from kernel_library.tape import Call, Launch, Pointer, Recording, Step, View

Inputs = Mapping[str, torch.Tensor | list[torch.Tensor]]
Run = Callable[[int], object]
T = TypeVar("T")
#: How long a call may take before its device code counts as hung, in seconds.
PATIENCE_S = 10.0


class Player:
    """A recording that is loaded on a device, for any number of calls."""

    def __init__(
        self,
        op: OpSpec,
        recording: Recording,
        device: torch.device | str,
        arena: type[Arena] = Arena,
    ) -> None:
        self.op, self.recording, self.device = op, recording, torch.device(device)
        self.arena = arena  # how a call's memory lies
        self._loaded: dict[tuple[str, str, int, int], cuda.Function] = {}

    def bind(self, inputs: Inputs, poison: int = 0) -> Bound:
        """One call's memory: copies of the inputs, and poison in all that the candidate made.

        Raises `CandidateError` for a tape that is not closed over these inputs, or that asks for
        more memory than there is.
        """
        given = dict(named(inputs))
        sizes = {name: tensor.untyped_storage().nbytes() for name, tensor in given.items()}
        close(self.recording, sizes, self.op.allows)
        return Bound(self, given, poison)

    def function(self, launch: Launch) -> cuda.Function:
        """A launch's kernel, loaded once for each shared memory and cluster that it is given."""
        key = (launch.binary, launch.function, launch.shared_bytes, launch.num_ctas)
        if key not in self._loaded:
            self._loaded[key] = blamed(
                launch.function, lambda: cuda.load(self.recording.binaries[launch.binary], launch)
            )
        return self._loaded[key]


class Bound:
    """A tape with memory of its own: play it, look at its outputs, check what it touched."""

    def __init__(self, player: Player, given: Mapping[str, torch.Tensor], poison: int) -> None:
        self.player, self.given = player, given
        self._order = {name: i for i, name in enumerate(given)}
        tape, device = player.recording.tape, player.device
        lengths = [storage(tensor).numel() for tensor in given.values()]
        self.inputs = player.arena(lengths, device, poison)
        self._made = [b for b, buffer in enumerate(tape.buffers) if buffer.role == "made"]
        launches = tape.launches
        sizes = [tape.buffers[b].bytes for b in self._made]
        scratch = [_programs(s) * n for s in launches for n in (s.scratch_bytes, s.profile_bytes)]
        self.made = make([*sizes, *scratch], device, player.arena, poison)
        for index, tensor in enumerate(given.values()):
            self.inputs.bytes(index).copy_(storage(tensor))
        self._poison = poison
        self.freshen()
        seen = iter(range(len(sizes), len(sizes) + len(scratch), 2))
        self._steps = [
            self._launch(step, next(seen)) if isinstance(step, Launch) else self._call(step)
            for step in in_turn(tape.steps)
        ]

    def freshen(self) -> None:
        """As before the first call: mutated inputs restored, and all that was made unwritten.

        Outputs get the pattern that `compare` knows. Device code that left itself a note in its own
        memory (that it has been here, and may skip work) finds it gone.
        """
        for name, index in self._order.items():
            if name.split(".")[0] in self.player.op.mutates:
                self.inputs.bytes(index).copy_(storage(self.given[name]))
        self.made.poison(self._poison)
        for view in self.player.recording.tape.outputs:
            arena, index = self._find(view.buffer)
            if arena is self.made:
                arena.mark(index, view.dtype, self._poison)

    def play(self, stream: int | None = None) -> None:
        """Start every step in order on a stream, torch's current one if none is named."""
        if stream is None:
            stream = current_stream(self.player.device)
        for step in self._steps:
            step(stream)

    def bring(self, where: torch.device) -> None:
        """Move what the call left to another device, to be looked at there; it plays no more."""
        self.made.memory, self.inputs.memory = (
            arena.memory.to(where) for arena in (self.made, self.inputs)
        )

    def outputs(self) -> tuple[torch.Tensor, ...]:
        """What the tape returns, then the inputs that the op mutates: views, not copies."""
        returned = [self.tensor(view) for view in self.player.recording.tape.outputs]
        mutated = [
            self.inputs.view(index, view_of(self.given[name], index))
            for name, index in self._order.items()
            if name.split(".")[0] in self.player.op.mutates
        ]
        return (*returned, *mutated)

    def check(self, pristine: Inputs) -> None:
        """Raise `CandidateError` for a write outside a buffer, or to an input that is not its own.

        `pristine` are the same inputs, drawn anew after the call: its device code never saw them.
        """
        if not (self.made.is_intact() and self.inputs.is_intact()):
            raise CandidateError("correct", "writes outside its buffers")
        for name, tensor in named(pristine):
            base, index, meant = name.split(".")[0], self._order[name], storage(tensor)
            told = f"writes to its input {base!r}"
            if base in self.player.op.mutates:
                if len(meant) == tensor.nbytes:
                    continue
                told = f"writes between the elements of its input {base!r}"
                view = view_of(tensor, index)
                meant = _but(meant, view, self.inputs.view(index, view))
            if not torch.equal(self.inputs.bytes(index), meant):
                raise CandidateError("correct", told)

    def tensor(self, view: View) -> torch.Tensor:
        """The tensor that a view of the tape stands for."""
        arena, index = self._find(view.buffer)
        return arena.view(index, view)

    def address(self, pointer: Pointer) -> int:
        """A pointer's address in this call's memory."""
        if pointer.buffer == -1:
            return 0
        arena, index = self._find(pointer.buffer)
        return arena.base + arena.starts[index] + pointer.offset

    def _find(self, buffer: int) -> tuple[Arena, int]:
        kind = self.player.recording.tape.buffers[buffer]
        if kind.role == "input":
            return self.inputs, self._order[kind.name]
        return self.made, self._made.index(buffer)

    def _launch(self, launch: Launch, scratch: int) -> Run:
        arguments = [self._pack(launch, argument) for argument in launch.arguments]
        # Triton 3.6 to 3.8 append two pointers: global scratch, and profile scratch
        for index in (scratch, scratch + 1):
            at = self.made.base + self.made.starts[index] if self.made.sizes[index] else 0
            arguments.append(at.to_bytes(8, "little"))
        function = self.player.function(launch)
        if not enough(function.parameters, arguments):
            raise CandidateError("record", f"{launch.function} takes more than it is given")
        prepared = cuda.Prepared(function, launch, arguments)
        return lambda stream: blamed(launch.function, lambda: prepared.run(stream))

    def _pack(self, launch: Launch, argument: object) -> bytes:
        try:
            encode = cuda.tensor_map
            return blamed(launch.function, lambda: pack(argument, self.address, encode))  # type: ignore[arg-type]
        except ValueError as error:
            raise CandidateError("record", f"{launch.function}: {error}") from error

    def _call(self, call: Call) -> Run:
        views = [self.tensor(view) for view in call.views]
        results = [self.tensor(view) for view in call.results]
        run = _theirs(call, lambda: prepare(call, views, results, self.player.op.allows))
        return lambda _: _theirs(call, run)


def in_turn(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, of which the first that launches a program waits for all that is ahead of it.

    A dependent launch may start before that has ended. Between launches of one call that is right;
    at the start of one, timed calls would overlap.
    """
    first = True
    for step in steps:
        if isinstance(step, Launch) and 0 not in step.grid:
            yield replace(step, dependent=step.dependent and not first)
            first = False
        else:
            yield step


def _theirs(call: Call, act: Callable[[], T]) -> T:
    """Act on a call of the tape's: what torch refuses of it, its arguments are to blame for."""
    try:
        return act()
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise CandidateError("smoke", f"{call.op} cannot run as recorded") from error


def _but(meant: torch.Tensor, view: View, held: torch.Tensor) -> torch.Tensor:
    """The bytes that are meant, but for a view's elements, which are taken as they are held."""
    kind: torch.dtype = getattr(torch, view.dtype)
    whole = meant.clone().view(kind)
    mine = whole.as_strided(view.shape, view.stride, view.offset // kind.itemsize)
    bits(mine).copy_(bits(held))
    return whole.view(torch.uint8)


def named(inputs: Inputs) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor by the name that tapes give it: `x`, or `xs.3` within a list."""
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        else:
            yield from ((f"{name}.{i}", tensor) for i, tensor in enumerate(value))


def blamed(kernel: str, act: Callable[[], T]) -> T:
    """Act on a candidate's behalf: a device fault is its own, any other failure is ours."""
    try:
        return act()
    except cuda.CudaError as error:
        if error.code == "CUDA_ERROR_OUT_OF_MEMORY":
            raise CandidateError("smoke", f"{kernel} needs more memory than there is") from error
        if error.code not in cuda.FAULTS:
            raise LabError(str(error)) from error
        raise CandidateError("smoke", f"{kernel} {cuda.FAULTS[error.code]}") from error


def finish(names: Sequence[str], device: torch.device, patience_s: float = PATIENCE_S) -> None:
    """Wait for the current stream. Raises `CandidateError` for a fault, `HangError` for no end."""
    if device.type == "cpu":
        return
    kernel = " or ".join(dict.fromkeys(names)) or "the candidate"
    stream, until = current_stream(device), monotonic() + patience_s
    while not blamed(kernel, lambda: cuda.is_done(stream)):
        if monotonic() > until:
            raise HangError("smoke", f"{kernel} does not finish")
        sleep(0.0002)


def current_stream(device: torch.device) -> int:
    """The handle of torch's current stream; 0 where there are none."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _programs(launch: Launch) -> int:
    x, y, z = launch.grid
    return x * y * z * launch.num_ctas
