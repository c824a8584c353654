"""A convolution and a linear layer over a view of its image."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 8, 3)
        self.f = nn.Linear(8 * 10 * 12, 10)

    def forward(self, x):
        x = F.relu(self.c(x))
        x = x.view(x.size(0), -1)
        return self.f(x)


def get_inputs():
    return [torch.randn(2, 3, 12, 14)]
