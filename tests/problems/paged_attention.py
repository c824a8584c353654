"""Decode attention over a paged cache."""

import torch

B, H, KVH, D, P, BS, MAXB = 8, 8, 2, 64, 96, 16, 12


def reference(q, key_cache, value_cache, block_tables, seq_lens):
    b, h, d = q.shape
    k = key_cache[block_tables].reshape(b, -1, key_cache.shape[2], d)
    v = value_cache[block_tables].reshape(b, -1, key_cache.shape[2], d)
    g = h // k.shape[2]
    k = k.repeat_interleave(g, 2)
    v = v.repeat_interleave(g, 2)
    s = torch.einsum("bhd,bshd->bhs", q, k) * d**-0.5
    pos = torch.arange(k.shape[1], device=q.device)
    s = s.masked_fill(pos[None, None] >= seq_lens[:, None, None], float("-inf"))
    return torch.einsum("bhs,bshd->bhd", s.softmax(-1), v)


def get_inputs():
    return [
        torch.randn(B, H, D),
        torch.randn(P, BS, KVH, D),
        torch.randn(P, BS, KVH, D),
        torch.randint(0, P, (B, MAXB), dtype=torch.int32),
        torch.randint(1, MAXB * BS + 1, (B,), dtype=torch.int32),
    ]
