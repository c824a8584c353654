"""Arguments are packed as Triton packs them, and a tape that reaches outside itself is refused."""

import math
import struct
from dataclasses import replace

import pytest
from tapes import CLONE, IMAGE, NAME, Y, launch, tape_of

from evaluator.errors import CandidateError
from evaluator.play.closing import close, faults
from evaluator.play.packing import enough, number, pack
from kernel_library.tape import Descriptor, Pointer, Recording, Scalar


@pytest.mark.parametrize(
    ("scalar", "raw"),
    [
        (Scalar("i1", 1), b"\x01"),
        (Scalar("i32", -2), struct.pack("<i", -2)),
        (Scalar("u64", 2**64 - 1), b"\xff" * 8),
        (Scalar("fp32", 0.1), struct.pack("<f", 0.1)),
        (Scalar("fp32", -math.inf), struct.pack("<f", -math.inf)),
        (Scalar("fp64", 1), struct.pack("<d", 1.0)),
        (Scalar("fp16", 1.5), struct.pack("<e", 1.5)),
        # 1.999 is 0x3FFFDF3B in float32; Triton keeps the upper half, and so rounds down
        (Scalar("bf16", 1.999), b"\xff\x3f"),
    ],
)
def test_numbers_are_packed_as_tritons_launcher_packs_them(scalar, raw):
    assert number(scalar) == raw


@pytest.mark.parametrize(
    "scalar", [Scalar("i8", 300), Scalar("u32", -1), Scalar("fp16", 1e9), Scalar("tensor", 1)]
)
def test_a_number_that_its_type_cannot_hold_is_refused(scalar):
    with pytest.raises(ValueError):
        number(scalar)


def test_pointers_and_descriptors_are_packed_for_the_players_own_memory():
    base = {0: 4096, -1: 0}
    described = Descriptor(Pointer(0, 64), (8, 8), (8, 1), (4, 4), 4, 7, 0)

    def address(pointer):
        return base[pointer.buffer] + pointer.offset

    assert pack(Pointer(0, 16), address, bytes) == (4112).to_bytes(8, "little")
    assert pack(Pointer(-1), address, bytes) == bytes(8)
    assert pack(described, address, lambda d, at: at.to_bytes(128, "little"))[:2] == b"\x40\x10"


def test_a_kernel_that_takes_more_than_it_is_given_is_known():
    numbers = [bytes(8), bytes(4), bytes(128)]
    assert enough((8, 4, 128), numbers) and enough((8, 4), numbers)
    assert not enough((8, 4, 128, 1), numbers)
    assert not enough((8, 65, 128), numbers)


def test_a_closed_tape_has_no_fault():
    described = Descriptor(Pointer(1), (3, 40), (40, 1), (2, 8), 4, 7, 0)
    good = launch(arguments=(Pointer(0, 480), Pointer(-1), described, Scalar("fp32", 1.0)))
    assert list(faults(tape_of(good, CLONE), {"x": 480})) == []


@pytest.mark.parametrize(
    ("recording", "told"),
    [
        (tape_of(launch(binary="0" * 64)), "lacks the binary"),
        (Recording(tape_of(launch()).tape, {NAME: IMAGE + b"!"}), "lacks the binary"),
        (tape_of(launch(grid=(-1, 1, 1))), "over the grid"),
        (tape_of(launch(grid=(1, 65536, 1))), "over the grid"),
        (tape_of(launch(grid=(2**30, 1, 1), num_ctas=2)), "too many clusters"),
        (tape_of(launch(num_warps=64)), "64 warps"),
        (tape_of(launch(shared_bytes=1 << 20)), "shared memory"),
        (tape_of(launch(scratch_bytes=1 << 40)), "scratch"),
        (tape_of(launch(scratch_bytes=-1)), "scratch"),
        (tape_of(launch(scratch_bytes=-512, profile_bytes=512)), "scratch"),
        (tape_of(launch(arguments=(Pointer(2),))), "buffer that it does not have"),
        (tape_of(launch(arguments=(Pointer(1, 481),))), "outside a buffer"),
        (tape_of(launch(arguments=(Pointer(1, -4),))), "outside a buffer"),
        (
            tape_of(launch(arguments=(Descriptor(Pointer(1), (4, 40), (40, 1), (2, 8), 4, 7, 0),))),
            "larger than its buffer",
        ),
        (
            tape_of(
                launch(arguments=(Descriptor(Pointer(1), (9, 40), (-40, 1), (2, 8), 4, 7, 0),))
            ),
            "descriptor of no shape",
        ),
        (
            tape_of(launch(arguments=(Descriptor(Pointer(1), (9, 40), (40, 1), (2, 8), 0, 7, 0),))),
            "descriptor of no shape",
        ),
        (
            tape_of(launch(arguments=(Descriptor(Pointer(-1), (4,), (1,), (2,), 4, 7, 0),))),
            "descriptor of nothing",
        ),
        (tape_of(outputs=(replace(Y, shape=(4, 40)),)), "outside its buffer"),
        (tape_of(outputs=(replace(Y, offset=2),)), "misaligned"),
        (tape_of(outputs=(replace(Y, stride=(-40, 1)),)), "no shape"),
        (tape_of(outputs=(replace(Y, dtype="complex64"),)), "dtype"),
        (tape_of(replace(CLONE, results=(replace(Y, buffer=7),))), "in no buffer"),
        (tape_of(CLONE, made=-1), "negative size"),
        (tape_of(CLONE, made=1 << 63), "more memory than any device"),
    ],
)
def test_a_tape_that_reaches_outside_itself_is_refused(recording, told):
    with pytest.raises(CandidateError, match=told) as caught:
        close(recording, {"x": 480})
    assert caught.value.stage == "record"


def test_a_tape_for_inputs_of_another_layout_is_refused():
    with pytest.raises(CandidateError, match="another input 'x'"):
        close(tape_of(CLONE), {"x": 960})
