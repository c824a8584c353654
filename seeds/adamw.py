"""One step of AdamW on a list of parameters, in place.

    m  <- m + (1 - beta1) * (g - m)
    v  <- beta2 * v + (1 - beta2) * g^2
    p  <- (1 - lr * weight_decay) * p - lr / (1 - beta1^step) * m / (sqrt(v_) + eps)
    v_ =  v / (1 - beta2^step)

params p, grads g  lists of (n,), any stride; exp_avgs m, exp_avg_sqs v of the same sizes, float32
dtype   p and g float32, float16, bfloat16; float32 inside, p rounded once at the end
moves   reads p, g, m and v once, writes p, m and v once
plan    one launch for TENSORS tensors, one program per BLOCK neighbouring values of one of them,
        which it finds by counting; the corrections for the step, and 1 - beta, are scalars of the
        launch, worked out in float64 on the host: in float32, 1 - 0.999 is off by 2e-5 of itself;
        `step` is a float, for an exported kernel is free in those, and takes whole numbers only as
        it was judged at them
"""

import torch
import triton
import triton.language as tl

from kernel_library.recipe import Scales
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload
from kernel_library.unit import Unit

OP = OpSpec(
    name="adamw",
    inputs={
        "params": Tensor("n", count="len(n)"),
        "grads": Tensor("n", count="len(n)"),
        "exp_avgs": Tensor("n", "float32", count="len(n)"),
        "exp_avg_sqs": Tensor("n", "float32", Scales(1e-4, 1.0), count="len(n)"),
    },
    outputs={},
    mutates=("params", "exp_avgs", "exp_avg_sqs"),
    options={
        "lr": Option(1e-3),
        "beta1": Option(0.9),
        "beta2": Option(0.999),
        "eps": Option(1e-8),
        "weight_decay": Option(0.01),
        "step": Option(1.0),
    },
    flops="15 * sum(n)",
    workloads=(
        *(
            Workload({"n": (1, 127, 2049)}, {"T": dtype})
            for dtype in ("float32", "float16", "bfloat16")
        ),
        Workload({"n": (31, 5000, 8)}, {"T": "float32"}, options={"lr": 0.1, "step": 1000.0}),
        Workload({"n": (63, 1025)}, {"T": "bfloat16"}, options={"weight_decay": 0.0, "step": 7.0}),
        *(
            Workload({"n": n}, {"T": "float32"}, "measure")
            for n in ((4096, 1 << 28, 127), (4096, 1 << 20, 1 << 20), (1, 5001, 100003))
        ),
    ),
)


def reference(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor],
    exp_avg_sqs: list[torch.Tensor],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: float,
) -> None:
    """The step as PyTorch's AdamW takes it, in float32."""
    for p, g, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        wide = g.float()
        m.lerp_(wide.to(m.dtype), 1 - beta1)
        v.mul_(beta2).add_((1 - beta2) * wide.square())
        away = m / ((v / (1 - beta2**step)).sqrt() + eps)
        kept = p.float() * (1 - lr * weight_decay)
        p.copy_((kept - lr / (1 - beta1**step) * away).to(p.dtype))


def second_moments_stay_positive(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor],
    exp_avg_sqs: list[torch.Tensor],
    *written: torch.Tensor,
    **_: object,
) -> bool:
    """v is a mean of squares."""
    return all(bool((v >= 0).all()) for v in written[2 * len(params) :])


@triton.jit
def _step(p, g, m, v, rate, m_share, beta2, v_share, eps, kept, v_scale):
    p, g = p.to(tl.float32), g.to(tl.float32)
    m += m_share * (g - m)
    v = beta2 * v + v_share * (g * g)
    return p * kept - rate * (m / (tl.sqrt(v * v_scale) + eps)), m, v


@triton.jit
def _adamw_blocks(
    ps, gs, ms, vs, sizes, p_strides, g_strides, m_strides, v_strides,
    rate, m_share, beta2, v_share, eps, kept, v_scale, BLOCK: tl.constexpr,
):  # fmt: skip
    # which tensor this program is of, and which block of it
    p_ptr, g_ptr, m_ptr, v_ptr = ps[0], gs[0], ms[0], vs[0]
    p_stride, g_stride, m_stride, v_stride = p_strides[0], g_strides[0], m_strides[0], v_strides[0]
    block, n = tl.program_id(0), sizes[0] >> 1
    passed = tl.cdiv(n, BLOCK)
    for i in tl.static_range(1, len(ps)):
        later = tl.program_id(0) >= passed
        p_ptr, p_stride = tl.where(later, ps[i], p_ptr), tl.where(later, p_strides[i], p_stride)
        g_ptr, g_stride = tl.where(later, gs[i], g_ptr), tl.where(later, g_strides[i], g_stride)
        m_ptr, m_stride = tl.where(later, ms[i], m_ptr), tl.where(later, m_strides[i], m_stride)
        v_ptr, v_stride = tl.where(later, vs[i], v_ptr), tl.where(later, v_strides[i], v_stride)
        block = tl.where(later, tl.program_id(0) - passed, block)
        n = tl.where(later, sizes[i] >> 1, n)
        passed += tl.cdiv(sizes[i] >> 1, BLOCK)
    start = block.to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    dtype = p_ptr.dtype.element_ty
    p_ptr += at * p_stride
    g_ptr += at * g_stride
    m_ptr += at * m_stride
    v_ptr += at * v_stride
    if start + BLOCK <= n:
        # without a mask, loads are 16 bytes wide whatever n is
        p, g, m, v = tl.load(p_ptr), tl.load(g_ptr), tl.load(m_ptr), tl.load(v_ptr)
        p, m, v = _step(p, g, m, v, rate, m_share, beta2, v_share, eps, kept, v_scale)
        tl.store(p_ptr, p.to(dtype))
        tl.store(m_ptr, m)
        tl.store(v_ptr, v)
    else:
        inside = at < n
        p = tl.load(p_ptr, mask=inside, other=0.0)
        g = tl.load(g_ptr, mask=inside, other=0.0)
        m = tl.load(m_ptr, mask=inside, other=0.0)
        v = tl.load(v_ptr, mask=inside, other=0.0)
        p, m, v = _step(p, g, m, v, rate, m_share, beta2, v_share, eps, kept, v_scale)
        tl.store(p_ptr, p.to(dtype), mask=inside)
        tl.store(m_ptr, m, mask=inside)
        tl.store(v_ptr, v, mask=inside)


def adamw(
    params: list[torch.Tensor], grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor], exp_avg_sqs: list[torch.Tensor], *,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 0.01, step: float = 1.0, BLOCK: int, TENSORS: int, num_warps: int,
) -> None:  # fmt: skip
    """Launch once for each TENSORS tensors."""
    all_four = zip(params, grads, exp_avgs, exp_avg_sqs, strict=True)
    held = [four for four in all_four if four[0].numel() > 0]
    for first in range(0, len(held), TENSORS):
        lists = tuple(zip(*held[first : first + TENSORS], strict=True))
        # as odd numbers: Triton would compile for each pattern of sizes that 16 divides
        sizes = tuple(2 * p.numel() + 1 for p in lists[0])
        strides = (tuple(tensor.stride(0) for tensor in each) for each in lists)
        _adamw_blocks[(sum(triton.cdiv(p.numel(), BLOCK) for p in lists[0]),)](
            *lists, sizes, *strides, lr / (1 - beta1**step), 1 - beta1, beta2, 1 - beta2, eps,
            1 - lr * weight_decay, 1 / (1 - beta2**step), BLOCK=BLOCK, num_warps=num_warps,
        )  # fmt: skip


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(second_moments_stay_positive,),
    kernel=adamw,
    space=Space(
        # 8 values of each of four tensors a thread: eight loads of 16 bytes in flight
        {"BLOCK": (1024, 512, 2048, 4096), "TENSORS": (16, 1), "num_warps": (4, 2, 8)},
        constraints=("BLOCK >= 128 * num_warps and BLOCK <= 1024 * num_warps",),
    ),
)
