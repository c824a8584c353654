"""Channels dealt out anew, by views."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        b, c, h, w = x.size()
        x = x.view(b, 4, c // 4, h, w)
        x = torch.transpose(x, 1, 2).contiguous()
        return x.view(b, -1, h, w)


def get_inputs():
    return [torch.randn(2, 16, 8, 9)]
