"""Cumulative sums that begin with zero."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        e = torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), x), dim=1)[:, :-1]
        return torch.cumsum(e, dim=1)


def get_inputs():
    return [torch.randn(6, 40)]
