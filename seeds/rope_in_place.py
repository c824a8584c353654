"""Rotary position embedding of queries and keys in place, each token at a position of its own.

    p = positions[b, s]; (x, y) is a pair of neighbours among the first R entries of one head:
    entries n and n + R/2, or interleaved 2n and 2n + 1; the rest of the head stays as it is
    x <- x * cos[p, n] - y * sin[p, n]
    y <- y * cos[p, n] + x * sin[p, n]

q (B, S, Hq, D), k (B, S, Hk, D)  any strides, written; positions (B, S) int64, any strides
cos, sin (P, R/2)                 tables, any stride of P; a position outside them gives NaN
dtype     float32, float16, bfloat16; float32 inside
moves     reads and writes the first R entries of each head once, reads positions once; rows of
          cos and sin mostly from L2, for positions recur
plan      SPLIT programs per token, each with its share of the heads of q and of k; where heads
          are small or few, for several tokens; all loads of a program come before its stores
"""

import torch
import triton
import triton.language as tl

from kernel_library.recipe import Index
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="rope_in_place",
    inputs={
        "q": Tensor("B S Hq D"),
        "k": Tensor("B S Hk D"),
        "cos": Tensor("P R//2"),
        "sin": Tensor("P R//2"),
        "positions": Tensor("B S", "int64", Index("P")),
    },
    outputs={},
    mutates=("q", "k"),
    options={"interleaved": Option(False, (False, True))},
    flops="3 * B * S * (Hq + Hk) * R",
    # how many rows of the tables are read, positions alone know: at least one of them
    bytes="T_bytes * (2 * B * S * (Hq + Hk) * R + R) + 8 * B * S",
    constraints=(
        "B >= 0", "S >= 0", "Hq >= 1", "Hk >= 1", "P >= 1",
        "R >= 2", "R % 2 == 0", "R <= D", "D <= 1024",
    ),
    workloads=(
        *grid(
            "B S Hq Hk D R P",
            {"check": [(1, 1, 1, 1, 2, 2, 3), (2, 3, 3, 1, 96, 96, 50), (1, 5, 8, 2, 64, 32, 7)]},
            dtypes=("float32", "float16", "bfloat16"),
        ),
        Workload(
            {"B": 2, "S": 5, "Hq": 4, "Hk": 3, "D": 10, "R": 6, "P": 16},
            {"T": "bfloat16"},
            options={"interleaved": True},
        ),
        Workload(
            {"B": 2, "S": 3, "Hq": 6, "Hk": 2, "D": 128, "R": 128, "P": 9},
            {"T": "float32"},
            options={"interleaved": True},
        ),
        *grid(
            "B S Hq Hk D R P",
            {
                "measure": [
                    (4, 4096, 32, 8, 128, 128, 8192),
                    (16, 1, 32, 8, 128, 128, 8192),
                    (1, 2047, 20, 5, 80, 40, 4096),
                ]
            },
            dtypes=("bfloat16",),
        ),
    ),
)  # fmt: skip


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    *,
    interleaved: bool,
) -> None:
    """The rotation in float32, of halves as Llama pairs them or of neighbours as GPT-J does."""
    c, s = (table[positions].float()[:, :, None, :] for table in (cos, sin))
    for heads in (q, k):
        part = heads[..., : 2 * cos.shape[-1]]
        wide = part.float()
        if interleaved:
            x, y = wide[..., 0::2], wide[..., 1::2]
            turned = torch.stack([x * c - y * s, y * c + x * s], -1).flatten(-2)
        else:
            x, y = wide.chunk(2, -1)
            turned = torch.cat([x * c - y * s, y * c + x * s], -1)
        part.copy_(turned.to(part.dtype))


def pairs_keep_their_length(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    q_out: torch.Tensor,
    k_out: torch.Tensor,
    *,
    interleaved: bool,
) -> bool:
    """x^2 + y^2 grows by cos^2 + sin^2, which is 1 for a true rotation; the rest is the same."""
    R = 2 * cos.shape[-1]

    def squares(heads: torch.Tensor) -> torch.Tensor:
        part = heads[..., :R]
        x, y = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
        return x.double().square() + y.double().square()

    scale = (cos.double().square() + sin.double().square())[positions][:, :, None, :]
    return all(
        torch.allclose(squares(after), squares(before) * scale, rtol=2e-2, atol=1e-4)
        and torch.equal(after[..., R:], before[..., R:])
        for before, after in ((q, q_out), (k, k_out))
    )


@triton.jit
def _token(TOKENS_IN_ALL, HEADS: tl.constexpr, TOKENS: tl.constexpr):
    """The token of each of this program's rows, and whether there is one."""
    if TOKENS == 1:
        # one token: cos and sin are one row, whatever the heads are
        token = tl.program_id(0).to(tl.int64)
    else:
        row = tl.arange(0, TOKENS * HEADS)[:, None]
        token = tl.program_id(0).to(tl.int64) * TOKENS + row // HEADS
    return token, token < TOKENS_IN_ALL


@triton.jit
def _position(positions_ptr, token, there, S, b_stride, s_stride):
    return tl.load(
        positions_ptr + token // S * b_stride + token % S * s_stride, mask=there, other=0
    )


@triton.jit
def _angles(
    cos_ptr, sin_ptr, p, P, cos_stride, sin_stride, HALF: tl.constexpr, BLOCK: tl.constexpr
):
    col = tl.arange(0, BLOCK)[None, :]
    known = (p >= 0) & (p < P) & (col < HALF)
    cos = tl.load(cos_ptr + p * cos_stride + col, mask=known, other=float("nan"))
    sin = tl.load(sin_ptr + p * sin_stride + col, mask=known, other=0.0)
    return cos.to(tl.float32), sin.to(tl.float32)


@triton.jit
def _heads(
    x_ptr, token, there, S, H, b_stride, s_stride, h_stride,
    HEADS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Where this program's share of the heads of its tokens begins, a row each."""
    row = tl.arange(0, TOKENS * HEADS)[:, None]
    head = (tl.program_id(1) + tl.num_programs(1) * (row % HEADS)).to(tl.int64)
    at = x_ptr + token // S * b_stride + token % S * s_stride + head * h_stride
    return at, there & (head < H)


@triton.jit
def _load(at, inside, d_stride, HALF: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    """The pairs of each row, in float32."""
    if TURNS:
        col = tl.arange(0, 2 * BLOCK).to(tl.int64)[None, :]
        pairs = tl.load(at + col * d_stride, mask=inside & (col < 2 * HALF), other=0.0)
        x, y = tl.split(tl.reshape(pairs, (at.shape[0], BLOCK, 2)))
    else:
        col = tl.arange(0, BLOCK).to(tl.int64)[None, :]
        x = tl.load(at + col * d_stride, mask=inside & (col < HALF), other=0.0)
        y = tl.load(at + (HALF + col) * d_stride, mask=inside & (col < HALF), other=0.0)
    return x.to(tl.float32), y.to(tl.float32)


@triton.jit
def _store(
    at, inside, d_stride, x, y, cos, sin,
    HALF: tl.constexpr, BLOCK: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """The pairs of each row, turned."""
    dtype = at.dtype.element_ty
    x, y = (x * cos - y * sin).to(dtype), (y * cos + x * sin).to(dtype)
    if TURNS:
        col = tl.arange(0, 2 * BLOCK).to(tl.int64)[None, :]
        pairs = tl.reshape(tl.join(x, y), (at.shape[0], 2 * BLOCK))
        tl.store(at + col * d_stride, pairs, mask=inside & (col < 2 * HALF))
    else:
        col = tl.arange(0, BLOCK).to(tl.int64)[None, :]
        tl.store(at + col * d_stride, x, mask=inside & (col < HALF))
        tl.store(at + (HALF + col) * d_stride, y, mask=inside & (col < HALF))


@triton.jit
def _rope_tokens(
    q_ptr, k_ptr, cos_ptr, sin_ptr, positions_ptr, TOKENS_IN_ALL, S, Hq, Hk, P,
    q_b, q_s, q_h, q_d, k_b, k_s, k_h, k_d, cos_stride, sin_stride, p_b, p_s,
    HALF: tl.constexpr, BLOCK: tl.constexpr, HEADS_Q: tl.constexpr, HEADS_K: tl.constexpr,
    TOKENS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    q_token, q_there = _token(TOKENS_IN_ALL, HEADS_Q, TOKENS)
    k_token, k_there = _token(TOKENS_IN_ALL, HEADS_K, TOKENS)
    # positions first: their angles wait for them, heads do not
    q_p = _position(positions_ptr, q_token, q_there, S, p_b, p_s)
    k_p = _position(positions_ptr, k_token, k_there, S, p_b, p_s)
    q_at, q_inside = _heads(q_ptr, q_token, q_there, S, Hq, q_b, q_s, q_h, HEADS_Q, TOKENS)
    k_at, k_inside = _heads(k_ptr, k_token, k_there, S, Hk, k_b, k_s, k_h, HEADS_K, TOKENS)
    q_x, q_y = _load(q_at, q_inside, q_d, HALF, BLOCK, TURNS)
    k_x, k_y = _load(k_at, k_inside, k_d, HALF, BLOCK, TURNS)
    q_cos, q_sin = _angles(cos_ptr, sin_ptr, q_p, P, cos_stride, sin_stride, HALF, BLOCK)
    k_cos, k_sin = _angles(cos_ptr, sin_ptr, k_p, P, cos_stride, sin_stride, HALF, BLOCK)
    # where a tile is smaller than the program, its values lie in several warps: none may be
    # written before all have read it
    tl.debug_barrier()
    _store(q_at, q_inside, q_d, q_x, q_y, q_cos, q_sin, HALF, BLOCK, TURNS)
    _store(k_at, k_inside, k_d, k_x, k_y, k_cos, k_sin, HALF, BLOCK, TURNS)


def rope_in_place(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
    positions: torch.Tensor, *, interleaved: bool = False, SPLIT: int, num_warps: int,
) -> None:  # fmt: skip
    """Launch SPLIT programs for each token, or for a few small ones."""
    B, S, Hq, _ = q.shape
    Hk, P, HALF = k.shape[2], *cos.shape
    if B * S == 0:
        return
    cos, sin = (t if t.stride(1) == 1 else t.contiguous() for t in (cos, sin))
    BLOCK = triton.next_power_of_2(HALF)
    # a setting that was tuned at another size must fit here too: 64 values a thread at most
    SPLIT = max(SPLIT, triton.cdiv(2 * BLOCK * triton.next_power_of_2(max(Hq, Hk)), 8192))
    heads_q = triton.next_power_of_2(triton.cdiv(Hq, SPLIT))
    heads_k = triton.next_power_of_2(triton.cdiv(Hk, SPLIT))
    # small heads, or few: a program takes as many tokens as make 1024 values
    TOKENS = max(1, min(64, 512 // (max(heads_q, heads_k) * BLOCK)))
    _rope_tokens[(triton.cdiv(B * S, TOKENS), SPLIT)](
        q, k, cos, sin, positions, B * S, S, Hq, Hk, P,
        *q.stride(), *k.stride(), cos.stride(0), sin.stride(0), *positions.stride(),
        HALF=HALF, BLOCK=BLOCK, HEADS_Q=heads_q, HEADS_K=heads_k, TOKENS=TOKENS,
        TURNS=interleaved, num_warps=num_warps,
    )  # fmt: skip


UNIT = Unit(
    op=OP,
    reference=reference,
    laws=(pairs_keep_their_length,),
    kernel=rope_in_place,
    space=Space(
        {"SPLIT": (1, 2, 4, 8), "num_warps": (4, 1, 2, 8)},
        # as rope: 16 values of q a thread; with few tokens, smaller shares fill more SMs
        rule={
            "SPLIT": "min(8, max(1, pow2(Hq) * pow2(R) // 4096)) if B * S > 264"
            " else min(8, pow2(Hq))",
            "num_warps": "max(1, min(8, min(4096, pow2(Hq) * pow2(R)) // 512)) if B * S > 264"
            " else max(1, min(8, pow2(Hq) // min(8, pow2(Hq)) * pow2(R) // 512))",
        },
        constraints=(
            "SPLIT <= pow2(Hq)",
            # 4 to 64 values of q a thread: fewer waste threads, more spill
            "num_warps == 1 or 128 * num_warps * SPLIT <= pow2(Hq) * pow2(R)",
            "pow2(Hq) * pow2(R) <= 2048 * num_warps * SPLIT or SPLIT * num_warps >= 64",
        ),
    ),
)
