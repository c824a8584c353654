"""GeGLU's gate: the GELU of one tensor times another.

    y[i, j] = gelu(gate[i, j]) * up[i, j]
    gelu(t) = t * (1 + erf(t / sqrt(2))) / 2                              approximate="none"
            = t * sigmoid(2 * sqrt(2 / pi) * (t + 0.044715 * t^3))        approximate="tanh"

gate, up, y  (M, N), any row stride, so the halves of one packed tensor will do
dtype        float32, float16, bfloat16; float32 inside
moves        reads gate and up once, writes y once
plan         one program per BLOCK neighbouring values; tensors without gaps are one long row
             (FLAT), of which only the last block needs a mask, and none if BLOCK divides the row
             (EVEN); STREAM asks L2 to let go of y first, LOAD says how gate and up come
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="geglu",
    inputs={"gate": Tensor("M N"), "up": Tensor("M N")},
    outputs={"y": Tensor("M N")},
    options={"approximate": Option("tanh", ("tanh", "none"))},
    flops="(10 if approximate == 'tanh' else 6) * M * N",
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


def reference(gate: torch.Tensor, up: torch.Tensor, *, approximate: str) -> torch.Tensor:
    """The gate as Gemma's model file spells it."""
    return torch.nn.functional.gelu(gate, approximate=approximate) * up


def no_value_outgrows_its_product(
    gate: torch.Tensor, up: torch.Tensor, y: torch.Tensor, **_: object
) -> bool:
    """|y| <= |gate * up|, since GELU takes a share of its argument, and never turns its sign."""
    product = gate.double() * up.double()
    return bool(
        (y.double().abs() <= product.abs() * 1.02 + 1e-6).all() and (y * product >= 0).all()
    )


@triton.jit
def _gelu_times(gate, up, TANH: tl.constexpr):
    gate, up = gate.to(tl.float32), up.to(tl.float32)
    if TANH:
        # (1 + tanh(t)) / 2 = sigmoid(2 t) = 1 / (1 + 2^(-2 log2(e) t)), which no large t can break;
        # exp2 lets what is below 2^-126 be zero, tl.sigmoid spends three instructions to keep it
        less = 1.0 + tl.exp2(gate * (-2.302208198144325 - 0.1029432395800235 * gate * gate))
        return gate / less * up
    return gate * (0.5 + 0.5 * tl.erf(0.7071067811865476 * gate)) * up


@triton.jit
def _geglu_block(
    gate_ptr, up_ptr, y_ptr, N, gate_stride, up_stride, y_stride,
    TANH: tl.constexpr, FLAT: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
    CACHE: tl.constexpr, HINT: tl.constexpr, Y_HINT: tl.constexpr,
):  # fmt: skip
    if FLAT:
        row, start = 0, tl.program_id(0).to(tl.int64) * BLOCK
    else:
        blocks = tl.cdiv(N, BLOCK)
        row = (tl.program_id(0) // blocks).to(tl.int64)
        start = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK
    gate_ptr += row * gate_stride + start
    up_ptr += row * up_stride + start
    y_ptr += row * y_stride + start
    col = tl.arange(0, BLOCK)
    if EVEN or start + BLOCK <= N:
        gate = tl.load(gate_ptr + col, cache_modifier=CACHE, eviction_policy=HINT)
        up = tl.load(up_ptr + col, cache_modifier=CACHE, eviction_policy=HINT)
        y = _gelu_times(gate, up, TANH).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + col, y, eviction_policy=Y_HINT)
    else:
        inside = start + col < N
        gate = tl.load(gate_ptr + col, mask=inside, other=0.0)
        up = tl.load(up_ptr + col, mask=inside, other=0.0)
        y = _gelu_times(gate, up, TANH).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + col, y, mask=inside)


#: By LOAD: the cache modifier and the eviction policy of gate and up.
_LOADS = (("", ""), (".cg", ""), ("", "evict_first"))


def geglu(
    gate: torch.Tensor, up: torch.Tensor, *, approximate: str = "tanh",
    BLOCK: int, STREAM: int, LOAD: int, num_warps: int,
) -> torch.Tensor:  # fmt: skip
    """Launch one program for each block of each row."""
    M, N = gate.shape
    gate, up = (t if t.stride(1) == 1 else t.contiguous() for t in (gate, up))
    y = torch.empty((M, N), dtype=gate.dtype, device=gate.device)
    if M == 0:
        return y
    flat = gate.is_contiguous() and up.is_contiguous()
    rows, width = (1, M * N) if flat else (M, N)
    cache, hint = _LOADS[LOAD]
    _geglu_block[(rows * triton.cdiv(width, BLOCK),)](
        gate, up, y, width, gate.stride(0), up.stride(0), y.stride(0),
        TANH=approximate == "tanh", FLAT=flat, EVEN=width % BLOCK == 0, BLOCK=BLOCK,
        CACHE=cache, HINT=hint, Y_HINT="evict_first" if STREAM else "", num_warps=num_warps,
    )  # fmt: skip
    return y


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(no_value_outgrows_its_product,),
    kernel=geglu,
    space=Space(
        {
            "BLOCK": (1024, 128, 256, 512, 2048, 4096),
            "STREAM": (0, 1),
            "LOAD": (0, 1, 2),
            "num_warps": (4, 1, 2, 8),
        },
        constraints=(
            # 4 to 32 values a thread; 2, and short programs, where latency is most of the time
            "BLOCK >= (64 if M * N * itemsize <= 33554432 else 128) * num_warps",
            "BLOCK <= 1024 * num_warps and (BLOCK >= 512 or M * N * itemsize <= 33554432)",
            # what fits in L2 may be wanted from there next
            "STREAM + LOAD == 0 or M * N * itemsize > 33554432",
        ),
    ),
    backward="geglu_backward",
)
