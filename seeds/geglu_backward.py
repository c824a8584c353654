"""Gradient of GeGLU's gate, from its inputs.

    gelu(t)       = t * s(t), where s(t) is (1 + erf(t / sqrt(2))) / 2 or its tanh approximation
    d_gate[i, j]  = d_y[i, j] * up[i, j] * (s(gate[i, j]) + gate[i, j] * s'(gate[i, j]))
    d_up[i, j]    = d_y[i, j] * gate[i, j] * s(gate[i, j])

all      (M, N), any row stride, so the halves of one packed tensor will do
dtype    float32, float16, bfloat16; float32 inside; approximate as geglu's
moves    reads d_y, gate and up once, writes d_gate and d_up once
plan     one program per BLOCK neighbouring values; tensors without gaps are one long row (FLAT), of
         which only the last block needs a mask, and none if BLOCK divides the row (EVEN); STREAM
         asks L2 to let go of the results first, LOAD says how d_y, gate and up come
"""

import math

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="geglu_backward",
    inputs={"d_y": Tensor("M N"), "gate": Tensor("M N"), "up": Tensor("M N")},
    outputs={"d_gate": Tensor("M N"), "d_up": Tensor("M N")},
    options={"approximate": Option("tanh", ("tanh", "none"))},
    flops="(21 if approximate == 'tanh' else 16) * M * N",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N",
            {"check": [(1, 1), (3, 127), (37, 781), (4, 2048)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload({"M": 5, "N": 700}, {"T": "float32"}, options={"approximate": "none"}),
        Workload({"M": 7, "N": 96}, {"T": "bfloat16"}, options={"approximate": "none"}),
        *grid("M N", {"measure": [(8192, 14336), (16, 14336), (2047, 5001)]}, dtypes=("bfloat16",)),
    ),
)


def reference(
    d_y: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, *, approximate: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients as autograd takes them."""
    t = gate.float()
    if approximate == "tanh":
        s = torch.sigmoid(2 * (2 / math.pi) ** 0.5 * (t + 0.044715 * t**3))
        slope = s * (1 - s) * 2 * (2 / math.pi) ** 0.5 * (1 + 3 * 0.044715 * t**2)
    else:
        s = 0.5 + 0.5 * torch.erf(t / 2**0.5)
        slope = torch.exp(-0.5 * t**2) / (2 * math.pi) ** 0.5
    d_gate = d_y.float() * up.float() * (s + t * slope)
    return d_gate.to(gate.dtype), (d_y.float() * t * s).to(up.dtype)


def no_gradient_outgrows_its_bound(
    d_y: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    d_gate: torch.Tensor,
    d_up: torch.Tensor,
    **_: object,
) -> bool:
    """GELU is at most |gate|, and its slope at most 1.13."""
    gate_bound = 1.15 * (d_y.double() * up.double()).abs() + 1e-6
    up_bound = 1.02 * (d_y.double() * gate.double()).abs() + 1e-6
    return bool((d_gate.abs() <= gate_bound).all() and (d_up.abs() <= up_bound).all())


@triton.jit
def _gradients(d_y, gate, up, TANH: tl.constexpr):
    d_y, gate, up = d_y.to(tl.float32), gate.to(tl.float32), up.to(tl.float32)
    if TANH:
        # (1 + tanh(t)) / 2 = sigmoid(2 t) = 1 / (1 + 2^(-2 log2(e) t)); at gate = -11 the power is
        # infinite, s and its slope zero (at -10, s is 2^-126, which a large gate still multiplies),
        # while the square of a large gate would make infinity of the slope, and NaN of the
        # product; exp2 lets what is below 2^-126 be zero, tl.sigmoid spends three instructions
        near = tl.minimum(tl.maximum(gate, -11.0), 11.0)
        square = near * near
        s = 1.0 / (1.0 + tl.exp2(near * (-2.302208198144325 - 0.1029432395800235 * square)))
        slope = s * (1.0 - s) * (1.5957691216057308 + 0.2140644488 * square)
    else:
        s = 0.5 + 0.5 * tl.erf(0.7071067811865476 * gate)
        slope = 0.3989422804014327 * tl.exp2(-0.7213475204444817 * gate * gate)
    return d_y * up * (s + gate * slope), d_y * gate * s


@triton.jit
def _geglu_backward_block(
    d_y_ptr, gate_ptr, up_ptr, d_gate_ptr, d_up_ptr, N,
    d_y_stride, gate_stride, up_stride, out_stride,
    TANH: tl.constexpr, FLAT: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
    CACHE: tl.constexpr, HINT: tl.constexpr, OUT_HINT: tl.constexpr,
):  # fmt: skip
    if FLAT:
        row, start = 0, tl.program_id(0).to(tl.int64) * BLOCK
    else:
        blocks = tl.cdiv(N, BLOCK)
        row = (tl.program_id(0) // blocks).to(tl.int64)
        start = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK
    d_y_ptr += row * d_y_stride + start
    gate_ptr += row * gate_stride + start
    up_ptr += row * up_stride + start
    d_gate_ptr += row * out_stride + start
    d_up_ptr += row * out_stride + start
    col = tl.arange(0, BLOCK)
    dtype = d_gate_ptr.dtype.element_ty
    if EVEN or start + BLOCK <= N:
        d_y = tl.load(d_y_ptr + col, cache_modifier=CACHE, eviction_policy=HINT)
        gate = tl.load(gate_ptr + col, cache_modifier=CACHE, eviction_policy=HINT)
        up = tl.load(up_ptr + col, cache_modifier=CACHE, eviction_policy=HINT)
        d_gate, d_up = _gradients(d_y, gate, up, TANH)
        tl.store(d_gate_ptr + col, d_gate.to(dtype), eviction_policy=OUT_HINT)
        tl.store(d_up_ptr + col, d_up.to(dtype), eviction_policy=OUT_HINT)
    else:
        inside = start + col < N
        d_y = tl.load(d_y_ptr + col, mask=inside, other=0.0)
        gate = tl.load(gate_ptr + col, mask=inside, other=0.0)
        up = tl.load(up_ptr + col, mask=inside, other=0.0)
        d_gate, d_up = _gradients(d_y, gate, up, TANH)
        tl.store(d_gate_ptr + col, d_gate.to(dtype), mask=inside)
        tl.store(d_up_ptr + col, d_up.to(dtype), mask=inside)


#: By LOAD: the cache modifier and the eviction policy of d_y, gate and up.
_LOADS = (("", ""), (".cg", ""), ("", "evict_first"))


def geglu_backward(
    d_y: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, *, approximate: str = "tanh",
    BLOCK: int, STREAM: int, LOAD: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Launch one program for each block of each row."""
    M, N = gate.shape
    d_y, gate, up = (t if t.stride(1) == 1 else t.contiguous() for t in (d_y, gate, up))
    d_gate = torch.empty((M, N), dtype=gate.dtype, device=gate.device)
    d_up = torch.empty((M, N), dtype=up.dtype, device=up.device)
    if M == 0:
        return d_gate, d_up
    flat = d_y.is_contiguous() and gate.is_contiguous() and up.is_contiguous()
    rows, width = (1, M * N) if flat else (M, N)
    cache, hint = _LOADS[LOAD]
    _geglu_backward_block[(rows * triton.cdiv(width, BLOCK),)](
        d_y, gate, up, d_gate, d_up, width,
        d_y.stride(0), gate.stride(0), up.stride(0), d_gate.stride(0),
        TANH=approximate == "tanh", FLAT=flat, EVEN=width % BLOCK == 0, BLOCK=BLOCK,
        CACHE=cache, HINT=hint, OUT_HINT="evict_first" if STREAM else "", num_warps=num_warps,
    )  # fmt: skip
    return d_gate, d_up


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(no_gradient_outgrows_its_bound,),
    kernel=geglu_backward,
    space=Space(
        {
            "BLOCK": (1024, 128, 256, 512, 2048),
            "STREAM": (0, 1),
            "LOAD": (0, 1, 2),
            "num_warps": (4, 1, 2, 8),
        },
        constraints=(
            # 4 to 32 values a thread; 2, and short programs, where latency is most of the time
            "BLOCK >= (64 if M * N * itemsize <= 33554432 else 128) * num_warps",
            "BLOCK <= 1024 * num_warps and (BLOCK >= 256 or M * N * itemsize <= 33554432)",
            # what fits in L2 may be wanted from there next
            "STREAM + LOAD == 0 or M * N * itemsize > 33554432",
        ),
    ),
)
