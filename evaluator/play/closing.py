"""Whether a tape is closed: all it names is in it, and every address lies in a buffer of its own.

Pure. A tape comes out of a sandbox, so nothing in it is taken on trust.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from evaluator.errors import CandidateError
from evaluator.play.calls import resolve
from kernel_library.spec import DTYPES, ITEMSIZE
from kernel_library.tape import Call, Descriptor, Launch, Pointer, Recording, Scalar, Tape, View

MOST_SHARED = 228 * 1024
MOST_SCRATCH = 1 << 34
#: More than any device has, and little enough that sums of it fit in 64 bits.
MOST_BYTES = 1 << 44
#: The driver's limits on a grid, x first.
MOST_GRID = (2**31 - 1, 65535, 65535)


def close(recording: Recording, inputs: Mapping[str, int], allows: Sequence[str] = ()) -> None:
    """Raise `CandidateError` unless the recording is closed over these inputs, in bytes by name."""
    for fault in faults(recording, inputs, allows):
        raise CandidateError("record", f"the recording {fault}")


def faults(
    recording: Recording, inputs: Mapping[str, int], allows: Sequence[str] = ()
) -> Iterator[str]:
    """What is wrong with a recording, in words."""
    tape = recording.tape
    yield from _buffers(tape, inputs)
    for view in tape.outputs:
        yield from _view(tape, view, "returns")
    for step in tape.steps:
        match step:
            case Launch():
                yield from _launch(recording, step)
            case Call():
                yield from _call(tape, step, allows)


def _buffers(tape: Tape, inputs: Mapping[str, int]) -> Iterator[str]:
    for buffer in tape.buffers:
        if buffer.bytes < 0:
            yield "holds a buffer of negative size"
        if buffer.role == "input" and inputs.get(buffer.name) != buffer.bytes:
            yield f"was made for another input {buffer.name!r}"
    if sum(buffer.bytes for buffer in tape.buffers) > MOST_BYTES:
        yield "asks for more memory than any device has"


def _launch(recording: Recording, launch: Launch) -> Iterator[str]:
    tape, image = recording.tape, recording.binaries.get(launch.binary)
    if image is None or sha256(image).hexdigest() != launch.binary:
        yield f"lacks the binary of {launch.function}"
    if not all(0 <= n <= most for n, most in zip(launch.grid, MOST_GRID, strict=True)):
        yield f"launches {launch.function} over the grid {launch.grid}"
    if launch.grid[0] * launch.num_ctas > MOST_GRID[0]:
        yield f"launches {launch.function} over too many clusters"
    if not (1 <= launch.num_warps <= 32 and 1 <= launch.num_ctas <= 16):
        yield f"launches {launch.function} with {launch.num_warps} warps, {launch.num_ctas} CTAs"
    if not 0 <= launch.shared_bytes <= MOST_SHARED:
        yield f"gives {launch.function} {launch.shared_bytes} bytes of shared memory"
    least = min(launch.scratch_bytes, launch.profile_bytes)
    if least < 0 or scratch_bytes(launch) > MOST_SCRATCH:
        yield f"gives {launch.function} too much scratch memory"
    yield from _arguments(tape, launch)


def _arguments(tape: Tape, launch: Launch) -> Iterator[str]:
    for argument in launch.arguments:
        match argument:
            case Pointer():
                yield from _pointer(tape, argument)
            case Descriptor():
                yield from _descriptor(tape, argument)
            case Scalar():
                pass


def scratch_bytes(launch: Launch) -> int:
    """What Triton's launcher would allocate: a share for each program of each cluster."""
    x, y, z = launch.grid
    return x * y * z * launch.num_ctas * (launch.scratch_bytes + launch.profile_bytes)


def _pointer(tape: Tape, pointer: Pointer) -> Iterator[str]:
    if pointer.buffer == -1:
        return
    if not 0 <= pointer.buffer < len(tape.buffers):
        yield "points to a buffer that it does not have"
    elif not 0 <= pointer.offset <= tape.buffers[pointer.buffer].bytes:
        yield "points outside a buffer"


def _descriptor(tape: Tape, descriptor: Descriptor) -> Iterator[str]:
    yield from _pointer(tape, descriptor.base)
    rank = len(descriptor.block)
    if not 1 <= rank <= 5 or not len(descriptor.shape) == len(descriptor.stride) == rank:
        yield "has a tensor descriptor of no rank"
    elif min((*descriptor.shape, *descriptor.stride, descriptor.element_bytes - 1)) < 0:
        yield "has a tensor descriptor of no shape"
    elif descriptor.base.buffer < 0:
        yield "has a tensor descriptor of nothing"
    elif 0 <= descriptor.base.buffer < len(tape.buffers):
        span = _span(descriptor.shape, descriptor.stride) * descriptor.element_bytes
        if descriptor.base.offset + span > tape.buffers[descriptor.base.buffer].bytes:
            yield "has a tensor descriptor that is larger than its buffer"


def _call(tape: Tape, call: Call, allows: Sequence[str]) -> Iterator[str]:
    resolve(call.op, allows)
    for view in (*call.views, *call.results):
        yield from _view(tape, view, f"calls {call.op} on")
    if not call.views and not call.results:
        yield f"calls {call.op} on nothing"


def _view(tape: Tape, view: View, verb: str) -> Iterator[str]:
    if view.dtype not in DTYPES:
        yield f"{verb} a tensor of dtype {view.dtype!r}"
    elif not 0 <= view.buffer < len(tape.buffers):
        yield f"{verb} a tensor that is in no buffer"
    elif len(view.shape) != len(view.stride) or min((*view.shape, *view.stride), default=0) < 0:
        yield f"{verb} a tensor of no shape"
    elif view.offset % ITEMSIZE[view.dtype]:
        yield f"{verb} a misaligned tensor"
    elif view.offset < 0 or _end(view) > tape.buffers[view.buffer].bytes:
        yield f"{verb} a tensor that reaches outside its buffer"


def _end(view: View) -> int:
    return view.offset + _span(view.shape, view.stride) * ITEMSIZE[view.dtype]


def _span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """The elements from a tensor's first to its last; none for an empty one."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
