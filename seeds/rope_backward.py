"""Gradient of rotary position embedding: the rotation back.

    (a, b) is a pair of neighbours of one head: entries n and n + D/2, or interleaved 2n and 2n + 1
    d_a = d_a_out * cos[s, n] + d_b_out * sin[s, n]
    d_b = d_b_out * cos[s, n] - d_a_out * sin[s, n]

d_q_out, d_q  (B, S, Hq, D); d_k_out, d_k (B, S, Hk, D), any stride of B, S, H; cos, sin (S, D/2)
dtype     float32, float16, bfloat16; float32 inside; cos and sin are tables, and get no gradient
moves     reads d_q_out and d_k_out once, writes d_q and d_k once; cos and sin as rope does
plan      SPLIT programs per token, each with its share of the heads of q, then of k; cos and sin
          are read once for all these heads; where heads are small or few, for several tokens
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="rope_backward",
    inputs={
        "d_q_out": Tensor("B S Hq D"),
        "d_k_out": Tensor("B S Hk D"),
        "cos": Tensor("S D//2"),
        "sin": Tensor("S D//2"),
    },
    outputs={"d_q": Tensor("B S Hq D"), "d_k": Tensor("B S Hk D")},
    options={"interleaved": Option(False, (False, True))},
    flops="3 * B * S * (Hq + Hk) * D",
    constraints=("B >= 0", "S >= 0", "Hq >= 1", "Hk >= 1", "D >= 2", "D <= 1024", "D % 2 == 0"),
    workloads=(
        *grid(
            "B S Hq Hk D",
            {"check": [(1, 1, 1, 1, 2), (2, 3, 3, 1, 96), (1, 5, 8, 2, 64)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload(
            {"B": 2, "S": 5, "Hq": 4, "Hk": 3, "D": 10},
            {"T": "bfloat16"},
            options={"interleaved": True},
        ),
        Workload(
            {"B": 2, "S": 3, "Hq": 6, "Hk": 2, "D": 128},
            {"T": "float32"},
            options={"interleaved": True},
        ),
        *grid(
            "B S Hq Hk D",
            {"measure": [(4, 4096, 32, 8, 128), (16, 1, 32, 8, 128), (1, 2047, 20, 5, 80)]},
            dtypes=("bfloat16",),
        ),
    ),
)


def reference(
    d_q_out: torch.Tensor,
    d_k_out: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    interleaved: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The transposed rotation in float32."""

    def turned_back(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        c, s = cos.float()[None, :, None, :], sin.float()[None, :, None, :]
        if interleaved:
            a, b = wide[..., 0::2], wide[..., 1::2]
            return torch.stack([a * c + b * s, b * c - a * s], -1).flatten(-2).to(x.dtype)
        a, b = wide.chunk(2, -1)
        return torch.cat([a * c + b * s, b * c - a * s], -1).to(x.dtype)

    return turned_back(d_q_out), turned_back(d_k_out)


def pairs_keep_their_length(
    d_q_out: torch.Tensor,
    d_k_out: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    d_q: torch.Tensor,
    d_k: torch.Tensor,
    *,
    interleaved: bool,
) -> bool:
    """d_a^2 + d_b^2 = (d_a_out^2 + d_b_out^2) * (cos^2 + sin^2), as turning forth has it."""

    def squares(x: torch.Tensor) -> torch.Tensor:
        a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
        return a.double().square() + b.double().square()

    scale = (cos.double().square() + sin.double().square())[None, :, None, :]
    return all(
        torch.allclose(squares(out), squares(x) * scale, rtol=2e-2, atol=1e-4)
        for x, out in ((d_q_out, d_q), (d_k_out, d_k))
    )


@triton.jit
def _turn(
    x_ptr, out_ptr, cos_ptr, sin_ptr, TOKENS_IN_ALL, S, H, b_stride, s_stride, h_stride,
    HALF: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr, TOKENS: tl.constexpr,
    TURNS: tl.constexpr,
):  # fmt: skip
    """This program's share of the heads of its tokens, a row each."""
    row = tl.arange(0, TOKENS * HEADS)[:, None]
    head = (tl.program_id(1) + tl.num_programs(1) * (row % HEADS)).to(tl.int64)
    if TOKENS == 1:
        # one token: cos and sin are one row, whatever the heads are
        token = tl.program_id(0).to(tl.int64)
    else:
        token = tl.program_id(0).to(tl.int64) * TOKENS + row // HEADS
    inside = (token < TOKENS_IN_ALL) & (head < H)
    b, s = token // S, token % S
    col = tl.arange(0, BLOCK)[None, :]
    known = (token < TOKENS_IN_ALL) & (col < HALF)
    cos = tl.load(cos_ptr + s * HALF + col, mask=known, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + s * HALF + col, mask=known, other=0.0).to(tl.float32)
    x_ptr += b * b_stride + s * s_stride + head * h_stride
    out_ptr += (token * H + head) * 2 * HALF
    dtype = out_ptr.dtype.element_ty
    if TURNS:
        wide = tl.arange(0, 2 * BLOCK)[None, :]
        x = tl.load(x_ptr + wide, mask=inside & (wide < 2 * HALF), other=0.0).to(tl.float32)
        a, c = tl.split(tl.reshape(x, (TOKENS * HEADS, BLOCK, 2)))
        y = tl.join(a * cos + c * sin, c * cos - a * sin)
        y = tl.reshape(y, (TOKENS * HEADS, 2 * BLOCK)).to(dtype)
        tl.store(out_ptr + wide, y, mask=inside & (wide < 2 * HALF))
    else:
        inside = inside & (col < HALF)
        a = tl.load(x_ptr + col, mask=inside, other=0.0).to(tl.float32)
        c = tl.load(x_ptr + HALF + col, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + col, (a * cos + c * sin).to(dtype), mask=inside)
        tl.store(out_ptr + HALF + col, (c * cos - a * sin).to(dtype), mask=inside)


@triton.jit
def _rope_backward_tokens(
    q_ptr, k_ptr, cos_ptr, sin_ptr, d_q_ptr, d_k_ptr, TOKENS_IN_ALL, S, Hq, Hk,
    q_b, q_s, q_h, k_b, k_s, k_h,
    HALF: tl.constexpr, BLOCK: tl.constexpr, HEADS_Q: tl.constexpr, HEADS_K: tl.constexpr,
    TOKENS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    _turn(
        q_ptr, d_q_ptr, cos_ptr, sin_ptr, TOKENS_IN_ALL, S, Hq, q_b, q_s, q_h,
        HALF, BLOCK, HEADS_Q, TOKENS, TURNS,
    )  # fmt: skip
    _turn(
        k_ptr, d_k_ptr, cos_ptr, sin_ptr, TOKENS_IN_ALL, S, Hk, k_b, k_s, k_h,
        HALF, BLOCK, HEADS_K, TOKENS, TURNS,
    )  # fmt: skip


def rope_backward(
    d_q_out: torch.Tensor, d_k_out: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *,
    interleaved: bool = False, SPLIT: int, num_warps: int,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Launch SPLIT programs for each token, or for a few small ones."""
    B, S, Hq, D = d_q_out.shape
    Hk = d_k_out.shape[2]
    d_q_out, d_k_out = (t if t.stride(3) == 1 else t.contiguous() for t in (d_q_out, d_k_out))
    cos, sin = cos.contiguous(), sin.contiguous()
    d_q = torch.empty((B, S, Hq, D), dtype=d_q_out.dtype, device=d_q_out.device)
    d_k = torch.empty((B, S, Hk, D), dtype=d_k_out.dtype, device=d_k_out.device)
    if B * S == 0:
        return d_q, d_k
    BLOCK = triton.next_power_of_2(D // 2)
    # a setting that was tuned at another size must fit here too: 64 values a thread at most
    SPLIT = max(SPLIT, triton.cdiv(2 * BLOCK * triton.next_power_of_2(max(Hq, Hk)), 8192))
    heads_q = triton.next_power_of_2(triton.cdiv(Hq, SPLIT))
    heads_k = triton.next_power_of_2(triton.cdiv(Hk, SPLIT))
    # small heads, or few: a program takes as many tokens as make 1024 values
    TOKENS = max(1, min(64, 512 // (max(heads_q, heads_k) * BLOCK)))
    _rope_backward_tokens[(triton.cdiv(B * S, TOKENS), SPLIT)](
        d_q_out, d_k_out, cos, sin, d_q, d_k, B * S, S, Hq, Hk,
        *d_q_out.stride()[:3], *d_k_out.stride()[:3],
        HALF=D // 2, BLOCK=BLOCK,
        HEADS_Q=heads_q, HEADS_K=heads_k, TOKENS=TOKENS,
        TURNS=interleaved, num_warps=num_warps,
    )  # fmt: skip
    return d_q, d_k


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(pairs_keep_their_length,),
    kernel=rope_backward,
    space=Space(
        {"SPLIT": (1, 2, 4, 8), "num_warps": (4, 1, 2, 8)},
        # 16 values of q a thread: enough bytes in flight, and few threads without work; with few
        # tokens, smaller shares fill more SMs
        rule={
            "SPLIT": "min(8, max(1, pow2(Hq) * pow2(D) // 4096)) if B * S > 264"
            " else min(8, pow2(Hq))",
            "num_warps": "max(1, min(8, min(4096, pow2(Hq) * pow2(D)) // 512)) if B * S > 264"
            " else max(1, min(8, pow2(Hq) // min(8, pow2(Hq)) * pow2(D) // 512))",
        },
        constraints=(
            "SPLIT <= pow2(Hq)",
            # 4 to 64 values of q a thread: fewer waste threads, more spill
            "num_warps == 1 or 128 * num_warps * SPLIT <= pow2(Hq) * pow2(D)",
            "pow2(Hq) * pow2(D) <= 2048 * num_warps * SPLIT or SPLIT * num_warps >= 64",
        ),
    ),
)
