"""Logits of tokens that were seen, pushed down."""

import torch


def reference(logits, ids):
    s = logits.gather(1, ids)
    s = torch.where(s < 0, s * 1.2, s / 1.2)
    return logits.scatter(1, ids, s)


def get_inputs():
    ids = torch.stack([torch.randperm(50)[:6] for _ in range(8)])
    return [torch.randn(8, 50), ids]
