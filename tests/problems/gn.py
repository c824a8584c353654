"""Group norm."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.GroupNorm(num_groups=4, num_channels=16)

    def forward(self, x):
        return self.n(x)


def get_inputs():
    return [torch.randn(4, 16, 10, 9)]
