"""A causal depthwise convolution of four taps."""

import torch
import torch.nn.functional as F


def reference(x, w, b):
    return F.silu(F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=x.shape[1]))


def get_inputs():
    return [torch.randn(2, 16, 40), torch.randn(16, 4), torch.randn(16)]
