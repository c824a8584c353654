"""One step of AdamW on a list of bfloat16 parameters, in place, rounded stochastically.

    m  <- m + (1 - beta1) * (g - m)
    v  <- beta2 * v + (1 - beta2) * g^2
    p  <- (1 - lr * weight_decay) * p - lr / (1 - beta1^step) * m / (sqrt(v_) + eps)
    v_ =  v / (1 - beta2^step)

Between two neighbours in bfloat16, p becomes either, the likelier the nearer it is, so that on
average it moves by its update. Rounded to nearest, it stays where it is for as long as the update
is less than half of their distance: 1/512 to 1/256 of p.

params p, grads g  lists of (n,), any stride, bfloat16; exp_avgs m, exp_avg_sqs v of the same sizes,
        float32: a step takes at most a share of 1 - beta2 from v, 1/1000, and in bfloat16, rounded
        to nearest, v would never fall
seed    (1,) int64, read on the device, another at each step: `seed.add_(1)`. As a number from the
        host, Triton would compile again for 1, for multiples of 16 and beyond 32 bits, and an
        exported op would take the reference, for it runs the kernel at no whole number that was not
        judged. For that reason `step` is a float
dtype   float32 inside; p rounded once at the end
truth   the unrounded step. The reference rounds to nearest, with an error of half a bfloat16 step
        at most; here it is less than one, and the judge's bound for bfloat16 allows two. It cannot
        tell these two roundings apart, nor can it know the draw: the law counts draws
moves   reads p, g, m and v once, writes p, m and v once
plan    as adamw, drawing while the loads are on their way. Philox's key is the seed, its counter
        the value's place in the whole list // 8 (each tensor begins a count): a call (40
        multiplications) gives 128 bits, 16 for a value, and its 8 values are one thread's. No two
        values share bits, and neither the setting nor how the list is cut changes them
"""

import torch
import triton
import triton.language as tl

from kernel_library.recipe import Scales, Uniform
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload
from kernel_library.unit import Unit

OP = OpSpec(
    name="adamw_bf16",
    inputs={
        "params": Tensor("n", count="len(n)"),
        "grads": Tensor("n", count="len(n)"),
        "exp_avgs": Tensor("n", "float32", count="len(n)"),
        "exp_avg_sqs": Tensor("n", "float32", Scales(1e-4, 1.0), count="len(n)"),
        "seed": Tensor("1", "int64", Uniform(0.0, 2.0**48)),
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
        Workload({"n": (1, 127, 2049)}, {"T": "bfloat16"}),
        Workload({"n": (31, 5000, 8)}, {"T": "bfloat16"}, options={"lr": 0.1, "step": 1000.0}),
        # updates of a tenth of a bfloat16 step, and less
        Workload(
            {"n": (4999, 16)},
            {"T": "bfloat16"},
            options={"lr": 1e-4, "weight_decay": 0.0, "step": 1000.0},
        ),
        *(
            Workload({"n": n}, {"T": "bfloat16"}, "measure")
            for n in ((4096, 1 << 28, 127), (4096, 1 << 20, 1 << 20), (1, 5001, 100003))
        ),
    ),
)


def reference(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor],
    exp_avg_sqs: list[torch.Tensor],
    seed: torch.Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: float,
) -> None:
    """The step as PyTorch's AdamW takes it, in float32, rounded to nearest whatever the seed."""
    for p, g, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        wide = g.float()
        m.lerp_(wide.to(m.dtype), 1 - beta1)
        v.mul_(beta2).add_((1 - beta2) * wide.square())
        away = m / ((v / (1 - beta2**step)).sqrt() + eps)
        kept = p.float() * (1 - lr * weight_decay)
        p.copy_((kept - lr / (1 - beta1**step) * away).to(p.dtype))


def rounding_is_a_fair_draw(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor],
    exp_avg_sqs: list[torch.Tensor],
    seed: torch.Tensor,
    *written: torch.Tensor,
    **options: float,
) -> bool:
    """Each p is a neighbour of its true value: as often the outer one, and as often the farther
    one, as their distances say, to 5 standard deviations. Rounding to nearest has no farther ones.
    """
    p, g, m, v = ([t.double() for t in x] for x in (params, grads, exp_avgs, exp_avg_sqs))
    reference(p, g, m, v, seed, **options)
    true, got = torch.cat(p), torch.cat(written[: len(params)]).double()
    bits = true.float().view(torch.int32) & -(1 << 16)
    inner, outer = (b.view(torch.float32).double() for b in (bits, bits + (1 << 16)))
    share, out = (true - inner) / (outer - inner), (got - inner) / (outer - inner)
    farther, chance = (out != share.round()).double(), torch.minimum(share, 1 - share)
    most = 5 * (share * (1 - share)).sum().sqrt() + 1
    fair = (out - share).sum().abs() <= most and (farther - chance).sum().abs() <= most
    return bool(((out == 0) | (out == 1)).all() and fair)


@triton.jit
def _step(p, g, m, v, rate, m_share, beta2, v_share, eps, kept, v_scale):
    p, g = p.to(tl.float32), g.to(tl.float32)
    m += m_share * (g - m)
    v = beta2 * v + v_share * (g * g)
    return p * kept - rate * (m / (tl.sqrt(v * v_scale) + eps)), m, v


@triton.jit
def _draw(seed, first, BLOCK: tl.constexpr):
    """16 random bits for each value of a block, from 8 values' worth at each count from first."""
    a, b, c, d = tl.randint4x(seed, first + tl.arange(0, BLOCK // 8))
    words = tl.interleave(tl.interleave(a, c), tl.interleave(b, d)).to(tl.uint32, bitcast=True)
    return tl.interleave(words & 0xFFFF, words >> 16)


@triton.jit
def _round(x, draw):
    # a carry out of the lower half goes to the outer neighbour; NaN must not carry into infinity
    bits = x.to(tl.uint32, bitcast=True) + draw
    bits = tl.where(x == x, bits, 0x7FC00000)
    return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit(do_not_specialize=["first"])
def _adamw_bf16_blocks(
    ps, gs, ms, vs, seed_ptr, first, sizes, p_strides, g_strides, m_strides, v_strides,
    rate, m_share, beta2, v_share, eps, kept, v_scale, BLOCK: tl.constexpr,
):  # fmt: skip
    seed = tl.load(seed_ptr)
    # which tensor this program is of, which block of it, and at which count its draws begin
    p_ptr, g_ptr, m_ptr, v_ptr = ps[0], gs[0], ms[0], vs[0]
    p_stride, g_stride, m_stride, v_stride = p_strides[0], g_strides[0], m_strides[0], v_strides[0]
    block, n, count = tl.program_id(0), sizes[0] >> 1, tl.cast(first, tl.int64)
    passed, counted = tl.cdiv(n, BLOCK), count + tl.cdiv(n, 8)
    for i in tl.static_range(1, len(ps)):
        later = tl.program_id(0) >= passed
        p_ptr, p_stride = tl.where(later, ps[i], p_ptr), tl.where(later, p_strides[i], p_stride)
        g_ptr, g_stride = tl.where(later, gs[i], g_ptr), tl.where(later, g_strides[i], g_stride)
        m_ptr, m_stride = tl.where(later, ms[i], m_ptr), tl.where(later, m_strides[i], m_stride)
        v_ptr, v_stride = tl.where(later, vs[i], v_ptr), tl.where(later, v_strides[i], v_stride)
        block = tl.where(later, tl.program_id(0) - passed, block)
        n = tl.where(later, sizes[i] >> 1, n)
        count = tl.where(later, counted, count)
        passed += tl.cdiv(sizes[i] >> 1, BLOCK)
        counted += tl.cdiv(sizes[i] >> 1, 8)
    # a scalar start, and lanes apart: of 64-bit places for each lane came 96 registers, not 56
    start, lane = block.to(tl.int64) * BLOCK, tl.arange(0, BLOCK)
    wide = lane.to(tl.int64)
    count += start // 8
    p_ptr = p_ptr + start * p_stride + wide * p_stride
    g_ptr = g_ptr + start * g_stride + wide * g_stride
    m_ptr = m_ptr + start * m_stride + wide * m_stride
    v_ptr = v_ptr + start * v_stride + wide * v_stride
    if start + BLOCK <= n:
        # without a mask, loads are 16 bytes wide whatever n is
        p, g, m, v = tl.load(p_ptr), tl.load(g_ptr), tl.load(m_ptr), tl.load(v_ptr)
        # drawn while they are on their way
        draw = _draw(seed, count, BLOCK)
        p, m, v = _step(p, g, m, v, rate, m_share, beta2, v_share, eps, kept, v_scale)
        tl.store(p_ptr, _round(p, draw))
        tl.store(m_ptr, m)
        tl.store(v_ptr, v)
    else:
        inside = lane < (n - start).to(tl.int32)
        p = tl.load(p_ptr, mask=inside, other=0.0)
        g = tl.load(g_ptr, mask=inside, other=0.0)
        m = tl.load(m_ptr, mask=inside, other=0.0)
        v = tl.load(v_ptr, mask=inside, other=0.0)
        draw = _draw(seed, count, BLOCK)
        p, m, v = _step(p, g, m, v, rate, m_share, beta2, v_share, eps, kept, v_scale)
        tl.store(p_ptr, _round(p, draw), mask=inside)
        tl.store(m_ptr, m, mask=inside)
        tl.store(v_ptr, v, mask=inside)


def adamw_bf16(
    params: list[torch.Tensor], grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor], exp_avg_sqs: list[torch.Tensor], seed: torch.Tensor, *,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 0.01, step: float = 1.0, BLOCK: int, TENSORS: int, num_warps: int,
) -> None:  # fmt: skip
    """Launch once for each TENSORS tensors."""
    all_four = zip(params, grads, exp_avgs, exp_avg_sqs, strict=True)
    held = [four for four in all_four if four[0].numel() > 0]
    count = 0
    for first in range(0, len(held), TENSORS):
        lists = tuple(zip(*held[first : first + TENSORS], strict=True))
        # as odd numbers: Triton would compile for each pattern of sizes that 16 divides
        sizes = tuple(2 * p.numel() + 1 for p in lists[0])
        strides = (tuple(tensor.stride(0) for tensor in each) for each in lists)
        _adamw_bf16_blocks[(sum(triton.cdiv(p.numel(), BLOCK) for p in lists[0]),)](
            *lists, seed, count, sizes, *strides, lr / (1 - beta1**step), 1 - beta1, beta2,
            1 - beta2, eps, 1 - lr * weight_decay, 1 / (1 - beta2**step),
            BLOCK=BLOCK, num_warps=num_warps,
        )  # fmt: skip
        count += sum(triton.cdiv(p.numel(), 8) for p in lists[0])


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(rounding_is_a_fair_draw,),
    kernel=adamw_bf16,
    space=Space(
        # 8 values a thread: one Philox call for them, and 16 bytes of p
        {"BLOCK": (1024, 128, 256, 512, 2048, 4096), "TENSORS": (16, 1), "num_warps": (4, 1, 2, 8)},
        # launches of less than 2^18 values have no two blocks of 1024 for each of 132 SMs
        rule={
            "BLOCK": "1024 if sum(n) >= 16384 * max(16, len(n)) else 256",
            "num_warps": "4 if sum(n) >= 16384 * max(16, len(n)) else 1",
        },
        constraints=("BLOCK >= 128 * num_warps and BLOCK <= 1024 * num_warps",),
    ),
)
