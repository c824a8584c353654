"""Gradients scaled down to a norm of one."""

import torch


def reference(gs):
    n = torch.stack([g.norm() for g in gs]).norm()
    c = (1.0 / (n + 1e-6)).clamp(max=1)
    return [g * c for g in gs]


def get_inputs():
    return [[torch.randn(100), torch.randn(60)]]
