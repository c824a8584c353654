"""Means over as many tokens as each sequence has."""

import torch


def reference(x, lengths):
    pos = torch.arange(x.shape[1], device=x.device)
    keep = (pos[None] < lengths[:, None])[..., None].to(x.dtype)
    return (x * keep).sum(1) / lengths[:, None].clamp(min=1).to(x.dtype)


def get_inputs():
    return [torch.randn(16, 100, 32), torch.randint(0, 101, (16,))]
