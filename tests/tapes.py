"""Tapes and an op to go with them, as literals."""

from dataclasses import replace
from functools import cache
from hashlib import sha256

import torch

from evaluator.graphs import trace
from evaluator.inputs import Case
from kernel_library.spec import OpSpec, Reference, Tensor, Workload
from kernel_library.tape import Buffer, Call, Launch, Pointer, Recording, Scalar, Tape, View

CPU = torch.device("cpu")
IMAGE = b"\x7fELF\x00\xff kernel"
NAME = sha256(IMAGE).hexdigest()
AT = Workload({"M": 3, "N": 40}, {"T": "float32"})
CASE = Case(seed=5)
X = View(0, 0, (3, 40), (40, 1), "float32")
Y = replace(X, buffer=1)
SHORT_X = replace(X, shape=(3, 39))
CLONE = Call("aten.clone.default", ({"view": 0},), {}, (X,), (Y,))


def op_of(function=lambda x: 1 * x, *, at=AT, mutates=(), outputs=("y",)) -> OpSpec:
    zeros = torch.zeros(at.dims["M"], at.dims["N"], dtype=getattr(torch, at.dtypes["T"]))
    return OpSpec(
        "copy",
        {"x": Tensor("M N")},
        {name: Tensor("M N") for name in outputs},
        (at,),
        mutates=mutates,
        reference=Reference("", graphs={str(at): trace(function, [zeros], {})}),
    )


@cache
def plain_op() -> OpSpec:
    return op_of()


def tape_of(*steps, outputs=(Y,), made=480) -> Recording:
    buffers = (Buffer("input", 480, "x"), Buffer("made", made))
    return Recording(Tape(buffers, steps, outputs), {NAME: IMAGE})


def launch(**changes) -> Launch:
    plain = Launch(NAME, "kernel", (4, 1, 1), 4, 1, 0, (Pointer(0), Pointer(1), Scalar("i32", 40)))
    return replace(plain, **changes)
