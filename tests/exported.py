"""Small kernels to export: softmax with its gradient, an in-place step over lists, a bad one."""

from dataclasses import replace

from kernel_library.candidate import Candidate
from kernel_library.export import Exported, Review
from kernel_library.recipe import Normal, Uniform
from kernel_library.space import Tuned
from kernel_library.spec import OpSpec, Option, Reference, Tensor, Workload, grid
from kernel_library.verdict import Checked, Measurement, Passed, Record

POINTS = grid(
    "M N",
    {"check": [(1, 1), (3, 127), (8, 64)], "measure": [(8192, 4096)]},
    dtypes=("float32", "bfloat16"),
)

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _softmax_row(x_ptr, y_ptr, x_stride, N, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    inside = col < N
    x = scale * tl.load(x_ptr + row * x_stride + col, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * N + col, y.to(y_ptr.dtype.element_ty), mask=inside)


def softmax(x, *, scale=1.0, num_warps=4):
    M, N = x.shape
    y = x.new_empty((M, N))
    block = triton.next_power_of_2(N)
    _softmax_row[(M,)](x, y, x.stride(0), N, scale, BLOCK=block, num_warps=num_warps)
    return y
"""  # noqa: E501

KERNEL_BACKWARD = """
import torch
import triton
import triton.language as tl


@triton.jit
def _softmax_row_backward(dy_ptr, y_ptr, dx_ptr, N, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    inside = col < N
    dy = tl.load(dy_ptr + row * N + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * N + col, mask=inside, other=0.0).to(tl.float32)
    dx = scale * y * (dy - tl.sum(dy * y, axis=0))
    tl.store(dx_ptr + row * N + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_backward(d_y, y, *, scale=1.0, num_warps=4):
    M, N = y.shape
    dx = y.new_empty((M, N))
    block = triton.next_power_of_2(N)
    _softmax_row_backward[(M,)](d_y, y, dx, N, scale, BLOCK=block, num_warps=num_warps)
    return dx
"""

OP = OpSpec(
    name="softmax",
    inputs={"x": Tensor("M N")},
    outputs={"y": Tensor("M N")},
    options={"scale": Option(1.0)},
    constraints=("N <= 65536",),
    workloads=POINTS,
    reference=Reference(
        "import torch\n\n\ndef reference(x, *, scale=1.0):\n"
        "    return torch.softmax(scale * x.float(), dim=-1).to(x.dtype)\n"
    ),
)
OP_BACKWARD = OpSpec(
    name="softmax_backward",
    inputs={"d_y": Tensor("M N"), "y": Tensor("M N", recipe=Uniform())},
    outputs={"d_x": Tensor("M N")},
    options={"scale": Option(1.0)},
    workloads=POINTS,
    reference=Reference(
        "def reference(d_y, y, *, scale=1.0):\n"
        "    wide, grad = y.float(), d_y.float()\n"
        "    d_x = scale * wide * (grad - (grad * wide).sum(-1, keepdim=True))\n"
        "    return d_x.to(y.dtype)\n"
    ),
)


def judged(op: OpSpec, evidence="interpreted", device=None) -> Passed:
    checked = [w for w in op.workloads if w.role == "check"]
    timed = [w for w in op.workloads if w.role == "measure"] if evidence == "replayed" else []
    return Passed(
        checked=tuple(Checked(at, 1e-7, 1e-7, 8) for at in checked),
        measured=tuple(Measurement(at, 38.0, 37.5, 39.0, 31.4, "memory") for at in timed),
        record=Record(evidence, "namespaces", ("sm_90",), device, {"triton": "3.8.0"}),
    )


TUNED = (
    Tuned({"M": 8192, "N": 4096}, {"T": "bfloat16"}, {"num_warps": 8}),
    Tuned({"M": 64, "N": 128}, {"T": "bfloat16"}, {"num_warps": 1}),
)
SOFTMAX_BACKWARD = Exported(
    "softmax_backward",
    OP_BACKWARD,
    Candidate("softmax_backward", KERNEL_BACKWARD, "softmax_backward", {"num_warps": 4}),
    judged(OP_BACKWARD),
)
SOFTMAX = Exported(
    "softmax",
    OP,
    Candidate("softmax", KERNEL, "softmax", {"num_warps": 4}, TUNED),
    judged(OP),
    doc='Softmax along the last axis.\n\n"""Quotes""" and \\ backslashes are harmless.',
    backward=SOFTMAX_BACKWARD,
    review=Review("ada", "2026-11-29T15:00:00Z", "reads well"),
    job="job-1",
)
WRONG = replace(
    SOFTMAX,
    backward=None,
    candidate=replace(SOFTMAX.candidate, source=KERNEL.replace("e / tl.sum", "0.9 * e / tl.sum")),
)

STEP = Exported(
    "step",
    OpSpec(
        name="step",
        inputs={
            "params": Tensor("N", count="L"),
            "grads": Tensor("N", count="L"),
            "moments": Tensor("N", "float32", Normal(std=0.1), count="L"),
        },
        outputs={},
        mutates=("params", "moments"),
        options={"lr": Option(1e-3), "nesterov": Option(False, (False, True))},
        workloads=(
            Workload({"L": 3, "N": (5, 64, 1)}, {"T": "float32"}),
            Workload({"L": 2, "N": (7, 9)}, {"T": "bfloat16"}, options={"nesterov": True}),
        ),
        reference=Reference(
            "def reference(params, grads, moments, *, lr=1e-3, nesterov=False):\n"
            "    for p, g, m in zip(params, grads, moments):\n"
            "        m.mul_(0.9).add_(g.to(m.dtype))\n"
            "        p.sub_((lr * (g.to(m.dtype) + 0.9 * m if nesterov else m)).to(p.dtype))\n"
        ),
    ),
    Candidate("step", "def step(*args, **options):\n    raise NotImplementedError\n", "step"),
    verdict=None,
)
