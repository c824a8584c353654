"""Rows scaled to float8."""

import torch


def reference(x):
    s = x.abs().amax(-1, keepdim=True).clamp(min=1e-8).float() / 448
    return (x.float() / s).to(torch.float8_e4m3fn), s


def get_inputs():
    return [torch.randn(16, 128, dtype=torch.bfloat16)]
