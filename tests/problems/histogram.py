"""How many values fall into each of 16 bins."""

import torch


def reference(x):
    return torch.histc(x, bins=16, min=-3, max=3)


def get_inputs():
    return [torch.randn(500)]
