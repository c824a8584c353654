"""Attention that sees as many keys as each sequence has."""

import torch


def reference(q, k, v, lens):
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    seen = torch.arange(k.shape[2])[None] < lens[:, None]
    s = s.masked_fill(~seen[:, None, None], float("-inf"))
    return s.softmax(-1) @ v


def get_inputs():
    q, k, v = torch.randn(3, 3, 4, 20, 16)
    return [q, k, v, torch.randint(1, 21, (3,))]
